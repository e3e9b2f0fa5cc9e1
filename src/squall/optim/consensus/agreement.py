"""Consensus ADMM: what workers agree on before they begin, bring to a round, and learn of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from squall.optim.consensus.metrics import Metric, Penalty
from squall.records import Float64, Int16

FULL_METRIC = 2000
"""Most coefficients for which the metric is a whole matrix."""

RENEWED_AFTER = (1, 3, 6)
SETTLED = RENEWED_AFTER[-1]
"""Rounds with whose sums the metric is renewed, so that rounds 2, 4 and 7 are the first in it."""

Trace = dict[str, Float64]
"""Vectors of a round, by name."""

_SCALARS = 4  # beside the inner products with earlier residuals


@dataclass(frozen=True, slots=True)
class ConsensusSettings:
    """What all workers agree on before they begin.

    Parameters
    ----------
    n : int
        Coefficients.
    n_slots : int
        Workers, W.
    penalty : Penalty
    tol : float
        Relative precision asked of the objective.
    relaxation : float
        α, in (0, 2).
    rho : float
        Of the first round; 1 is the workers' mean curvature.
    depth : int
        Residuals that acceleration remembers; 0: none.
    full : bool
        Whether the metric is a matrix.
    balanced : bool
        Whether rho is balanced.
    encoding : {None, "float32", "int16"}
        How vectors travel; see :mod:`squall.optim.consensus.exchange`.
    """

    n: int
    n_slots: int
    penalty: Penalty
    tol: float = 1e-6
    relaxation: float = 1.6
    rho: float = 1.0
    depth: int = 10
    full: bool = True
    balanced: bool = True
    encoding: str | None = None

    @property
    def curvature_size(self) -> int:
        """Numbers of the curvature that each contributes to the metric."""
        return self.n * self.n if self.full else self.n


class Contribution(NamedTuple):
    """What a worker adds to a round's sums, and what they then are.

    ``vector`` is x̂ − z + u.  ``products`` are ⟨x̂ − z, F_j⟩ with its earlier residuals F_j.
    """

    vector: Float64  # (n,)
    moved: float  # ‖x̂ − z‖²
    loss: float  # f at z
    passes: float
    reach: float  # max_i |x̂ − z|_i √M_ii, before it was rounded to a grid
    products: Float64  # (depth,)
    curvature: Float64  # (settings.curvature_size,), or empty in most rounds
    integers: Int16 | None = None  # x̂ − z on the round's grid, if there is one

    def packed(self) -> Float64:
        """All in one array."""
        scalars = [self.moved, self.loss, self.passes, self.reach]
        return np.concatenate([self.vector, scalars, self.products, self.curvature])

    @staticmethod
    def unpacked(array: Float64, settings: ConsensusSettings) -> Contribution:
        """From `packed`, or from a sum of such arrays."""
        n, products = settings.n, settings.n + _SCALARS
        moved, loss, passes, reach = (float(x) for x in array[n:products])
        rest = array[products:]
        return Contribution(
            array[:n], moved, loss, passes, reach, rest[: settings.depth], rest[settings.depth :]
        )


class Round(NamedTuple):
    """How a round went; residuals are those of Boyd et al., in the metric.

    A squared residual then has the unit of the objective.
    """

    number: int  # from 1
    primal: float  # (Σ ‖x_w − z‖²_M)^½
    dual: float  # (W ‖z − z_before‖²_M)^½
    rho: float
    loss: float  # mean loss of all rows at the z that the round began with
    objective: float  # the same with penalties
    passes: float  # over its rows, of a worker on average
    enough: float  # what both residuals have to come down to
    converged: bool


class Decision(NamedTuple):
    """What a worker has to do with its own part after a round, in this order."""

    step: Float64  # z⁺ − z
    forget: bool  # all residuals before this round's
    theta: Float64  # the mixture of what is remembered
    change: tuple[Metric, Metric] | None  # from one metric to another
