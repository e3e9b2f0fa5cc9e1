"""Models of one weight a feature: what they have in common, and least squares.

Objective: mean over rows of ``s · loss(w·x + b, y)`` + l1·‖w‖₁ + l2/2·‖w‖², with sample weights s and an
intercept b that is not penalised.  The table has one row for each feature and, last, one for the
intercept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from squall import _kernels
from squall.models.losses import squared_loss, squared_quality
from squall.optim import kernel_rule
from squall.records import (
    Block,
    CsrBlock,
    DenseBlock,
    Float32,
    Int32,
    Int64,
    OptimizerSpec,
    SharedTable,
    TableSpec,
)


class Kernels(NamedTuple):
    """A loss: its training loops, its gradient of sparse rows, its sums and its slope at given outputs."""

    minibatches: Callable[..., tuple[float, float, int]]
    minibatches_dense: Callable[..., tuple[float, float, int]]
    gradient: Callable[..., tuple[Float32, float, float]]
    loss: Callable[[Float32, Float32, Float32 | None], tuple[float, float]]
    slope: Callable[[Float32, Float32], Float32]


class OneOutputModel(msgspec.Struct, frozen=True):
    """The model protocol (:class:`squall.protocols.Model`), but for `loss`, for ``w·x + b``.

    Parameters
    ----------
    n_features : int
        Width of the feature space.
    fit_intercept : bool
        Whether the intercept is trained; it stays 0 otherwise.
    """

    kernels: ClassVar[Kernels]

    n_features: int
    fit_intercept: bool = True

    def table(self, name: str, optimizer: OptimizerSpec) -> TableSpec:
        """One row for each feature, and the intercept's behind them."""
        return TableSpec(
            name=name,
            rows=self.n_features + 1,
            dim=1,
            optimizer=optimizer,
            regularized_rows=self.n_features,
        )

    def train_shared(
        self,
        block: Block,
        order: Int32,
        batch_size: int,
        first: int,
        count: int,
        table: SharedTable,
        progress: Int64,
    ) -> tuple[float, float, int]:
        """Minibatches in place on mapped parameters; see the protocol."""
        settings = (
            order,
            batch_size,
            first,
            count,
            table.array,
            kernel_rule(table.spec.optimizer),
            self.fit_intercept,
            table.step,
            progress,
        )
        if isinstance(block, DenseBlock):
            return self.kernels.minibatches_dense(block.features, block.labels, block.weights, *settings)
        return self.kernels.minibatches(
            block.indptr, block.indices, block.values, block.labels, block.weights, *settings
        )

    def needed_rows(self, block: Block, rows: Int32) -> tuple[Int64, Any]:
        """Distinct features of these rows, then the intercept."""
        if isinstance(block, DenseBlock):
            return np.arange(self.n_features + 1, dtype=np.int64), None
        needed, *taken = _kernels.csr_minibatch(
            block.indptr, block.indices, block.values, rows, self.n_features
        )
        return needed, taken

    def gradient(
        self, block: Block, rows: Int32, handle: Any, weights: Float32, batch_size: int
    ) -> tuple[Float32, float, float]:
        """Gradient of a minibatch for the rows that `needed_rows` named; see the protocol."""
        if isinstance(block, DenseBlock):
            return self._dense_gradient(block, rows, weights, batch_size)
        indptr, local, values = handle
        return self.kernels.gradient(
            indptr, local, values, block.labels, block.weights, rows, weights, self.fit_intercept, batch_size
        )

    def _dense_gradient(
        self, block: DenseBlock, rows: Int32, weights: Float32, batch_size: int
    ) -> tuple[Float32, float, float]:
        labels = block.labels[rows]
        sample_weights = None if block.weights is None else block.weights[rows]
        taken = DenseBlock(block.features[rows], labels, sample_weights)
        outputs = self.outputs(taken, weights)
        loss, weight = self.kernels.loss(outputs, labels, sample_weights)
        slope = self.kernels.slope(outputs, labels)
        if sample_weights is not None:
            slope *= sample_weights
        slope /= np.float32(batch_size)
        total = slope.sum() if self.fit_intercept else np.float32(0.0)
        full = np.append((slope @ taken.features).astype(np.float32), np.float32(total))
        return full[:, None], loss, weight

    def outputs(self, block: Block, weights: Float32) -> Float32:
        """``w·x + b`` for each row: (n_rows,)."""
        coef = np.ascontiguousarray(weights[:-1, 0])
        intercept = float(weights[-1, 0]) if self.fit_intercept else 0.0
        if isinstance(block, CsrBlock):
            return _kernels.csr_margins(block.indptr, block.indices, block.values, coef, intercept)
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite loss says it
            return np.asarray(block.features @ coef + np.float32(intercept), dtype=np.float32)


class LinearModel(OneOutputModel, frozen=True, tag="linear"):
    """Least squares: the loss is (w·x + b − y)² / 2, of labels that are numbers.

    Parameters
    ----------
    n_features, fit_intercept
        See `OneOutputModel`.
    target_mean, target_scale : float
        A label y stands for ``target_mean + target_scale · y``; for whoever reads the weights.
    """

    target_mean: float = 0.0
    target_scale: float = 1.0

    kernels: ClassVar[Kernels] = Kernels(
        _kernels.squared_minibatches,
        _kernels.squared_minibatches_dense,
        _kernels.csr_squared_gradient,
        squared_loss,
        np.subtract,
    )

    def loss(self, block: Block, weights: Float32) -> tuple[float, float, None]:
        """Sum of losses and of sample weights; numbers are not right or wrong."""
        return squared_quality(self.outputs(block, weights), block)
