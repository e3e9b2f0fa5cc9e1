"""Versions of the stored format, and what to say of others."""

from __future__ import annotations

import msgspec

from squall.errors import CorruptError

FORMAT_VERSION = 2
PACKED_VERSION = 3
"""Of training partitions that are packed; all others are as they were before there were such."""
KNOWN_VERSIONS = (FORMAT_VERSION, PACKED_VERSION)

_FIX = "remove the data set's folder and read the source again"


class _Version(msgspec.Struct):
    format_version: int


def check_format(manifest: memoryview | bytes, where: str) -> None:
    """Refuse a manifest of another format version, before anything else is made of it.

    Raises
    ------
    CorruptError
        If its version is another, or it is no manifest at all.
    """
    try:
        version = msgspec.json.decode(manifest, type=_Version).format_version
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the object is not a manifest: {error}", where=where, fix=_FIX) from error
    if version not in KNOWN_VERSIONS:
        newer = version > KNOWN_VERSIONS[-1]
        raise CorruptError(
            f"unknown format version {version}: {'a newer' if newer else 'an older'} Squall wrote it, "
            f"and this one reads {KNOWN_VERSIONS[0]} to {KNOWN_VERSIONS[-1]}",
            where=where,
            fix="upgrade Squall" if newer else _FIX,
        )
