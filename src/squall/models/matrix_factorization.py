"""Matrix factorisation with biases: who rates what how (Koren, Bell & Volinsky 2009).

r ≈ μ + b_u + b_i + p_u·q_i.  Objective: Σ s·(r − r̂)² + l2·(b_u² + b_i² + ‖p_u‖² + ‖q_i‖²) over the
ratings, by stochastic gradient descent rating by rating.  A table row is a bias and then factors; rows of
users come first, then those of items, and the last row's first number is the share of the training that
is done, which the learning rate follows.  So it goes wherever the parameters go.

A minibatch is what a worker trains on between two exchanges with the others: it descends on a copy of the
rows it pulled, and what they have moved by is its update.  Updates of several workers are added up.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from squall import _kernels
from squall.models.losses import squared_loss
from squall.records import (
    Block,
    CsrBlock,
    Float32,
    InitialValues,
    Int32,
    Int64,
    OptimizerSpec,
    SharedTable,
    TableSpec,
)

SCHEDULES = ("constant", "cosine")


class MatrixFactorizationModel(msgspec.Struct, frozen=True, tag="matrix_factorization"):
    """The model protocol (:class:`squall.protocols.Model`) for matrix factorisation.

    Rows are CSR of two entries, a user's number and ``n_users`` + an item's; held-out rows may lack
    either.  Its losses are in the units of the ratings: their mean is the mean squared error.

    Parameters
    ----------
    n_users, n_items : int
    n_factors : int
        Length of p_u and q_i, at least 1.
    learning_rate : float
        Of the first step, on standardised ratings.
    l2 : float
        The penalty's weight, at each rating.
    schedule : {"constant", "cosine"}
        Whether the rate stays, or falls along a half cosine to 0 at the end.
    planned : int
        Ratings to be visited in all, so that the end is known.
    init_scale : float
        Deviation of the factors at the start.
    seed : int
        Of these.
    target_mean, target_scale : float
        A label y stands for ``target_mean + target_scale · y``.
    """

    n_users: int
    n_items: int
    n_factors: int
    learning_rate: float
    l2: float
    schedule: Literal["constant", "cosine"] = "constant"
    planned: int = 1
    init_scale: float = 0.03
    seed: int = 0
    target_mean: float = 0.0
    target_scale: float = 1.0

    @property
    def _descent(self) -> tuple[float, float, bool, float]:
        return self.learning_rate, self.l2, self.schedule == "cosine", 1.0 / self.planned

    def table(self, name: str, optimizer: OptimizerSpec) -> TableSpec:
        """A row for each user and item, and one for the share of the training done.

        Raises
        ------
        ValueError
            If the optimiser is not plain descent at `learning_rate`, which alone undoes what `gradient` does.
        """
        plain = OptimizerSpec("sgd", self.learning_rate, beta=optimizer.beta, steps=optimizer.steps)
        if msgspec.structs.replace(plain, decay=optimizer.decay) != optimizer:
            raise ValueError(f"optimizer: {optimizer} does not apply steps as they are")
        return TableSpec(
            name=name,
            rows=self.n_users + self.n_items + 1,
            dim=1 + self.n_factors,
            optimizer=optimizer,
            regularized_rows=0,
            initial=InitialValues("normal", self.init_scale, self.seed, zero_columns=1),
            summed=True,
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
        assert isinstance(block, CsrBlock)
        loss, weight, rows = _kernels.mf_minibatches(
            block.indptr,
            block.indices,
            block.labels,
            block.weights,
            order,
            batch_size,
            first,
            count,
            table.array,
            *self._descent,
            table.step,
            progress,
        )
        return self._in_units(loss), weight, rows

    def needed_rows(self, block: Block, rows: Int32) -> tuple[Int64, Any]:
        """Users and items of these ratings, then the share done; and the ratings, numbered so."""
        assert isinstance(block, CsrBlock)
        needed, indptr, local, _ = _kernels.csr_minibatch(
            block.indptr, block.indices, None, rows, self.n_users + self.n_items
        )
        return needed, (indptr, local)

    def gradient(
        self, block: Block, rows: Int32, handle: Any, weights: Float32, batch_size: int
    ) -> tuple[Float32, float, float]:
        """What descent over these ratings moves the rows by, as a gradient; see the protocol."""
        indptr, local = handle
        sample_weights = None if block.weights is None else block.weights[rows]
        gradient, loss, weight = _kernels.mf_gradient(
            indptr, local, block.labels[rows], sample_weights, weights, *self._descent
        )
        return gradient, self._in_units(loss), weight

    def outputs(self, block: Block, weights: Float32) -> Float32:
        """b_u + b_i + p_u·q_i of each row, as far as it has them: (n_rows,)."""
        assert isinstance(block, CsrBlock)
        return _kernels.mf_outputs(block.indptr, block.indices, weights)

    def loss(self, block: Block, weights: Float32) -> tuple[float, float, None]:
        """Sum of squared errors, in the units of the ratings, and of sample weights."""
        half, total = squared_loss(self.outputs(block, weights), block.labels, block.weights)
        return self._in_units(2.0 * half), total, None

    def _in_units(self, loss: float) -> float:
        return loss * self.target_scale**2
