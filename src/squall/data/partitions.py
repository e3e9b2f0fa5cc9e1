"""Partitions: one block of rows as one safetensors object, checked when it is read.

A *raw* partition keeps typed columns as they are; a *training* partition is float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from squall._kernels import Checksum, all_ones, checksum
from squall.data.layouts import FIX, Array, Arrays, Layout, Scratch, Shapes, allocate, decode, header_of
from squall.data.objects import ObjectStore
from squall.data.packing import unpacked
from squall.data.rows import column_spec
from squall.data.versions import FORMAT_VERSION as FORMAT_VERSION
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

_PIECE_BYTES = 1 << 17  # summed and written while it is in the core's own cache

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
    nnz = _stored_values(block)
    if store.folder is None:
        return put_partition(store, key, encode(block, scratch), block.n_rows, nnz)
    layout, arrays = _arrays(block)
    header, spans = header_of(layout, _shapes(arrays))
    total = Checksum()
    store.put_stream(key, _summed((np.frombuffer(header, np.uint8), *(arrays[n] for n in spans)), total))
    return PartitionInfo(key, block.n_rows, nnz, total.n_bytes, total.hexdigest())


def _summed(arrays: Iterable[Array], total: Checksum) -> Iterator[memoryview]:
    """The bytes of the arrays, added to ``total`` while they are near: a file needs no copy of them all."""
    for array in arrays:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, len(raw), _PIECE_BYTES):
            piece = raw[start : start + _PIECE_BYTES].data
            total.update(piece)
            yield piece


def put_partition(store: ObjectStore, key: str, data: memoryview, rows: int, nnz: int) -> PartitionInfo:
    """Store a partition that has been encoded already."""
    store.put(key, data)
    return PartitionInfo(key, rows, nnz, len(data), checksum(data))


def encode(block: RawBlock | Block, scratch: Scratch | None = None) -> memoryview:
    """The safetensors object that holds ``block``; the same bytes for the same block.

    See `allocate` for ``scratch``.
    """
    layout, arrays = _arrays(block)
    data, places = allocate(layout, _shapes(arrays), scratch)
    for name, array in arrays.items():
        places[name][...] = array
    return data


def _arrays(block: RawBlock | Block) -> tuple[Layout, Arrays]:
    return _raw_arrays(block) if isinstance(block, RawBlock) else _training_arrays(block)


def _shapes(arrays: Arrays) -> Shapes:
    return {name: (array.dtype, array.shape) for name, array in arrays.items()}


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
            raise CorruptError(f"a raw partition was expected, this is {layout.kind}", where=where, fix=FIX)
        columns = {spec.name: _column(i, spec, arrays) for i, spec in enumerate(layout.columns)}
    except KeyError as error:
        raise CorruptError(f"the array {error} is missing", where=where, fix=FIX) from error
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
        raise CorruptError(f"the array {error} is missing", where=where, fix=FIX) from error
    except ValueError as error:
        raise CorruptError(f"it cannot be unpacked: {error}", where=where, fix=FIX) from error
    raise CorruptError("a training partition was expected, this is a raw one", where=where, fix=FIX)


def _read(store: ObjectStore, info: PartitionInfo) -> tuple[Layout, Arrays]:
    data = store.get(info.key)
    where = f"{store.url}/{info.key}"
    if len(data) != info.bytes or checksum(data) != info.checksum:
        raise CorruptError(
            f"the object is damaged: {len(data):,} of {info.bytes:,} bytes, or another checksum",
            where=where,
            fix=FIX,
        )
    return decode(data, where)


def _column(i: int, spec: ColumnSpec, arrays: Arrays) -> Column:
    if spec.kind == "categorical":
        return CategoricalColumn(arrays[f"{i}.codes"], arrays[f"{i}.offsets"], arrays[f"{i}.data"])
    if spec.kind == "dense":
        return DenseColumn(arrays[f"{i}.values"])
    if spec.kind == "sparse":
        values = arrays.get(f"{i}.values")
        return SparseColumn(arrays[f"{i}.indptr"], arrays[f"{i}.indices"], values, spec.width)
    return NumericColumn(arrays[f"{i}.values"])
