"""Control of a job's workers in an object store: each slot has a log of its states.

Records are numbered objects that are created once, so a log has one order: who creates the next
one has seen the last one.  What may follow on it, a client lets the same core say as in a store's
server (:mod:`squall.store.control`).  What many look for at once lies in folders that one listing
shows: the barriers to which slots have come, and the reports that the driver has not read.

Below ``jobs/<job>/store/control``::

    job                                  slots, whether to stop; a number that no other job of that name has
    <number>/log/<slot>/<n>              states of a slot, one after the other
    <number>/state/<slot>/<n>            strategies' states, which those name
    <number>/barriers/<slot>-<barrier>   the slot has come to it
    <number>/reports/<n>-<slot>          reports
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import numpy as np

from squall.protocols import Objects
from squall.records import Int64, Registration, Report
from squall.store.clocks import FINISHED
from squall.store.control import (
    ControlCore,
    SlotState,
    already_open,
    check_barrier,
    check_job_name,
    check_n_slots,
    no_such_job,
    no_such_reports,
    no_such_slot,
)
from squall.store.layout import NEVER, Cells
from squall.store.object_names import job_folder
from squall.store.polling import poll

_Result = TypeVar("_Result")

STOP_AGE_S = 0.5
"""For how long an answer about stopping is good, since each costs a request."""


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """A record in a slot's log; ``nonce`` tells its writer that it is its own."""

    nonce: bytes
    slot: SlotState


_NEW = SlotState(NEVER, 0, 0, 0, b"")
_records = msgspec.msgpack.Decoder(_Record)


class _Job(msgspec.Struct, frozen=True):
    """A job that is open."""

    n_slots: int
    number: str
    stop: bool = False


@dataclass(slots=True)
class _Replica:
    """What one client knows of an open job."""

    job: _Job
    core: ControlCore
    read: list[int]  # number of the record that the core has had last, of each slot
    stored: int = 0  # states and reports that this client has stored
    barriers: dict[int, int] = field(default_factory=dict)  # where slots stand, of those this client moves
    first: int = 0  # number of the oldest report that is kept
    reports: dict[str, Report] = field(default_factory=dict)  # by name, in the order of their numbers


class ObjectControl:
    """Implements :class:`squall.protocols.Control`; belongs to the thread that made it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._client = 1 + int.from_bytes(os.urandom(6))
        self._replicas: dict[str, _Replica] = {}
        self._stops: dict[str, tuple[float, bool]] = {}  # when it was last asked for, and the answer

    def open_job(self, job: str, n_slots: int) -> None:
        """See :meth:`squall.protocols.Control.open_job`."""
        check_job_name(job)
        check_n_slots(job, n_slots)
        made = _Job(n_slots, os.urandom(8).hex())
        if not self._objects.create(_job_object(job), msgspec.json.encode(made)):
            known = self._found(job)
            if known is not None and known.n_slots != n_slots:
                raise already_open(job)

    def close_job(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.close_job`."""
        self._objects.delete(_job_object(job))  # first: from now on it is not open
        self._objects.delete_prefix(job_folder(job))

    def register(self, job: str, slot: int, attempt: int, pid: int) -> Registration:
        """See :meth:`squall.protocols.Control.register`."""
        registration = self._change(
            job, slot, lambda core: core.register(job, slot, attempt, pid, self._client)
        )
        found = self._with_state(registration)
        if found is None:
            raise no_such_job(job)  # closed since
        return found

    def progress(self, job: str, slot: int) -> Int64:
        """See :meth:`squall.protocols.Control.progress`: as it is now, read-only."""
        replica = self._replica(job, slot)
        self._catch_up(replica, job, slot)
        cell = np.array([replica.core.progress(job, slot)], dtype=np.int64)
        cell.flags.writeable = False
        return cell

    def look(self, job: str, slot: int) -> Registration:
        """See :meth:`squall.protocols.Control.look`."""
        while True:
            replica = self._replica(job, slot)
            self._catch_up(replica, job, slot)
            found = self._with_state(replica.core.look(job, slot))
            if found is not None:
                return found  # else there is a newer state, or no such job any more

    def advance(self, job: str, slot: int, attempt: int, minibatches: int) -> None:
        """See :meth:`squall.protocols.Control.advance`."""
        self._change(job, slot, lambda core: core.advance(job, slot, attempt, minibatches))

    def barrier(self, job: str, slot: int, attempt: int, number: int, timeout: float) -> bool:
        """See :meth:`squall.protocols.Control.barrier`: one listing each time it is asked for."""
        check_barrier(job, slot, number)
        replica = self._arrive(job, slot, attempt, number)
        return poll(lambda: self._passed(job, replica.job, number) or None, timeout) is not None

    def finish(self, job: str, slot: int, attempt: int) -> None:
        """See :meth:`squall.protocols.Control.finish`."""
        self._arrive(job, slot, attempt, FINISHED)

    def save_state(self, job: str, slot: int, attempt: int, state: bytes) -> None:
        """See :meth:`squall.protocols.Control.save_state`."""
        replica = self._check(job, slot, attempt)
        before = replica.core.slot_state(job, slot).state
        name = f"{_home(job, replica.job)}/state/{slot:05d}/{self._next(replica)}"
        self._objects.put(name, state)
        self._change(job, slot, lambda core: core.save_state(job, slot, attempt, name.encode()))
        if before:  # whoever registers from now on is told of the new one
            self._objects.delete(before.decode())

    def report(self, job: str, report: Report) -> None:
        """See :meth:`squall.protocols.Control.report`."""
        replica = self._check(job, report.slot, report.attempt)
        name = f"{_home(job, replica.job)}/reports/{self._next(replica)}-{report.slot:05d}"
        self._objects.put(name, msgspec.msgpack.encode(report))

    def reports(self, job: str, after: int, timeout: float) -> list[Report]:
        """See :meth:`squall.protocols.Control.reports`; numbered as this client has found them.

        One listing each time it is asked for, and one request for each report.
        """
        replica = self._replica(job)
        if after < 0:
            after = replica.first = 0
        end = replica.first + len(replica.reports)
        if not replica.first <= after <= end:
            raise no_such_reports(job, after, replica.first, end)
        for name in list(replica.reports)[: after - replica.first]:
            self._objects.delete(name)
            del replica.reports[name]
        replica.first = after
        return poll(lambda: self._unread(job, replica) or None, timeout) or []

    def request_stop(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.request_stop`."""
        replica = self._replica(job)
        stopping = msgspec.structs.replace(replica.job, stop=True)
        self._objects.put(_job_object(job), msgspec.json.encode(stopping))
        self._stops.pop(job, None)

    def stop_requested(self, job: str) -> bool:
        """See :meth:`squall.protocols.Control.stop_requested`: one request each :data:`STOP_AGE_S`."""
        asked, stop = self._stops.get(job, (float("-inf"), False))
        now = time.monotonic()
        if stop or now - asked < STOP_AGE_S:
            return stop
        found = self._found(job)
        if found is None and job not in self._stops and job not in self._replicas:
            raise no_such_job(job)
        stop = found is None or found.stop
        self._stops[job] = (now, stop)
        return stop

    # ------------------------------------------------------------------------------- private

    def _with_state(self, known: Registration) -> Registration | None:
        """With the state that a record names; None if that is not there any more."""
        if not known.state:
            return known
        state = self._objects.find(known.state.decode())
        return None if state is None else Registration(known.minibatches, bytes(state))

    def _found(self, job: str) -> _Job | None:
        check_job_name(job)
        found = self._objects.find(_job_object(job))
        return None if found is None else msgspec.json.decode(found, type=_Job)

    def _replica(self, job: str, slot: int = 0) -> _Replica:
        """What is known of a job, which is asked for again: it may have been closed."""
        found = self._found(job)
        if found is None:
            raise no_such_job(job)
        if not 0 <= slot < found.n_slots:
            raise no_such_slot(job, slot, found.n_slots)
        known = self._replicas.get(job)
        if known is None or known.job.number != found.number:
            core = ControlCore()
            core.open_job(job, Cells.private(found.n_slots))
            known = self._replicas[job] = _Replica(found, core, [0] * found.n_slots)
            self._stops.pop(job, None)
        return known

    def _change(self, job: str, slot: int, change: Callable[[ControlCore], _Result]) -> _Result:
        """Change a slot and write what it then is behind all that others have written."""
        replica = self._replica(job, slot)
        while True:
            self._catch_up(replica, job, slot)
            try:
                result = change(replica.core)  # raises if it may not be
                if self._written(replica, job, slot):
                    return result
            except BaseException:
                # What is in the log is not known: it is read again from its beginning.
                replica.read[slot] = 0
                replica.core.set_slot_state(job, slot, _NEW)
                raise

    def _written(self, replica: _Replica, job: str, slot: int) -> bool:
        """Whether what a slot now is could be written; if not, the slot is what another has written."""
        record = _Record(os.urandom(16), replica.core.slot_state(job, slot))
        number = replica.read[slot] + 1
        name = _log_object(job, replica.job, slot, number)
        if not self._objects.create(name, msgspec.msgpack.encode(record)):
            first = self._read(replica, job, slot, name)
            if first is None:
                raise no_such_job(job)  # closed between these two
            replica.read[slot] = number
            return first.nonce == record.nonce
        replica.read[slot] = number
        return True

    def _catch_up(self, replica: _Replica, job: str, slot: int) -> None:
        """Take over what others have written to a slot's log: one request if that is nothing."""
        following = _log_object(job, replica.job, slot, replica.read[slot] + 1)
        if self._read(replica, job, slot, following) is None:
            return
        last = max(self._objects.keys(following.rpartition("/")[0]), default=following)
        replica.read[slot] = int(last.rpartition("/")[2])
        if last != following:
            self._read(replica, job, slot, last)

    def _read(self, replica: _Replica, job: str, slot: int, name: str) -> _Record | None:
        """A record, after the core has had it."""
        found = self._objects.find(name)
        if found is None:
            return None
        record = _records.decode(found)
        replica.core.set_slot_state(job, slot, record.slot)
        return record

    def _check(self, job: str, slot: int, attempt: int) -> _Replica:
        """What is known of a job; raises unless this is the slot's attempt."""
        replica = self._replica(job, slot)
        self._catch_up(replica, job, slot)
        replica.core.advance(job, slot, attempt, 0)
        return replica

    def _arrive(self, job: str, slot: int, attempt: int, number: int) -> _Replica:
        """Show that a slot has come to a barrier; where it stood before is not shown any more."""
        replica = self._check(job, slot, attempt)
        stood = replica.barriers.get(slot, -1)
        if number > stood:
            place = f"{_home(job, replica.job)}/barriers"
            self._objects.put(f"{place}/{slot:05d}-{number:020d}", b"")
            if stood >= 0:
                self._objects.delete(f"{place}/{slot:05d}-{stood:020d}")
            replica.barriers[slot] = number
        return replica

    def _passed(self, job: str, opened: _Job, number: int) -> bool:
        stand = [-1] * opened.n_slots
        for name in self._objects.keys(f"{_home(job, opened)}/barriers"):
            slot, at = map(int, name.rpartition("/")[2].split("-"))
            stand[slot] = max(stand[slot], at)
        if min(stand) < 0 and self._found(job) is None:
            raise no_such_job(job)
        return max(0, min(stand)) >= number

    def _unread(self, job: str, replica: _Replica) -> list[Report]:
        """Reports that are kept, with those that have come since."""
        place = f"{_home(job, replica.job)}/reports"
        for name in self._objects.keys(place):
            found = None if name in replica.reports else self._objects.find(name)
            if found is not None:
                replica.reports[name] = msgspec.msgpack.decode(found, type=Report)
        if not replica.reports:
            self._replica(job)  # raises if the job has been closed
        return list(replica.reports.values())

    def _next(self, replica: _Replica) -> str:
        """A name that rises with each call of a client, and in time if clocks agree."""
        replica.stored += 1
        return f"{time.time_ns():020d}-{self._client:x}-{replica.stored}"


def _job_object(job: str) -> str:
    return f"{job_folder(job)}/control/job"


def _home(job: str, opened: _Job) -> str:
    return f"{job_folder(job)}/control/{opened.number}"


def _log_object(job: str, opened: _Job, slot: int, number: int) -> str:
    return f"{_home(job, opened)}/log/{slot:05d}/{number:09d}"
