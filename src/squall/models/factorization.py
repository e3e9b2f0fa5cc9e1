"""Factorisation machines of second order (S. Rendle, "Factorization machines", ICDM 2010).

z = b + w·x + Σ_{k<l} xₖ·xₗ·⟨vₖ, vₗ⟩.  Objective: mean over rows of ``s · loss(z, y)``, with the
log-loss for labels y in {0, 1} or (z − y)² / 2 for numbers, + l1 and l2 penalties on w and v alike;
the intercept b is not penalised.  A table row is a feature's weight and then its factors; the last
row's first number is the intercept.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from squall import _kernels
from squall.models.losses import logistic_quality, squared_quality
from squall.models.wide import needed_rows, rows_of
from squall.optim import kernel_rule
from squall.records import (
    Block,
    Float32,
    InitialValues,
    Int32,
    Int64,
    OptimizerSpec,
    SharedTable,
    TableSpec,
)

_LOSSES = {"logistic": _kernels.LOGISTIC, "squared": _kernels.SQUARED}


class FactorizationModel(msgspec.Struct, frozen=True, tag="factorization"):
    """The model protocol (:class:`squall.protocols.Model`) for factorisation machines.

    Parameters
    ----------
    n_features : int
        Width of the feature space.
    n_factors : int
        Length of each feature's vector, at least 1.
    loss_name : {"logistic", "squared"}
    init_scale : float
        Deviation of the factors at the start.
    seed : int
        Of these.
    fit_intercept : bool
        Whether the intercept is trained; it stays 0 otherwise.
    target_mean, target_scale : float
        A label y stands for ``target_mean + target_scale · y``; for whoever reads the weights.
    """

    n_features: int
    n_factors: int
    loss_name: Literal["logistic", "squared"] = "logistic"
    init_scale: float = 0.05
    seed: int = 0
    fit_intercept: bool = True
    target_mean: float = 0.0
    target_scale: float = 1.0

    @property
    def dim(self) -> int:
        """Numbers in a table row."""
        return 1 + self.n_factors

    def table(self, name: str, optimizer: OptimizerSpec) -> TableSpec:
        """One row for each feature, and the intercept's behind them; factors begin at random."""
        return TableSpec(
            name=name,
            rows=self.n_features + 1,
            dim=self.dim,
            optimizer=optimizer,
            regularized_rows=self.n_features,
            initial=InitialValues("normal", self.init_scale, self.seed, zero_columns=1),
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
        return _kernels.fm_minibatches(
            _LOSSES[self.loss_name],
            rows_of(block),
            block.labels,
            block.weights,
            order,
            batch_size,
            first,
            count,
            table.array,
            self.dim,
            kernel_rule(table.spec.optimizer),
            self.fit_intercept,
            table.step,
            progress,
        )

    def needed_rows(self, block: Block, rows: Int32) -> tuple[Int64, Any]:
        """Distinct features of these rows (of dense ones all), then the intercept."""
        return needed_rows(block, rows)

    def gradient(
        self, block: Block, rows: Int32, handle: Any, weights: Float32, batch_size: int
    ) -> tuple[Float32, float, float]:
        """Gradient of a minibatch for the rows that `needed_rows` named; see the protocol."""
        return _kernels.fm_gradient(
            _LOSSES[self.loss_name],
            handle,
            block.labels,
            block.weights,
            rows,
            weights,
            self.fit_intercept,
            batch_size,
        )

    def outputs(self, block: Block, weights: Float32) -> Float32:
        """z of each row: (n_rows,)."""
        return np.ravel(_kernels.fm_outputs(rows_of(block), weights, self.fit_intercept))

    def loss(self, block: Block, weights: Float32) -> tuple[float, float, float | None]:
        """Sum of losses, of sample weights, and of the weights of rows whose class is predicted right."""
        outputs = self.outputs(block, weights)
        if self.loss_name == "logistic":
            return logistic_quality(outputs, block)
        return squared_quality(outputs, block)
