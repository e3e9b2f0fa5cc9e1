"""What must hold in every course of a job, looked at from outside of its machine."""

from __future__ import annotations

import math
from collections import defaultdict

from squall.driver import events
from squall.driver.machine import STOP_MARGIN_S, JobMachine
from squall.driver.ramp import FIRST_HOLD_S, LARGEST, STARTS_WITHIN_S
from squall.errors import SquallError
from squall.records import OutcomeKind
from squall.simulation.scenario import Scenario
from squall.simulation.store import VirtualStore
from squall.simulation.worker import n_minibatches

_NEAR_USD = 1e-12


class BrokenInvariantError(SquallError, AssertionError):
    """A job did what no job may do; the scenario is in the message."""


class Watch:
    """Looks at every event and what follows from it.

    Parameters
    ----------
    scenario : Scenario
        What is played.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._n_epochs = 0  # on record
        self._newest: dict[int, int] = defaultdict(int)
        self._released: dict[int, set[int]] = defaultdict(set)  # of each slot, not known to have ended
        self._under_way: dict[tuple[int, int], float] = {}  # launches that nothing was heard of
        self._allowed = scenario.ramp  # launches under way, had none been refused
        self._refused_at = -math.inf  # the last launch of which that is news was refused then

    def check(self, holds: bool, told: str) -> None:
        """Raise unless it holds."""
        if not holds:
            raise BrokenInvariantError(told, where=repr(self._scenario))

    def after(
        self,
        event: events.Event,
        commands: list[events.Command],
        machine: JobMachine,
        store: VirtualStore,
        now: float,
    ) -> None:
        """An event has been handled."""
        if isinstance(event, events.Resumed):  # what is on record stays so, though the store may be behind
            self._n_epochs = len(machine.history)
        elif len(machine.history) != self._n_epochs and machine.state in ("running", "stopping"):
            self._n_epochs = len(machine.history)
            self._slots_have_done(self._n_epochs, machine, store)
        self._note_launches(event, machine, now)
        if isinstance(event, events.Ended):
            self._released[event.slot].discard(event.attempt)
        elif isinstance(event, events.Reported):  # it has registered: older ones are refused from then on
            at_work = self._released[event.report.slot]
            at_work -= {attempt for attempt in at_work if attempt < event.report.attempt}
        elif isinstance(event, events.Resumed):
            self._released.clear()  # nobody can tell whether they go on; their successors fence them
        for command in commands:
            match command:
                case events.Switch(leg):
                    self._leg_begins(leg, event, store)
                case events.Launch(slot, attempt, standby):
                    self.check(attempt > self._newest[slot], f"attempt {attempt} of slot {slot} is not new")
                    self._newest[slot] = attempt
                    self._ramp_holds((slot, attempt), machine, now)
                    if not standby:
                        self._release(slot, attempt)
                case events.Cancel(slot, attempt):  # its successor fences it
                    self._released[slot].discard(attempt)
                case events.Release(slot, attempt):
                    self._release(slot, attempt)
                case events.RequestStop():
                    self._limits_hold(machine, now)

    def _leg_begins(self, leg: events.Leg, event: events.Event, store: VirtualStore) -> None:
        """All workers of the leg before have ended, or been given up, and have left nothing undone."""
        self.check(isinstance(event, events.Arranged), f"leg {leg.number} begins unprepared")
        self.check(leg.first_epoch == self._n_epochs, f"leg {leg.number} begins at epoch {leg.first_epoch}")
        expected = self._scenario.workers_after(leg.first_epoch)
        self.check(leg.plan.workers == expected, f"{leg.plan.workers} workers, not {expected}")
        self._released.clear()

    def _release(self, slot: int, attempt: int) -> None:
        others = self._released[slot] - {attempt}
        self.check(not others, f"slot {slot} has attempts {others} when {attempt} is released")
        self._released[slot].add(attempt)

    def _note_launches(self, event: events.Event, machine: JobMachine, now: float) -> None:
        match event:
            case events.Reported(report):
                self._allowed += self._under_way.pop((report.slot, report.attempt), None) is not None
            case events.Ended(slot, attempt, outcome):
                launched = self._under_way.pop((slot, attempt), -math.inf)
                if outcome.kind is OutcomeKind.THROTTLED and launched > self._refused_at:
                    self._refused_at, self._allowed = now, max(1, self._allowed // 2)
            case events.Resumed():  # what it knows of refusals is what was in the log
                self._under_way.clear()
                self._allowed, self._refused_at = machine.ramp.width, -math.inf

    def _ramp_holds(self, key: tuple[int, int], machine: JobMachine, now: float) -> None:
        """Never more launches under way than the ramp allows, and none just after one was refused."""
        self._under_way[key] = now
        while now >= self._under_way[oldest := next(iter(self._under_way))] + STARTS_WITHIN_S:
            del self._under_way[oldest]
        at_once = len(self._under_way)
        allowed = min(self._allowed, machine.ramp.width, max(LARGEST, self._scenario.ramp))
        self.check(at_once <= allowed, f"{at_once} launches are under way where {allowed} are allowed")
        held = now < self._refused_at + FIRST_HOLD_S
        self.check(not held, f"{key} is launched right after another was refused")

    def _limits_hold(self, machine: JobMachine, now: float) -> None:
        """When a job stops for a limit, that has not been passed yet, but for an event's time."""
        scenario = self._scenario
        if machine.reason == "deadline" and scenario.deadline_s is not None and not scenario.deaths:
            late = now - scenario.deadline_s
            self.check(late <= scenario.tick_s - STOP_MARGIN_S + 1e-9, f"stopped {late:.3f} s too late")
        if machine.reason == "budget" and scenario.budget_usd is not None and not scenario.deaths:
            spent = machine.ledger.bill(now).total_usd
            allowed = scenario.budget_usd + self._launched_usd(machine, now)
            self.check(spent <= allowed, f"${spent:.9f} of ${scenario.budget_usd:.9f} were spent")

    def _launched_usd(self, machine: JobMachine, now: float) -> float:
        """What workers and stand-bys cost that were launched since the last look at the budget."""
        bill, scenario = machine.ledger.bill(now), self._scenario
        an_invocation = bill.requests_usd / max(1, bill.invocations)
        a_gb_second = bill.compute_usd / bill.gb_seconds if bill.gb_seconds else 0.0
        changes = scenario.changes or ()
        memory_mb = max([scenario.memory_mb, *(change.memory_mb for change in changes)])
        workers = max([scenario.workload.n_workers, *(change.workers for change in changes)])
        each = an_invocation + scenario.tick_s * memory_mb / 1024 * a_gb_second
        return 2 * workers * each

    # ------------------------------------------------------------------------------ at the end

    def at_end(self, machine: JobMachine, store: VirtualStore, now: float) -> None:
        """The job has ended."""
        self.check(machine.state in ("finished", "failed"), f"it ends as {machine.state!r}")
        self.check((machine.error is not None) == (machine.state == "failed"), f"failed? {machine.error!r}")
        if machine.error is not None:
            self.check(isinstance(machine.error, SquallError), f"an untyped error: {machine.error!r}")
        else:
            left = [key for key, attempt in machine.attempts.items() if attempt.outcome is None]
            self.check(not left, f"attempts {left} are on record as running")
            self._bill_is_that_of_the_attempts(machine, now)
        self._history_is_whole(machine)
        if machine.reason == "epochs":
            self._everything_was_visited(machine, store)
            expected = self._scenario.workers_after(machine.leg.first_epoch)
            self.check(len(machine.history[-1].by_worker) <= expected, "more workers than planned")

    def _bill_is_that_of_the_attempts(self, machine: JobMachine, now: float) -> None:
        bill = machine.ledger.bill(now)
        attempts = math.fsum(attempt.cost_usd for attempt in machine.attempts.values())
        functions = bill.compute_usd + bill.requests_usd
        self.check(
            abs(functions - attempts) < _NEAR_USD, f"bill ${functions:.12f}, attempts ${attempts:.12f}"
        )
        self.check(bill.invocations == len(machine.attempts), f"{bill.invocations} invocations are billed")

    def _history_is_whole(self, machine: JobMachine) -> None:
        epochs = [record.epoch for record in machine.history]
        self.check(epochs == list(range(1, len(epochs) + 1)), f"epochs on record: {epochs}")
        self.check(len(epochs) <= self._scenario.workload.epochs, f"{len(epochs)} epochs on record")
        rows = self._scenario.workload.rows
        for record in machine.history:
            broken_off = record.epoch == len(epochs) and machine.reason != "epochs"
            right = record.rows <= rows if broken_off else record.rows == rows
            self.check(right, f"epoch {record.epoch} has {record.rows} rows")

    def _everything_was_visited(self, machine: JobMachine, store: VirtualStore) -> None:
        epochs = self._scenario.workload.epochs
        self.check(len(machine.history) == epochs, "an epoch is missing")
        self._slots_have_done(epochs, machine, store)

    def _slots_have_done(self, epochs: int, machine: JobMachine, store: VirtualStore) -> None:
        for slot in range(store.n_slots):
            done = store.core.progress(store.job, slot)
            an_epoch = n_minibatches(self._scenario.workload, store.n_slots, slot)
            due = an_epoch * (epochs - machine.leg.first_epoch)
            self.check(done >= due, f"slot {slot} has done {done} of {due} minibatches of {epochs} epochs")
