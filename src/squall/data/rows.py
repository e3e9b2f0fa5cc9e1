"""Choosing and joining rows of blocks: the one place that knows how each column is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squall.records import (
    Block,
    CategoricalColumn,
    Column,
    ColumnSpec,
    CsrBlock,
    DenseBlock,
    DenseColumn,
    Float32,
    Int64,
    NumericColumn,
    RawBlock,
    SparseColumn,
)

Rows = npt.NDArray[np.integer[Any]]


def column_spec(name: str, column: Column) -> ColumnSpec:
    """Name, kind and width of a column."""
    if isinstance(column, NumericColumn):
        return ColumnSpec(name, "int64" if column.values.dtype == np.int64 else "float64")
    if isinstance(column, CategoricalColumn):
        return ColumnSpec(name, "categorical")
    if isinstance(column, DenseColumn):
        return ColumnSpec(name, "dense", int(column.values.shape[1]))
    return ColumnSpec(name, "sparse", column.width)


def count_missing(column: Column) -> int:
    """Number of missing values: code −1, or NaN."""
    if isinstance(column, CategoricalColumn):
        return int(np.count_nonzero(column.codes < 0))
    if column.values is None or column.values.dtype.kind != "f":
        return 0
    return int(np.count_nonzero(np.isnan(column.values)))


# ------------------------------------------------------------------------------- raw blocks


def take_raw(block: RawBlock, rows: Rows) -> RawBlock:
    """The given rows of a raw block, in that order (copied; dictionaries are shared)."""
    return RawBlock(
        len(rows),
        {name: _take_column(column, rows) for name, column in block.columns.items()},
        None if block.labels is None else block.labels[rows],
        None if block.weights is None else block.weights[rows],
    )


def _take_column(column: Column, rows: Rows) -> Column:
    if isinstance(column, CategoricalColumn):
        return CategoricalColumn(column.codes[rows], column.offsets, column.data)
    if isinstance(column, NumericColumn | DenseColumn):
        chosen: Any = column.values[rows]  # of the same dtype, which the checker loses
        return type(column)(chosen)
    indptr, cells = _gather(column.indptr, rows)
    values = None if column.values is None else column.values[cells]
    return SparseColumn(indptr, column.indices[cells], values, column.width)


def slice_raw(block: RawBlock, start: int, stop: int) -> RawBlock:
    """Rows ``start`` … ``stop − 1`` of a raw block; views wherever the layout allows it."""
    rows = slice(start, stop)
    return RawBlock(
        len(range(*rows.indices(block.n_rows))),
        {name: _slice_column(column, rows) for name, column in block.columns.items()},
        None if block.labels is None else block.labels[rows],
        None if block.weights is None else block.weights[rows],
    )


def _slice_column(column: Column, rows: slice) -> Column:
    # Kernels want contiguous memory; for rows of a C-ordered array this copies nothing.
    if isinstance(column, CategoricalColumn):
        return CategoricalColumn(np.ascontiguousarray(column.codes[rows]), column.offsets, column.data)
    if isinstance(column, NumericColumn | DenseColumn):
        chosen: Any = np.ascontiguousarray(column.values[rows])
        return type(column)(chosen)
    indptr, cells = _span(column.indptr, rows.start, rows.stop)
    values = None if column.values is None else column.values[cells]
    return SparseColumn(indptr, column.indices[cells], values, column.width)


# -------------------------------------------------------------------------- training blocks


def slice_training(block: Block, start: int, stop: int) -> Block:
    """Rows ``start`` … ``stop − 1``: views, but for a small ``indptr`` that starts at 0."""
    rows = slice(start, stop)
    labels = block.labels[rows]
    weights = None if block.weights is None else block.weights[rows]
    if isinstance(block, DenseBlock):
        return DenseBlock(block.features[rows], labels, weights)
    indptr, cells = _span(block.indptr, start, stop)
    values = None if block.values is None else block.values[cells]
    return CsrBlock(indptr, block.indices[cells], values, labels, weights, block.n_features)


def training_row_bytes(block: Block) -> Int64:
    """Stored bytes of each row: (n_rows,)."""
    fixed = 4 + (0 if block.weights is None else 4)
    if isinstance(block, DenseBlock):
        return np.full(block.n_rows, fixed + 4 * block.n_features, dtype=np.int64)
    cell = 4 if block.values is None else 8
    return np.diff(block.indptr) * cell + (fixed + 8)


def join_weights(blocks: list[Block]) -> Float32 | None:
    """Sample weights of all rows; None if no block has any."""
    if all(block.weights is None for block in blocks):
        return None
    return np.concatenate(
        [np.ones(b.n_rows, dtype=np.float32) if b.weights is None else b.weights for b in blocks]
    )


# -------------------------------------------------------------------------------- CSR rows


def _indptr(lengths: Int64) -> Int64:
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return indptr


def _span(indptr: Int64, start: int, stop: int) -> tuple[Int64, slice]:
    """(indptr of rows start … stop − 1 from 0 on, where their cells lie)."""
    own = indptr[start : stop + 1]
    return own - own[0], slice(int(own[0]), int(own[-1]))


def _gather(indptr: Int64, rows: Rows) -> tuple[Int64, Int64]:
    """(indptr of the chosen rows, positions of their cells)."""
    starts, lengths = indptr[:-1][rows], np.diff(indptr)[rows]
    chosen = _indptr(lengths)
    cells = np.repeat(starts - chosen[:-1], lengths)
    cells += np.arange(chosen[-1], dtype=np.int64)
    return chosen, cells
