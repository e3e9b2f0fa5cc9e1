"""Min-max scaling of numeric and dense columns to a range.

The arithmetic is scikit-learn's: ``x · scale + offset`` with ``scale = (high − low) /
(max − min)``; a column that is constant (its values are closer than ten times the float64
epsilon) has scale ``high − low``, and a column without any value stays missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from squall.errors import DataError
from squall.preprocessing.columns import SAME_COLUMNS, as_matrix, learnable, like
from squall.records import Column, ColumnSpec, Float64, RawBlock

_CONSTANT = 10 * np.finfo(np.float64).eps
"""Below this, max − min is rounding (and its reciprocal may be infinite): scikit-learn's bound."""


@dataclass(frozen=True, slots=True)
class MinMaxState:
    """Partial statistics: per column, the smallest and the largest value of each feature."""

    low: dict[str, Float64]  # name → (width,); inf where nothing was seen
    high: dict[str, Float64]  # name → (width,); −inf where nothing was seen


@dataclass(frozen=True, slots=True)
class MinMaxStatistics:
    """Smallest and largest values of these columns, to be scaled to ``feature_range``."""

    columns: tuple[str, ...]
    feature_range: tuple[float, float] = (0.0, 1.0)

    def partial(self, block: RawBlock) -> MinMaxState:
        """Statistics of one block.

        Raises
        ------
        DataError
            If a value is infinite.
        """
        low, high = {}, {}
        for name in self.columns:
            values = learnable(name, block.columns[name], "a range")
            assert values is not None
            low[name] = np.fmin.reduce(values, axis=0, initial=np.inf)
            high[name] = np.fmax.reduce(values, axis=0, initial=-np.inf)
        return MinMaxState(low, high)

    def merge(self, a: MinMaxState, b: MinMaxState) -> MinMaxState:
        """Statistics of the rows of both."""
        return MinMaxState(
            {name: np.minimum(a.low[name], b.low[name]) for name in a.low},
            {name: np.maximum(a.high[name], b.high[name]) for name in a.high},
        )

    def finish(self, state: MinMaxState) -> MinMaxTransform:
        """The fitted transform."""
        bottom, top = self.feature_range
        scales, offsets = {}, {}
        for name, low in state.low.items():
            high = state.high[name]
            seen = low <= high
            span = np.where(seen, high, 0.0) - np.where(seen, low, 0.0)
            span[span < _CONSTANT] = 1.0
            scale = (top - bottom) / span
            scales[name] = scale.tolist()
            offsets[name] = (bottom - np.where(seen, low, 0.0) * scale).tolist()
        return MinMaxTransform(scales, offsets)


class MinMaxTransform(msgspec.Struct, frozen=True, tag="minmax"):
    """Fitted min-max scaling: ``x · scale + offset`` for each named column."""

    scale: dict[str, list[float]]
    offset: dict[str, list[float]]

    def apply(self, block: RawBlock) -> RawBlock:
        """Scale the columns it was fitted on; the others pass."""
        columns = {name: self._scaled(name, column) for name, column in block.columns.items()}
        return RawBlock(block.n_rows, columns, block.labels, block.weights, block.qid)

    def _scaled(self, name: str, column: Column) -> Column:
        if name not in self.scale:
            return column
        values = as_matrix(column)
        if values is None or values.shape[1] != len(self.scale[name]):
            raise DataError(
                f"it is not the column of {len(self.scale[name])} number(s) that the scaler was fitted on",
                where=f"column {name!r}",
                fix=SAME_COLUMNS,
            )
        return like(column, values * np.asarray(self.scale[name]) + np.asarray(self.offset[name]))

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """Integer columns become float64."""
        return [
            ColumnSpec(c.name, "float64") if c.name in self.scale and c.kind == "int64" else c
            for c in columns
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]
