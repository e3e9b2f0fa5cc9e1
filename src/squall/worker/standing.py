"""Where a slot of consensus ADMM stands, and how that outlives its worker.

What a slot keeps after each round is what kill -9 must not take: facts in its state, and of each round that
acceleration remembers a trace, from which point and duals follow.  The metric is not kept: it follows from
the sums of an earlier round, which stays in the store as long as it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from squall.models.objectives import ShareObjective
from squall.optim.consensus.admm import Consensus
from squall.optim.consensus.agreement import SETTLED, ConsensusSettings, Round
from squall.optim.consensus.exchange import curvature_of
from squall.optim.consensus.participant import Participant
from squall.protocols import Store
from squall.records import Numbers, Registration, WorkerTask
from squall.worker.keeping import Keeper, Kept
from squall.worker.rounds import Meeting, Rounds
from squall.worker.traces import Traces

Told = tuple[Any, ...]
"""Rows, the sum of their losses, and of their weights."""


@dataclass(slots=True)
class Standing:
    """Where a slot stands, beside what its participant knows.

    Attributes
    ----------
    curvature : Meeting
        The round whose sums the metric is of.
    rounds_left : list of Meeting
        (slot 0) Rounds that have not been forgotten.
    visited : int
        Rounds of which it has told; others may have had more.
    own_loss : Told
        Of the last round that it has computed.
    last : Round, optional
        How the last round went.
    pending : list of ndarray
        Brought to the present round, or to be brought.  A successor makes them again, to the bit, for what
        this worker knows beside them follows from the same work.
    """

    curvature: Meeting
    rounds_left: list[Meeting] = field(default_factory=list)
    visited: int = 0
    own_loss: Told = (0, 0.0, 0.0)
    last: Round | None = None
    pending: list[Numbers] = field(default_factory=list)

    @property
    def converged(self) -> bool:
        """Whether there is no other round."""
        return self.last is not None and self.last.converged

    def facts(self) -> dict[str, Any]:
        """What a successor needs of it, as plain data."""
        return {
            "curvature": self.curvature,
            "left": self.rounds_left,
            "own_loss": list(self.own_loss),
            "last": None if self.last is None else list(self.last),
        }

    @staticmethod
    def of(visited: int, facts: dict[str, Any]) -> Standing:
        """From `facts`, which may have more in them."""
        last = facts["last"]
        return Standing(
            msgspec.convert(facts["curvature"], Meeting),
            msgspec.convert(facts["left"], list[Meeting]),
            visited,
            tuple(facts["own_loss"]),
            None if last is None else Round(*last),
        )


class StandingKeeper:
    """Keeps a slot's participant and standing, and restores its predecessor's.

    Parameters
    ----------
    task, store, interrupted
        As of :class:`squall.worker.rounds.Rounds`.
    depth : int
        Of :class:`~squall.optim.consensus.agreement.ConsensusSettings`.
    partial : bool
        Whether rounds may be without some slots when the metric has settled: there are no traces of them.
    """

    def __init__(
        self, task: WorkerTask, store: Store, interrupted: Callable[[], bool], depth: int, *, partial: bool
    ) -> None:
        self._keeper, self._traces = Keeper(task, store), Traces(task, store, interrupted)
        self._depth, self._partial = depth, partial
        self._taken: tuple[Kept, dict[str, Any]] | None = None

    @property
    def seconds(self) -> float:
        """Spent in keeping, in all."""
        return self._keeper.seconds + self._traces.seconds

    @property
    def bytes_out(self) -> int:
        """Bytes of arrays, in all."""
        return self._keeper.bytes_out + self._traces.bytes_out

    @property
    def has_predecessor(self) -> bool:
        """Whether there is something to `restore`."""
        return self._taken is not None

    def take_over(self, registration: Registration) -> int:
        """Find what the predecessor has kept; minibatches that stay done."""
        taken = self._keeper.taken_over(registration)
        if taken is None or not taken[0].facts:
            return 0
        self._taken = taken
        return taken[0].minibatches

    def restore(
        self, objective: ShareObjective, agreed: ConsensusSettings, rounds: Rounds
    ) -> tuple[Participant, Standing] | None:
        """The predecessor's, to the bit; None if it was broken off."""
        assert self._taken is not None
        kept, arrays = self._taken
        standing = Standing.of(kept.minibatches, kept.facts)
        sums = rounds.again(standing.curvature, agreed.n_slots)
        needed, whole = self._needed(kept.facts, arrays), "u" in arrays
        common = {needed[-1]: arrays} if whole else self._traces.common(needed)
        if sums is None or common is None:
            return None
        own = {needed[-1]: arrays} if whole else self._traces.own(needed)
        self._traces.take_over(kept.facts["traces"], needed)
        curvature = curvature_of(sums, agreed)
        consensus = Consensus.restored(agreed, kept.facts, arrays, common, curvature)
        return Participant.restored(objective, consensus, own, common), standing

    def keep(self, worker: Participant, standing: Standing) -> None:
        """From now on a successor goes on from here."""
        needed = list[int]()
        if self._has_traces(worker.consensus.round):
            self._traces.write(worker.consensus.round, worker.trace(), worker.consensus.trace())
            needed = self._needed(*worker.state())
        self._keeper.keep(*self._state(worker, standing))
        self._traces.forget(needed)

    def state(self, worker: Participant | None, standing: Standing) -> dict[str, Any]:
        """All that a successor can use; a blob holds it, and this names the blob."""
        if worker is not None:
            return self._keeper.put(*self._state(worker, standing))
        if self._taken is None:
            return self._keeper.put(0, "", {}, {})
        kept, arrays = self._taken
        return self._keeper.put(kept.minibatches, kept.round, kept.facts, arrays)

    def _has_traces(self, number: int) -> bool:
        """Whether a round is kept as traces: not before all slots go from round to round alike."""
        return 0 < number <= SETTLED or (not self._partial and number > 0)

    def _needed(self, facts: dict[str, Any], arrays: dict[str, Any]) -> list[int]:
        """The rounds of which a successor needs traces, by what a worker's `state` has given."""
        return [*dict.fromkeys([facts["base"], *Consensus.rounds(facts, arrays, self._depth)])]

    def _state(
        self, worker: Participant, standing: Standing
    ) -> tuple[int, str, dict[str, Any], dict[str, Any]]:
        """For the keeper.  The round in which it converged is not done before it has been told of."""
        facts, own = worker.state()
        arrays: dict[str, Any] = {**own}
        number = worker.consensus.round
        if not self._has_traces(number):
            arrays |= {**worker.trace(), **worker.consensus.trace()}
        facts |= standing.facts() | {"traces": self._traces.left}
        return standing.visited - standing.converged, str(number) if number else "", facts, arrays
