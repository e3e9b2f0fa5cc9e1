"""Images in one file: IDX, and NumPy's npz; read row by row."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from squall.data.hints import column_hint
from squall.data.inputs import Input, Seen, seekable, unseen
from squall.data.streams import read_chunks
from squall.errors import DataError

_CHUNK_BYTES = 1 << 20
_IDX_TYPES = {8: "u1", 9: "i1", 0xB: ">i2", 0xC: ">i4", 0xD: ">f4", 0xE: ">f8"}
_SHORT = "download it again; nothing of it was kept"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Images:
    """Images of one shape, and their labels.

    ``read(rows, seen)`` gives arrays (n, *shape) of up to so many images, of type ``dtype``; ``seen`` is told
    how many bytes were read.
    """

    where: str
    n_images: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    labels: Any
    read: Callable[[int, Seen], Iterator[Array]]


def stored_dtype(dtype: np.dtype[Any], where: str) -> np.dtype[Any]:
    """As what pixels are stored: bytes, float32 or float64, whichever holds them exactly.

    Raises
    ------
    DataError
        If none does.
    """
    kept = np.result_type(dtype, np.float32) if dtype.kind in "iuf" and dtype != np.uint8 else dtype
    if kept not in (np.uint8, np.float32, np.float64) or dtype in (np.int64, np.uint64):
        raise DataError(f"pixels of type {dtype} are not read", where=where, fix="store uint8 or float32")
    return kept.newbyteorder("=")


# ----------------------------------------------------------------------------------------- IDX


def idx_images(source: Input, labels: Array | None) -> Images:
    """The images of an IDX file.

    Raises
    ------
    DataError
        If it is none, holds one number an image, or (while it is read) is cut short or too long.
    """
    shape, dtype, start = _idx_header(source)
    if len(shape) < 2:
        raise DataError(
            "this IDX file holds labels, not images", where=source.name, fix="swap path and labels"
        )
    kept = stored_dtype(dtype, source.name)

    def read(rows: int, seen: Seen) -> Iterator[Array]:
        per_image = math.prod(shape[1:])
        for values in _idx_values(source, dtype, start, math.prod(shape), rows * per_image, seen):
            yield values.astype(kept).reshape(-1, *shape[1:])

    return Images(source.name, shape[0], shape[1:], kept, labels, read)


def idx_labels(source: Input) -> Array:
    """The labels in an IDX file of one dimension.

    Raises
    ------
    DataError
        If it is none, or cut short.
    """
    shape, dtype, start = _idx_header(source)
    if len(shape) != 1:
        raise DataError(f"labels of {len(shape)} dimensions", where=source.name, fix="swap path and labels")
    parts = _idx_values(source, dtype, start, shape[0], _CHUNK_BYTES)
    labels: Array = np.concatenate([np.zeros(0, dtype), *parts])
    return labels.astype(dtype.newbyteorder("="))


def _idx_header(source: Input) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """(shape, type of numbers, bytes of the header)."""
    head = next(read_chunks(source, 4 + 4 * 255, is_text=False), b"")
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES or head[3] == 0:
        raise DataError(
            f"this is neither an IDX nor an npz file: it begins with {head[:8]!r}",
            where=source.name,
            fix="give an IDX file, an npz file, or a folder with a folder for each class",
        )
    start = 4 + 4 * head[3]
    if len(head) < start:
        raise DataError("the file ends within its header", where=source.name, fix=_SHORT)
    return struct.unpack(f">{head[3]}I", head[4:start]), np.dtype(_IDX_TYPES[head[2]]), start


def _idx_values(
    source: Input, dtype: np.dtype[Any], start: int, n: int, at_once: int, seen: Seen = unseen
) -> Iterator[Array]:
    """The ``n`` numbers after the header, ``at_once`` at a time."""
    rest, size, given = bytearray(), at_once * dtype.itemsize, 0
    promised = n * dtype.itemsize
    for piece in read_chunks(source, _CHUNK_BYTES, seen, is_text=False):
        rest += piece[start:]
        start = max(0, start - len(piece))
        if given + len(rest) > promised:
            raise DataError(
                f"the file is longer than the {promised:,} bytes its header says",
                where=source.name,
                fix=_SHORT,
            )
        while len(rest) >= size:
            yield np.frombuffer(bytes(rest[:size]), dtype)
            given += size
            del rest[:size]
    if given + len(rest) != promised:
        raise DataError(
            f"the file was cut short: {given + len(rest):,} of {promised:,} bytes",
            where=source.name,
            fix=_SHORT,
        )
    if rest:
        yield np.frombuffer(bytes(rest), dtype)


# ----------------------------------------------------------------------------------------- npz


def npz_images(source: Input, name: str | None, labels: Array | None) -> Images:
    """The images in an array of an npz file.

    Raises
    ------
    DataError
        If there is no such array, it is no array of numbers, or damaged.
    """
    with _zip(source) as packed:
        if name is None:
            name = _only_matrix(packed, source)
        with _member(packed, source, name) as file:
            shape, fortran, dtype = _npy_header(file, source, name)
    if len(shape) < 2:
        raise DataError(f"array {name!r} has {len(shape)} dimension(s): no images", where=source.name)
    if fortran:
        raise DataError(
            f"array {name!r} is stored column by column",
            where=source.name,
            fix="save numpy.ascontiguousarray(…)",
        )
    kept = stored_dtype(dtype, f"{source.name}: array {name!r}")

    def read(rows: int, seen: Seen) -> Iterator[Array]:
        for values in _npy_values(source, name, math.prod(shape[1:]) * rows, seen):
            yield values.astype(kept).reshape(-1, *shape[1:])

    return Images(source.name, shape[0], shape[1:], kept, labels, read)


def npz_labels(source: Input, name: str) -> Array:
    """An array of labels in an npz file.

    Raises
    ------
    DataError
        If there is no such array, or it is damaged.
    """
    parts = list(_npy_values(source, name, _CHUNK_BYTES))
    if not parts:
        raise DataError(f"array {name!r} is empty", where=source.name)
    return np.concatenate(parts)


def _npy_values(source: Input, name: str, at_once: int, seen: Seen = unseen) -> Iterator[Array]:
    with _zip(source, seen) as packed, _member(packed, source, name) as file:
        shape, _, dtype = _npy_header(file, source, name)
        left = math.prod(shape)
        while left:
            n = min(left, at_once)
            try:
                raw = file.read(n * dtype.itemsize)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise _damaged(source, error) from error
            if len(raw) != n * dtype.itemsize:
                raise _damaged(source, f"array {name!r} ends too early")
            yield np.frombuffer(raw, dtype)
            left -= n


@contextmanager
def _zip(source: Input, seen: Seen = unseen) -> Iterator[zipfile.ZipFile]:
    with seekable(source, seen) as file:
        try:
            packed = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError) as error:
            raise _damaged(source, error) from error
        with packed:
            yield packed


def _member(packed: zipfile.ZipFile, source: Input, name: str) -> IO[bytes]:
    names = [member.removesuffix(".npy") for member in packed.namelist()]
    if name not in names:
        hint = column_hint(name, names).replace("columns", "arrays")
        raise DataError(f"there is no array {name!r}", where=source.name, fix=hint)
    try:
        return packed.open(f"{name}.npy")
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise _damaged(source, error) from error


def _npy_header(file: IO[bytes], source: Input, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, whether it is stored column by column, type)."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _damaged(source, error) from error
    if dtype.hasobject:
        raise DataError(
            f"array {name!r} holds Python objects, which are not read",
            where=source.name,
            fix="save numbers or text",
        )
    return shape, fortran, dtype


def _only_matrix(packed: zipfile.ZipFile, source: Input) -> str:
    """The name of the one array with more than one dimension."""
    names = [member.removesuffix(".npy") for member in packed.namelist() if member.endswith(".npy")]
    found = []
    for name in names:
        with _member(packed, source, name) as file:
            if len(_npy_header(file, source, name)[0]) > 1:
                found.append(name)
    if len(found) != 1:
        shown = ", ".join(map(repr, found or names)) or "none"
        raise DataError(
            f"{len(found)} arrays may be the images",
            where=source.name,
            fix=f"name one: images= (there are {shown})",
        )
    return found[0]


def _damaged(source: Input, error: object) -> DataError:
    return DataError(f"the npz file is damaged or cut short: {error}", where=source.name, fix=_SHORT)
