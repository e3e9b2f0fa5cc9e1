"""Sums over all rows that second-order methods need, in float64 on the float32 blocks of training.

The rules of :mod:`squall._kernels` hold.  Coefficients are float64[n_features + 1, n_outputs]: a row for
each feature and, last, one for the intercepts, which is neither read nor written without
``fit_intercept``.  Of `LOGISTIC` and `SQUARED` there is one output, of `SOFTMAX` one for each class.
Rows are ``(indptr, indices, values)`` or ``(X,)``; results are *added to* the last argument, so that a
share of several blocks is summed without copies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from squall._kernels import _native
from squall._kernels._native import LOGISTIC, SOFTMAX, SQUARED

__all__ = [
    "LOGISTIC",
    "SOFTMAX",
    "SQUARED",
    "hessian_diagonal",
    "hessian_matrix",
    "hessian_product",
    "objective_gradient",
    "quadratic_descent",
]

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Rows = tuple[NDArray[np.int64], NDArray[np.int32], Float32 | None] | tuple[Float32]


def objective_gradient(
    loss: int,
    rows: Rows,
    labels: Float32,
    weights: Float32 | None,
    x: Float64,
    fit_intercept: bool,
    gradient: Float64,
    curvature: Float64,
) -> float:
    """Σ weight · loss at ``x``, and its gradient, in one pass.

    ``curvature`` (n_rows, n_outputs) is overwritten with what the other functions need of this ``x``:
    second derivatives of the loss, or of `SOFTMAX` the probabilities.  Labels are as in training.
    """
    return _native.objective_gradient(loss, rows, labels, weights, x, fit_intercept, gradient, curvature)


def hessian_product(
    loss: int,
    rows: Rows,
    weights: Float32 | None,
    curvature: Float64,
    v: Float64,
    fit_intercept: bool,
    out: Float64,
) -> None:
    """Xᵀ D X v, with D the second derivatives at the point that ``curvature`` is of."""
    _native.hessian_product(loss, rows, weights, curvature, v, fit_intercept, out)


def hessian_diagonal(
    loss: int, rows: Rows, weights: Float32 | None, curvature: Float64, fit_intercept: bool, out: Float64
) -> None:
    """The diagonal of Xᵀ D X, to (n_features + 1, n_outputs).

    Each entry counts by itself: where a row has a feature twice this is less than the diagonal.
    """
    _native.hessian_diagonal(loss, rows, weights, curvature, fit_intercept, out)


def hessian_matrix(
    loss: int,
    rows: Rows,
    weights: Float32 | None,
    curvature: Float64,
    n_outputs: int,
    fit_intercept: bool,
    out: Float64,
) -> None:
    """Xᵀ D X, its upper triangle; below the diagonal anything may be added.

    ``out`` is a square of (n_features + 1) · n_outputs, coefficients in C order.
    """
    _native.hessian_matrix(loss, rows, weights, curvature, n_outputs, fit_intercept, out)


def quadratic_descent(
    q: Float64, b: Float64, z: Float64, n_regularized: int, l1: float, l2: float, tol: float, max_sweeps: int
) -> float:
    """Minimise zᵀQz/2 − bᵀz + l1·‖z‖₁ + l2/2·‖z‖² by coordinate descent, from ``z``, in place.

    The penalties are on the first ``n_regularized`` coordinates.  Ends when no coordinate's optimality
    condition was violated by more than ``tol`` in a sweep over all; returns the last sweep's worst.
    Sweeps over all coordinates alternate with sweeps, to convergence, over those that are not 0
    (Friedman, Hastie & Tibshirani, "Regularization paths for generalized linear models via coordinate
    descent", 2010).
    """
    return _native.quadratic_descent(q, b, z, n_regularized, l1, l2, tol, max_sweeps)
