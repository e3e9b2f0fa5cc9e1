"""Scaling by mean and deviation, or by the largest magnitude, of dense and of sparse columns.

The arithmetic is scikit-learn's ``(x − centre) / scale``.  A constant feature (its variance is no
more than rounding) has scale 1, and so has one without any value, which stays missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from squall._kernels import csr_largest
from squall.errors import DataError
from squall.preprocessing.columns import (
    as_matrix,
    check_width,
    learnable,
    like,
    refuse_infinite,
    stored_values,
    summed,
)
from squall.preprocessing.moments import Moments, merge_moments, moments
from squall.records import Column, ColumnSpec, Float64, RawBlock, SparseColumn

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class StandardStatistics:
    """Means and variances of these columns."""

    columns: tuple[str, ...]
    with_mean: bool = True
    with_std: bool = True

    def partial(self, block: RawBlock) -> dict[str, Moments]:
        """Statistics of one block.

        Raises
        ------
        DataError
            If a value is infinite.
        """
        return {name: moments(name, block.columns[name], "a mean") for name in self.columns}

    def merge(self, a: dict[str, Moments], b: dict[str, Moments]) -> dict[str, Moments]:
        """Statistics of the rows of both."""
        return {name: merge_moments(a[name], b[name]) for name in a}

    def finish(self, state: dict[str, Moments]) -> ScaleTransform:
        """The fitted transform.

        Raises
        ------
        DataError
            If numbers are so large that their squares have no place in float64.
        """
        center = {name: m.mean.tolist() for name, m in state.items()} if self.with_mean else {}
        scale = {name: self._scale(name, m).tolist() for name, m in state.items()}
        return ScaleTransform(center, scale)

    def _scale(self, name: str, m: Moments) -> Float64:
        variance = m.variance
        if not (np.isfinite(m.mean).all() and np.isfinite(variance).all()):
            raise DataError(
                "its numbers are so large that their squares are beyond float64",
                where=f"column {name!r}",
                fix="divide it by a power of ten, or use squall.MaxAbsScaler()",
            )
        if not self.with_std:
            return np.ones(len(variance))
        constant = variance <= m.n * _EPS * variance + (m.n * m.mean * _EPS) ** 2  # scikit-learn's bound
        return np.where(constant, 1.0, np.sqrt(variance))


@dataclass(frozen=True, slots=True)
class MaxAbsStatistics:
    """Largest magnitudes of these columns."""

    columns: tuple[str, ...]

    def partial(self, block: RawBlock) -> dict[str, Float64]:
        """Largest magnitude of each feature in one block; 0 without values.

        Raises
        ------
        DataError
            If a value is infinite.
        """
        return {name: _largest(name, block.columns[name]) for name in self.columns}

    def merge(self, a: dict[str, Float64], b: dict[str, Float64]) -> dict[str, Float64]:
        """Statistics of the rows of both."""
        return {name: np.maximum(a[name], b[name]) for name in a}

    def finish(self, state: dict[str, Float64]) -> ScaleTransform:
        """The fitted transform."""
        return ScaleTransform(
            {}, {name: np.where(high < 10 * _EPS, 1.0, high).tolist() for name, high in state.items()}
        )


def _largest(name: str, column: Column) -> Float64:
    if not isinstance(column, SparseColumn):
        values = learnable(name, column, "a scale")
        assert values is not None
        highest: Float64 = np.fmax.reduce(np.abs(values), axis=0, initial=0.0)
        return highest
    column = summed(column)
    if column.values is not None:
        refuse_infinite(name, column.values, "a scale")
    return csr_largest(column.indptr, column.indices, column.values, column.width)


class ScaleTransform(msgspec.Struct, frozen=True, tag="scale"):
    """Fitted scaling: ``(x − center) / scale`` for each column named in ``scale``.

    What is not in ``center`` is not centred, and so may be sparse.
    """

    center: dict[str, list[float]]
    scale: dict[str, list[float]]

    def apply(self, block: RawBlock) -> RawBlock:
        """Scale the columns it was fitted on; the others pass."""
        columns = {name: self._scaled(name, column) for name, column in block.columns.items()}
        return RawBlock(block.n_rows, columns, block.labels, block.weights, block.qid)

    def _scaled(self, name: str, column: Column) -> Column:
        if name not in self.scale:
            return column
        scale = np.asarray(self.scale[name])
        check_width(name, column, len(scale), "scaler")
        if isinstance(column, SparseColumn):
            if name in self.center:
                raise DataError(
                    "it is sparse here and was not in fit, and centring would fill its zeros",
                    where=f"column {name!r}",
                    fix="give a dense array, or fit with with_mean=False",
                )
            values = stored_values(column) / scale[column.indices]
            return SparseColumn(column.indptr, column.indices, values, column.width)
        values = as_matrix(column)
        assert values is not None
        if name not in self.center:
            return like(column, values / scale)
        values = values - np.asarray(self.center[name])
        values /= scale
        return like(column, values)

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """Integer columns become float64."""
        return [
            ColumnSpec(c.name, "float64") if c.name in self.scale and c.kind == "int64" else c
            for c in columns
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]
