"""The worker's loop: blocks of rows in, a better shared model out, until told to stop.

One call of :func:`train` is the whole life of one attempt.  It takes its slot over where the
predecessor left it, trains block by block, tells the driver what it did, and ends for one of
three reasons: the last epoch is done, the driver asked it to stop, or its own time is nearly
up and a successor must go on.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from squall.data.iterator import BlockVisit, Visits
from squall.errors import DivergenceError
from squall.protocols import Control, FunctionContext, Strategy
from squall.records import Chaos, OptimizerSpec, WorkerTask
from squall.worker.gate import EpochGate, Verdict
from squall.worker.reporter import Reporter

End = Literal["finished", "stopped", "handover", "superseded", "rolled back"]


class Ended(NamedTuple):
    """Why an attempt ended, and how many reports it had sent by then."""

    end: End
    reports: int


_GUARD_FLOOR_S = 0.2
"""At least this long before its end a function stops training, to hand over in order."""

_LEAD_FLOOR_S = 0.3
"""At least this long before it stops, its successor is asked for."""


class TimeGuard:
    """Says when to stop: before the platform does, by a margin that grows with block times.

    Parameters
    ----------
    context : FunctionContext
        How much time is left.
    setup_s : float
        What this attempt took from its launch to its first minibatch; a successor needs about
        as long, and is asked for that much (and a half) earlier.
    """

    def __init__(self, context: FunctionContext, setup_s: float) -> None:
        self._context = context
        self._longest = self._waited = 0.0
        self._started = time.monotonic()
        self._lead = min(_LEAD_FLOOR_S + 1.5 * setup_s, context.remaining_s() / 3)

    def start_block(self) -> None:
        """A block begins."""
        self._started, self._waited = time.monotonic(), 0.0

    def waited(self, seconds: float) -> None:
        """So much of this block was waiting for other workers: the next may be without."""
        self._waited += seconds

    def end_block(self) -> None:
        """A block has ended."""
        self._longest = max(self._longest, time.monotonic() - self._started - self._waited)

    def expired(self, reserve_s: float = 0.0) -> bool:
        """Whether another block might not fit, if so much time goes by before it."""
        return self._context.remaining_s() < self._margin() + reserve_s

    def ending(self) -> bool:
        """Whether it is time for a successor to start."""
        return self._context.remaining_s() < self._margin() + self._lead

    def _margin(self) -> float:
        return _GUARD_FLOOR_S + 3.0 * self._longest


def train(
    task: WorkerTask,
    guard: TimeGuard,
    done: int,
    control: Control,
    gate: EpochGate,
    strategy: Strategy,
    visits: Visits,
    reporter: Reporter,
) -> Ended:
    """Train this slot's share of the remaining epochs.

    Parameters
    ----------
    task : WorkerTask
        What to do.
    guard : TimeGuard
        Time left.
    done : int
        Minibatches that stay done; the strategy has taken over from the predecessor.
    control, strategy
        The seams, ready to use.
    visits : Visits
        What is left to visit.
    gate : EpochGate
        Lets it into each epoch.
    reporter : Reporter
        Tells the driver.

    Returns
    -------
    Ended
        ``"finished"``, ``"stopped"`` or ``"handover"``, and the number of reports sent.

    Raises
    ------
    DivergenceError
        If a loss is not finite.
    StaleAttemptError
        If this attempt has been replaced.
    """
    end: End | None = None
    verdict = Verdict.GO_ON
    for visit in visits:
        guard.start_block()
        verdict = _enter(visit.epoch, strategy, gate, guard, reporter)
        if verdict is not Verdict.GO_ON:
            break
        n_done = _train_block(task, guard, strategy, visit, done, reporter)
        guard.end_block()
        done += n_done
        whole = visit.first + n_done == visit.n_minibatches
        if whole:
            reporter.after_block(visit, visits, ending=guard.ending())
        end = reason_to_end(task, control, guard)
        if end is not None or not whole:
            break
    else:
        verdict = Verdict.LEAVE
    if verdict is Verdict.LEAVE and strategy.finish():
        end = "finished"
    end = end or reason_to_end(task, control, guard) or "handover"  # that reason may be no more
    if end != "finished":
        state = msgspec.msgpack.encode(strategy.state_dict())
        control.save_state(task.job, task.slot, task.attempt, state)
        control.advance(task.job, task.slot, task.attempt, done)
        reporter.flush(epoch_done=False)
    return Ended(end, reporter.sent)


def _enter(epoch: int, strategy: Strategy, gate: EpochGate, guard: TimeGuard, reporter: Reporter) -> Verdict:
    """Wait for the other workers, then for the driver, where an epoch begins with that."""
    if not strategy.start_epoch(epoch):
        return Verdict.BROKEN_OFF
    if not gate.holds(epoch):
        return Verdict.GO_ON
    reporter.await_epoch(epoch)
    verdict = gate.await_epoch(epoch)
    guard.waited(gate.wait_s)
    reporter.waited(gate.wait_s)
    return verdict


def _train_block(
    task: WorkerTask,
    guard: TimeGuard,
    strategy: Strategy,
    visit: BlockVisit,
    done: int,
    reporter: Reporter,
) -> int:
    """Train on a block's minibatches; how many were done before it was broken off, if it was."""
    began = done
    for first, count in _pieces(visit, done, task):
        started = time.perf_counter()
        steps = strategy.step(visit.block, visit.order, task.batch_size, first, count)
        if not math.isfinite(steps.loss_sum):
            raise _divergence(visit.epoch, task.optimizer)
        if task.slowdown > 1.0:
            time.sleep((task.slowdown - 1.0) * max(0.0, time.perf_counter() - started - steps.wait_s))
        reporter.add(visit.epoch, steps, time.perf_counter() - started)
        guard.waited(steps.wait_s)
        done += steps.minibatches
        if steps.minibatches < count:
            break
        _maybe_kill(task, done)
    return done - began


def reason_to_end(task: WorkerTask, control: Control, guard: TimeGuard, reserve_s: float = 0.0) -> End | None:
    """Why this attempt has to end now, or that much later, if it has to."""
    if control.stop_requested(task.job):
        return "stopped"
    return "handover" if guard.expired(reserve_s) else None


def _pieces(visit: BlockVisit, done: int, task: WorkerTask) -> Iterator[tuple[int, int]]:
    """The block's minibatches as (first, count); cut where a fault is to be injected."""
    count = visit.n_minibatches - visit.first
    cut = _faulty_minibatch(task) - done
    if 0 < cut < count:
        yield visit.first, cut
        yield visit.first + cut, count - cut
    elif count:
        yield visit.first, count


def _faulty_minibatch(task: WorkerTask) -> int:
    chaos: Chaos | None = task.chaos
    return chaos.minibatch if chaos and (chaos.slot, chaos.attempt) == (task.slot, task.attempt) else -1


def _maybe_kill(task: WorkerTask, done: int) -> None:
    if done == _faulty_minibatch(task):
        os.kill(os.getpid(), signal.SIGKILL)


def _divergence(epoch: int, optimizer: OptimizerSpec) -> DivergenceError:
    return DivergenceError(
        f"the loss is not finite in epoch {epoch + 1} with {optimizer.name} at "
        f"learning_rate={optimizer.learning_rate:g}",
        fix="use a smaller learning_rate, or scale the features (squall.MinMaxScaler)",
    )
