"""A map job's state machine: events in, commands out, no I/O, no clock of its own.

Items come in groups, are cut into calls, and each of them ends once: its value or exception is
delivered, it fails, or it is cancelled.  ::

    waiting ──Launch──▶ called ──value──────────────────────────▶ delivered
       ▲                  │ ├────raised, no retry is left───────▶ delivered
       └──── again ───────┘ └────its call died once too often──▶ failed

A call that dies takes down every item that it had not stored yet, and which of them was to blame is
not known.  So the rest is called again *carefully* (each result is stored before the next
item begins): should that die as well, the first missing item is the one that was running.
Times are seconds since the job began.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from squall.driver.ledger import Ledger
from squall.errors import SquallError
from squall.records import Outcome, OutcomeKind
from squall.worker import alarm
from squall.workflows import causes
from squall.workflows.events import (
    Call,
    Cancelled,
    Closed,
    Command,
    Deliver,
    Ended,
    Event,
    Fail,
    GiveUp,
    Kill,
    Launch,
    Stop,
    Submitted,
    Tick,
)
from squall.workflows.pace import Pace

STOP_MARGIN_S = 0.25
"""Time that stopping takes; deadline and budget count it in."""

MAX_CALL_BYTES = 16 << 20
"""Most that the items of one call take together, unless one alone is larger."""

_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 5.0
_MAX_THROTTLED = 30  # refusals in a row without any call that ran: more than two minutes
_HOPELESS = ("SettingError", "SerializationError")  # raised by our own code in a function


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may use, and what it survives.

    Attributes
    ----------
    workers : int
        Calls at the same time.
    retries : int
        How often an item that raised, or whose call died of it, is called again.
    max_losses : int
        How often an item's call may be lost or killed from outside, beyond that.
    lease_s : float
        Seconds after which a call of which nothing is heard is taken for lost.
    deadline_s, budget_usd : float, optional
        Time and money that the job may take.
    """

    workers: int
    retries: int = 0
    max_losses: int = 3
    lease_s: float = 1000.0
    deadline_s: float | None = None
    budget_usd: float | None = None


@dataclass(frozen=True, slots=True)
class MapStatus:
    """A map job at one moment."""

    state: str  # "running", "ended", "stopped" by a limit or a user, or "failed" as a whole
    items: int
    done: int  # delivered, failed or cancelled
    failed: int
    workers: int
    time_s: float
    cost_usd: float
    reason: str = ""


@dataclass(slots=True)
class _Group:
    """Items that have not been called yet, from ``next`` to ``stop``."""

    number: int
    first: int
    next: int
    sizes: tuple[int, ...]
    chunksize: int | None
    pace: Pace = field(default_factory=Pace)

    @property
    def stop(self) -> int:
        return self.first + len(self.sizes)

    def take(self, workers: int) -> tuple[int, ...]:
        """Items of the next call."""
        count = self.pace.items(self.stop - self.next, workers) if self.chunksize is None else self.chunksize
        start, end = self.next, min(self.stop, self.next + count)
        sizes = itertools.accumulate(self.sizes[start - self.first : end - self.first])
        fitting = sum(1 for _ in itertools.takewhile(lambda total: total <= MAX_CALL_BYTES, sizes))
        self.next = start + max(1, fitting)
        return tuple(range(start, self.next))


@dataclass(frozen=True, slots=True)
class _Rest:
    """Items of one earlier call that are to be called again, not before ``due``."""

    group: int
    items: tuple[int, ...]
    careful: bool
    due: float


class MapMachine:
    """One map job.

    Parameters
    ----------
    ledger : Ledger
        Adds up the cost.
    limits : Limits
        What it may use.
    """

    def __init__(self, ledger: Ledger, limits: Limits) -> None:
        self.ledger = ledger
        self.reason = ""
        self._limits = limits
        self._allowed = limits.workers  # calls at once; fewer after a refusal
        self._closed = False
        self._error: SquallError | None = None  # what all items fail with from now on
        self._groups: list[_Group] = []
        self._fresh: deque[_Group] = deque()
        self._rests: list[_Rest] = []
        self._running: dict[tuple[int, int], Call] = {}
        self._launched: dict[tuple[int, int], float] = {}
        self._given_up: set[tuple[int, int]] = set()
        self._settled = bytearray()
        self._n_settled = self._n_failed = self._throttled = 0
        self._attempts: Counter[int] = Counter()
        self._failures: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()

    # ---------------------------------------------------------------------------------- views

    @property
    def ended(self) -> bool:
        """Whether no item is open and none will come."""
        return self._closed and self._n_settled == len(self._settled)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do or to look after at the moment."""
        return not (self._running or self._rests or self._fresh)

    @property
    def running(self) -> list[Call]:
        """Calls of which no end is known."""
        return list(self._running.values())

    def is_running(self, item: int) -> bool:
        """Whether a call has begun for the item (which may not have come to it yet)."""
        return any(item in call.items for call in self._running.values())

    def status(self, now: float) -> MapStatus:
        """The job at this moment."""
        return MapStatus(
            state="stopped" if self._error else "ended" if self.ended else "running",
            items=len(self._settled),
            done=self._n_settled,
            failed=self._n_failed,
            workers=len(self._running),
            time_s=now,
            cost_usd=self.ledger.bill(now).total_usd,
            reason=self.reason,
        )

    # --------------------------------------------------------------------------------- events

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event, return what to do about it."""
        match event:
            case Submitted():
                commands = self._submitted(event)
            case Closed():
                self._closed = True
                commands = []
            case Cancelled(items):
                commands = self._cancelled(items)
            case Ended():
                commands = self._call_ended(event, now)
            case Stop(reason):
                commands = self._stop(causes.stopped(reason), reason)
            case Tick():
                commands = self._tick(now)
        return [*commands, *self._launch_what_may(now)]

    def _submitted(self, event: Submitted) -> list[Command]:
        known = len(self._settled)
        self._settled.extend(bytes(max(0, event.first + len(event.sizes) - known)))
        group = _Group(len(self._groups), event.first, event.first, event.sizes, event.chunksize)
        self._groups.append(group)
        if self._error is not None:
            return self._fail(range(group.first, group.stop), self._error)
        if event.sizes:
            self._fresh.append(group)
        return []

    def _cancelled(self, items: Iterable[int]) -> list[Command]:
        for item in items:
            self._settled.extend(bytes(max(0, item + 1 - len(self._settled))))
            self._settle(item)
        self._rests = [rest for rest in self._rests if self._open(rest.items)]
        return [Kill(call) for call in self.running if all(self._settled[item] for item in call.items)]

    def _call_ended(self, event: Ended, now: float) -> list[Command]:
        call = self._running.pop(event.call.key, None)
        if call is None:
            return []  # told twice
        self._given_up.discard(call.key)
        took = now - self._launched.pop(call.key)
        self.ledger.end(call.key, event.outcome.billed_s)
        stored = len(event.values) + len(event.raised)
        if stored and event.outcome.kind is OutcomeKind.RETURNED:
            self._groups[call.group].pace.measured(stored, event.busy_s, took)
        commands = self._stored(call, event, now)
        rest = tuple(i for i in call.items if not self._settled[i] and i not in event.raised)
        if self._error is None:
            commands += self._go_on(call, event.outcome, rest, stored > 0, now)
        return commands

    def _stored(self, call: Call, event: Ended, now: float) -> list[Command]:
        commands: list[Command] = []
        for item in sorted(event.values | event.raised):
            if self._settled[item]:
                continue
            if item in event.raised:
                self._failures[item] += 1
                if self._failures[item] <= self._limits.retries and self._error is None:
                    self._again(call, (item,), call.careful, now + _pause(self._failures[item]))
                    continue
                self._n_failed += 1
            self._settle(item)
            commands.append(Deliver(item))
        return commands

    def _go_on(
        self, call: Call, outcome: Outcome, rest: tuple[int, ...], advanced: bool, now: float
    ) -> list[Command]:
        if outcome.kind is OutcomeKind.THROTTLED:
            return self._refused(call, outcome, rest, now)
        self._throttled = 0
        self._allowed = min(self._limits.workers, self._allowed + 1)
        if not rest:
            return []
        if outcome.kind is OutcomeKind.RETURNED and advanced:  # its time was over
            self._again(call, rest, call.careful, now)
            return []
        if outcome.kind is OutcomeKind.RAISED:
            return self._raised(call, outcome, rest, now)
        if not (call.careful or len(rest) == 1):
            self._again(call, rest, True, now)
            return []
        return self._to_blame(call, outcome, rest, now)

    def _refused(self, call: Call, outcome: Outcome, rest: tuple[int, ...], now: float) -> list[Command]:
        self._throttled += 1
        if self._throttled > _MAX_THROTTLED:
            return self._stop(causes.died(call.slot, outcome.kind, outcome, self._throttled), "throttled")
        self._allowed = max(1, len(self._running))
        if rest:
            self._again(call, rest, call.careful, now + _pause(self._throttled))
        return []

    def _raised(self, call: Call, outcome: Outcome, rest: tuple[int, ...], now: float) -> list[Command]:
        """Our own code in the function could not go on: the store was out of reach, say."""
        self._losses[rest[0]] += 1
        hopeless = outcome.error_type.endswith(_HOPELESS)
        if hopeless or self._losses[rest[0]] > self._limits.max_losses:
            return self._stop(causes.failed(outcome), outcome.error_type)
        self._again(call, rest, call.careful, now + _pause(self._losses[rest[0]]))
        return []

    def _to_blame(self, call: Call, outcome: Outcome, rest: tuple[int, ...], now: float) -> list[Command]:
        """The call died while it was at the first item of the rest."""
        item, *others = rest
        kind = _kind_of(outcome)
        if kind in (OutcomeKind.LOST, OutcomeKind.RETURNED) or _from_outside(kind, outcome):
            counter, allowed = self._losses, self._limits.max_losses
        else:
            counter, allowed = self._failures, self._limits.retries
        counter[item] += 1
        if others:
            self._again(call, tuple(others), True, now)
        if counter[item] > allowed:
            return self._fail([item], causes.died(item, kind, outcome, counter[item]))
        self._again(call, (item,), True, now + _pause(counter[item]))
        return []

    # ----------------------------------------------------------------------------------- time

    def _tick(self, now: float) -> list[Command]:
        limit = "" if self._error or self.ended else self._limit_reached(now + STOP_MARGIN_S)
        if limit:
            return self._stop(causes.stopped(limit), limit)
        late = [
            call
            for key, call in self._running.items()
            if now - self._launched[key] > self._limits.lease_s and key not in self._given_up
        ]
        self._given_up.update(call.key for call in late)
        return [GiveUp(call) for call in late]

    def _limit_reached(self, at: float) -> str:
        deadline_s, budget_usd = self._limits.deadline_s, self._limits.budget_usd
        if deadline_s is not None and at > deadline_s:
            return "deadline"
        if budget_usd is not None and self.ledger.bill(at).total_usd > budget_usd:
            return "budget"
        return ""

    def _stop(self, error: SquallError, reason: str) -> list[Command]:
        if self._error is not None:
            return []
        self._error, self.reason = error, reason
        self._fresh.clear()
        self._rests.clear()
        kills: list[Command] = [Kill(call) for call in self.running]
        return [*kills, *self._fail(range(len(self._settled)), error)]

    # -------------------------------------------------------------------------------- private

    def _fail(self, items: Iterable[int], error: SquallError) -> list[Command]:
        failing = [item for item in items if not self._settled[item]]
        for item in failing:
            self._settle(item)
        self._n_failed += len(failing)
        return [Fail(item, error) for item in failing]

    def _settle(self, item: int) -> None:
        self._n_settled += not self._settled[item]
        self._settled[item] = 1
        for counter in (self._failures, self._losses):
            counter.pop(item, None)

    def _again(self, call: Call, items: tuple[int, ...], careful: bool, due: float) -> None:
        self._rests.append(_Rest(call.group, items, careful, due))

    def _launch_what_may(self, now: float) -> list[Command]:
        commands: list[Command] = []
        while len(self._running) < self._allowed and (call := self._next_call(now)):
            self._running[call.key] = call
            self._launched[call.key] = now
            self.ledger.launch(call.key, now)
            commands.append(Launch(call))
        return commands

    def _next_call(self, now: float) -> Call | None:
        for index, rest in enumerate(self._rests):
            if rest.due <= now:
                del self._rests[index]
                if items := self._open(rest.items):
                    return self._call(rest.group, items, careful=rest.careful)
                return self._next_call(now)
        while self._fresh:
            group = self._fresh[0]
            items = self._open(group.take(self._limits.workers))
            if group.next == group.stop:
                self._fresh.popleft()
            if items:
                return self._call(group.number, items)
        return None

    def _open(self, items: Iterable[int]) -> tuple[int, ...]:
        return tuple(item for item in items if not self._settled[item])

    def _call(self, group: int, items: tuple[int, ...], *, careful: bool = False) -> Call:
        self._attempts[items[0]] += 1
        return Call(items[0], self._attempts[items[0]], group, items, careful)


def _pause(times: int) -> float:
    return float(min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** (times - 1)))


def _kind_of(outcome: Outcome) -> OutcomeKind:
    if outcome.kind is OutcomeKind.KILLED and outcome.signal in alarm.SIGNALS:
        return OutcomeKind.TIMED_OUT
    return outcome.kind


def _from_outside(kind: OutcomeKind, outcome: Outcome) -> bool:
    """Killed by somebody, and not by what it did itself."""
    return kind is OutcomeKind.KILLED and outcome.signal in (0, 9, 15)
