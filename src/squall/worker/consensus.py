"""Rounds of consensus ADMM in one worker: what the cores compute, met, kept and told of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from squall.errors import SettingError
from squall.models.objectives import ShareObjective, smooth
from squall.optim.consensus.admm import (
    FULL_METRIC,
    SETTLED,
    Consensus,
    ConsensusSettings,
    Round,
)
from squall.optim.consensus.exchange import curvature_of, decoded, encoded, prepared
from squall.optim.consensus.metrics import Penalty
from squall.optim.consensus.participant import Participant
from squall.protocols import Model, Store
from squall.records import Block, Int32, Numbers, Registration, SolverRound, Steps, WorkerTask
from squall.worker.partial import PartialRounds
from squall.worker.rounds import SPEAKER, Keeper, Kept, Meeting, Rounds, start_key, unpacked
from squall.worker.traces import Traces

_ROWS, _START = "rows", "start"  # rounds before the first: how many rows there are; loss and curvature
_PENDING = "pending"  # begins the names of arrays that were to be brought when a slot was handed over
_IDLE_S = 0.02


class ConsensusRounds:
    """A round is one step: solve, meet, go on from the sum, keep.

    What a slot keeps after each round is what kill -9 must not take: facts in its state, and of each round
    that acceleration remembers a trace, from which point and duals follow.  The metric is not kept: it
    follows from the sums of an earlier round, which stays in the store as long as it is needed.  So the
    bits are the same with and without kills, as long as rounds wait for all.

    Parameters
    ----------
    task, model, store, interrupted
        See :meth:`squall.protocols.StrategySettings.bind`.
    slots : list of int
        Those that have rows.
    settings : dict
        Of :class:`~squall.optim.consensus.admm.ConsensusSettings`, without what is known here.
    partial : float or None
        The fraction of the slots that is waited for, when the metric has settled; None for all.
    shards : int or None
        Of :class:`squall.worker.rounds.Rounds`.
    """

    def __init__(
        self,
        task: WorkerTask,
        model: Model,
        store: Store,
        interrupted: Callable[[], bool],
        slots: list[int],
        settings: dict[str, Any],
        partial: float | None,
        *,
        shards: int | None,
    ) -> None:
        convex = smooth(model)
        if convex is None:
            raise SettingError("this model's loss is not convex", where="ADMM", fix="use another strategy")
        self._task, self._model, self._blobs, self._interrupted = task, convex, store.blobs, interrupted
        self._n_slots, self._settings = len(slots), settings
        self._rounds, self._keeper = Rounds(task, store, interrupted, shards), Keeper(task, store)
        self._traces = Traces(task, store, interrupted)
        self._partial: PartialRounds | None = None
        if partial is not None:
            self._partial = PartialRounds(task, store, interrupted, slots, partial)
        self._taken: tuple[Kept, dict[str, Any]] | None = None
        self._worker: Participant | None = None
        self._objective: ShareObjective | None = None
        self._n_rows = 0  # of all slots
        self._weight = 0.0  # of its own rows
        self._visited = 0  # rounds of which it has told; others may have had more
        self._answered = False
        self._own_loss: tuple[Any, ...] = (0, 0.0, 0.0)  # the last that it had told of, as `_untold`
        self._untold: tuple[Any, ...] = (0, 0.0, 0.0)  # rows of the present round, their losses and weights
        self._pending: list[Numbers] = []  # brought to the present round, or to be brought
        self._curvature = Meeting(_START)  # the round whose sums the metric is of
        self._rounds_left: list[Meeting] = []  # (the speaker) that have not been forgotten
        self._last: Round | None = None

    # ----------------------------------------------------------------------- the seam's methods

    def resume(self, registration: Registration) -> int:
        """Go on from what was kept last."""
        taken = self._keeper.taken_over(registration)
        if taken is None or not taken[0].facts:
            return 0
        self._taken = taken
        return taken[0].minibatches

    def start_epoch(self, epoch: int) -> bool:
        """After convergence there is only the end to wait for."""
        if self._worker is None or self._last is None or not self._last.converged:
            return True
        if self._visited < self._worker.consensus.round:
            return True
        while not self._interrupted():
            time.sleep(_IDLE_S)
        return False

    def step(self, block: Block, order: Int32, batch_size: int, first: int, count: int) -> Steps:
        """One round; ``block`` is all that the slot has."""
        before = self._used()
        if not self._ready(block):
            return self._told(0, before)
        assert self._worker is not None
        if self._visited < self._worker.consensus.round:
            # Others had this round with its last answer, or its predecessor may not have told of it.
            self._visited += 1
            self._untold = self._own_loss
            return self._told(1, before)
        if self._partial is not None and self._worker.consensus.round >= SETTLED:
            return self._told(self._partial_step(self._partial, block), before)
        consensus = self._worker.consensus
        if not self._pending:
            contribution = self._worker.contribute()
            self._pending = encoded(contribution, consensus.settings)
            self._own_loss = block.n_rows, contribution.loss * self._n_rows, self._weight
        meeting = self._rounds.meeting(str(consensus.round + 1), self._pending, self._n_slots)
        sums = self._rounds.meet(meeting, self._pending, self._n_slots)
        if sums is None:
            return self._told(0, before)
        self._take_over(meeting, sums)
        return self._told(1, before)

    def finish(self) -> bool:
        """Nothing is held back; but those who come late must not wait for this slot."""
        if self._partial is not None and self._worker is not None:
            self._partial.end(self._worker.consensus.round, converged=False)
        return True

    def state_dict(self) -> dict[str, Any]:
        """All that a successor can use; a blob holds it, and this names the blob."""
        if self._worker is not None:
            return self._keeper.put(*self._state())
        if self._taken is None:
            return self._keeper.put(0, "", {}, {})
        kept, arrays = self._taken
        return self._keeper.put(kept.minibatches, kept.round, kept.facts, arrays)

    # ------------------------------------------------------------------------------------ rounds

    def _partial_step(self, rounds: PartialRounds, block: Block) -> int:
        """A round that may be without this slot's newest answer; 0 if it was broken off."""
        assert self._worker is not None
        consensus = self._worker.consensus
        before = consensus.round
        if not self._answered:
            answer = self._worker.answer()
            self._own_loss = block.n_rows, float(answer[-2]) * self._n_rows, self._weight
            rounds.answer(answer)
            self._answered = True
        answered = rounds.meet(before + 1, all_slots=before == SETTLED)
        if answered is None:
            return 0
        self._last = self._worker.absorb_towards(answered.sums, answered.number)
        if answered.last:
            self._last = self._last._replace(converged=answered.last == 2)
        elif self._last.converged:
            rounds.end(answered.number, converged=True)
        self._answered, self._untold = False, self._own_loss
        self._visited += 1
        if self._task.slot == SPEAKER:
            self._rounds.show(str(answered.number), consensus.solution.astype(np.float32))
        self._keep()
        if self._task.slot == SPEAKER and before > SETTLED:
            self._rounds.forget(Meeting(str(before)))
        return 1

    def _take_over(self, meeting: Meeting, sums: list[Numbers]) -> None:
        assert self._worker is not None
        consensus = self._worker.consensus
        renewed = consensus.renews
        self._last = self._worker.absorb(decoded(sums, consensus))
        self._pending, self._untold = [], self._own_loss
        self._visited = consensus.round
        if renewed:
            self._curvature = meeting
        if self._task.slot == SPEAKER:
            self._rounds.show(meeting.number, consensus.solution.astype(np.float32))
        self._keep()
        self._forget(meeting, renewed=renewed)

    def _forget(self, meeting: Meeting, *, renewed: bool) -> None:
        """Rounds before this one are over for all; but their successors read the last with curvature."""
        if self._task.slot != SPEAKER:
            return
        needed = self._rounds_left[0] if renewed and self._rounds_left else self._curvature
        for left in self._rounds_left:
            if left != needed:
                self._rounds.forget(left)
        self._rounds_left = [*dict.fromkeys([needed, meeting])]

    def _ready(self, block: Block) -> bool:
        """Have the participant, if nothing has to end before all slots have begun."""
        if self._worker is not None:
            return True
        if not self._n_rows:
            counted = self._rounds.meet(Meeting(_ROWS), [np.array([block.n_rows])], self._n_slots)
            if counted is None:
                return False
            self._n_rows = int(counted[0][0])
        if self._objective is None:
            weights = block.weights
            self._weight = float(block.n_rows) if weights is None else float(weights.sum(dtype=np.float64))
            self._objective = ShareObjective(self._model, [block], self._n_rows)
        return self._begin() if self._taken is None else self._go_on(*self._taken)

    def _begin(self) -> bool:
        assert self._objective is not None
        start = self._blobs.get(start_key(self._task.job))
        z = np.zeros(self._objective.n) if start is None else unpacked(start)["z"].astype(np.float64)
        worker = Participant(self._objective, Consensus(self._agreed(), z))
        brought = prepared(*worker.prepare(), worker.consensus.settings)
        meeting = self._rounds.meeting(_START, brought, self._n_slots)
        sums = self._rounds.meet(meeting, brought, self._n_slots)
        if sums is None:
            return False
        worker.begin(float(sums[0][0]), sums[1].astype(np.float64))
        self._worker, self._curvature, self._rounds_left = worker, meeting, [meeting]
        return True

    def _agreed(self) -> ConsensusSettings:
        assert self._objective is not None
        n, spec = self._objective.n, self._task.optimizer
        penalty = Penalty(spec.l1, spec.l2, self._objective.n_regularized)
        return ConsensusSettings(n, self._n_slots, penalty, full=n <= FULL_METRIC, **self._settings)

    # ------------------------------------------------------------------------------------- state

    @property
    def _has_traces(self) -> bool:
        """Whether the present state is kept as traces: not before all slots go from round to round alike."""
        assert self._worker is not None
        number = self._worker.consensus.round
        return 0 < number <= SETTLED or (self._partial is None and number > 0)

    def _needed(self, facts: dict[str, Any], arrays: dict[str, Any]) -> list[int]:
        """The rounds of which a successor needs traces, by what a worker's `state` has given."""
        rounds = Consensus.rounds(facts, arrays, self._settings["depth"])
        return [*dict.fromkeys([facts["base"], *rounds])]

    def _keep(self) -> None:
        """From now on a successor goes on from here."""
        assert self._worker is not None
        worker, needed = self._worker, list[int]()
        if self._has_traces:
            self._traces.write(worker.consensus.round, worker.trace(), worker.consensus.trace())
            needed = self._needed(*worker.state())
        self._keeper.keep(*self._state())
        self._traces.forget(needed)

    def _state(self) -> tuple[int, str, dict[str, Any], dict[str, Any]]:
        """For the keeper.  The round in which it converged is not done before it has been told of."""
        assert self._worker is not None
        facts, own = self._worker.state()
        arrays: dict[str, Any] = {**own}
        if not self._has_traces:
            arrays |= {**self._worker.trace(), **self._worker.consensus.trace()}
        done, number = self._visited, self._worker.consensus.round
        arrays |= {f"{_PENDING}{i}": array for i, array in enumerate(self._pending)}
        facts |= {
            "curvature": self._curvature,
            "left": self._rounds_left,
            "traces": self._traces.left,
            "own_loss": list(self._own_loss),
            "last": None if self._last is None else list(self._last),
        }
        converged = self._last is not None and self._last.converged
        return done - converged, str(number) if number else "", facts, arrays

    def _go_on(self, kept: Kept, arrays: dict[str, Any]) -> bool:
        assert self._objective is not None
        agreed, facts = self._agreed(), dict(kept.facts)
        meeting = msgspec.convert(facts.pop("curvature"), Meeting)
        sums = self._rounds.again(meeting, self._n_slots)
        needed, whole = self._needed(facts, arrays), "u" in arrays
        common = {needed[-1]: arrays} if whole else self._traces.common(needed)
        if sums is None or common is None:
            return False
        self._curvature = meeting
        self._rounds_left = msgspec.convert(facts.pop("left"), list[Meeting])
        last, self._own_loss = facts.pop("last"), tuple(facts.pop("own_loss"))
        self._last = None if last is None else Round(*last)
        self._pending = [arrays.pop(name) for name in sorted(arrays) if name.startswith(_PENDING)]
        self._visited = kept.minibatches
        own = {needed[-1]: arrays} if whole else self._traces.own(needed)
        self._traces.left = facts.pop("traces")
        consensus = Consensus.restored(agreed, facts, arrays, common, curvature_of(sums, agreed))
        self._worker = Participant.restored(self._objective, consensus, own, common)
        return True

    def _used(self) -> tuple[float, float, int, int]:
        keeper = self._keeper
        parts: list[Rounds | PartialRounds] = [self._rounds]
        if self._partial is not None:
            parts.append(self._partial)
        return (
            sum(part.push_s for part in parts) + keeper.seconds + self._traces.seconds,
            sum(part.wait_s for part in parts),
            sum(part.bytes_in for part in parts),
            sum(part.bytes_out for part in parts) + keeper.bytes_out + self._traces.bytes_out,
        )

    def _told(self, done: int, before: tuple[float, float, int, int]) -> Steps:
        """What a round did; its loss is at the point that it began with."""
        used = [now - then for now, then in zip(self._used(), before, strict=True)]
        nothing = Steps(
            0,
            0,
            0.0,
            0.0,
            push_s=used[0],
            wait_s=used[1],
            bytes_in=int(used[2]),
            bytes_out=int(used[3]),
        )
        if not done or self._last is None:
            return nothing
        last = self._last
        solver = None
        if self._visited == last.number:
            solver = SolverRound(
                last.objective, last.primal, last.dual, last.rho, last.passes, converged=last.converged
            )
        (rows, loss, weight), self._untold = self._untold, (0, 0.0, 0.0)
        return nothing._replace(minibatches=done, rows=rows, loss_sum=loss, weight_sum=weight, solver=solver)
