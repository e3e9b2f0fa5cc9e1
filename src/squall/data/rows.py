"""Choosing and joining rows of blocks: the one place that knows how each column is cut."""

from __future__ import annotations

from collections.abc import Iterator
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
    Int32,
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
        None if block.qid is None else block.qid[rows],
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
        None if block.qid is None else block.qid[rows],
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


# ------------------------------------------------------------------------ joining raw blocks


def join_training(blocks: list[Block]) -> Block:
    """The rows of training blocks of one kind and width, one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    labels, weights = np.concatenate([b.labels for b in blocks]), join_weights(blocks)
    dense = [b.features for b in blocks if isinstance(b, DenseBlock)]
    if dense:
        return DenseBlock(np.concatenate(dense), labels, weights)
    sparse = [b for b in blocks if isinstance(b, CsrBlock)]
    values = None
    if any(b.values is not None for b in sparse):
        ones = [np.ones(len(b.indices), dtype=np.float32) if b.values is None else b.values for b in sparse]
        values = np.concatenate(ones)
    indptr = _indptr(np.concatenate([np.diff(b.indptr) for b in sparse]))
    return CsrBlock(
        indptr, np.concatenate([b.indices for b in sparse]), values, labels, weights, sparse[0].n_features
    )


def raw_bytes(block: RawBlock) -> int:
    """About how many bytes the rows take as stored; dictionaries of text included."""
    fields = ("values", "codes", "offsets", "data", "indptr", "indices")
    arrays = [getattr(column, field, None) for column in block.columns.values() for field in fields]
    return sum(array.nbytes for array in (*arrays, block.labels, block.weights) if array is not None)


def join_raw(blocks: list[RawBlock]) -> RawBlock:
    """The rows of blocks of one schema, one after the other; dictionaries of text are merged."""
    if len(blocks) == 1:
        return blocks[0]
    columns = {name: _join_columns([b.columns[name] for b in blocks]) for name in blocks[0].columns}
    labels = [b.labels for b in blocks if b.labels is not None]
    weights = None
    if any(b.weights is not None for b in blocks):
        weights = np.concatenate([np.ones(b.n_rows) if b.weights is None else b.weights for b in blocks])
    n_rows = sum(b.n_rows for b in blocks)
    qids = [b.qid for b in blocks if b.qid is not None]
    qid = np.concatenate(qids) if len(qids) == len(blocks) else None
    return RawBlock(n_rows, columns, np.concatenate(labels) if labels else None, weights, qid)


def _join_columns(columns: list[Column]) -> Column:
    texts = [c for c in columns if isinstance(c, CategoricalColumn)]
    if texts and all(c.data is texts[0].data and c.offsets is texts[0].offsets for c in texts):
        return CategoricalColumn(np.concatenate([c.codes for c in texts]), texts[0].offsets, texts[0].data)
    if texts:
        codes, strings = merge_text_columns(texts)
        return CategoricalColumn.from_strings(codes, strings)
    sparse = [c for c in columns if isinstance(c, SparseColumn)]
    if not sparse:
        joined: Any = np.concatenate([c.values for c in columns if not isinstance(c, CategoricalColumn)])
        return NumericColumn(joined) if isinstance(columns[0], NumericColumn) else DenseColumn(joined)
    indptr = _indptr(np.concatenate([np.diff(c.indptr) for c in sparse]))
    values: Any = None
    if any(c.values is not None for c in sparse):
        values = np.concatenate([np.ones(len(c.indices)) if c.values is None else c.values for c in sparse])
    indices = np.concatenate([c.indices for c in sparse])
    return SparseColumn(indptr, indices, values, max(c.width for c in sparse))


def merge_text_columns(columns: list[CategoricalColumn]) -> tuple[Int32, list[str]]:
    """One dictionary for columns that have their own: (codes of all rows, sorted strings)."""
    strings = [column.strings() for column in columns]
    merged = sorted(set().union(*strings)) if strings else []
    place = {text: i for i, text in enumerate(merged)}
    codes = [np.zeros(0, dtype=np.int32)]
    for column, own in zip(columns, strings, strict=True):
        translated = np.array([*(place[text] for text in own), -1], dtype=np.int32)
        codes.append(translated[column.codes])
    return np.concatenate(codes), merged


def cut_blocks(blocks: Iterator[RawBlock], n_rows: int) -> Iterator[RawBlock]:
    """The same rows in blocks of ``n_rows`` rows; the last has what is left."""
    waiting: list[RawBlock] = []
    have = 0
    for block in blocks:
        start = 0
        while have + block.n_rows - start >= n_rows:
            stop = start + n_rows - have
            yield join_raw([*waiting, slice_raw(block, start, stop)])
            waiting, have, start = [], 0, stop
        if start < block.n_rows:
            waiting.append(slice_raw(block, start, block.n_rows))
            have += block.n_rows - start
    if waiting:
        yield join_raw(waiting)
