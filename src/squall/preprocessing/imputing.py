"""Filling missing values: by mean, median, the most frequent value, or one that is given.

A column that has no value at all cannot tell by what to fill: numbers become 0 and text
``"missing_value"``, as in scikit-learn with ``keep_empty_features``, and a warning names the column.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from squall.errors import DataError
from squall.preprocessing.columns import as_matrix, check_width, learnable
from squall.preprocessing.counting import (
    NumberCounts,
    TextCounts,
    count_numbers,
    count_text,
    merge_numbers,
    merge_text,
)
from squall.preprocessing.moments import Moments, merge_moments, moments
from squall.preprocessing.quantiles import QuantileSketch, merge_sketches, sketch
from squall.records import (
    CategoricalColumn,
    Column,
    ColumnSpec,
    DenseColumn,
    NumericColumn,
    RawBlock,
    SparseColumn,
)

MISSING_TEXT = "missing_value"
_TOO_MANY = 'use strategy="median" or "constant" for it'

ColumnState = Moments | list[QuantileSketch] | list[NumberCounts] | TextCounts


@dataclass(frozen=True, slots=True)
class ImputeStatistics:
    """By what missing values of these columns are filled."""

    columns: tuple[str, ...]
    strategy: Literal["mean", "median", "most_frequent"]

    def partial(self, block: RawBlock) -> dict[str, ColumnState]:
        """Statistics of one block.

        Raises
        ------
        DataError
            If a value is infinite, or too many different ones would have to be counted.
        """
        return {name: self._partial(name, block.columns[name]) for name in self.columns}

    def _partial(self, name: str, column: Column) -> ColumnState:
        if isinstance(column, CategoricalColumn):
            counts = count_text(name, column, _TOO_MANY)
            counts.pop(None, None)
            return counts
        if self.strategy == "mean":
            return moments(name, column, "a mean")
        values = learnable(name, column, f"a {self.strategy} value")
        if values is None:
            raise DataError(
                f"it is sparse, and has no {self.strategy} that is known without looking at its zeros",
                where=f"column {name!r}",
                fix='use strategy="mean" or "constant"',
            )
        if self.strategy == "median":
            return [sketch(feature) for feature in values.T]
        return [count_numbers(name, feature, _TOO_MANY) for feature in values.T]

    def merge(self, a: dict[str, ColumnState], b: dict[str, ColumnState]) -> dict[str, ColumnState]:
        """Statistics of the rows of both."""
        return {name: _merged(name, a[name], b[name]) for name in a}

    def finish(self, state: dict[str, ColumnState]) -> ImputeTransform:
        """The fitted transform; warns of columns that have no value at all."""
        numbers: dict[str, list[float]] = {}
        texts: dict[str, str] = {}
        for name, column in state.items():
            if isinstance(column, dict):
                # The most frequent text, and the first of those that are equally frequent.
                most = min(column.items(), key=lambda item: (-item[1], item[0] or ""), default=None)
                texts[name] = MISSING_TEXT if most is None else str(most[0])
                empty = most is None
            else:
                fills = _fills(column)
                numbers[name] = [0.0 if fill is None else fill for fill in fills]
                empty = None in fills
            if empty:
                told = repr(texts[name]) if name in texts else "0"
                warnings.warn(
                    f"column {name!r} has no value to learn from; missing ones become {told}", stacklevel=2
                )
        return ImputeTransform.compact(numbers, texts)


def _merged(name: str, a: ColumnState, b: ColumnState) -> ColumnState:
    if isinstance(a, dict) and isinstance(b, dict):
        return merge_text(name, a, b, _TOO_MANY)
    if isinstance(a, Moments) and isinstance(b, Moments):
        return merge_moments(a, b)
    merged: list[Any] = []
    for x, y in zip(a, b, strict=True):
        if isinstance(x, QuantileSketch) and isinstance(y, QuantileSketch):
            merged.append(merge_sketches(x, y))
        elif isinstance(x, NumberCounts) and isinstance(y, NumberCounts):
            merged.append(merge_numbers(name, x, y, _TOO_MANY))
        else:
            raise TypeError("statistics of different sorts do not merge")
    return merged


def _fills(column: Moments | list[QuantileSketch] | list[NumberCounts]) -> list[float | None]:
    """By what each feature is filled; None where there is no value."""
    if isinstance(column, Moments):
        return [mean if n else None for mean, n in zip(column.mean.tolist(), column.n.tolist(), strict=True)]
    fills: list[float | None] = []
    for feature in column:
        if isinstance(feature, QuantileSketch):
            fills.append(float(feature.quantiles(np.array([0.5]))[0]) if feature.n else None)
        else:  # the smallest of those that are equally frequent
            fills.append(float(feature.values[feature.counts.argmax()]) if len(feature.values) else None)
    return fills


class ImputeTransform(msgspec.Struct, frozen=True, tag="impute"):
    """Fitted imputation: by what missing values of each column are filled.

    Attributes
    ----------
    numbers : dict of str to list of float
        Feature by feature; one number where it is the same for all features of a column.
    texts : dict of str to str
    widths : dict of str to int
        Features of the columns that have one number for several.
    """

    numbers: dict[str, list[float]]
    texts: dict[str, str]
    widths: dict[str, int] = {}

    @staticmethod
    def compact(numbers: dict[str, list[float]], texts: dict[str, str]) -> ImputeTransform:
        """From the numbers of all features: a hashed column may have millions, all alike."""
        alike = {
            name: len(fills) for name, fills in numbers.items() if len(fills) > 1 and len(set(fills)) == 1
        }
        return ImputeTransform({n: f[:1] if n in alike else f for n, f in numbers.items()}, texts, alike)

    def apply(self, block: RawBlock) -> RawBlock:
        """Fill what is missing in the columns it was fitted on; the others pass."""
        columns = {name: self._filled(name, column) for name, column in block.columns.items()}
        return RawBlock(block.n_rows, columns, block.labels, block.weights, block.qid)

    def _filled(self, name: str, column: Column) -> Column:
        if name in self.texts:
            return _filled_text(name, column, self.texts[name])
        if name not in self.numbers:
            return column
        check_width(name, column, self.widths.get(name, len(self.numbers[name])), "imputer")
        fills = np.asarray(self.numbers[name])
        if isinstance(column, SparseColumn):
            if column.values is None:
                return column
            own = fills if name in self.widths else fills[column.indices]
            values: Any = np.where(np.isnan(column.values), own, column.values)
            values = values.astype(column.values.dtype)
            return SparseColumn(column.indptr, column.indices, values, column.width)
        if isinstance(column, NumericColumn):
            return column if column.values.dtype == np.int64 else NumericColumn(_fill(column, fills)[:, 0])
        assert isinstance(column, DenseColumn)
        kept: Any = _fill(column, fills).astype(column.values.dtype, copy=False)
        return DenseColumn(kept)

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """No kind changes."""
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def _fill(column: Column, fills: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values = as_matrix(column)
    return np.where(np.isnan(values), fills, values)  # type: ignore[arg-type]  # it is no text


def _filled_text(name: str, column: Column, fill: str) -> CategoricalColumn:
    if not isinstance(column, CategoricalColumn):
        raise DataError(
            "it was text in fit and is not here",
            where=f"column {name!r}",
            fix=f"read the data with categorical=[{name!r}]",
        )
    missing = column.codes < 0
    if not missing.any():
        return column
    strings = column.strings()
    place = strings.index(fill) if fill in strings else len(strings)
    codes = np.where(missing, place, column.codes).astype(np.int32)
    if place < len(strings):
        return CategoricalColumn(codes, column.offsets, column.data)
    return CategoricalColumn.from_strings(codes, [*strings, fill])
