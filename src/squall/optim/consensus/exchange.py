"""What travels in a round of consensus ADMM, and in how many bits.

By default all of a contribution is one array of float64; ``"float32"`` rounds it, vectors, inner
products and all, which is precise enough for a relative precision of 1e-8.  With ``"int16"`` vectors
are integers on the round's :class:`~squall.optim.consensus.grid.Grid`, but for the first round, which
has none; curvature, which only has to be the same for all, is float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from squall.optim.consensus.admm import Consensus
from squall.optim.consensus.agreement import ConsensusSettings, Contribution
from squall.records import Float64, Numbers


def prepared(loss: float, curvature: Float64, settings: ConsensusSettings) -> list[Numbers]:
    """The arrays that a worker brings to the round before the first."""
    return [np.array([loss]), curvature if settings.encoding is None else curvature.astype(np.float32)]


def encoded(given: Contribution, settings: ConsensusSettings) -> list[Numbers]:
    """The arrays that a worker brings to a round."""
    if settings.encoding == "float32":
        return [given.packed().astype(np.float32)]
    if settings.encoding is None:
        return [given.packed()]
    vector: Numbers = given.vector if given.integers is None else given.integers
    rest = given._replace(vector=given.vector[:0], curvature=given.curvature[:0]).packed()
    curvature = [given.curvature.astype(np.float32)] if len(given.curvature) else []
    return [vector, rest, *curvature]


def decoded(sums: Sequence[Numbers], consensus: Consensus) -> Contribution:
    """The sums of all workers' arrays; ``consensus`` is as it was before the round."""
    first, *others = sums
    if not others:
        return Contribution.unpacked(first.astype(np.float64), consensus.settings)
    vector: Float64 = first.astype(np.float64)
    if first.dtype == np.int16:
        assert consensus.grid is not None
        vector = consensus.dual_sum + consensus.grid.values(first.astype(np.int16))
    curvature = others[1:] or [vector[:0]]
    return Contribution.unpacked(np.concatenate([vector, others[0], *curvature]), consensus.settings)


def curvature_of(sums: Sequence[Numbers], settings: ConsensusSettings) -> Float64:
    """The curvature that a round's sums have brought along, also the one before the first."""
    last: Float64 = sums[-1].astype(np.float64)
    return last[len(last) - settings.curvature_size :]
