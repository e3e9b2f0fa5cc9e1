"""Rounds of consensus ADMM in one worker: what the cores compute, met, kept and told of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from squall.errors import SettingError
from squall.models.objectives import ShareObjective, smooth
from squall.optim.consensus.admm import Consensus
from squall.optim.consensus.agreement import FULL_METRIC, SETTLED, ConsensusSettings
from squall.optim.consensus.exchange import decoded, encoded, prepared
from squall.optim.consensus.metrics import Penalty
from squall.optim.consensus.participant import Participant
from squall.protocols import Model, Store
from squall.records import Block, Int32, Numbers, Registration, SolverRound, Steps, WorkerTask
from squall.worker.keeping import SPEAKER, start_key, unpacked
from squall.worker.occurring import Occurring
from squall.worker.partial import PartialRounds
from squall.worker.rounds import Meeting, Rounds
from squall.worker.standing import Standing, StandingKeeper, Told
from squall.worker.stoppable import StoppableObjective, StoppedSolvingError

_ROWS, _START = "rows", "start"  # rounds before the first: rows and their features; loss and curvature
_IDLE_S = 0.02


class ConsensusRounds:
    """A round is one step: solve, meet, go on from the sum, keep.

    The bits are the same with and without kills, as long as rounds wait for all.  Coefficients are those of
    features that occur in some slot's rows.

    Parameters
    ----------
    task, model, store, interrupted
        See :meth:`squall.protocols.StrategySettings.bind`.
    slots : list of int
        Those that have rows.
    settings : dict
        Of :class:`~squall.optim.consensus.agreement.ConsensusSettings`, without what is known here.
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
        self._task, self._model, self._store, self._interrupted = task, convex, store, interrupted
        self._n_slots, self._settings = len(slots), settings
        self._rounds = Rounds(task, store, interrupted, shards)
        self._partial: PartialRounds | None = None
        if partial is not None:
            self._partial = PartialRounds(task, store, interrupted, slots, partial)
        self._keeper = StandingKeeper(
            task, store, interrupted, settings["depth"], partial=partial is not None
        )
        self._standing = Standing(Meeting(_START))
        self._worker: Participant | None = None
        self._objective: ShareObjective | None = None
        self._occurring: Occurring | None = None
        self._n_rows = 0  # of all slots
        self._weight = 0.0  # of its own rows
        self._answered = False
        self._untold: Told = (0, 0.0, 0.0)  # of the present round

    # ----------------------------------------------------------------------- the seam's methods

    def resume(self, registration: Registration) -> int:
        """Go on from what was kept last."""
        return self._keeper.take_over(registration)

    def start_epoch(self, epoch: int) -> bool:
        """After convergence there is only the end to wait for."""
        if self._worker is None or not self._standing.converged:
            return True
        if self._standing.visited < self._worker.consensus.round:
            return True
        while not self._interrupted():
            time.sleep(_IDLE_S)
        return False

    def step(self, block: Block, order: Int32, batch_size: int, first: int, count: int) -> Steps:
        """One round; ``block`` is all that the slot has."""
        before = self._used()
        try:
            done = int(self._ready(block) and self._step(block))
        except StoppedSolvingError:
            done = 0
        return self._told(done, before)

    def finish(self) -> bool:
        """Nothing is held back; but those who come late must not wait for this slot."""
        if self._partial is not None and self._worker is not None:
            self._partial.end(self._worker.consensus.round, converged=False)
        return True

    def state_dict(self) -> dict[str, Any]:
        """All that a successor can use; a blob holds it, and this names the blob."""
        return self._keeper.state(self._worker, self._standing)

    # ------------------------------------------------------------------------------------ rounds

    def _step(self, block: Block) -> bool:
        """A round, to its end; False if it was broken off."""
        assert self._worker is not None
        consensus, standing = self._worker.consensus, self._standing
        if standing.visited < consensus.round:
            # Others had this round with its last answer, or its predecessor may not have told of it.
            standing.visited += 1
            self._untold = standing.own_loss
            return True
        if self._partial is not None and consensus.round >= SETTLED:
            return self._partial_step(self._partial, block)
        if not standing.pending:
            contribution = self._worker.contribute()
            standing.pending = encoded(contribution, consensus.settings)
            standing.own_loss = block.n_rows, contribution.loss * self._n_rows, self._weight
        meeting = self._rounds.meeting(str(consensus.round + 1), standing.pending, self._n_slots)
        sums = self._rounds.meet(meeting, standing.pending, self._n_slots)
        if sums is None:
            return False
        self._take_over(meeting, sums)
        return True

    def _partial_step(self, rounds: PartialRounds, block: Block) -> bool:
        """A round that may be without this slot's newest answer; False if it was broken off."""
        assert self._worker is not None
        consensus, standing = self._worker.consensus, self._standing
        before = consensus.round
        if not self._answered:
            answer = self._worker.answer()
            standing.own_loss = block.n_rows, float(answer[-2]) * self._n_rows, self._weight
            rounds.answer(answer)
            self._answered = True
        answered = rounds.meet(before + 1, all_slots=before == SETTLED)
        if answered is None:
            return False
        last = self._worker.absorb_towards(answered.sums, answered.number)
        if answered.last:
            last = last._replace(converged=answered.last == 2)
        elif last.converged:
            rounds.end(answered.number, converged=True)
        self._answered = False
        standing.last, standing.visited = last, standing.visited + 1
        self._tell(str(answered.number))
        if self._task.slot == SPEAKER and before > SETTLED:
            self._rounds.forget(Meeting(str(before)))
        return True

    def _take_over(self, meeting: Meeting, sums: list[Numbers]) -> None:
        assert self._worker is not None
        consensus, standing = self._worker.consensus, self._standing
        renewed = consensus.renews
        standing.last = self._worker.absorb(decoded(sums, consensus))
        standing.pending, standing.visited = [], consensus.round
        if renewed:
            standing.curvature = meeting
        self._tell(meeting.number)
        self._forget(meeting, renewed=renewed)

    def _tell(self, number: str) -> None:
        """What a round came to: show it, keep it, and have it told of."""
        assert self._worker is not None
        self._untold = self._standing.own_loss
        if self._task.slot == SPEAKER:
            self._rounds.show(number, self._worker.consensus.solution.astype(np.float32))
        self._keeper.keep(self._worker, self._standing)

    def _forget(self, meeting: Meeting, *, renewed: bool) -> None:
        """Rounds before this one are over for all; but their successors read the last with curvature."""
        if self._task.slot != SPEAKER:
            return
        standing = self._standing
        needed = standing.rounds_left[0] if renewed and standing.rounds_left else standing.curvature
        for left in standing.rounds_left:
            if left != needed:
                self._rounds.forget(left)
        standing.rounds_left = [*dict.fromkeys([needed, meeting])]

    def _ready(self, block: Block) -> bool:
        """Have the participant, if nothing has to end before all slots have begun."""
        if self._worker is not None:
            return True
        if self._objective is None and not self._count(block):
            return False
        return self._go_on() if self._keeper.has_predecessor else self._begin()

    def _count(self, block: Block) -> bool:
        """Have the objective: it needs to know how many rows there are, and which features occur in them."""
        brought = [np.array([block.n_rows]), Occurring.marks(block)]
        counted = self._rounds.meet(
            self._rounds.meeting(_ROWS, brought, self._n_slots), brought, self._n_slots
        )
        if counted is None:
            return False
        self._n_rows, self._occurring = int(counted[0][0]), Occurring.of(counted[1])
        if self._task.slot == SPEAKER and not self._occurring.all:
            self._occurring.put(self._store, self._task.job)
        weights = block.weights
        self._weight = float(block.n_rows) if weights is None else float(weights.sum(dtype=np.float64))
        model = msgspec.structs.replace(self._model, n_features=len(self._occurring.features))
        own = [self._occurring.narrowed(block)]
        self._objective = StoppableObjective(model, own, self._n_rows, self._stopped)
        return True

    def _stopped(self) -> bool:
        return self._store.control.stop_requested(self._task.job)

    def _begin(self) -> bool:
        assert self._objective is not None and self._occurring is not None
        start, z = self._store.blobs.get(start_key(self._task.job)), np.zeros(self._objective.n)
        if start is not None:
            rows = unpacked(start)["z"].astype(np.float64).reshape(self._occurring.n_features + 1, -1)
            z = self._occurring.taken(rows).ravel()
        worker = Participant(self._objective, Consensus(self._agreed(), z))
        brought = prepared(*worker.prepare(), worker.consensus.settings)
        meeting = self._rounds.meeting(_START, brought, self._n_slots)
        sums = self._rounds.meet(meeting, brought, self._n_slots)
        if sums is None:
            return False
        worker.begin(float(sums[0][0]), sums[1].astype(np.float64))
        self._worker, self._standing = worker, Standing(meeting, [meeting])
        return True

    def _go_on(self) -> bool:
        assert self._objective is not None
        restored = self._keeper.restore(self._objective, self._agreed(), self._rounds)
        if restored is None:
            return False
        self._worker, self._standing = restored
        return True

    def _agreed(self) -> ConsensusSettings:
        assert self._objective is not None
        n, spec = self._objective.n, self._task.optimizer
        penalty = Penalty(spec.l1, spec.l2, self._objective.n_regularized)
        return ConsensusSettings(n, self._n_slots, penalty, full=n <= FULL_METRIC, **self._settings)

    # ------------------------------------------------------------------------------------ report

    def _used(self) -> tuple[float, float, int, int]:
        parts: list[Rounds | PartialRounds] = [self._rounds]
        if self._partial is not None:
            parts.append(self._partial)
        return (
            sum(part.push_s for part in parts) + self._keeper.seconds,
            sum(part.wait_s for part in parts),
            sum(part.bytes_in for part in parts),
            sum(part.bytes_out for part in parts) + self._keeper.bytes_out,
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
        last = self._standing.last
        if not done or last is None:
            return nothing
        solver = None
        if self._standing.visited == last.number:
            solver = SolverRound(
                last.objective,
                last.primal,
                last.dual,
                last.rho,
                last.passes,
                last.enough,
                converged=last.converged,
            )
        (rows, loss, weight), self._untold = self._untold, (0, 0.0, 0.0)
        return nothing._replace(minibatches=done, rows=rows, loss_sum=loss, weight_sum=weight, solver=solver)
