"""Multinomial logistic regression (softmax).

Objective: mean over rows of ``s · (log Σ exp(z) − z_y)``, z = Wᵀx + b, + l1·‖W‖₁ + l2/2·‖W‖²,
with labels y in {0, …, K − 1}, sample weights s, and intercepts b that are not penalised.  The
table has one row of K weights for each feature and, last, one for the intercepts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from squall import _kernels
from squall.models.wide import needed_rows, rows_of
from squall.optim import kernel_rule
from squall.records import Block, Float32, Int32, Int64, OptimizerSpec, SharedTable, TableSpec


class SoftmaxModel(msgspec.Struct, frozen=True, tag="softmax"):
    """The model protocol (:class:`squall.protocols.Model`) for several classes.

    Parameters
    ----------
    n_features : int
        Width of the feature space.
    n_classes : int
        At least 2.
    fit_intercept : bool
        Whether the intercepts are trained; they stay 0 otherwise.
    """

    n_features: int
    n_classes: int
    fit_intercept: bool = True

    def table(self, name: str, optimizer: OptimizerSpec) -> TableSpec:
        """One row for each feature, and the intercepts' behind them."""
        return TableSpec(
            name=name,
            rows=self.n_features + 1,
            dim=self.n_classes,
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
        return _kernels.softmax_minibatches(
            rows_of(block),
            block.labels,
            block.weights,
            order,
            batch_size,
            first,
            count,
            table.array,
            self.n_classes,
            kernel_rule(table.spec.optimizer),
            self.fit_intercept,
            table.step,
            progress,
        )

    def needed_rows(self, block: Block, rows: Int32) -> tuple[Int64, Any]:
        """Distinct features of these rows (of dense ones all), then the intercepts."""
        return needed_rows(block, rows)

    def gradient(
        self, block: Block, rows: Int32, handle: Any, weights: Float32, batch_size: int
    ) -> tuple[Float32, float, float]:
        """Gradient of a minibatch for the rows that `needed_rows` named; see the protocol."""
        return _kernels.softmax_gradient(
            handle, block.labels, block.weights, rows, weights, self.fit_intercept, batch_size
        )

    def outputs(self, block: Block, weights: Float32) -> Float32:
        """z of each row and class: (n_rows, n_classes)."""
        return _kernels.softmax_outputs(rows_of(block), weights, self.fit_intercept)

    def loss(self, block: Block, weights: Float32) -> tuple[float, float, float]:
        """Sum of losses, of sample weights, and of the weights of rows predicted right."""
        return _kernels.softmax_loss(self.outputs(block, weights), block.labels, block.weights)
