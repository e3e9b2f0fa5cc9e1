"""TF-IDF: counts of terms weighted by how few rows have them (Spärck Jones 1972; Salton & Buckley 1988).

The arithmetic is scikit-learn's: ``idf = ln((1 + n) / (1 + df)) + 1``, without smoothing
``ln(n / df) + 1`` (1 for a term that no row has), then each row divided by its norm.  A stored zero
is as good as none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from squall.errors import DataError
from squall.preprocessing.columns import check_width, row_numbers, stored_values, summed
from squall.records import Column, ColumnSpec, DenseColumn, Float64, Int64, RawBlock, SparseColumn

Norm = Literal["l1", "l2"] | None


class Frequencies(NamedTuple):
    """Rows, and by column in how many of them each term is: (width,)."""

    rows: int
    terms: dict[str, Int64]


@dataclass(frozen=True, slots=True)
class TfidfStatistics:
    """Document frequencies of the terms of these columns."""

    columns: tuple[str, ...]
    norm: Norm = "l2"
    use_idf: bool = True
    smooth_idf: bool = True
    sublinear_tf: bool = False

    def partial(self, block: RawBlock) -> Frequencies:
        """Statistics of one block."""
        return Frequencies(block.n_rows, {name: _frequencies(block.columns[name]) for name in self.columns})

    def merge(self, a: Frequencies, b: Frequencies) -> Frequencies:
        """Statistics of the rows of both."""
        return Frequencies(a.rows + b.rows, {name: a.terms[name] + b.terms[name] for name in a.terms})

    def finish(self, state: Frequencies) -> TfidfTransform:
        """The fitted transform."""
        idf = {name: self._idf(state.rows, df).tolist() for name, df in state.terms.items()}
        widths = {name: len(df) for name, df in state.terms.items()}
        return TfidfTransform(widths, idf if self.use_idf else None, self.norm, self.sublinear_tf)

    def _idf(self, rows: int, df: Int64) -> Float64:
        smooth = np.log((1.0 + rows) / (1.0 + df))
        plain = np.where(df > 0, np.log(rows / np.maximum(df, 1)), 0.0)
        idf: Float64 = (smooth if self.smooth_idf else plain) + 1.0
        return idf


def _frequencies(column: Column) -> Int64:
    if isinstance(column, DenseColumn):
        df: Int64 = np.sum(column.values != 0, axis=0, dtype=np.int64)
        return df
    assert isinstance(column, SparseColumn)
    column = summed(column)
    indices = column.indices if column.values is None else column.indices[column.values != 0]
    return np.bincount(indices, minlength=column.width)


class TfidfTransform(msgspec.Struct, frozen=True, tag="tfidf"):
    """Fitted weights of the terms of each column in ``widths``; ``idf`` None leaves them equal."""

    widths: dict[str, int]
    idf: dict[str, list[float]] | None
    norm: Norm
    sublinear: bool

    def apply(self, block: RawBlock) -> RawBlock:
        """Weigh the columns it was fitted on; the others pass.

        Raises
        ------
        DataError
            If a column is not the one of fit, or a negative count should be dampened.
        """
        columns = {name: self._weighed(name, column) for name, column in block.columns.items()}
        return RawBlock(block.n_rows, columns, block.labels, block.weights, block.qid)

    def _weighed(self, name: str, column: Column) -> Column:
        if name not in self.widths:
            return column
        check_width(name, column, self.widths[name], "TfidfTransformer")
        if isinstance(column, DenseColumn):
            rows, indices = np.nonzero(column.values)
            values = column.values[rows, indices].astype(np.float64)
            weighed = np.zeros(column.values.shape)
            weighed[rows, indices] = self._weights(name, rows, indices, values, len(weighed))
            return DenseColumn(weighed)
        assert isinstance(column, SparseColumn)
        column = summed(column)
        n_rows, rows = len(column.indptr) - 1, row_numbers(column.indptr)
        values = self._weights(name, rows, column.indices, stored_values(column), n_rows)
        return SparseColumn(column.indptr, column.indices, values, column.width)

    def _weights(self, name: str, rows: Any, indices: Any, values: Float64, n_rows: int) -> Float64:
        """Weights of the entries (nnz,), given the row, the term and the count of each."""
        if self.sublinear:
            if (values < 0).any():
                raise DataError(
                    "it has a negative count, which has no logarithm",
                    where=f"column {name!r}",
                    fix="give counts of terms, or leave sublinear_tf out",
                )
            values = np.log(values, out=np.full(len(values), -1.0), where=values != 0) + 1.0
        if self.idf is not None:
            values = values * np.asarray(self.idf[name])[indices]
        if self.norm is None:
            return values
        sizes = np.bincount(rows, np.abs(values) if self.norm == "l1" else values * values, minlength=n_rows)
        norms = sizes if self.norm == "l1" else np.sqrt(sizes)
        scaled: Float64 = values / np.where(norms == 0, 1.0, norms)[rows]
        return scaled

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """No kind changes."""
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]
