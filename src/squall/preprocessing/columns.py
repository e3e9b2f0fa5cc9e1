"""Columns of numbers as the transforms look at them, and the errors that all of them share."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np

from squall._kernels import csr_summed
from squall.errors import DataError
from squall.records import (
    CategoricalColumn,
    Column,
    DenseColumn,
    Float32,
    Float64,
    Int64,
    NumericColumn,
    RawBlock,
    SparseColumn,
)

State = TypeVar("State")
Fitted_co = TypeVar("Fitted_co", covariant=True)

SAME_COLUMNS = "give data with the same columns as in fit"


class Statistics(Protocol[State, Fitted_co]):
    """What a transform learns, as a map-reduce: pure, so blocks may be looked at anywhere, in any order."""

    def partial(self, block: RawBlock) -> State:
        """Statistics of one block."""

    def merge(self, a: State, b: State) -> State:
        """Statistics of the rows of both."""

    def finish(self, state: State) -> Fitted_co:
        """The fitted transform."""


def as_matrix(column: Column) -> Float64 | None:
    """The numbers as float64 (n_rows, width); None if the column is text or sparse."""
    if isinstance(column, NumericColumn):
        return column.values[:, None].astype(np.float64)
    if isinstance(column, DenseColumn):
        return column.values.astype(np.float64, copy=False)
    return None


def like(column: Column, values: Float64) -> NumericColumn | DenseColumn:
    """``values`` (n_rows, width) as a column of the sort that ``column`` is."""
    return NumericColumn(values[:, 0]) if isinstance(column, NumericColumn) else DenseColumn(values)


def width_of(column: Column) -> int:
    """Numbers per row."""
    if isinstance(column, DenseColumn):
        return int(column.values.shape[1])
    return column.width if isinstance(column, SparseColumn) else 1


def learnable(name: str, column: Column, use: str) -> Float64 | None:
    """`as_matrix`, without infinities; ``use`` is what they have no place in.

    Raises
    ------
    DataError
        If a value is infinite.
    """
    values = as_matrix(column)
    if values is not None:
        refuse_infinite(name, values, use)
    return values


def refuse_infinite(name: str, values: Float32 | Float64, use: str) -> None:
    """Raise `DataError` if a value is infinite."""
    if np.isinf(values).any():
        raise DataError(
            f"it holds an infinite value, which has no place in {use}",
            where=f"column {name!r}",
            fix="replace infinities, or mark them as missing, first",
        )


def check_width(name: str, column: Column, width: int, who: str) -> None:
    """Refuse another column than the one that a transform was fitted on.

    Raises
    ------
    DataError
        If it is text, or of another width.
    """
    numbers = isinstance(column, (NumericColumn, DenseColumn, SparseColumn))
    if not numbers or width_of(column) != width:
        raise DataError(
            f"it is not the column of {width} number(s) that the {who} was fitted on",
            where=f"column {name!r}",
            fix=SAME_COLUMNS,
        )


def row_numbers(indptr: Int64) -> Int64:
    """The row of each entry: (nnz,)."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def summed(column: SparseColumn) -> SparseColumn:
    """The same column with no two entries of one feature in a row: their sum instead.

    Hashed columns may hold several entries of one slot in a row, which mean that.
    """
    sums = csr_summed(column.indptr, column.indices, column.values, column.width)
    return column if sums is None else SparseColumn(*sums, column.width)


def stored_values(column: SparseColumn) -> Float64:
    """Values of the entries as float64, also where they are all 1: (nnz,)."""
    return np.ones(len(column.indices)) if column.values is None else column.values.astype(np.float64)


def text_column(name: str, block: RawBlock) -> CategoricalColumn:
    """The categorical column of that name.

    Raises
    ------
    DataError
        If it is not there, or not categorical.
    """
    column = block.columns.get(name)
    if not isinstance(column, CategoricalColumn):
        raise DataError(
            "it is missing" if column is None else "it was categorical in fit and is not here",
            where=f"column {name!r}",
            fix=f"read the data with categorical=[{name!r}] and the same columns as in fit",
        )
    return column
