"""Partitions: one block of rows as one safetensors object, checked when it is read.

A *raw* partition keeps typed columns as they are; a *training* partition is float32.  The
file is plain safetensors (any reader of that format opens it); what the arrays mean is in
its metadata under ``squall``.  Reading is done here rather than by the library because the
library copies every array, and these are views of the mapped object.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from squall._kernels import all_ones, checksum
from squall.data.objects import ObjectStore
from squall.data.packing import unpacked
from squall.data.rows import column_spec
from squall.data.versions import FORMAT_VERSION as FORMAT_VERSION
from squall.data.versions import KNOWN_VERSIONS
from squall.errors import CorruptError
from squall.records import (
    Block,
    CategoricalColumn,
    Column,
    ColumnSpec,
    CsrBlock,
    DenseBlock,
    DenseColumn,
    NumericColumn,
    PartitionInfo,
    RawBlock,
    SparseColumn,
)

SUFFIX = ".safetensors"

_DTYPES = {"I64": np.int64, "F64": np.float64, "I32": np.int32, "F32": np.float32, "U8": np.uint8}
_TAGS = {np.dtype(kind).str: tag for tag, kind in _DTYPES.items()}
_MAX_HEADER = 100_000_000  # the limit of the safetensors format
_FIX = "remove the data set's folder and read the source again"

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Shapes = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]


class Layout(msgspec.Struct, frozen=True):
    """What the arrays of one partition mean; stored as JSON in its metadata."""

    kind: Literal["raw", "csr", "dense"]
    rows: int
    columns: list[ColumnSpec] = []  # of a raw partition
    n_features: int = 0  # of a training partition
    format_version: int = FORMAT_VERSION
    index_bits: int = 0  # of a packed partition: bits of an index


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


# ---------------------------------------------------------------------------------- writing


def write_partition(
    store: ObjectStore, key: str, block: RawBlock | Block, scratch: Scratch | None = None
) -> PartitionInfo:
    """Store one block as one object, which is made in ``scratch`` if that is given.

    Raises
    ------
    StoreError
        If the store refuses.
    """
    return put_partition(store, key, encode(block, scratch), block.n_rows, _stored_values(block))


def put_partition(store: ObjectStore, key: str, data: memoryview, rows: int, nnz: int) -> PartitionInfo:
    """Store a partition that has been encoded already."""
    store.put(key, data)
    return PartitionInfo(key, rows, nnz, len(data), checksum(data))


def encode(block: RawBlock | Block, scratch: Scratch | None = None) -> memoryview:
    """The safetensors object that holds ``block``; the same bytes for the same block.

    See `allocate` for ``scratch``.
    """
    if isinstance(block, RawBlock):
        layout, arrays = _raw_arrays(block)
    else:
        layout, arrays = _training_arrays(block)
    shapes = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    data, places = allocate(layout, shapes, scratch)
    for name, array in arrays.items():
        places[name][...] = array
    return data


def allocate(layout: Layout, arrays: Shapes, scratch: Scratch | None = None) -> tuple[memoryview, Arrays]:
    """A safetensors object with its header, and views of where its arrays go.

    Made here rather than by the safetensors library, which copies everything twice more; the
    result is for that library, or any other, to read.

    Parameters
    ----------
    layout : Layout
        What the arrays mean.
    arrays : dict of name to (dtype, shape)
        What there is to hold.
    scratch : Scratch, optional
        Memory to use, whose last object is overwritten; new memory if None.
    """
    # As the library does: the widest types first, so that every array is aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name][0].itemsize, name))
    entries: dict[str, Any] = {"__metadata__": {"squall": msgspec.json.encode(layout).decode()}}
    ends = np.cumsum([arrays[name][0].itemsize * math.prod(arrays[name][1]) for name in names]).tolist()
    for name, start, stop in zip(names, [0, *ends], ends, strict=False):
        dtype, shape = arrays[name]
        entries[name] = _Tensor(_TAGS[dtype.str], list(shape), (start, stop))
    header = msgspec.json.encode(entries)
    header += b" " * (-len(header) % 8)
    body = 8 + len(header)
    size = body + (ends[-1] if ends else 0)
    out = np.empty(size, dtype=np.uint8) if scratch is None else scratch.take(size)
    out[:body] = np.frombuffer(len(header).to_bytes(8, "little") + header, dtype=np.uint8)
    places = {}
    for name in names:
        (dtype, shape), (start, stop) = arrays[name], entries[name].data_offsets
        places[name] = out[body + start : body + stop].view(dtype).reshape(shape)
    return out.data, places


class Scratch(threading.local):
    """Each thread's own memory, used again and again: the system takes its time to give new."""

    def __init__(self) -> None:
        self._memory = np.empty(0, dtype=np.uint8)

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """``size`` bytes of any content."""
        if len(self._memory) < size:
            self._memory = np.empty(size + size // 8, dtype=np.uint8)
        return self._memory[:size]


def _raw_arrays(block: RawBlock) -> tuple[Layout, Arrays]:
    specs = [column_spec(name, column) for name, column in block.columns.items()]
    arrays: Arrays = {}
    for i, column in enumerate(block.columns.values()):
        # A column's arrays are its fields: values; codes, offsets, data; indptr, indices, values.
        for field in dataclasses.fields(column):
            value = getattr(column, field.name)
            if isinstance(value, np.ndarray):
                arrays[f"{i}.{field.name}"] = value
    if block.labels is not None:
        arrays["labels"] = block.labels
    if block.weights is not None:
        arrays["weights"] = block.weights
    if block.qid is not None:
        arrays["qid"] = block.qid
    return Layout("raw", block.n_rows, columns=specs), arrays


def _training_arrays(block: Block) -> tuple[Layout, Arrays]:
    arrays: Arrays = {"labels": block.labels}
    if block.weights is not None:
        arrays["weights"] = block.weights
    if isinstance(block, DenseBlock):
        arrays["features"] = block.features
        return Layout("dense", block.n_rows, n_features=block.n_features), arrays
    arrays["indptr"], arrays["indices"] = block.indptr, block.indices
    if block.values is not None and not all_ones(block.values):
        arrays["values"] = block.values
    return Layout("csr", block.n_rows, n_features=block.n_features), arrays


def _stored_values(block: RawBlock | Block) -> int:
    if isinstance(block, CsrBlock):
        return len(block.indices)
    if isinstance(block, DenseBlock):
        return block.features.size
    return sum(
        len(c.indices)
        if isinstance(c, SparseColumn)
        else c.values.size
        if isinstance(c, DenseColumn)
        else block.n_rows
        for c in block.columns.values()
    )


# ---------------------------------------------------------------------------------- reading


def read_raw(store: ObjectStore, info: PartitionInfo) -> RawBlock:
    """The raw partition of this manifest entry; views of the mapped object.

    Raises
    ------
    StoreError
        If the object is missing or cannot be read.
    CorruptError
        If it is not, byte for byte, what was written, or of an unknown format version.
    """
    layout, arrays = _read(store, info)
    where = f"{store.url}/{info.key}"
    try:
        if layout.kind != "raw":
            raise CorruptError(f"a raw partition was expected, this is {layout.kind}", where=where, fix=_FIX)
        columns = {spec.name: _column(i, spec, arrays) for i, spec in enumerate(layout.columns)}
    except KeyError as error:
        raise CorruptError(f"the array {error} is missing", where=where, fix=_FIX) from error
    row_arrays = (arrays.get(name) for name in ("labels", "weights", "qid"))
    return RawBlock(layout.rows, columns, *row_arrays)


def read_training(store: ObjectStore, info: PartitionInfo) -> Block:
    """The training partition of this manifest entry; views of the mapped object.

    Raises
    ------
    StoreError, CorruptError
        As for `read_raw`.
    """
    layout, arrays = _read(store, info)
    where = f"{store.url}/{info.key}"
    weights = arrays.get("weights")
    try:
        if layout.kind == "dense":
            return DenseBlock(arrays["features"], arrays["labels"], weights)
        if layout.kind == "csr":
            if layout.index_bits:
                arrays = unpacked(arrays, layout.index_bits)
            values, n_features = arrays.get("values"), layout.n_features
            labels = arrays["labels"]
            return CsrBlock(arrays["indptr"], arrays["indices"], values, labels, weights, n_features)
    except KeyError as error:
        raise CorruptError(f"the array {error} is missing", where=where, fix=_FIX) from error
    except ValueError as error:
        raise CorruptError(f"it cannot be unpacked: {error}", where=where, fix=_FIX) from error
    raise CorruptError("a training partition was expected, this is a raw one", where=where, fix=_FIX)


def _read(store: ObjectStore, info: PartitionInfo) -> tuple[Layout, Arrays]:
    data = store.get(info.key)
    where = f"{store.url}/{info.key}"
    if len(data) != info.bytes or checksum(data) != info.checksum:
        raise CorruptError(
            f"the object is damaged: {len(data):,} of {info.bytes:,} bytes, or another checksum",
            where=where,
            fix=_FIX,
        )
    return decode(data, where)


def decode(data: memoryview, where: str) -> tuple[Layout, Arrays]:
    """(layout, arrays as views of ``data``) of a partition; ``where`` names it in errors.

    Raises
    ------
    CorruptError
        If it is not a partition of a known format version.
    """
    try:
        entries, body = _header(data)
        layout = msgspec.json.decode(entries.pop("__metadata__")["squall"], type=Layout)
        if layout.format_version not in KNOWN_VERSIONS:
            raise CorruptError(
                f"its format version is {layout.format_version}, and this Squall reads {KNOWN_VERSIONS}",
                where=where,
                fix="use the version of Squall that wrote it, or read the source again",
            )
        body = _aligned(body)
        tensors = msgspec.convert(entries, dict[str, _Tensor])
        return layout, {name: _view(body, tensor) for name, tensor in tensors.items()}
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CorruptError):
            raise
        raise CorruptError(f"the object is not a partition: {error}", where=where, fix=_FIX) from error


def _header(data: memoryview) -> tuple[dict[str, Any], memoryview]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _MAX_HEADER):
        raise ValueError("its header is truncated")
    header: dict[str, Any] = msgspec.json.decode(data[8 : 8 + length], type=dict[str, Any])
    return header, data[8 + length :]


def _aligned(body: memoryview) -> memoryview:
    # Mapped objects are aligned (the header is padded); what came over the network may not be.
    if len(body) == 0 or np.frombuffer(body, np.uint8).ctypes.data % 8 == 0:
        return body
    return np.frombuffer(body, np.uint8).copy().data


def _view(body: memoryview, tensor: _Tensor) -> Array:
    start, stop = tensor.data_offsets
    dtype = np.dtype(_DTYPES[tensor.dtype])
    size = math.prod(tensor.shape)
    if not 0 <= start <= stop <= len(body) or stop - start != size * dtype.itemsize:
        raise ValueError("an array lies outside the object")
    return np.frombuffer(body, dtype, size, start).reshape(tensor.shape)


def _column(i: int, spec: ColumnSpec, arrays: Arrays) -> Column:
    if spec.kind == "categorical":
        return CategoricalColumn(arrays[f"{i}.codes"], arrays[f"{i}.offsets"], arrays[f"{i}.data"])
    if spec.kind == "dense":
        return DenseColumn(arrays[f"{i}.values"])
    if spec.kind == "sparse":
        values = arrays.get(f"{i}.values")
        return SparseColumn(arrays[f"{i}.indptr"], arrays[f"{i}.indices"], values, spec.width)
    return NumericColumn(arrays[f"{i}.values"])
