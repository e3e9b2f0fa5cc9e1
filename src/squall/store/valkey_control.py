"""Control of a job's workers in a Valkey server.

A job is a hash: how many slots, whether to stop, and of each slot its attempt, owner, progress and
state.  Beside it are the barriers to which the slots have come, as a sorted set, the reports that
the driver has not read, as a list, and a bell that rings when one of these changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
import numpy as np

from squall.errors import StoreError
from squall.records import Int64, Registration, Report
from squall.store.clocks import FINISHED
from squall.store.control import (
    MAX_REPORTS,
    already_open,
    already_runs,
    check_barrier,
    check_job_name,
    check_n_slots,
    no_such_job,
    no_such_reports,
    no_such_slot,
    not_registered,
    stale_attempt,
    too_many_reports,
)
from squall.store.valkey_blobs import index_of

if TYPE_CHECKING:
    from squall.store.valkey import ValkeyConnection

_Result = TypeVar("_Result")

MAX_NUMBER = (1 << 53) - 1
"""Highest attempt and progress: a script's numbers are float64."""

# All scripts that change a slot begin with this.  KEYS[2]: job.  ARGV: job, slot, attempt.
_CHECK = """
local n = redis.call('HGET', KEYS[2], 'n')
if not n then return '!gone' end
local slot, attempt = ARGV[3], tonumber(ARGV[4])
if tonumber(slot) < 0 or tonumber(slot) >= tonumber(n) then return '!slot ' .. n end
local newest = tonumber(redis.call('HGET', KEYS[2], 'attempt:' .. slot) or '-1')
if attempt < newest then return '!stale ' .. string.format('%.0f', newest) end
"""

_REGISTERED = _CHECK + "if attempt > newest then return '!unregistered' end\n"

# KEYS: job, barriers.  ARGV: job, slots.
_OPEN = """
local n = redis.call('HGET', KEYS[2], 'n')
if n then return n == ARGV[3] and '0' or '!open' end
redis.call('HSET', KEYS[2], 'n', ARGV[3], 'first', 0)
for slot = 0, ARGV[3] - 1 do redis.call('ZADD', KEYS[3], 0, slot) end
return '1'
"""

# KEYS: job, barriers, reports, bell, keys of the job's blobs.
_CLOSE = """
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
for _, key in ipairs(redis.call('SMEMBERS', KEYS[6])) do
  redis.call('UNLINK', 'squall:blob:' .. key, 'squall:fold:' .. key, 'squall:lease:' .. key)
end
redis.call('UNLINK', KEYS[6])
ring(KEYS[5])
return '1'
"""

# ARGV[5]: owner, as "pid:client".
_REGISTER = (
    _CHECK
    + """
local owner = redis.call('HGET', KEYS[2], 'owner:' .. slot)
if attempt == newest and owner ~= ARGV[5] then return '!runs ' .. owner end
redis.call('HSET', KEYS[2], 'attempt:' .. slot, ARGV[4], 'owner:' .. slot, ARGV[5])
return '1'
"""
)

# ARGV[5]: minibatches.
_ADVANCE = (
    _REGISTERED
    + """
if tonumber(ARGV[5]) > tonumber(redis.call('HGET', KEYS[2], 'done:' .. slot) or '0') then
  redis.call('HSET', KEYS[2], 'done:' .. slot, ARGV[5])
end
return '1'
"""
)

# KEYS: job, barriers, bell.  ARGV[5]: number.
_ARRIVE = (
    _REGISTERED
    + """
if redis.call('ZADD', KEYS[3], 'GT', 'CH', ARGV[5], slot) == 1 then ring(KEYS[4]) end
return redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
"""
)

# ARGV[5]: state.
_SAVE = _REGISTERED + "redis.call('HSET', KEYS[2], 'state:' .. slot, ARGV[5])\nreturn '1'"

# KEYS: job, reports, bell.  ARGV[5]: report, most that may be unread.
_REPORT = (
    _REGISTERED
    + """
if redis.call('LLEN', KEYS[3]) >= tonumber(ARGV[6]) then return '!full' end
redis.call('RPUSH', KEYS[3], ARGV[5])
ring(KEYS[4])
return '1'
"""
)

# KEYS: job, reports.  ARGV: after.
_REPORTS = """
local first = redis.call('HGET', KEYS[1], 'first')
if not first then return {'!gone'} end
local after = tonumber(ARGV[1])
if after < 0 then
  first, after = 0, 0
end
local last = first + redis.call('LLEN', KEYS[2])
if after < tonumber(first) or after > last then
  return {string.format('!reports %d %d', first, last)}
end
redis.call('LTRIM', KEYS[2], after - first, -1)
redis.call('HSET', KEYS[1], 'first', after)
return {'1', redis.call('LRANGE', KEYS[2], 0, -1)}
"""

_STOP = """
if redis.call('EXISTS', KEYS[2]) == 0 then return '!gone' end
redis.call('HSET', KEYS[2], 'stop', 1)
return '1'
"""

_HEARD = """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
return last[1] and last[1][1] or '0-0'
"""


class ValkeyControl:
    """Implements :class:`squall.protocols.Control`; belongs to the thread that made it."""

    def __init__(self, connection: ValkeyConnection) -> None:
        self._connection = connection
        self._known: set[str] = set()

    def open_job(self, job: str, n_slots: int) -> None:
        """See :meth:`squall.protocols.Control.open_job`."""
        check_job_name(job)
        check_n_slots(job, n_slots)
        if self._connection.once(_OPEN, (_job(job), _barriers(job)), job, n_slots) == b"!open":
            raise already_open(job)

    def close_job(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.close_job`."""
        keys = (_job(job), _barriers(job), _reports(job), _bell(job), index_of(job))
        self._connection.once(_CLOSE, keys, job)

    def register(self, job: str, slot: int, attempt: int, pid: int) -> Registration:
        """See :meth:`squall.protocols.Control.register`."""
        if not 0 <= attempt <= MAX_NUMBER:
            raise StoreError(f"{attempt} cannot number an attempt", where=f"job {job!r}, slot {slot}")
        self._change(_REGISTER, (_job(job),), job, slot, attempt, f"{pid}:{self._connection.client}")
        done, state = self._fields(job, f"done:{slot}", f"state:{slot}")
        return Registration(int(done or 0), state or b"")

    def progress(self, job: str, slot: int) -> Int64:
        """See :meth:`squall.protocols.Control.progress`: as it is now, read-only."""
        (done,) = self._slot(job, slot, "done")
        cell = np.array([int(done or 0)], dtype=np.int64)
        cell.flags.writeable = False
        return cell

    def look(self, job: str, slot: int) -> Registration:
        """See :meth:`squall.protocols.Control.look`."""
        done, state = self._slot(job, slot, "done", "state")
        return Registration(int(done or 0), state or b"")

    def advance(self, job: str, slot: int, attempt: int, minibatches: int) -> None:
        """See :meth:`squall.protocols.Control.advance`."""
        if minibatches > MAX_NUMBER:
            raise StoreError(f"{minibatches} minibatches cannot be", where=f"job {job!r}, slot {slot}")
        self._change(_ADVANCE, (_job(job),), job, slot, attempt, minibatches)

    def barrier(self, job: str, slot: int, attempt: int, number: int, timeout: float) -> bool:
        """See :meth:`squall.protocols.Control.barrier`."""
        check_barrier(job, slot, number)
        return self._until(job, timeout, lambda: self._arrive(job, slot, attempt, number) >= number)

    def finish(self, job: str, slot: int, attempt: int) -> None:
        """See :meth:`squall.protocols.Control.finish`."""
        self._arrive(job, slot, attempt, FINISHED)

    def save_state(self, job: str, slot: int, attempt: int, state: bytes) -> None:
        """See :meth:`squall.protocols.Control.save_state`."""
        self._change(_SAVE, (_job(job),), job, slot, attempt, state)

    def report(self, job: str, report: Report) -> None:
        """See :meth:`squall.protocols.Control.report`."""
        keys, data = (_job(job), _reports(job), _bell(job)), msgspec.msgpack.encode(report)
        self._change(_REPORT, keys, job, report.slot, report.attempt, data, MAX_REPORTS)

    def reports(self, job: str, after: int, timeout: float) -> list[Report]:
        """See :meth:`squall.protocols.Control.reports`."""
        return self._until(job, timeout, lambda: self._unread(job, after))

    def request_stop(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.request_stop`."""
        if self._connection.once(_STOP, (_job(job),), job) == b"!gone":
            raise no_such_job(job)

    def stop_requested(self, job: str) -> bool:
        """See :meth:`squall.protocols.Control.stop_requested`: one round trip."""
        n_slots, stop = self._fields(job, "n", "stop")
        if n_slots is None and job not in self._known:
            raise no_such_job(job)
        self._known.add(job)
        return n_slots is None or stop is not None

    # ------------------------------------------------------------------------------- private

    def _fields(self, job: str, *names: str) -> list[bytes | None]:
        return list(self._connection.command("HMGET", _job(job), *names))

    def _slot(self, job: str, slot: int, *names: str) -> list[bytes | None]:
        """Fields of a slot; raises if there is no such job or slot."""
        n_slots, *found = self._fields(job, "n", *(f"{name}:{slot}" for name in names))
        if n_slots is None:
            raise no_such_job(job)
        if not 0 <= slot < int(n_slots):
            raise no_such_slot(job, slot, int(n_slots))
        return found

    def _arrive(self, job: str, slot: int, attempt: int, number: int) -> float:
        """The lowest barrier at which a slot stands."""
        keys = (_job(job), _barriers(job), _bell(job))
        return float(self._change(_ARRIVE, keys, job, slot, attempt, number))

    def _unread(self, job: str, after: int) -> list[Report]:
        said, *found = self._connection.read(_REPORTS, (_job(job), _reports(job)), after)
        if said.startswith(b"!reports"):
            raise no_such_reports(job, after, *map(int, said.split()[1:]))
        if said == b"!gone":
            raise no_such_job(job)
        return [msgspec.msgpack.decode(data, type=Report) for data in found[0]]

    def _until(self, job: str, timeout: float, attempt: Callable[[], _Result]) -> _Result:
        """What ``attempt`` gives, made again whenever the job's bell rings, until that is something."""
        deadline = time.monotonic() + timeout
        while True:
            heard = self._connection.read(_HEARD, (_bell(job),))
            result = attempt()
            if result or (rest := deadline - time.monotonic()) <= 0:
                return result
            self._connection.listen(_bell(job), heard, rest)

    def _change(
        self, script: str, keys: tuple[str, ...], job: str, slot: int, attempt: int, *arguments: Any
    ) -> bytes:
        said: bytes = self._connection.once(script, keys, job, slot, attempt, *arguments)
        if said.startswith(b"!"):
            _refuse(said.decode(), job, slot, attempt)
        return said


def _refuse(said: str, job: str, slot: int, attempt: int) -> NoReturn:
    why, _, about = said.partition(" ")
    if why == "!gone":
        raise no_such_job(job)
    if why == "!slot":
        raise no_such_slot(job, slot, int(about))
    if why == "!stale":
        raise stale_attempt(f"job {job!r}, slot {slot}", attempt, int(about))
    if why == "!runs":
        raise already_runs(job, slot, attempt, int(about.partition(":")[0]))
    raise too_many_reports(job) if why == "!full" else not_registered(job, slot, attempt)


def _job(job: str) -> str:
    return f"squall:job:{job}"


def _barriers(job: str) -> str:
    return f"squall:barriers:{job}"


def _reports(job: str) -> str:
    return f"squall:reports:{job}"


def _bell(job: str) -> str:
    return f"squall:job-bell:{job}"
