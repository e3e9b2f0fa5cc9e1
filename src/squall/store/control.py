"""The core of a job's control: slots, attempts, kept state and reports, without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from squall.errors import StaleAttemptError, StoreError
from squall.records import Int64, Registration, Report
from squall.store.clocks import FINISHED, Clocks
from squall.store.layout import Cells

MAX_REPORTS = 100_000
"""Reports that a job may hold before its driver has read them."""

MAX_SLOTS = 65_536
"""Slots that one job may have."""

MAX_ATTEMPT = (1 << 62) - 1
"""Highest number of an attempt."""


@dataclass(slots=True)
class _Slot:
    pid: int = 0
    client: int = 0
    state: bytes = b""
    reported: tuple[int, int] = (0, 0)  # client and number of its last numbered report


@dataclass(slots=True)
class _Job:
    cells: Cells
    slots: list[_Slot]
    clocks: Clocks
    reports: deque[Report] = field(default_factory=deque)
    first: int = 0  # number of the oldest report kept
    waiters: list[Callable[[], None]] = field(default_factory=list)
    n_restored: int | None = None  # reports that a snapshot held, before the driver has asked again

    def skip_read(self, after: int) -> None:
        """After a restore: forget what the driver had read of it, and count on from its number.

        It may have read more than the snapshot knows of, so that new reports would else be numbered
        like some that it has.
        """
        if self.n_restored is not None and after >= self.first:
            for _ in range(min(after - self.first, self.n_restored)):
                self.reports.popleft()
            self.first, self.n_restored = after, None

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter()


class SlotState(msgspec.Struct, frozen=True, array_like=True):
    """Who owns a slot, and what its next attempt takes over."""

    attempt: int
    pid: int
    client: int
    minibatches: int
    state: bytes


class KeptSlot(msgspec.Struct, frozen=True):
    """A slot in a snapshot."""

    pid: int
    client: int
    state: bytes
    reported: tuple[int, int]


class KeptControl(msgspec.Struct, frozen=True):
    """A job's slots and unread reports in a snapshot."""

    slots: list[KeptSlot]
    reports: list[Report]
    first: int
    clocks: list[int]
    barriers: list[int]


class ControlCore:
    """State machine of jobs and their slots.

    A slot is one share of the work; its *attempts* are the functions that do it one after
    the other.  Whoever registers with the highest attempt owns the slot: all others are
    refused, and so is a second process that claims the same attempt (platforms may deliver
    an event twice).
    """

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}

    @property
    def n_jobs(self) -> int:
        """Number of open jobs."""
        return len(self._jobs)

    def is_open(self, job: str) -> bool:
        """Whether the job has been opened and not closed."""
        return job in self._jobs

    def cells(self, job: str) -> Cells:
        """The words that the job's processes share."""
        return self._job(job).cells

    def clocks(self, job: str) -> Clocks:
        """How far the job's slots are."""
        return self._job(job).clocks

    def open_job(self, job: str, cells: Cells) -> None:
        """Make a job known, whose shared words are ``cells``.

        Raises
        ------
        StoreError
            If a job of that name is open or the name cannot serve as one.
        """
        check_job_name(job)
        if job in self._jobs:
            raise already_open(job)
        self._jobs[job] = _Job(cells, [_Slot() for _ in range(cells.n_slots)], Clocks(cells.n_slots))

    def close_job(self, job: str) -> None:
        """Forget a job, tell its workers to stop, wake who waits; no error if it is not open."""
        closed = self._jobs.pop(job, None)
        if closed is not None:
            closed.cells.stop[0] = 1
            closed.cells.gone[0] = 1
            closed.wake()

    def register(self, job: str, slot: int, attempt: int, pid: int, client: int = 0) -> Registration:
        """Take a slot over; see :meth:`squall.protocols.Control.register`.

        ``client`` is a number that tells processes apart which may have the same ``pid``
        because they run in different places.
        """
        owner = self._slot(job, slot)
        if not 0 <= attempt <= MAX_ATTEMPT:
            raise StoreError(f"{attempt} cannot number an attempt", where=f"job {job!r}, slot {slot}")
        attempts = self._jobs[job].cells.attempts
        newest = int(attempts[slot])
        _refuse_if_replaced(job, slot, attempt, newest)
        if attempt == newest and (pid, client) != (owner.pid, owner.client):
            raise already_runs(job, slot, attempt, owner.pid)
        owner.pid, owner.client = pid, client
        attempts[slot] = attempt
        return Registration(int(self._jobs[job].cells.progress[slot]), owner.state)

    def progress(self, job: str, slot: int) -> int:
        """Minibatches that a slot has fully applied."""
        return int(progress_cell(self._job(job).cells, job, slot)[0])

    def look(self, job: str, slot: int) -> Registration:
        """What an attempt would take over; see :meth:`squall.protocols.Control.look`."""
        state = self.slot_state(job, slot)
        return Registration(state.minibatches, state.state)

    def advance(self, job: str, slot: int, attempt: int, minibatches: int) -> None:
        """Count; see :meth:`squall.protocols.Control.advance`."""
        advance(self._job(job).cells, job, slot, attempt, minibatches)

    def arrive(self, job: str, slot: int, attempt: int, number: int) -> None:
        """A slot has come to a barrier; see :meth:`squall.protocols.Control.barrier`."""
        self._slot(job, slot)
        self._check_attempt(job, slot, attempt)
        check_barrier(job, slot, number)
        self._jobs[job].clocks.arrive(slot, number)

    def save_state(self, job: str, slot: int, attempt: int, state: bytes) -> None:
        """Keep strategy state for the slot's next attempt."""
        owner = self._slot(job, slot)
        self._check_attempt(job, slot, attempt)
        owner.state = state

    def report(self, job: str, report: Report, client: int = 0, number: int = 0) -> None:
        """Number a report and keep it for the driver, unless it is a repeat.

        ``number`` rises from 1 with each report of a ``client``; 0 if it never repeats one.

        Raises
        ------
        StaleAttemptError
            If the slot has a newer attempt.
        StoreError
            If the driver has left :data:`MAX_REPORTS` unread.
        """
        slot = self._slot(job, report.slot)
        self._check_attempt(job, report.slot, report.attempt)
        if number and slot.reported[0] == client and number <= slot.reported[1]:
            return
        entry = self._jobs[job]
        if len(entry.reports) >= MAX_REPORTS:
            raise too_many_reports(job)
        entry.reports.append(report)
        slot.reported = (client, number) if number else slot.reported
        entry.wake()

    def reports(self, job: str, after: int) -> list[Report]:
        """Reports number ``after`` and later; those before it are forgotten.

        Below 0: all that are kept, the oldest of which is number 0 from now on.

        Raises
        ------
        StoreError
            If ``after`` lies before what has been forgotten, or beyond what has come.
        """
        entry = self._job(job)
        if after < 0:
            after = entry.first = 0
            entry.n_restored = None
        entry.skip_read(after)
        end = entry.first + len(entry.reports)
        if not entry.first <= after <= end:
            raise no_such_reports(job, after, entry.first, end)
        for _ in range(after - entry.first):
            entry.reports.popleft()
        entry.first = after
        return list(entry.reports)

    def slot_state(self, job: str, slot: int) -> SlotState:
        """A slot as it is."""
        owner, cells = self._slot(job, slot), self._jobs[job].cells
        attempt, minibatches = int(cells.attempts[slot]), int(cells.progress[slot])
        return SlotState(attempt, owner.pid, owner.client, minibatches, owner.state)

    def set_slot_state(self, job: str, slot: int, known: SlotState) -> None:
        """Set a slot to what is known of it from elsewhere."""
        owner, cells = self._slot(job, slot), self._jobs[job].cells
        owner.pid, owner.client, owner.state = known.pid, known.client, known.state
        cells.attempts[slot], cells.progress[slot] = known.attempt, known.minibatches

    def kept(self, job: str) -> KeptControl:
        """What a snapshot holds of a job, beside its cells."""
        entry = self._job(job)
        slots = [KeptSlot(s.pid, s.client, s.state, s.reported) for s in entry.slots]
        return KeptControl(slots, list(entry.reports), entry.first, *entry.clocks.kept())

    def restore(self, job: str, kept: KeptControl) -> None:
        """Set an open job to what a snapshot holds of it."""
        entry = self._job(job)
        entry.slots[:] = [_Slot(s.pid, s.client, s.state, s.reported) for s in kept.slots]
        entry.reports.extend(kept.reports)
        entry.first, entry.n_restored = kept.first, len(kept.reports)
        entry.clocks.restore(kept.clocks, kept.barriers)

    def watch(self, job: str, waiter: Callable[[], None]) -> Callable[[], None]:
        """Call ``waiter`` once, at the next report or at the end of the job; returns the undo."""
        waiters = self._job(job).waiters
        waiters.append(waiter)

        def cancel() -> None:
            # By identity of the job's present list: `wake` may have replaced it.
            entry = self._jobs.get(job)
            if entry is not None and waiter in entry.waiters:
                entry.waiters.remove(waiter)

        return cancel

    def request_stop(self, job: str) -> None:
        """Ask all workers of a job to stop."""
        self._job(job).cells.stop[0] = 1

    def stop_requested(self, job: str) -> bool:
        """Whether the workers of a job are to stop."""
        return bool(self._job(job).cells.stop[0])

    def _check_attempt(self, job: str, slot: int, attempt: int) -> None:
        _check_attempt(self._jobs[job].cells, job, slot, attempt)

    def _job(self, job: str) -> _Job:
        try:
            return self._jobs[job]
        except KeyError:
            raise no_such_job(job) from None

    def _slot(self, job: str, slot: int) -> _Slot:
        slots = self._job(job).slots
        _check_slot(job, slot, len(slots))
        return slots[slot]


def progress_cell(cells: Cells, job: str, slot: int) -> Int64:
    """The word (1,) of a slot's progress; raises `StoreError` if there is no such slot."""
    _check_slot(job, slot, cells.n_slots)
    return cells.progress[slot : slot + 1]


def advance(cells: Cells, job: str, slot: int, attempt: int, minibatches: int) -> None:
    """Raise a slot's progress; see :meth:`squall.protocols.Control.advance`."""
    cell = progress_cell(cells, job, slot)
    _check_attempt(cells, job, slot, attempt)
    if minibatches >= 1 << 62:
        raise StoreError(f"{minibatches} minibatches cannot be", where=f"job {job!r}, slot {slot}")
    if minibatches > cell[0]:
        cell[0] = minibatches


def _check_slot(job: str, slot: int, n_slots: int) -> None:
    if not 0 <= slot < n_slots:
        raise no_such_slot(job, slot, n_slots)


def _check_attempt(cells: Cells, job: str, slot: int, attempt: int) -> None:
    newest = int(cells.attempts[slot])
    _refuse_if_replaced(job, slot, attempt, newest)
    if attempt > newest:
        raise not_registered(job, slot, attempt)


def _refuse_if_replaced(job: str, slot: int, attempt: int, newest: int) -> None:
    if attempt < newest:
        raise stale_attempt(f"job {job!r}, slot {slot}", attempt, newest)


def stale_attempt(where: str, attempt: int, newest: int) -> StaleAttemptError:
    """The error for an attempt that has been replaced."""
    return StaleAttemptError(
        f"attempt {attempt} has been replaced by attempt {newest}",
        where=where,
        fix="end this function; its successor goes on",
    )


def already_runs(job: str, slot: int, attempt: int, pid: int) -> StaleAttemptError:
    """The error for a second delivery of an attempt."""
    return StaleAttemptError(
        f"attempt {attempt} already runs as process {pid}",
        where=f"job {job!r}, slot {slot}",
        fix="end this second delivery of the same invocation",
    )


def not_registered(job: str, slot: int, attempt: int) -> StoreError:
    """The error for an attempt that has not registered."""
    return StoreError(
        f"attempt {attempt} has not registered",
        where=f"job {job!r}, slot {slot}",
        fix="call register before anything else",
    )


def no_such_slot(job: str, slot: int, n_slots: int) -> StoreError:
    """The error for a slot that a job has not."""
    return StoreError(
        f"there is no slot {slot}", where=f"job {job!r}", fix=f"its slots are 0 to {n_slots - 1}"
    )


def too_many_reports(job: str) -> StoreError:
    """The error for a report that finds :data:`MAX_REPORTS` unread."""
    return StoreError(
        f"the driver has left {MAX_REPORTS} reports unread",
        where=f"job {job!r}",
        fix="stop the job; its driver hangs",
    )


def no_such_reports(job: str, after: int, first: int, end: int) -> StoreError:
    """The error for reports that are forgotten or have not come."""
    return StoreError(
        f"reports from number {after} on were asked for; kept are {first} to {end - 1}",
        where=f"job {job!r}",
        fix="let one driver read the reports, each time from where it stopped",
    )


def already_open(job: str) -> StoreError:
    """The error for a job that is open with other slots."""
    return StoreError("a job of this name is open", where=f"job {job!r}", fix="close it first")


def no_such_job(job: str) -> StoreError:
    """The error for a job that is not open."""
    return StoreError(
        "there is no such job", where=f"job {job!r}", fix="open it first; it may have been closed"
    )


def check_job_name(job: str) -> None:
    """Raise `StoreError` unless ``job`` can name a job: 1 to 200 characters without '/'."""
    if not 1 <= len(job) <= 200 or "/" in job or not job.isprintable():
        raise StoreError(
            f"{job[:80]!r} cannot name a job",
            fix="use 1 to 200 printable characters without '/'",
        )


def check_barrier(job: str, slot: int, number: int) -> None:
    """Raise `StoreError` unless a barrier may have this number."""
    if not 0 <= number <= FINISHED:
        raise StoreError(f"{number} cannot number a barrier", where=f"job {job!r}, slot {slot}")


def check_n_slots(job: str, n_slots: int) -> None:
    """Raise `StoreError` unless a job may have ``n_slots`` slots."""
    if not 1 <= n_slots <= MAX_SLOTS:
        raise StoreError(
            f"{n_slots} slots cannot be", where=f"job {job!r}", fix=f"use 1 to {MAX_SLOTS} workers"
        )
