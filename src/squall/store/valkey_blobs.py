"""Blobs, counters and reductions in a Valkey server.

A value is a string or, if it came in parts, a list of them after the number of its upload.  A
reduction is a hash of contributions, which one of those who ask for the result folds for all: it
holds a lease for that, and if it dies another takes over.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from squall.records import Numbers, ReduceOp
from squall.store.blobs import checked_count, no_counter
from squall.store.reductions import (
    Form,
    Reduction,
    check_contributor,
    check_n,
    check_same,
    checked_form,
    form_of,
    holds_a_value,
    is_a_reduction,
    little_endian,
)
from squall.store.uploads import PART_BYTES, PATIENCE_S, again, incomplete, parts_of, regrouped, replaced

if TYPE_CHECKING:
    from squall.store.valkey import ValkeyConnection

LEASE_S = 10.0
"""For how long the one who folds a reduction is waited for."""

# KEYS after the first: value, index, wanted, bell, upload.  ARGV: key, "set", "absent" or "same", value,
# "1" if that is the upload's, what must be there.
_PUT = """
local kind = redis.call('TYPE', KEYS[2]).ok
if kind == 'hash' then return '!reduction' end
if ARGV[3] == 'absent' and kind ~= 'none' then return '0' end
if ARGV[3] == 'same' then
  if kind == 'none' then return '0' end
  local known = kind == 'string' and redis.call('GET', KEYS[2])
    or table.concat(redis.call('LRANGE', KEYS[2], 1, -1))
  if known ~= ARGV[6] then return '0' end
end
if ARGV[5] == '1' then
  if redis.call('EXISTS', KEYS[6]) == 0 then return '!upload' end
  redis.call('RENAME', KEYS[6], KEYS[2])
  redis.call('PERSIST', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[4])
end
redis.call('SADD', KEYS[3], ARGV[2])
if redis.call('EXISTS', KEYS[4]) == 1 then ring(KEYS[5]) end
return '1'
"""

# KEYS: upload.  ARGV: how many parts came before, part, seconds.
_PART = """
local have = redis.call('LLEN', KEYS[1])
if have == tonumber(ARGV[1]) then
  redis.call('RPUSH', KEYS[1], ARGV[2])
elseif have ~= ARGV[1] + 1 then
  return 0
end
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
"""

_GET = """
local found = {}
for at, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind == 'string' then
    found[at] = redis.call('GET', key)
  elseif kind == 'list' then
    found[at] = {redis.call('LINDEX', key, 0), redis.call('LLEN', key)}
  else
    found[at] = false
  end
end
return found
"""

# KEYS: value.  ARGV: number of the upload, of the part.
_GET_PART = """
if redis.call('TYPE', KEYS[1]).ok ~= 'list' or redis.call('LINDEX', KEYS[1], 0) ~= ARGV[1] then
  return false
end
return redis.call('LINDEX', KEYS[1], ARGV[2])
"""

# KEYS after the first: value, index, fold, lease.  ARGV: key.
_DELETE = """
redis.call('UNLINK', KEYS[2], KEYS[4], KEYS[5])
redis.call('SREM', KEYS[3], ARGV[2])
return '1'
"""

# KEYS: wanted, bell.
_LISTEN = """
redis.call('SET', KEYS[1], 1, 'EX', 30)
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
return last[1] and last[1][1] or '0-0'
"""

# KEYS after the first: value, index.  ARGV: key, increment.  The count as text: a script's numbers
# are not of 64 bits.
_ADD = """
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'none' and kind ~= 'string' then return '!kind' end
local known = redis.call('GET', KEYS[2])
if known and not string.match(known, '^-?%d+$') then return '!kind' end
local sum = redis.pcall('INCRBY', KEYS[2], ARGV[3])
if type(sum) == 'table' then return '!overflow' end
redis.call('SADD', KEYS[3], ARGV[2])
return redis.call('GET', KEYS[2])
"""

# KEYS after the first: value, index, wanted, bell, fold.  ARGV: key, form, contributor, values.
_REDUCE = """
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'none' and kind ~= 'hash' then return '!value' end
local form = redis.call('HGET', KEYS[2], 'form')
if form and form ~= ARGV[3] then return form end
if not form then redis.call('HSET', KEYS[2], 'form', ARGV[3]) end
if redis.call('HSETNX', KEYS[2], ARGV[4], ARGV[5]) == 1 then
  redis.call('UNLINK', KEYS[6])
  redis.call('SADD', KEYS[3], ARGV[2])
  if redis.call('EXISTS', KEYS[4]) == 1 then ring(KEYS[5]) end
end
return '1'
"""

# KEYS: value, fold, lease.  ARGV: how many must have contributed, who asks, milliseconds.
_LOOK = """
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return {'few'} end
local count = redis.call('HLEN', KEYS[1]) - 1
if count < tonumber(ARGV[1]) then return {'few'} end
local form = redis.call('HGET', KEYS[1], 'form')
if tonumber(redis.call('HGET', KEYS[2], 'count')) == count then
  return {'folded', form, redis.call('HGET', KEYS[2], 'values')}
end
if redis.call('SET', KEYS[3], ARGV[2], 'NX', 'PX', ARGV[3]) then return {'fold'} end
return {'busy'}
"""

# KEYS after the first: value, fold, lease, bell.  ARGV: count, values.
_PUBLISH = """
redis.call('UNLINK', KEYS[4])
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('HSET', KEYS[3], 'count', ARGV[2], 'values', ARGV[3])
end
ring(KEYS[5])
return '1'
"""


class Names:
    """The server's names for what belongs to a key."""

    def __init__(self, key: str) -> None:
        self.value = f"squall:blob:{key}"
        self.index = index_of(key.partition("/")[0] if "/" in key else "")
        self.wanted, self.bell = f"squall:wanted:{key}", f"squall:bell:{key}"
        self.fold, self.lease = f"squall:fold:{key}", f"squall:lease:{key}"


def index_of(job: str) -> str:
    """The server's name for the set of a job's keys."""
    return f"squall:keys:{job}"


class ValkeyBlobs:
    """Implements :class:`squall.protocols.AtomicBlobs`; belongs to the thread that made it."""

    def __init__(self, connection: ValkeyConnection) -> None:
        self._connection = connection

    def put(self, key: str, value: bytes) -> None:
        """See :meth:`squall.protocols.Blobs.put`."""
        self._put(key, "set", value)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See :meth:`squall.protocols.Blobs.put_if_absent`."""
        return self._put(key, "absent", value)

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """See :meth:`squall.protocols.AtomicBlobs.compare_and_set`."""
        return self._put(key, "absent" if expected is None else "same", value, expected or b"")

    def get(self, key: str) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.get`."""
        return self.mget([key])[0]

    def mget(self, keys: list[str]) -> list[bytes | None]:
        """See :meth:`squall.protocols.Blobs.mget`: one round trip, and one for each part of what is large."""
        return again(lambda: self._read(keys))

    def wait(self, key: str, timeout: float) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.wait`."""
        deadline, names = time.monotonic() + timeout, Names(key)
        while True:
            heard = self._heard(names)
            value = self.get(key)
            if value is not None or (rest := deadline - time.monotonic()) <= 0:
                return value
            self._connection.listen(names.bell, heard, rest)

    def delete(self, key: str) -> None:
        """See :meth:`squall.protocols.Blobs.delete`."""
        names = Names(key)
        self._connection.once(_DELETE, (names.value, names.index, names.fold, names.lease), key)

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """See :meth:`squall.protocols.Blobs.put_stream`."""
        self._commit(key, "set", b"", self._uploaded(key, regrouped(pieces)))

    def get_stream(self, key: str) -> Iterator[bytes] | None:
        """See :meth:`squall.protocols.Blobs.get_stream`; a value that came whole is one piece."""
        found = self._find([key])[0]
        if found is None:
            return None
        return self._parts(key, found) if isinstance(found, list) else iter((found,))

    def add(self, key: str, increment: int = 1) -> int:
        """See :meth:`squall.protocols.Reductions.add`."""
        names = Names(key)
        count = self._connection.once(_ADD, (names.value, names.index), key, checked_count(key, increment))
        if count == b"!kind":
            raise no_counter(key)
        return int(count) if count != b"!overflow" else checked_count(key, 1 << 63)

    def reduce(self, key: str, array: Numbers, op: ReduceOp, contributor: int) -> None:
        """See :meth:`squall.protocols.Reductions.reduce`."""
        form, names = form_of(op, array, key), Names(key)
        check_contributor(key, contributor)
        keys = (names.value, names.index, names.wanted, names.bell, names.fold)
        said = self._connection.once(_REDUCE, keys, key, json.dumps(form), contributor, little_endian(array))
        if said == b"!value":
            raise holds_a_value(key)
        if said != b"1":
            check_same(key, _form(key, said), form)

    def reduced(self, key: str, n: int, timeout: float) -> Numbers | None:
        """See :meth:`squall.protocols.Reductions.reduced`."""
        check_n(key, n)
        deadline, names = time.monotonic() + timeout, Names(key)
        while True:
            heard = self._heard(names)
            keys = (names.value, names.fold, names.lease)
            said, *found = self._connection.read(_LOOK, keys, n, self._connection.client, int(1000 * LEASE_S))
            if said == b"folded":
                return _form(key, found[0]).array(found[1])
            rest = deadline - time.monotonic()
            if said == b"fold" or (said == b"busy" and rest <= 0):
                result = self._fold(names, key)
                if result is not None:
                    return result
            elif rest <= 0:
                return None
            else:
                # Who folds may have died without ringing.
                self._connection.listen(
                    names.bell, heard, min(rest, LEASE_S / 4) if said == b"busy" else rest
                )

    # ------------------------------------------------------------------------------- private

    def _put(self, key: str, mode: str, value: bytes, expected: bytes = b"") -> bool:
        if len(value) <= PART_BYTES:
            return self._commit(key, mode, value, "", expected)
        return self._commit(key, mode, b"", self._uploaded(key, parts_of(value)), expected)

    def _commit(self, key: str, mode: str, value: bytes, upload: str, expected: bytes = b"") -> bool:
        names = Names(key)
        keys = (names.value, names.index, names.wanted, names.bell, upload)
        said = self._connection.once(_PUT, keys, key, mode, value, "1" if upload else "0", expected)
        if said == b"!reduction":
            raise is_a_reduction(key)
        if said == b"!upload":
            raise incomplete(key)
        return bool(said == b"1")

    def _uploaded(self, key: str, parts: Iterable[bytes | memoryview]) -> str:
        """The server's name for parts that are no value yet; it forgets what is left."""
        number = os.urandom(8).hex()
        name = f"squall:upload:{number}"
        for have, part in enumerate(itertools.chain((number.encode(),), parts)):
            if not self._connection.read(_PART, (name,), have, bytes(part), int(PATIENCE_S)):
                raise incomplete(key)
        return name

    def _find(self, keys: list[str]) -> list[Any]:
        return list(self._connection.read(_GET, [Names(key).value for key in keys])) if keys else []

    def _read(self, keys: list[str]) -> list[bytes | None]:
        return [
            b"".join(self._parts(key, found)) if isinstance(found, list) else found
            for key, found in zip(keys, self._find(keys), strict=True)
        ]

    def _parts(self, key: str, found: list[Any]) -> Iterator[bytes]:
        number, count = found
        for at in range(1, count):
            part = self._connection.read(_GET_PART, (Names(key).value,), number, at)
            if part is None:
                raise replaced(key)
            yield part

    def _heard(self, names: Names) -> Any:
        """What the bell has last rung with; it will ring from now on."""
        return self._connection.read(_LISTEN, (names.wanted, names.bell))

    def _fold(self, names: Names, key: str) -> Numbers | None:
        """Fold for all who wait; None if the reduction was deleted meanwhile."""
        connection = self._connection
        form = connection.command("HGET", names.value, "form")
        fields: list[bytes] = connection.command("HKEYS", names.value)
        contributors = sorted(int(field) for field in fields if field != b"form")
        if form is None or not contributors:
            return None
        reduction = Reduction(_form(key, form))
        for contributor in contributors:
            values = connection.command("HGET", names.value, contributor)
            if values is None:
                return None
            reduction.add(contributor, reduction.form.array(values))
        result = reduction.result()
        keys = (names.value, names.fold, names.lease, names.bell)
        connection.once(_PUBLISH, keys, len(contributors), little_endian(result))
        return result


def _form(key: str, text: bytes) -> Form:
    op, dtype, shape = json.loads(text)
    return checked_form(op, dtype, tuple(shape), key)
