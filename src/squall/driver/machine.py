"""The job's state machine: events in, commands out, no I/O, no clock of its own.

::

    preparing ──Start──▶ running ──all slots done──▶ finishing ──▶ finished
        │                   │  ▲                         ▲
        │                   │  ├─ worker gone: its successor goes on
        │                   │  └─ Resumed: successors of all go on
        │                   └──────── Stop ──▶ stopping ─┘  (measures what is left to measure,
        │                                                    until a Stop or a limit ends that, too)
        └──────────────── error that no retry mends ──▶ failed

With a planner, workers wait between epochs until it has been asked (AskPlanner ─▶ Planned).  If the plan
is another one, they end, the shell makes store and platform ready for the job's next *leg*
(Arrange ─▶ Arranged), and workers of the new number and size are launched.

The shell (:mod:`squall.driver.loop`) turns what happens into events, and executes the
commands.  Times are seconds since the job began.
"""

from __future__ import annotations

import msgspec

from squall.driver import causes
from squall.driver.epochs import EpochBook
from squall.driver.events import (
    Arrange,
    Arranged,
    Cancel,
    CancelAll,
    Command,
    Ended,
    Evaluate,
    Evaluated,
    Event,
    Launch,
    Leg,
    Planned,
    Release,
    Reported,
    RequestStop,
    Resumed,
    Start,
    Stop,
    StoreRestored,
    Switch,
    Tick,
)
from squall.driver.ledger import Ledger
from squall.driver.legs import Legs
from squall.driver.limits import Limits, Stopping
from squall.driver.ramp import Ramp
from squall.driver.slots import Slot
from squall.driver.stragglers import Paces
from squall.errors import SquallError
from squall.records import (
    AttemptRecord,
    Expected,
    HeldOut,
    HistoryRecord,
    JobStatus,
    Outcome,
    OutcomeKind,
    Plan,
    Report,
)

STOP_MARGIN_S = 0.25
"""Time that stopping takes; deadline and budget count it in."""

_STARTING_S = 0.35  # that a worker may still be billed for before it can hear of a stop
_RECORDS = 2  # that are written when a job ends: its log's last event and its record

_LEAD_S = 0.3  # and half as long again as it takes to start, a stand-by is given before its turn comes


class JobMachine:
    """One job.

    Parameters
    ----------
    plan : Plan
        How many workers of what size, to begin with.
    epochs : int
        How often each row is visited.
    ledger : Ledger
        Adds up the cost.
    evaluates : bool
        Whether there are held-out rows.
    limits : Limits
        What ends it early.
    planned : bool
        Whether a planner is asked between epochs.
    """

    def __init__(
        self,
        plan: Plan,
        epochs: int,
        ledger: Ledger,
        *,
        evaluates: bool,
        limits: Limits | None = None,
        planned: bool = False,
    ) -> None:
        self.state = "preparing"
        self.reason = ""
        self.error: SquallError | None = None
        self.attempts: dict[tuple[int, int], AttemptRecord] = {}
        self.ledger = ledger
        self._expected: Expected | None = None
        self.held_out: HeldOut | None = None  # the newest measurement
        self.best: tuple[float, int] | None = None  # lowest held-out loss, and its epoch
        self._book = EpochBook()
        self._epochs, self._evaluates = epochs, evaluates
        self._limits = Limits() if limits is None else limits
        self._planned = planned
        self._judged = evaluates and (self._limits.patience, self._limits.target_loss) != (None, None)
        self._legs = Legs(plan, epochs, planned=planned or self._judged)
        self._slots = [Slot() for _ in range(plan.workers)]
        self.ramp = Ramp(self._limits.ramp)
        self._paces = self._paces_of(plan.workers, epochs)
        self._wanted: dict[int, None] = {}  # slots that wait for a launch, the first first
        self._evaluating: int | None = None
        self._evaluated = -1  # newest epoch measured
        self._unfinished = plan.workers  # slots that have not done all epochs or been given up
        self._behind = plan.workers  # slots that have not done the epoch that is open
        self._moved_at = 0.0  # when some worker was last known to get further
        self._stop_at: float | None = None
        self._started_at = 0.0
        self._notes: dict[str, str] = {}  # what its user should know

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ("finished", "failed")

    @property
    def leg(self) -> Leg:
        """The part of the job that is being worked on."""
        return self._legs.now

    @property
    def epochs_of_leg(self) -> tuple[int, int | None]:
        """Where its workers end, and from which epoch on they have to be let in; None if never."""
        return self._legs.end, self._legs.held_from

    @property
    def is_ending(self) -> bool:
        """Whether training is over, or about to be."""
        return self.state in ("stopping", "finishing") or self.ended

    @property
    def history(self) -> list[HistoryRecord]:
        """One record for each complete epoch."""
        return self._book.history

    @property
    def n_settled(self) -> int:
        """How many of its records will not change: they have been measured, or will not be."""
        return self._evaluated + 1 if self._evaluates and not self.ended else len(self.history)

    @property
    def trained_rows(self) -> int:
        """Rows that workers have reported."""
        return self._book.rows

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event, return what to do about it."""
        if self.ended:
            return []
        commands = self._react(event, now)
        return [*commands, *self._launch_wanted(now)] if self._wanted else commands

    def _react(self, event: Event, now: float) -> list[Command]:
        match event:
            case Start(rows):
                self._book.rows_an_epoch = rows
                self._paces = self._paces_of(len(self._slots), self._epochs)
                return self._start(now)
            case Reported(report):
                return self._reported(report, now)
            case Ended():
                return self._worker_ended(event, now)
            case Evaluated(epoch, held_out):
                return self._measured(epoch, held_out, now)
            case Stop(reason):
                return self._stop(reason, now)
            case StoreRestored(incarnation, told):
                self._notes.setdefault(incarnation, f"after {now:.1f} s: {told}")
                return []  # each worker finds out by itself, and ends
            case Planned(epoch, plan):
                return self._legs.planned(epoch, plan) if self.state == "running" else []
            case Arranged(leg):
                return self._arranged(leg, now) if self.state == "running" else []
            case Tick():
                return self._tick(now)
            case Resumed(positions, restored):
                return self._resumed(positions, restored, now)

    # ---------------------------------------------------------------- the course of training

    def _start(self, now: float) -> list[Command]:
        if self.state != "preparing":
            return []
        self.state, self._started_at = "running", now
        self._wanted = dict.fromkeys(range(len(self._slots)))
        return []

    def _want(self, number: int) -> None:
        """Launch another worker in this slot as soon as the ramp allows."""
        self._wanted[number] = None

    def _launch_wanted(self, now: float) -> list[Command]:
        launches: list[Command] = []
        while self._wanted and self.state == "running" and self.ramp.allows(now):
            number = next(iter(self._wanted))
            del self._wanted[number]
            slot = self._slots[number]
            if not slot.running or slot.epochs_done < self._legs.end:
                launches.append(self._launch(number, now))
        return launches

    def _launch(self, number: int, now: float) -> Launch:
        """One worker more; it stands by if its predecessor is still at work."""
        slot = self._slots[number]
        standby = bool(slot.running)
        slot.newest += 1
        slot.running.add(slot.newest)
        if self._paces is not None and slot.slow in slot.running:
            slot.relieve_at, slot.relieved_at = now + _LEAD_S + 1.5 * self._paces.start_s, None
        key = (number, slot.newest)
        self.attempts[key] = AttemptRecord(number, slot.newest, now, first_minibatch=slot.minibatches)
        self.ledger.launch(key, now)
        self.ramp.launched(key, now)
        return Launch(number, slot.newest, standby)

    def _arranged(self, number: int, now: float) -> list[Command]:
        leg = self._legs.arranged(number)
        if leg is None:
            return []
        self._notes[f"leg {number}"] = f"after {now:.1f} s: {self._legs.told}"
        self.ledger.resize(leg.plan.memory_mb)
        self._slots = self._slots_of_new_leg(leg)
        self._paces = self._paces_of(leg.plan.workers, self._epochs - leg.first_epoch)
        self._unfinished = leg.plan.workers
        self._count_behind()
        self._wanted = dict.fromkeys(range(leg.plan.workers))
        return [Switch(leg)]

    def _slots_of_new_leg(self, leg: Leg) -> list[Slot]:
        newest: dict[int, int] = {}  # attempts are numbered through all legs
        for number, attempt in self.attempts:
            newest[number] = max(attempt, newest.get(number, 0))
        still_since = dict(enumerate(slot.still_since for slot in self._slots))
        return [
            Slot(
                newest=newest.get(number, 0),
                earlier=newest.get(number, 0),
                heard=newest.get(number, 0),
                epochs_done=leg.first_epoch,
                still_since=still_since.get(number),
            )
            for number in range(leg.plan.workers)
        ]

    def _paces_of(self, n_slots: int, epochs: int) -> Paces | None:
        if not self._limits.replaces_stragglers:
            return None
        return Paces(n_slots, epochs, self._book.rows_an_epoch)

    def _is_of_earlier_leg(self, number: int, attempt: int) -> bool:
        return number >= len(self._slots) or attempt <= self._slots[number].earlier

    def _reported(self, report: Report, now: float) -> list[Command]:
        if self._is_of_earlier_leg(report.slot, report.attempt):
            return []  # its worker was given up, and the leg ended without it
        slot = self._slots[report.slot]
        if 0 < report.number <= slot.n_reports.get(report.attempt, 0):
            return []  # the driver before this one had heard of it
        slot.n_reports[report.attempt] = report.number
        key = (report.slot, report.attempt)
        self.ramp.started(key)
        if report.rows:  # a worker that waits only says that it is alive
            self._moved_at = now
        self._book.add(report)
        self.ledger.heard(key, report.billed_s, now)
        self.ledger.objects(report.phases.gets, report.phases.puts)
        lost = slot.hear(report, now)
        if lost is not None and key in self.attempts:
            self.attempts[key] = msgspec.structs.replace(self.attempts[key], lost_s=lost)
        # A successor that works on epoch e proves that its slot has done all before e, even
        # if the predecessor died before it could say so.
        self._has_done(slot, report.epoch + report.epoch_done)
        commands = self._close_epochs(now)
        wanted = self.state == "running" and slot.epochs_done < self._legs.end
        straggles = self._paces is not None and self._paces.heard(report)
        if wanted and slot.newest == report.attempt and (report.ending or straggles):
            if straggles and self._paces is not None and slot.slow != report.attempt:
                slot.slow = report.attempt
                self._paces.relieved(report.slot)
            self._want(report.slot)
        return commands

    def _has_done(self, slot: Slot, epochs: int) -> None:
        self._behind -= slot.epochs_done <= len(self.history) < epochs
        slot.epochs_done = max(slot.epochs_done, epochs)

    def _close_epochs(self, now: float) -> list[Command]:
        if self._behind:  # with thousands of workers nobody asks all of them at each report
            return []
        complete = min(slot.epochs_done for slot in self._slots)
        self._book.close(complete, now, self.ledger.bill(now).total_usd)
        self._count_behind()
        commands = self._evaluate_newest()
        if self.history and self.history[-1].solver is not None and self.history[-1].solver.converged:
            return [*commands, *self._stop("converged", now)]
        return [*commands, *self._ask_planner()]

    def _ask_planner(self) -> list[Command]:
        """What there is to ask; where the held-out loss decides whether to go on, when that is known."""
        complete = len(self.history)
        if self.state != "running" or (self._judged and self._evaluating is not None):
            return []
        asked = self._legs.ask(complete)
        return asked if self._planned else self._legs.planned(complete, self._legs.now.plan)

    def _count_behind(self) -> None:
        self._behind = sum(slot.epochs_done <= len(self.history) for slot in self._slots)

    def _evaluate_newest(self) -> list[Command]:
        newest = len(self.history) - 1
        if not self._evaluates or self._evaluating is not None or newest <= self._evaluated:
            return []
        self._evaluating = newest
        return [Evaluate(newest)]

    def _measured(self, epoch: int, held_out: HeldOut, now: float) -> list[Command]:
        self._evaluating, self._evaluated, self.held_out = None, epoch, held_out
        self._book.measured(epoch, held_out)
        if self.best is None or held_out.loss < self.best[0]:
            self.best = (held_out.loss, epoch)
        reason = self._limits.good_enough(self.best, epoch)
        if reason and self.state == "running":
            return [*self._evaluate_newest(), *self._stop(reason, now)]
        commands = self._evaluate_newest()
        if self.state == "finishing" and not commands:
            self.state = "finished"
        return [*commands, *self._ask_planner()]

    # ------------------------------------------------------------------------- ends of workers

    def _worker_ended(self, event: Ended, now: float) -> list[Command]:
        key, outcome = (event.slot, event.attempt), event.outcome
        known = self.attempts.get(key)
        if known is None or known.outcome is not None:
            return []  # told twice
        slot = self._slots[event.slot]
        done_before = slot.minibatches
        slot.minibatches = event.minibatches if event.rolled_back else max(done_before, event.minibatches)
        slot.running.discard(event.attempt)
        if outcome.kind is not OutcomeKind.RETURNED:
            slot.still_since = now
        self.attempts[key] = msgspec.structs.replace(
            known,
            first_minibatch=done_before,
            minibatches=max(0, slot.minibatches - done_before),
            ended_s=now,
            outcome=outcome,
            cost_usd=self.ledger.end(key, outcome.billed_s),
        )
        if slot.minibatches > done_before:
            self._moved_at = now
        if self.state in ("stopping", "finishing"):
            self._set_done(slot, done=not slot.running)
            return self._finish_if_all_done(now)
        return self._go_on_after(event, slot, advanced=slot.minibatches > done_before, now=now)

    def _go_on_after(self, event: Ended, slot: Slot, *, advanced: bool, now: float) -> list[Command]:
        outcome = event.outcome
        if outcome.kind is OutcomeKind.RAISED:
            return self._fail(causes.raised(event))
        if outcome.kind is OutcomeKind.THROTTLED:
            return self._refused(event, now)
        self.ramp.ended((event.slot, event.attempt))
        if outcome.kind is OutcomeKind.RETURNED:
            end = outcome.value["end"]
            if end == "stopped":  # the flag was raised by another: a driver before this one, say
                limit = self._limits.reached(self.ledger, now, self._stopping())
                return self._stop(limit or "stopped from elsewhere", now)
            if end == "finished":
                return self._finished(event, slot, now)
            slot.failures = 0 if advanced or end in ("superseded", "rolled back") else slot.failures + 1
            if slot.failures > self._limits.max_restarts:
                return self._fail(causes.lifetime_too_short(event.slot))
            return self._successor(event, slot)
        if event.attempt == slot.slow and slot.relieved_at is not None:
            return self._successor(event, slot)  # as it was told to
        slot.failures = 1 if advanced else slot.failures + 1
        if slot.failures > self._limits.max_restarts:
            return self._fail(causes.died(event, slot.failures))
        return self._successor(event, slot)

    def _successor(self, event: Ended, slot: Slot) -> list[Command]:
        if not slot.running:
            self._want(event.slot)
            return []
        waiting = max(slot.running)
        return [Release(event.slot, waiting)] if waiting > event.attempt else []

    def _finished(self, event: Ended, slot: Slot, now: float) -> list[Command]:
        if slot.running:  # a stand-by is not needed any more; it will find nothing left to do
            return self._successor(event, slot)
        self._set_done(slot)
        self._wanted.pop(event.slot, None)
        self._has_done(slot, self._legs.end)
        return [*self._close_epochs(now), *self._finish_if_all_done(now)]

    def _set_done(self, slot: Slot, *, done: bool = True) -> None:
        self._unfinished += slot.done - done
        slot.done = done

    def _refused(self, event: Ended, now: float) -> list[Command]:
        self.ramp.refused((event.slot, event.attempt), now)
        if self.ramp.refusals > 1 and now > self._moved_at + self._limits.throttled_s:
            return self._fail(causes.throttled(event.slot, self._limits.throttled_s))
        self._want(event.slot)
        return []

    def _finish_if_all_done(self, now: float) -> list[Command]:
        if self._unfinished:
            return []
        if self.state == "running" and (leg := self._legs.following) is not None:
            return [Arrange(leg)]
        if self.state == "stopping":
            self._book.close_partial(now, self.ledger.bill(now).total_usd)
        else:
            self.reason = "epochs"
        self.state = "finishing"
        commands = self._evaluate_newest()
        if self._evaluating is None:
            self.state = "finished"
        return commands

    # ---------------------------------------------------------------------------- a new driver

    def _resumed(self, positions: list[int], restored: bool, now: float) -> list[Command]:
        """Count all that ran before as lost, and go on in their slots."""
        self._lose_all(now)
        self._moved_at = now
        if restored:
            self._book.forget_open()  # their rows are visited again
        behind = False
        for slot, position in zip(self._slots, positions, strict=True):
            if position < slot.minibatches:
                self._set_done(slot, done=False)
                behind = True
            if restored and not slot.done:
                slot.epochs_done = min(slot.epochs_done, len(self.history))
            slot.minibatches, slot.still_since, slot.failures = position, now, 0
        self._count_behind()
        if self.state == "stopping":
            for slot in self._slots:
                self._set_done(slot)
            return self._finish_if_all_done(now)
        goes_on = self.state == "running" or (behind and self.reason == "epochs")
        # A restored store may be of before the newest epoch, or have no model yet: the next one is measured.
        measure = [] if restored and goes_on else self._evaluate_newest()
        if self.state == "finishing" and not goes_on:
            self.state = self.state if measure else "finished"
            return measure
        self.state, self.reason = "running", ""
        self._legs.forget_question()
        measure += self._ask_planner()
        self._wanted = {number: None for number, slot in enumerate(self._slots) if not slot.done}
        return measure if self._wanted else [*measure, *self._finish_if_all_done(now)]

    def _lose_all(self, now: float) -> None:
        for key, attempt in self.attempts.items():
            if attempt.outcome is None:
                self._lose(key, now)
        for slot in self._slots:
            slot.running.clear()
        self.ramp.forget()
        self._wanted.clear()
        self._evaluating = None

    def _lose(self, key: tuple[int, int], now: float) -> None:
        lost = Outcome(OutcomeKind.LOST, billed_s=self.ledger.running_s(key, now))
        self.attempts[key] = msgspec.structs.replace(
            self.attempts[key], ended_s=now, outcome=lost, cost_usd=self.ledger.end(key, lost.billed_s)
        )

    # ---------------------------------------------------------------------------------- stops

    def _stop(self, reason: str, now: float) -> list[Command]:
        if self.state == "finishing":
            return self._stop_measuring(reason)
        if self.state not in ("preparing", "running"):
            return []
        self.reason, self._stop_at = reason, now
        if self.state == "preparing":
            self.state = "finished"
            return []
        self.state = "stopping"
        for slot in self._slots:
            self._set_done(slot, done=slot.done or not slot.running)  # it waited for a retry
        return [RequestStop(), *self._finish_if_all_done(now)]

    def _stop_measuring(self, reason: str) -> list[Command]:
        """Training is over; only the newest model is still being measured, and that has to end."""
        self.state = "finished"
        if self.reason == "epochs":
            self.reason = reason
        return []

    def _tick(self, now: float) -> list[Command]:
        if self.state == "stopping" and self._stop_at is not None:
            if now <= self._stop_at + self._limits.grace_s:
                return []
            self._stop_at = None
            return [CancelAll()]
        limit = self._limits.reached(self.ledger, now, self._stopping())
        if limit:
            return self._stop(limit, now)
        if self.state != "running":
            return []
        return [*self._replace_silent(now), *self._relieve_stragglers(now)]

    def _stopping(self) -> Stopping:
        """What it would take to end the job now."""
        if self.state == "finishing":
            return Stopping(records=_RECORDS)
        starting = any(slot.running and not slot.heard for slot in self._slots)
        return Stopping(STOP_MARGIN_S, STOP_MARGIN_S + _STARTING_S * starting, _RECORDS)

    def _replace_silent(self, now: float) -> list[Command]:
        """Give up workers that hang, or whose host has gone without a word; successors fence them."""
        commands: list[Command] = []
        for number, slot in enumerate(self._slots):
            if slot.is_silent(self._limits.silence_s, now):
                self._lose((number, slot.heard), now)
                slot.running.clear()
                self._want(number)
                commands.append(Cancel(number, slot.heard))
        return commands

    def _relieve_stragglers(self, now: float) -> list[Command]:
        """End those whose stand-bys are ready, and release these, at the latest when the grace is over."""
        commands: list[Command] = []
        for number, slot in enumerate(self._slots if self._paces is not None else ()):
            if slot.relieve_at is None or now < slot.relieve_at:
                continue
            slot.relieve_at = None
            if slot.slow not in slot.running or len(slot.running) < 2:
                continue  # it has ended, or its stand-by has
            if slot.relieved_at is None:
                slot.relieved_at, slot.relieve_at = now, now + self._limits.grace_s
                commands.append(Cancel(number, slot.slow))
            else:  # it cannot be ended; the stand-by fences it
                self._lose((number, slot.slow), now)
                slot.running.discard(slot.slow)
                commands.append(Release(number, max(slot.running)))
        return commands

    def _fail(self, error: SquallError) -> list[Command]:
        self.state, self.error, self.reason = "failed", error, error.what
        return [RequestStop(), CancelAll()]

    def expect(self, expected: Expected, told: str) -> None:
        """What the whole job will take by a projection, and what there is to say about that, if anything."""
        self._expected = expected
        if told:
            self._notes["projection"] = told

    def abandon(self, error: BaseException) -> None:
        """The shell could not go on; for the record."""
        self.state = "failed"
        self.reason = self.reason or str(error).partition("\n")[0] or type(error).__name__

    # ---------------------------------------------------------------------------------- views

    def status(self, now: float) -> JobStatus:
        """The job at this moment."""
        number, epoch = self._book.newest
        rows, spent = self._book.rows, now - self._started_at
        attempts = [self.attempts[key] for key in sorted(self.attempts)]
        return JobStatus(
            state=self.state,
            epoch=number,
            epochs=self._epochs,
            rows=rows,
            loss=epoch.loss,
            validation_loss=None if self.held_out is None else self.held_out.loss,
            workers=sum(bool(s.running) for s in self._slots),
            rows_per_s=rows / spent if rows and spent > 0 else 0.0,
            time_s=now,
            cost_usd=self.ledger.bill(now).total_usd,
            lost_s=sum(a.lost_s for a in attempts),
            attempts=attempts,
            reason=self.reason,
            notes=list(self._notes.values()),
            expected_s=None if self._expected is None else self._expected.time_s,
            expected_usd=None if self._expected is None else self._expected.cost_usd,
        )
