"""Which compression a file has, by its first bytes, and what its decompressor says of damage."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable
from typing import Any

from squall.errors import DataError, MissingExtraError

MAGIC_BYTES = 6
"""First bytes of a file that `opener_of` wants to see."""

UNREADABLE = {
    b"PK\x03\x04": "is a zip archive",
    b"PAR1": "is a Parquet file",
}


def _open_zstd(file: Any) -> Any:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "the file is compressed with zstandard, which needs backports.zstd before Python 3.14",
            fix="pip install 'squall[zstd]'",
        ) from error
    return zstd.ZstdFile(file)


OPENERS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": _open_zstd,
}
"""What opens a file that starts with these bytes."""


def opener_of(start: bytes, where: str) -> Callable[[Any], Any] | None:
    """What decompresses a file (given by path or as an open file) with this start; None if it is plain.

    Raises
    ------
    DataError
        If it is empty or of a kind that is not read.
    """
    if not start:
        raise DataError("the file is empty", where=where, fix="check how it was written")
    for magic, what in UNREADABLE.items():
        if start.startswith(magic):
            raise DataError(
                f"the file {what}",
                where=where,
                fix="convert it to UTF-8 text, plain or as .gz, .bz2, .xz, .zst",
            )
    return next((opener for magic, opener in OPENERS.items() if start.startswith(magic)), None)


def is_damage(error: Exception) -> bool:
    """Whether a decompressor says it; Python's for zstandard is a class that may not be installed."""
    damage = (EOFError, OSError, zlib.error, lzma.LZMAError)
    return isinstance(error, damage) or type(error).__name__ == "ZstdError"
