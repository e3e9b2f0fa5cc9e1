"""Images in one file: IDX, and NumPy's npz; read row by row."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from squall.data.files import read_chunks
from squall.data.hints import column_hint
from squall.errors import DataError

_CHUNK_BYTES = 1 << 20
_IDX_TYPES = {8: "u1", 9: "i1", 0xB: ">i2", 0xC: ">i4", 0xD: ">f4", 0xE: ">f8"}
_SHORT = "download it again; nothing of it was kept"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Images:
    """Images of one shape, and their labels.

    ``read(rows)`` gives arrays (n, *shape) of up to so many images, of type ``dtype``.
    """

    where: str
    n_images: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    labels: Any
    read: Callable[[int], Iterator[Array]]


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


def idx_images(path: Path, labels: Array | None) -> Images:
    """The images of an IDX file.

    Raises
    ------
    DataError
        If it is none, holds one number an image, or (while it is read) is cut short or too long.
    """
    shape, dtype, start = _idx_header(path)
    if len(shape) < 2:
        raise DataError("this IDX file holds labels, not images", where=str(path), fix="swap path and labels")
    kept = stored_dtype(dtype, str(path))

    def read(rows: int) -> Iterator[Array]:
        per_image = math.prod(shape[1:])
        for values in _idx_values(path, dtype, start, math.prod(shape), rows * per_image):
            yield values.astype(kept).reshape(-1, *shape[1:])

    return Images(str(path), shape[0], shape[1:], kept, labels, read)


def idx_labels(path: Path) -> Array:
    """The labels in an IDX file of one dimension.

    Raises
    ------
    DataError
        If it is none, or cut short.
    """
    shape, dtype, start = _idx_header(path)
    if len(shape) != 1:
        raise DataError(f"labels of {len(shape)} dimensions", where=str(path), fix="swap path and labels")
    parts = _idx_values(path, dtype, start, shape[0], _CHUNK_BYTES)
    labels: Array = np.concatenate([np.zeros(0, dtype), *parts])
    return labels.astype(dtype.newbyteorder("="))


def _idx_header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """(shape, type of numbers, bytes of the header)."""
    head = next(read_chunks(path, 4 + 4 * 255), b"")
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES or head[3] == 0:
        raise DataError(
            f"this is neither an IDX nor an npz file: it begins with {head[:8]!r}",
            where=str(path),
            fix="give an IDX file, an npz file, or a folder with a folder for each class",
        )
    start = 4 + 4 * head[3]
    if len(head) < start:
        raise DataError("the file ends within its header", where=str(path), fix=_SHORT)
    return struct.unpack(f">{head[3]}I", head[4:start]), np.dtype(_IDX_TYPES[head[2]]), start


def _idx_values(path: Path, dtype: np.dtype[Any], start: int, n: int, at_once: int) -> Iterator[Array]:
    """The ``n`` numbers after the header, ``at_once`` at a time."""
    rest, size, seen = bytearray(), at_once * dtype.itemsize, 0
    promised = n * dtype.itemsize
    for piece in read_chunks(path, _CHUNK_BYTES):
        rest += piece[start:]
        start = max(0, start - len(piece))
        seen_now = seen + len(rest)
        if seen_now > promised:
            raise DataError(
                f"the file is longer than the {promised:,} bytes its header says", where=str(path), fix=_SHORT
            )
        while len(rest) >= size:
            yield np.frombuffer(bytes(rest[:size]), dtype)
            seen += size
            del rest[:size]
    if seen + len(rest) != promised:
        raise DataError(
            f"the file was cut short: {seen + len(rest):,} of {promised:,} bytes", where=str(path), fix=_SHORT
        )
    if rest:
        yield np.frombuffer(bytes(rest), dtype)


# ----------------------------------------------------------------------------------------- npz


def npz_images(path: Path, name: str | None, labels: Array | None) -> Images:
    """The images in an array of an npz file.

    Raises
    ------
    DataError
        If there is no such array, it is no array of numbers, or damaged.
    """
    with _zip(path) as packed:
        if name is None:
            name = _only_matrix(packed, path)
        with _member(packed, path, name) as file:
            shape, fortran, dtype = _npy_header(file, path, name)
    if len(shape) < 2:
        raise DataError(f"array {name!r} has {len(shape)} dimension(s): no images", where=str(path))
    if fortran:
        raise DataError(
            f"array {name!r} is stored column by column",
            where=str(path),
            fix="save numpy.ascontiguousarray(…)",
        )
    kept = stored_dtype(dtype, f"{path}: array {name!r}")

    def read(rows: int) -> Iterator[Array]:
        for values in _npy_values(path, name, math.prod(shape[1:]) * rows):
            yield values.astype(kept).reshape(-1, *shape[1:])

    return Images(str(path), shape[0], shape[1:], kept, labels, read)


def npz_labels(path: Path, name: str) -> Array:
    """An array of labels in an npz file.

    Raises
    ------
    DataError
        If there is no such array, or it is damaged.
    """
    parts = list(_npy_values(path, name, _CHUNK_BYTES))
    if not parts:
        raise DataError(f"array {name!r} is empty", where=str(path))
    return np.concatenate(parts)


def _npy_values(path: Path, name: str, at_once: int) -> Iterator[Array]:
    with _zip(path) as packed, _member(packed, path, name) as file:
        shape, _, dtype = _npy_header(file, path, name)
        left = math.prod(shape)
        while left:
            n = min(left, at_once)
            try:
                raw = file.read(n * dtype.itemsize)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise _damaged(path, error) from error
            if len(raw) != n * dtype.itemsize:
                raise _damaged(path, f"array {name!r} ends too early")
            yield np.frombuffer(raw, dtype)
            left -= n


def _zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise _damaged(path, error) from error


def _member(packed: zipfile.ZipFile, path: Path, name: str) -> IO[bytes]:
    names = [member.removesuffix(".npy") for member in packed.namelist()]
    if name not in names:
        hint = column_hint(name, names).replace("columns", "arrays")
        raise DataError(f"there is no array {name!r}", where=str(path), fix=hint)
    try:
        return packed.open(f"{name}.npy")
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise _damaged(path, error) from error


def _npy_header(file: IO[bytes], path: Path, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, whether it is stored column by column, type)."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _damaged(path, error) from error
    if dtype.hasobject:
        raise DataError(
            f"array {name!r} holds Python objects, which are not read",
            where=str(path),
            fix="save numbers or text",
        )
    return shape, fortran, dtype


def _only_matrix(packed: zipfile.ZipFile, path: Path) -> str:
    """The name of the one array with more than one dimension."""
    names = [member.removesuffix(".npy") for member in packed.namelist() if member.endswith(".npy")]
    found = []
    for name in names:
        with _member(packed, path, name) as file:
            if len(_npy_header(file, path, name)[0]) > 1:
                found.append(name)
    if len(found) != 1:
        shown = ", ".join(map(repr, found or names)) or "none"
        raise DataError(
            f"{len(found)} arrays may be the images",
            where=str(path),
            fix=f"name one: images= (there are {shown})",
        )
    return found[0]


def _damaged(path: Path, error: object) -> DataError:
    return DataError(f"the npz file is damaged or cut short: {error}", where=str(path), fix=_SHORT)
