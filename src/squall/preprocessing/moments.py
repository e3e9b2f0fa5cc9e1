"""Counts, means and squared deviations of columns, one pass, merged without cancellation.

Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances" (1979): means and sums of squared deviations are merged, never sums of squares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from squall._kernels import csr_moments
from squall.preprocessing.columns import as_matrix, refuse_infinite, summed
from squall.records import Column, Float64, SparseColumn


class Moments(NamedTuple):
    """Of each feature of a column, over the values that are not missing; each (width,)."""

    n: Float64
    mean: Float64  # 0 where n is 0
    m2: Float64  # sum of (value − mean)²

    @property
    def variance(self) -> Float64:
        """Of the population: m2 / n; 0 without values."""
        return self.m2 / np.maximum(self.n, 1.0)


def moments(name: str, column: Column, use: str) -> Moments:
    """Moments of one column of numbers; what a sparse one does not store counts as 0.

    Raises
    ------
    DataError
        If a value is infinite.
    """
    if isinstance(column, SparseColumn):
        return _of_sparse(name, summed(column), use)
    values = as_matrix(column)
    assert values is not None  # text has been left out
    seen: npt.NDArray[np.bool_] | np.bool_ = np.True_
    n: Float64 = np.full(values.shape[1], float(len(values)))
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.sum(values, axis=0)
    if not np.isfinite(sums).all():  # else no value is missing or infinite, and none need be looked at
        refuse_infinite(name, values, use)
        seen = ~np.isnan(values)
        n = np.asarray(np.sum(seen, axis=0, dtype=np.float64))
        sums = np.sum(values, axis=0, where=seen)
    mean = sums / np.maximum(n, 1.0)
    deviations = values - mean
    # The second term is what rounding left in the mean (the corrected two-pass algorithm).
    rest = np.sum(deviations, axis=0, where=seen) ** 2 / np.maximum(n, 1.0)
    np.square(deviations, out=deviations)
    m2 = np.sum(deviations, axis=0, where=seen) - rest
    return Moments(n, mean, np.maximum(m2, 0.0))


def _of_sparse(name: str, column: SparseColumn, use: str) -> Moments:
    if column.values is not None:
        refuse_infinite(name, column.values, use)
    return Moments(*csr_moments(column.indptr, column.indices, column.values, column.width))


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Moments of the values of both."""
    n = a.n + b.n
    share = b.n / np.maximum(n, 1.0)
    delta = b.mean - a.mean
    return Moments(n, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.n * share)
