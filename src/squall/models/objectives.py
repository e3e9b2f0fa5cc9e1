"""A share of the rows as a smooth function of all coefficients: what second-order methods minimise.

f(x) = Σ s · loss(row, x) / N over the rows of this share, with N the rows of *all* shares, so that the
shares' functions add up to the mean loss.  Coefficients are one vector, in the order of the model's
table: the weights of each feature and, last, the intercepts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from squall._kernels import objectives as kernels
from squall.models.linear import LinearModel
from squall.models.logistic import LogisticModel
from squall.models.softmax import SoftmaxModel
from squall.models.wide import rows_of
from squall.protocols import Model
from squall.records import Block, DenseBlock, Float64

_DENSE_ROWS = 1024  # dense rows that are turned into double at once

SmoothModel = LogisticModel | LinearModel | SoftmaxModel
"""Models whose loss is convex and twice differentiable in all coefficients."""


class ShareObjective:
    """The function of one share; points are float64 vectors of ``n`` coefficients.

    Parameters
    ----------
    model : SmoothModel
    blocks : sequence of Block
        The share's rows; kept.
    n_rows : int
        Rows of all shares together.
    """

    def __init__(self, model: SmoothModel, blocks: Sequence[Block], n_rows: int) -> None:
        self._loss, self._n_outputs = _kind(model), getattr(model, "n_classes", 1)
        self._fit_intercept, self._blocks, self._n_rows = model.fit_intercept, blocks, n_rows
        self._shape = (model.n_features + 1, self._n_outputs)
        self._curvature = [np.zeros((block.n_rows, self._n_outputs)) for block in blocks]

    @property
    def n(self) -> int:
        """Coefficients, intercepts included."""
        return self._shape[0] * self._n_outputs

    @property
    def n_regularized(self) -> int:
        """How many of them, the first ones, penalties are on."""
        return self.n - self._n_outputs

    def gradient(self, x: Float64) -> tuple[float, Float64]:
        """f(x) and its gradient; ``x`` is the point of second derivatives from now on."""
        at, out, loss = x.reshape(self._shape), np.zeros(self._shape), 0.0
        for block, curvature in zip(self._blocks, self._curvature, strict=True):
            loss += kernels.objective_gradient(
                self._loss,
                rows_of(block),
                block.labels,
                block.weights,
                at,
                self._fit_intercept,
                out,
                curvature,
            )
        return loss / self._n_rows, out.ravel() / self._n_rows

    def hessian_product(self, v: Float64) -> Float64:
        """The Hessian, where `gradient` was last taken, times a vector."""
        factor, out = v.reshape(self._shape), np.zeros(self._shape)
        for block, curvature in zip(self._blocks, self._curvature, strict=True):
            kernels.hessian_product(
                self._loss, rows_of(block), block.weights, curvature, factor, self._fit_intercept, out
            )
        return out.ravel() / self._n_rows

    def hessian_diagonal(self) -> Float64:
        """The Hessian's diagonal where `gradient` was last taken."""
        out = np.zeros(self._shape)
        for block, curvature in zip(self._blocks, self._curvature, strict=True):
            kernels.hessian_diagonal(
                self._loss, rows_of(block), block.weights, curvature, self._fit_intercept, out
            )
        return out.ravel() / self._n_rows

    def hessian(self) -> Float64:
        """The Hessian where `gradient` was last taken: (n, n)."""
        out = np.zeros((self.n, self.n))
        for block, curvature in zip(self._blocks, self._curvature, strict=True):
            if isinstance(block, DenseBlock) and self._n_outputs == 1:
                self._add_dense_hessian(block, curvature[:, 0], out)
            else:
                kernels.hessian_matrix(
                    self._loss,
                    rows_of(block),
                    block.weights,
                    curvature,
                    self._n_outputs,
                    self._fit_intercept,
                    out,
                )
        upper = np.triu(out)
        return (upper + np.triu(upper, 1).T) / self._n_rows

    def _add_dense_hessian(self, block: DenseBlock, curvature: Float64, out: Float64) -> None:
        weighted = curvature if block.weights is None else curvature * block.weights
        for begin in range(0, block.n_rows, _DENSE_ROWS):
            rows = slice(begin, begin + _DENSE_ROWS)
            features = block.features[rows].astype(np.float64)
            scaled = features * weighted[rows, None]
            out[:-1, :-1] += scaled.T @ features
            if self._fit_intercept:
                out[:-1, -1] += scaled.sum(axis=0)
                out[-1, -1] += weighted[rows].sum()


def _kind(model: SmoothModel) -> int:
    if isinstance(model, SoftmaxModel):
        return kernels.SOFTMAX
    return kernels.LOGISTIC if isinstance(model, LogisticModel) else kernels.SQUARED


def smooth(model: Model) -> SmoothModel | None:
    """The model, if it is a smooth one."""
    return model if isinstance(model, SmoothModel) else None
