"""Checksums of what a job is rebuilt from: a damaged byte is told, not acted upon."""

from __future__ import annotations

import hashlib

from squall.errors import CorruptError

_LENGTH = 17  # a line break, 64 bits in hexadecimal


def with_checksum(data: bytes) -> bytes:
    """``data`` as it is stored."""
    return data + _checksum(data)


def checked(stored: memoryview, where: str) -> memoryview:
    """The data, if it is what was stored.

    Raises
    ------
    CorruptError
        If it is not.
    """
    data = stored[: max(0, len(stored) - _LENGTH)]
    if stored[len(data) :] != _checksum(data):
        raise CorruptError(
            "the object has been damaged: its checksum is wrong",
            where=where,
            fix="start the job again (`squall train … --fresh`); `squall clean --interrupted` removes it",
        )
    return data


def _checksum(data: bytes | memoryview) -> bytes:
    return b"\n" + hashlib.blake2b(data, digest_size=8).hexdigest().encode()
