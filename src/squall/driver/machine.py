"""The job's state machine: events in, commands out, no I/O, no clock of its own.

::

    preparing ──Start──▶ running ──all slots done──▶ finishing ──▶ finished
        │                   │  ▲                         ▲
        │                   │  └─ worker lost: relaunch  │
        │                   └──────── Stop ──▶ stopping ─┘
        └──────────────── error that no retry mends ──▶ failed

The shell (:mod:`squall.driver.loop`) turns what happens into events, and executes the
commands.  Times are seconds since the job began.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from squall.driver.events import (
    CancelAll,
    Command,
    Ended,
    Evaluate,
    Evaluated,
    Event,
    Launch,
    Reported,
    RequestStop,
    Start,
    Stop,
    Tick,
)
from squall.driver.ledger import Ledger
from squall.errors import DivergenceError, FunctionError, JobError, SquallError
from squall.records import (
    AttemptRecord,
    HeldOut,
    HistoryRecord,
    JobStatus,
    OutcomeKind,
    Phases,
    Report,
)

STOP_MARGIN_S = 0.25
"""Time that stopping takes; deadline and budget count it in."""

# ------------------------------------------------------------------------------------- state


@dataclass(slots=True)
class _Slot:
    attempt: int = 0
    running: bool = False
    done: bool = False
    failures: int = 0  # in a row, without progress in between
    minibatches: int = 0
    epochs_done: int = 0


@dataclass(slots=True)
class _Epoch:
    rows: int = 0
    loss_sum: float = 0.0
    weight_sum: float = 0.0
    slots: set[int] = field(default_factory=set)
    phases: Phases = field(default_factory=Phases)


class JobMachine:
    """One job.

    Parameters
    ----------
    n_slots, epochs : int
        How many workers, and how often each row is visited.
    ledger : Ledger
        Adds up the cost.
    evaluates : bool
        Whether there are held-out rows.
    deadline_s, budget_usd : float, optional
        Limits to keep.
    max_restarts : int
        How often in a row a worker may die without progress before the job fails.
    grace_s : float
        How long workers may take to stop before they are ended.
    """

    def __init__(
        self,
        n_slots: int,
        epochs: int,
        ledger: Ledger,
        *,
        evaluates: bool,
        deadline_s: float | None = None,
        budget_usd: float | None = None,
        max_restarts: int = 3,
        grace_s: float = 5.0,
    ) -> None:
        self.state = "preparing"
        self.reason = ""
        self.error: SquallError | None = None
        self.history: list[HistoryRecord] = []
        self.attempts: dict[tuple[int, int], AttemptRecord] = {}
        self.ledger = ledger
        self._epochs_wanted, self._evaluates = epochs, evaluates
        self._deadline_s, self._budget_usd = deadline_s, budget_usd
        self._max_restarts, self._grace_s = max_restarts, grace_s
        self._slots = [_Slot() for _ in range(n_slots)]
        self._epochs: dict[int, _Epoch] = {}
        self._evaluating: int | None = None
        self._evaluated = -1  # newest epoch measured
        self._held_out: HeldOut | None = None
        self._stop_at: float | None = None
        self._started_at = 0.0

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ("finished", "failed")

    @property
    def trained_rows(self) -> int:
        """Rows that workers have reported."""
        return sum(epoch.rows for epoch in self._epochs.values())

    @property
    def held_out(self) -> HeldOut | None:
        """The newest held-out measurement."""
        return self._held_out

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event, return what to do about it."""
        if self.ended:
            return []
        match event:
            case Start():
                return self._start(now)
            case Reported(report):
                return self._reported(report, now)
            case Ended():
                return self._worker_ended(event, now)
            case Evaluated(epoch, held_out):
                return self._measured(epoch, held_out)
            case Stop(reason):
                return self._stop(reason, now)
            case Tick():
                return self._tick(now)

    # ---------------------------------------------------------------- the course of training

    def _start(self, now: float) -> list[Command]:
        if self.state != "preparing":
            return []
        self.state, self._started_at = "running", now
        return [self._launch(slot, now) for slot in range(len(self._slots))]

    def _launch(self, number: int, now: float) -> Launch:
        slot = self._slots[number]
        slot.attempt += 1
        slot.running = True
        key = (number, slot.attempt)
        self.attempts[key] = AttemptRecord(number, slot.attempt, slot.minibatches, 0, None, 0.0)
        self.ledger.launch(key, now)
        return Launch(number, slot.attempt)

    def _reported(self, report: Report, now: float) -> list[Command]:
        slot = self._slots[report.slot]
        epoch = self._epochs.setdefault(report.epoch, _Epoch())
        epoch.rows += report.rows
        epoch.slots.add(report.slot)
        epoch.loss_sum += report.loss_sum
        epoch.weight_sum += report.weight_sum
        _add_phases(epoch.phases, report.phases)
        self.ledger.heard((report.slot, report.attempt), report.billed_s, now)
        self.ledger.objects(report.phases.gets, report.phases.puts)
        # A successor that works on epoch e proves that its slot has done all before e, even
        # if the predecessor died before it could say so.
        slot.epochs_done = max(slot.epochs_done, report.epoch + report.epoch_done)
        return self._close_epochs(now)

    def _close_epochs(self, now: float) -> list[Command]:
        complete = min(s.epochs_done if not s.done else self._epochs_wanted for s in self._slots)
        opened = len(self.history)
        for number in range(opened, complete):
            self.history.append(self._record(number, now))
        return self._evaluate_newest() if complete > opened else []

    def _record(self, number: int, now: float) -> HistoryRecord:
        epoch = self._epochs.get(number, _Epoch())
        return HistoryRecord(
            epoch=number + 1,
            time_s=now,
            rows=epoch.rows,
            loss=epoch.loss_sum / epoch.weight_sum if epoch.weight_sum else float("nan"),
            validation_loss=None,
            cost_usd=self.ledger.bill(now).total_usd,
            workers=len(epoch.slots),
            phases=epoch.phases,
        )

    def _evaluate_newest(self) -> list[Command]:
        newest = len(self.history) - 1
        if not self._evaluates or self._evaluating is not None or newest <= self._evaluated:
            return []
        self._evaluating = newest
        return [Evaluate(newest)]

    def _measured(self, epoch: int, held_out: HeldOut) -> list[Command]:
        self._evaluating, self._evaluated, self._held_out = None, epoch, held_out
        if epoch < len(self.history):
            old = self.history[epoch]
            fields = {name: getattr(old, name) for name in old.__struct_fields__}
            self.history[epoch] = HistoryRecord(**fields | {"validation_loss": held_out.loss})
        commands = self._evaluate_newest()
        if self.state == "finishing" and not commands:
            self.state = "finished"
        return commands

    # ------------------------------------------------------------------------- ends of workers

    def _worker_ended(self, event: Ended, now: float) -> list[Command]:
        slot, outcome = self._slots[event.slot], event.outcome
        key = (event.slot, event.attempt)
        known = self.attempts.get(key)
        if known is None or known.outcome is not None:
            return []  # told twice
        done_before = slot.minibatches
        slot.minibatches = max(done_before, event.minibatches)
        cost = self.ledger.end(key, outcome.billed_s)
        self.attempts[key] = AttemptRecord(
            event.slot, event.attempt, done_before, slot.minibatches - done_before, outcome, cost
        )
        if event.attempt != slot.attempt:
            return []
        slot.running = False
        if self.state in ("stopping", "finishing"):
            slot.done = True
            return self._finish_if_all_done(now)
        return self._go_on_after(event, slot, advanced=slot.minibatches > done_before, now=now)

    def _go_on_after(self, event: Ended, slot: _Slot, *, advanced: bool, now: float) -> list[Command]:
        outcome = event.outcome
        if outcome.kind is OutcomeKind.RETURNED:
            if outcome.value.get("end") == "handover":
                slot.failures = 0 if advanced else slot.failures + 1
                if slot.failures <= self._max_restarts:
                    return [self._launch(event.slot, now)]
                return self._fail(_lifetime_too_short(event.slot))
            slot.done = True
            return [*self._close_epochs(now), *self._finish_if_all_done(now)]
        if outcome.kind is OutcomeKind.RAISED:
            return self._fail(_raised(event))
        slot.failures = 1 if advanced else slot.failures + 1
        if slot.failures > self._max_restarts:
            return self._fail(_died(event, slot.failures))
        return [self._launch(event.slot, now)]

    def _finish_if_all_done(self, now: float) -> list[Command]:
        if not all(s.done for s in self._slots):
            return []
        if self.state == "stopping":
            self._record_partial_epoch(now)
        else:
            self.reason = "epochs"
        self.state = "finishing"
        commands = self._evaluate_newest()
        if self._evaluating is None:
            self.state = "finished"
        return commands

    def _record_partial_epoch(self, now: float) -> None:
        number = len(self.history)
        if number in self._epochs and self._epochs[number].rows:
            self.history.append(self._record(number, now))

    # ---------------------------------------------------------------------------------- stops

    def _stop(self, reason: str, now: float) -> list[Command]:
        if self.state not in ("preparing", "running"):
            return []
        self.reason, self._stop_at = reason, now
        if self.state == "preparing":
            self.state = "finished"
            return []
        self.state = "stopping"
        return [RequestStop(), *self._finish_if_all_done(now)]

    def _tick(self, now: float) -> list[Command]:
        if self.state == "stopping" and self._stop_at is not None and now > self._stop_at + self._grace_s:
            self._stop_at = None
            return [CancelAll()]
        if self._deadline_s is not None and now + STOP_MARGIN_S > self._deadline_s:
            return self._stop("deadline", now)
        if (
            self._budget_usd is not None
            and self.ledger.bill(now + STOP_MARGIN_S).total_usd > self._budget_usd
        ):
            return self._stop("budget", now)
        return []

    def _fail(self, error: SquallError) -> list[Command]:
        self.state, self.error, self.reason = "failed", error, error.what
        return [RequestStop(), CancelAll()]

    def abandon(self, error: BaseException) -> None:
        """The shell could not go on; for the record."""
        self.state = "failed"
        self.reason = self.reason or str(error).partition("\n")[0] or type(error).__name__

    # ---------------------------------------------------------------------------------- views

    def status(self, now: float) -> JobStatus:
        """The job at this moment."""
        newest = max(self._epochs, default=-1)
        epoch = self._epochs.get(newest, _Epoch())
        rows = self.trained_rows
        spent = now - self._started_at
        return JobStatus(
            state=self.state,
            epoch=newest + 1,
            epochs=self._epochs_wanted,
            rows=rows,
            loss=epoch.loss_sum / epoch.weight_sum if epoch.weight_sum else None,
            validation_loss=None if self._held_out is None else self._held_out.loss,
            workers=sum(s.running for s in self._slots),
            rows_per_s=rows / spent if rows and spent > 0 else 0.0,
            time_s=now,
            cost_usd=self.ledger.bill(now).total_usd,
            attempts=[self.attempts[key] for key in sorted(self.attempts)],
            reason=self.reason,
        )


def _add_phases(total: Phases, more: Phases) -> None:
    for name in Phases.__struct_fields__:
        ours, theirs = getattr(total, name), getattr(more, name)
        setattr(total, name, max(ours, theirs) if name == "peak_rss" else ours + theirs)


def _raised(event: Ended) -> SquallError:
    outcome = event.outcome
    where = f"worker {event.slot}"
    if outcome.error_type.endswith("DivergenceError"):
        what, _, fix = outcome.error.partition("\n  fix: ")
        return DivergenceError(what, fix=fix or None)
    return FunctionError(
        f"{outcome.error_type}: {outcome.error}",
        where=where,
        remote_type=outcome.error_type,
        remote_traceback=outcome.traceback,
    )


def _died(event: Ended, failures: int) -> JobError:
    outcome = event.outcome
    cause, fix = {
        OutcomeKind.OUT_OF_MEMORY: ("ran out of memory", 'give it more, such as Run(memory="3GB")'),
        OutcomeKind.TIMED_OUT: ("ran into its time limit", "give functions a longer lifetime"),
        OutcomeKind.KILLED: (f"was killed by signal {outcome.signal}", "find out who sends that signal"),
        OutcomeKind.EXITED: (f"exited with code {outcome.exit_code}", "see job.logs()"),
        OutcomeKind.LOST: ("was lost by its platform", "see job.logs()"),
        OutcomeKind.THROTTLED: ("was refused by its platform", "use fewer workers"),
    }[outcome.kind]
    times = "" if failures == 1 else f" {failures} times in a row without getting further"
    last = event.logs.strip().splitlines()[-1:] or [""]
    told = f"; its last words: {last[0]!r}" if last[0] else ""
    return JobError(f"it {cause}{times}{told}", where=f"worker {event.slot}", fix=fix)


def _lifetime_too_short(slot: int) -> JobError:
    return JobError(
        "its functions end before they finish one block of rows",
        where=f"worker {slot}",
        fix="give functions a longer lifetime",
    )
