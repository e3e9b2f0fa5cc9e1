"""Bytes of a local file, decompressed on the way; the compression is known by its first bytes."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from squall.data.compression import MAGIC_BYTES, is_damage, opener_of
from squall.errors import DataError


def checked_file(path: Path) -> Path:
    """``path`` itself if it is a file.

    Raises
    ------
    DataError
        If it does not exist, cannot be looked at, or is a folder, a pipe or a device.
    """
    try:
        return _checked(path)
    except OSError as error:
        raise DataError(f"the file cannot be read: {error.strerror}", where=str(path)[:200]) from error


def _checked(path: Path) -> Path:
    if path.is_dir():
        raise DataError(
            "this is a folder, not a file", where=str(path), fix=f'give a pattern for its files: "{path}/*"'
        )
    if not path.exists():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], n=1)
        raise DataError(
            "there is no such file",
            where=str(path),
            fix=f"did you mean {near[0]!r}?"
            if near
            else "check the path; relative ones start from the working folder",
        )
    if not path.is_file():
        raise DataError(
            "this is a pipe or a device, which ends after one reading or never; a file is read twice",
            where=str(path),
            fix="write its contents to a file first",
        )
    return path


def file_digest(path: Path) -> str:
    """BLAKE2b-128 of the file's bytes, in hexadecimal.

    Raises
    ------
    DataError
        If the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise DataError(f"the file cannot be read: {error.strerror}", where=str(path)) from error


def read_chunks(path: Path, size: int) -> Iterator[bytes]:
    """The decompressed bytes in chunks of ``size``, the last one shorter.

    Raises
    ------
    DataError
        If the file cannot be read, is empty, of a kind that is not read, or compressed and
        damaged or cut short.
    """
    opened = _open(path)
    with opened as file:
        while True:
            try:
                chunk = file.read(size)
            except Exception as error:
                if not is_damage(error):
                    raise
                raise DataError(
                    f"the file is damaged or cut short: {error}",
                    where=str(path),
                    fix="download or compress it again; nothing of it was kept",
                ) from error
            if not chunk:
                return
            yield chunk


def _open(path: Path) -> IO[bytes]:
    try:
        with path.open("rb") as file:
            start = file.read(MAGIC_BYTES)
    except OSError as error:
        raise DataError(f"the file cannot be read: {error.strerror}", where=str(path)) from error
    opener = opener_of(start, str(path))
    opened: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return opened


def changed(path: str) -> DataError:
    """The error for a file that is being written to."""
    return DataError("the file changed while it was read", where=path, fix="read it once it is complete")
