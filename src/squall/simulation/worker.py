"""What a worker does with its time: a model of :mod:`squall.worker.loop` in virtual seconds."""

from __future__ import annotations

from typing import Any

from squall.errors import StaleAttemptError
from squall.records import GO_ON, LEAVE, Phases, Report, epoch_key, turn_key
from squall.simulation.platform import Seconds, VirtualContext
from squall.simulation.scenario import Workload
from squall.simulation.store import VirtualStore
from squall.store.clocks import FINISHED
from squall.worker.reporter import BEAT_S, interval_s

_POLL_S = 0.2
_GUARD_FLOOR_S, _LEAD_FLOOR_S, _LEAST_LEFT_S = 0.2, 0.3, 0.5
_SENDING_S = 0.001


def share(workload: Workload, n_slots: int, slot: int) -> int:
    """Rows that a slot visits in each epoch."""
    return workload.rows // n_slots + (slot < workload.rows % n_slots)


def n_minibatches(workload: Workload, n_slots: int, slot: int) -> int:
    """Minibatches that a slot does in each epoch."""
    return -(-share(workload, n_slots, slot) // workload.batch_size)


class Worker:
    """One attempt, as a program for :class:`~squall.simulation.platform.SimulatedPlatform`.

    Parameters
    ----------
    workload : Workload
        What there is to do.
    store : VirtualStore
        Where the slot's state is.
    event : dict
        A `WorkerTask` as plain data.
    context : VirtualContext
        Its function's.
    """

    def __init__(
        self, workload: Workload, store: VirtualStore, event: dict[str, Any], context: VirtualContext
    ) -> None:
        self._workload, self._store, self._context = workload, store, context
        self._slot, self._attempt, self._standby = event["slot"], event["attempt"], event["standby"]
        self._first_epoch, self._end, self._held_from = (
            event["first_epoch"],
            event["epochs"],
            event["held_from"],
        )
        self._share = share(workload, store.n_slots, self._slot)
        self._an_epoch = n_minibatches(workload, store.n_slots, self._slot)
        self._rows = self._sent = self._epoch = self._epochs_done = 0
        self._interval_s = interval_s(store.n_slots)
        self._waited_s = 0.0  # since the last report
        self._longest_s = self._lead_s = 0.0
        self._announced = False

    def run(self) -> Seconds:
        """All that it does; returns what a real one does."""
        yield self._workload.setup_s
        try:
            early = (yield from self._await_turn()) if self._standby else None
            end = early or (yield from self._train())
        except StaleAttemptError:
            return {"end": "superseded", "reports": 0}
        return {"end": end, "reports": self._sent}

    def _await_turn(self) -> Seconds:
        while turn_key(self._store.job, self._slot, self._attempt) not in self._store.turns:
            if self._store.core.stop_requested(self._store.job):
                return "stopped"
            if self._context.remaining_s() < _LEAST_LEFT_S:
                return "handover"
            yield _POLL_S
        return None

    def _train(self) -> Seconds:
        number = self._context.number  # tells a second delivery of this event apart
        registered = self._store.core.register(self._store.job, self._slot, self._attempt, number)
        self._done, self._began = registered.minibatches, self._context.now()
        self._reported_s = self._began
        setup_s = self._context.cold_start_s + self._began - self._context.started
        self._lead_s = min(_LEAD_FLOOR_S + 1.5 * setup_s, self._context.remaining_s() / 3)
        end = None
        while end is None and self._done < self._an_epoch * (self._end - self._first_epoch):
            if (yield from self._reach_epoch()):
                verdict = yield from self._pass_gate()
                if verdict == LEAVE:
                    break
                if verdict == GO_ON:
                    yield from self._train_block()
            end = self._reason_to_end()
        if end is None:
            self._arrive(FINISHED)
            return "finished"
        self._send(epoch_done=False)
        if end == "handover":
            self._store.turns.add(turn_key(self._store.job, self._slot, self._attempt + 1))
        return end

    def _reach_epoch(self) -> Seconds:
        """Wait until all slots have come to this epoch; False if it broke off."""
        if not self._workload.barriers:
            return True
        epoch = self._epoch_now
        self._arrive(epoch)
        while not self._store.core.clocks(self._store.job).passed(epoch):
            if self._reason_to_end() is not None:
                return False
            yield from self._wait_a_little()
        return True

    @property
    def _epoch_now(self) -> int:
        epoch: int = self._first_epoch + self._done // self._an_epoch
        return epoch

    def _wait_a_little(self) -> Seconds:
        yield _POLL_S
        self._waited_s += _POLL_S
        if not self._sent or self._context.now() - self._reported_s > BEAT_S:
            self._report(self._epoch, epoch_done=False, ending=False)

    def _pass_gate(self) -> Seconds:
        """Wait for the driver's word on this epoch; None if it broke off."""
        epoch = self._epoch_now
        if self._held_from is None or epoch < self._held_from:
            return GO_ON
        self._epoch = epoch - 1
        if self._epochs_done < epoch:
            self._report(epoch - 1, epoch_done=True, ending=False)
        key = epoch_key(self._store.job, epoch)
        while key not in self._store.words:
            if self._reason_to_end() is not None:
                return None
            yield from self._wait_a_little()
        return self._store.words[key]

    def _arrive(self, barrier: int) -> None:
        if self._workload.barriers:
            self._store.core.arrive(self._store.job, self._slot, self._attempt, barrier)

    def _train_block(self) -> Seconds:
        workload, started = self._workload, self._context.now()
        epoch, first = self._epoch_now, self._done % self._an_epoch
        count = min(workload.block, self._an_epoch - first)
        rows = min(self._share, (first + count) * workload.batch_size)
        rows -= first * workload.batch_size
        yield rows / workload.rows_per_s
        self._done += count
        self._store.core.advance(self._store.job, self._slot, self._attempt, self._done)
        self._rows, self._epoch = self._rows + rows, epoch
        yield _SENDING_S  # a worker that dies here has not told of what it has done
        self._longest_s = max(self._longest_s, self._context.now() - started)
        ending = not self._announced and self._context.remaining_s() < self._margin_s() + self._lead_s
        over = first + count == self._an_epoch
        if over or ending or self._context.now() - self._reported_s > self._interval_s:
            self._announced |= ending
            self._send(epoch_done=over, ending=ending)

    def _margin_s(self) -> float:
        return _GUARD_FLOOR_S + 3.0 * self._longest_s

    def _reason_to_end(self) -> str | None:
        if self._store.core.stop_requested(self._store.job):
            return "stopped"
        return "handover" if self._context.remaining_s() < self._margin_s() else None

    def _send(self, *, epoch_done: bool, ending: bool = False) -> None:
        if self._rows or epoch_done:
            self._report(self._epoch, epoch_done=epoch_done, ending=ending)

    def _report(self, epoch: int, *, epoch_done: bool, ending: bool) -> None:
        now = self._context.now()
        report = Report(
            slot=self._slot,
            attempt=self._attempt,
            epoch=epoch,
            rows=self._rows,
            loss_sum=0.5 * self._rows,
            weight_sum=float(self._rows),
            epoch_done=epoch_done,
            billed_s=self._context.cold_start_s + now - self._context.started,
            working_s=now - self._began,
            phases=Phases(compute=max(0.0, now - self._reported_s - self._waited_s), wait=self._waited_s),
            ending=ending,
            number=self._sent + 1,
        )
        self._store.core.report(self._store.job, report)
        self._epochs_done = max(self._epochs_done, epoch + epoch_done)
        self._sent, self._rows = self._sent + 1, 0
        self._reported_s, self._waited_s = now, 0.0
