"""Metrics of ADMM: products, solutions, and the exact step of what all share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from squall._kernels.objectives import quadratic_descent
from squall.records import Float64

_FULL_RIDGE, _DIAGONAL_FLOOR = 1e-4, 1e-8  # of the mean diagonal
_SWEEPS = 4  # of coordinate descent between two exact descents
_ATTEMPTS = 200
_EXACT = 1e-12  # violation of optimality, of the right-hand side's largest element


@dataclass(frozen=True, slots=True)
class Penalty:
    """l1·‖x‖₁ + l2/2·‖x‖² of the first ``n_regularized`` coordinates."""

    l1: float
    l2: float
    n_regularized: int

    def value(self, x: Float64) -> float:
        """The penalty at ``x``."""
        own = x[: self.n_regularized]
        return float(self.l1 * np.abs(own).sum() + self.l2 / 2 * (own @ own))

    def ridge(self, n: int) -> Float64:
        """l2 where it is on, 0 elsewhere."""
        return np.where(np.arange(n) < self.n_regularized, self.l2, 0.0)


class Metric(Protocol):
    """A symmetric positive definite M."""

    @property
    def diagonal(self) -> Float64:
        """Its diagonal."""

    def times(self, v: Float64) -> Float64:
        """M v."""

    def solve(self, v: Float64) -> Float64:
        """M⁻¹ v."""

    def scaled(self, factor: float) -> Metric:
        """The metric ``factor`` · M."""

    def prox(self, v: Float64, n_slots: int, penalty: Penalty, start: Float64) -> Float64:
        """argmin h(z) + W/2·‖z − v‖²_M; ``start`` is near it."""


@dataclass(frozen=True, slots=True)
class DiagonalMetric:
    """Of positive weights."""

    weights: Float64

    @property
    def diagonal(self) -> Float64:
        """Its diagonal."""
        return self.weights

    def times(self, v: Float64) -> Float64:
        """M v."""
        return self.weights * v

    def solve(self, v: Float64) -> Float64:
        """M⁻¹ v."""
        return v / self.weights

    def scaled(self, factor: float) -> DiagonalMetric:
        """The metric ``factor`` · M."""
        return DiagonalMetric(self.weights * factor)

    def prox(self, v: Float64, n_slots: int, penalty: Penalty, start: Float64) -> Float64:
        """Coordinate by coordinate: a soft threshold, then a division."""
        z, n = v.copy(), penalty.n_regularized
        strength = n_slots * self.weights[:n]
        pulled = np.abs(v[:n]) * strength - penalty.l1
        z[:n] = np.copysign(np.maximum(pulled, 0.0), v[:n]) / (strength + penalty.l2)
        return z


@dataclass(frozen=True, slots=True)
class MatrixMetric:
    """Of a whole matrix."""

    matrix: Float64

    @property
    def diagonal(self) -> Float64:
        """Its diagonal."""
        return np.diagonal(self.matrix)

    def times(self, v: Float64) -> Float64:
        """M v."""
        return self.matrix @ v

    def solve(self, v: Float64) -> Float64:
        """M⁻¹ v."""
        return _solved(self.matrix, v)

    def scaled(self, factor: float) -> MatrixMetric:
        """The metric ``factor`` · M."""
        return MatrixMetric(self.matrix * factor)

    def prox(self, v: Float64, n_slots: int, penalty: Penalty, start: Float64) -> Float64:
        """A linear system or, with an l1 penalty, an elastic net of as many rows as columns."""
        q = n_slots * self.matrix
        b = q @ v
        if penalty.l1 == 0:
            return _solved(q + np.diag(penalty.ridge(len(v))), b)
        return _elastic_net(q, b, penalty, start)


def metric_of(curvature: Float64, n_slots: int, penalty: Penalty, *, full: bool) -> Metric:
    """Mean curvature + l2 / W, or its diagonal: the metric where ρ is 1.

    Parameters
    ----------
    curvature : ndarray of shape (n * n,), or (n,) unless ``full``
        The sum of all workers' Hessians, or of their diagonals.
    n_slots : int
        Workers, W.
    penalty : Penalty
    full : bool
    """
    mean = curvature / n_slots
    n = math.isqrt(len(mean)) if full else len(mean)
    ridge = penalty.ridge(n) / n_slots
    if not full:
        weights = mean + ridge
        floor = max(_DIAGONAL_FLOOR * float(weights.mean()), np.finfo(float).tiny)
        return DiagonalMetric(np.maximum(weights, floor))
    matrix = mean.reshape(n, n).copy()
    diagonal = np.diagonal(matrix)
    floor = max(_FULL_RIDGE * float(diagonal.mean()), np.finfo(float).tiny)
    np.fill_diagonal(matrix, diagonal + ridge + floor)
    return MatrixMetric(matrix)


def _solved(matrix: Float64, right: Float64) -> Float64:
    return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)


def _elastic_net(q: Float64, b: Float64, penalty: Penalty, start: Float64) -> Float64:
    """Coordinate descent lets coordinates in; those that are there go to their exact minimum.

    Coordinate descent alone is slow where columns depend on each other, and one-hot columns do.
    After Lee, Battle, Raina & Ng, "Efficient sparse coding algorithms", 2006 (feature-sign search).
    """
    z, tol = start.copy(), _EXACT * float(np.abs(b).max(initial=0.0))
    for _ in range(_ATTEMPTS):
        violated = quadratic_descent(q, b, z, penalty.n_regularized, penalty.l1, penalty.l2, tol, _SWEEPS)
        if violated <= tol:
            break
        if _descend_with_signs(z, q, b, penalty):
            break
    return z


def _descend_with_signs(z: Float64, q: Float64, b: Float64, penalty: Penalty) -> bool:
    """Go, in place, to the minimum among points with the signs of ``z`` or 0; whether it is that of all."""
    n, free = penalty.n_regularized, np.arange(len(z)) >= penalty.n_regularized
    ridge = penalty.ridge(len(z))
    while True:
        active = np.flatnonzero((z != 0) | free)
        signs = np.where(free[active], 0.0, np.sign(z[active]))
        own = q[np.ix_(active, active)] + np.diag(ridge[active])
        goal = np.linalg.solve(own, b[active] - penalty.l1 * signs)
        way = goal - z[active]
        crossing = np.flatnonzero(goal * signs < 0)
        if not len(crossing):
            z[active] = goal
            break
        shares = -z[active][crossing] / way[crossing]
        first = int(np.argmin(shares))
        z[active] += shares[first] * way
        z[active[crossing[first]]] = 0.0  # and it is no longer active
    slack = np.abs(q @ z - b)[:n]
    slack[z[:n] != 0] = 0.0
    return bool(slack.max(initial=0.0) <= penalty.l1 * (1 + 1e-9))
