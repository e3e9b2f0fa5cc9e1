"""Binary logistic regression.

Objective: mean over rows of ``s · log(1 + exp(−(2y − 1)(w·x + b)))`` + l1·‖w‖₁ + l2/2·‖w‖²,
with labels y in {0, 1}, sample weights s, and an intercept b that is not penalised.  The
table has one row for each feature and, last, one for the intercept.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from squall import _kernels
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


class LogisticModel(msgspec.Struct, frozen=True, tag="logistic"):
    """The model protocol (:class:`squall.protocols.Model`) for logistic regression.

    Parameters
    ----------
    n_features : int
        Width of the feature space.
    fit_intercept : bool
        Whether the intercept is trained; it stays 0 otherwise.
    """

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
            return _kernels.logistic_minibatches_dense(block.features, block.labels, block.weights, *settings)
        return _kernels.logistic_minibatches(
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
        if isinstance(block, CsrBlock):
            indptr, local, values = handle
            return _kernels.csr_logistic_gradient(
                indptr,
                local,
                values,
                block.labels,
                block.weights,
                rows,
                weights,
                self.fit_intercept,
                batch_size,
            )
        labels = block.labels[rows]
        sample_weights = None if block.weights is None else block.weights[rows]
        pulled = np.ascontiguousarray(weights[:-1, 0])
        intercept = float(weights[-1, 0]) if self.fit_intercept else 0.0
        features = block.features[rows]
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite loss says it
            margins = features @ pulled + np.float32(intercept)
        loss, weight = _kernels.logistic_loss(margins, labels, sample_weights)
        residual = _kernels.logistic_probabilities(margins) - labels
        if sample_weights is not None:
            residual *= sample_weights
        residual /= np.float32(batch_size)
        slope = residual.sum() if self.fit_intercept else np.float32(0.0)
        full = np.append((residual @ features).astype(np.float32), np.float32(slope))
        return full[:, None], loss, weight

    def outputs(self, block: Block, weights: Float32) -> Float32:
        """``w·x + b`` for each row; ``weights`` is the whole table's (n_features + 1, 1)."""
        coef = np.ascontiguousarray(weights[:-1, 0])
        intercept = float(weights[-1, 0]) if self.fit_intercept else 0.0
        if isinstance(block, CsrBlock):
            return _kernels.csr_margins(block.indptr, block.indices, block.values, coef, intercept)
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite loss says it
            return np.asarray(block.features @ coef + np.float32(intercept), dtype=np.float32)

    def loss(self, block: Block, weights: Float32) -> tuple[float, float, float]:
        """Sum of losses, of sample weights, and of the weights of rows predicted right."""
        margins = self.outputs(block, weights)
        loss, total = _kernels.logistic_loss(margins, block.labels, block.weights)
        right = (margins > 0) == (block.labels > 0.5)
        if block.weights is None:
            return loss, total, float(np.count_nonzero(right))
        return loss, total, float(block.weights[right].sum(dtype=np.float64))
