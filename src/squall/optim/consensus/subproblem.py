"""A worker's exact step: argmin f(x) + ½‖x − c‖²_M, to a tolerance, in few passes over its rows."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from squall.optim.consensus.metrics import DiagonalMetric, MatrixMetric, Metric
from squall.records import Float64

_ARMIJO = 1e-4
_HALVINGS = 30


class Objective(Protocol):
    """A smooth convex function; see :class:`squall.models.objectives.ShareObjective`."""

    @property
    def n(self) -> int:
        """Coefficients."""

    def gradient(self, x: Float64) -> tuple[float, Float64]:
        """Value and gradient; sets the point of second derivatives."""

    def hessian_product(self, v: Float64) -> Float64:
        """The Hessian times a vector."""

    def hessian_diagonal(self) -> Float64:
        """The Hessian's diagonal."""

    def hessian(self) -> Float64:
        """The Hessian."""


class Solved(NamedTuple):
    """A solution, f at the starting point, and passes over the rows."""

    x: Float64
    loss: float
    passes: int


class Subproblem:
    """φ(x) = f(x) + ½‖x − c‖²_M."""

    def __init__(self, objective: Objective, metric: Metric, center: Float64) -> None:
        self._objective, self._metric, self._center = objective, metric, center
        self.passes = 0
        self.loss = 0.0  # f where last asked

    def gradient(self, x: Float64) -> tuple[float, Float64]:
        """φ(x) and its gradient."""
        self.passes += 1
        self.loss, gradient = self._objective.gradient(x)
        away = x - self._center
        pull = self._metric.times(away)
        return self.loss + 0.5 * float(away @ pull), gradient + pull

    def curvature(self, v: Float64) -> Float64:
        """φ's Hessian, where `gradient` was last taken, times a vector."""
        self.passes += 1
        return self._objective.hessian_product(v) + self._metric.times(v)


class LazyNewton:
    """Newton's method with a Hessian (of f) that is kept over many subproblems: for few coordinates.

    Doikov, Chayti & Jaggi, "Second-order optimization with lazy Hessians", 2023.
    """

    def __init__(self, hessian: Float64, metric: MatrixMetric) -> None:
        self._inverse = np.linalg.inv(hessian + metric.matrix)

    def solve(self, subproblem: Subproblem, start: Float64, tol: float, max_passes: int) -> Solved:
        """Steps until Newton's decrement (in the metric's units) is below ``tol``."""
        x, (value, gradient) = start, subproblem.gradient(start)
        loss = subproblem.loss
        while subproblem.passes < max_passes:
            step = -(self._inverse @ gradient)
            slope = float(gradient @ step)
            if -slope <= tol * tol and (x is not start or slope == 0):
                break  # never before the first step: who does not move says that all agree
            moved = _backtrack(subproblem, x, value, step, slope)
            if moved is None:
                break
            x, value, gradient = moved
        return Solved(x, loss, subproblem.passes)


class TruncatedNewton:
    """Newton's method whose systems conjugate gradients solve, as far as is worth it: for many coordinates.

    Nocedal & Wright, "Numerical optimization", 2006, algorithm 7.1, preconditioned by the diagonal.
    """

    def __init__(self, diagonal: Float64, metric: DiagonalMetric) -> None:
        self._diagonal = diagonal + metric.weights

    def solve(self, subproblem: Subproblem, start: Float64, tol: float, max_passes: int) -> Solved:
        """Steps until the preconditioned gradient is below ``tol``."""
        x, (value, gradient) = start, subproblem.gradient(start)
        loss = subproblem.loss
        while subproblem.passes < max_passes:
            size = float(np.sqrt(gradient @ (gradient / self._diagonal)))
            if size <= tol and (x is not start or size == 0):
                break  # never before the first step, as above
            enough = max(min(0.3, size), min(0.5 * tol / size, 0.9))
            step = self._direction(subproblem, gradient, enough, max_passes)
            moved = _backtrack(subproblem, x, value, step, float(gradient @ step))
            if moved is None:
                break
            x, value, gradient = moved
        return Solved(x, loss, subproblem.passes)

    def _direction(
        self, subproblem: Subproblem, gradient: Float64, enough: float, max_passes: int
    ) -> Float64:
        step, residual = np.zeros_like(gradient), -gradient
        z = residual / self._diagonal
        direction, rho = z, float(residual @ z)
        goal = enough * enough * rho
        while True:
            product = subproblem.curvature(direction)
            alpha = rho / float(direction @ product)
            step = step + alpha * direction
            residual = residual - alpha * product
            z = residual / self._diagonal
            rho, before = float(residual @ z), rho
            if rho <= goal or subproblem.passes >= max_passes - 1:
                return step
            direction = z + (rho / before) * direction


def _backtrack(
    subproblem: Subproblem, x: Float64, value: float, step: Float64, slope: float
) -> tuple[Float64, float, Float64] | None:
    """The next point with its value and gradient; None where rounding leaves no way down."""
    length = 1.0
    for _ in range(_HALVINGS):
        trial = x + length * step
        reached, gradient = subproblem.gradient(trial)
        if reached <= value + _ARMIJO * length * slope + 1e-15 * abs(value):
            return trial, reached, gradient
        length /= 2
    return None
