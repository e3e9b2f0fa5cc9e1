"""Blobs, counters and reductions in an object store.

A value is an object; it begins with a number that only its writer knows, by which the writer
recognises its own when it does not know whether it was stored.  A counter is a row of numbered
objects, each created once, the last of which holds the count.  A reduction is an object for each
contributor, folded by one of those who ask for the result, who has created a lease for that; if
no result comes while the lease lasts, another creates the next one.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import msgspec

from squall.protocols import Objects
from squall.records import Numbers, ReduceOp
from squall.store.blobs import checked_count
from squall.store.object_names import folder
from squall.store.polling import Asked, poll
from squall.store.reductions import (
    Form,
    Reduction,
    check_contributor,
    check_n,
    check_same,
    checked_form,
    form_of,
    little_endian,
)
from squall.store.uploads import PART_BYTES, regrouped

LEASE_S = 10.0
"""For how long the one who folds a reduction is waited for, by the clock of who waits."""

FOLD_S = 2.0
"""For how long at most the one who folds is waited for by one whose own time is over."""

STREAM_PART_BYTES = 8 << 20
"""Bytes that are sent at a time of a value that comes in pieces: S3 takes no less than 5 MB."""

_NONCE_BYTES = 16
_AT_ONCE = 8  # requests under way at the same time


class _Form(msgspec.Struct, frozen=True):
    """What a reduction is of; ``number`` tells it from one that had the same key before."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    number: bytes


class ObjectBlobs:
    """Implements :class:`squall.protocols.Blobs` and :class:`squall.protocols.Reductions`.

    A key may hold a value, a counter and a reduction beside each other; `delete` removes all.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._waiting: dict[str, _Waiting] = {}  # for what this client waits, maybe in several calls

    def put(self, key: str, value: bytes) -> None:
        """See :meth:`squall.protocols.Blobs.put`: one request."""
        self._objects.put(folder("blobs", key), _nonce() + value)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See :meth:`squall.protocols.Blobs.put_if_absent`: one request, or two if there is one."""
        return _created(self._objects, folder("blobs", key), value)

    def get(self, key: str) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.get`: one request."""
        found = self._objects.find(folder("blobs", key))
        return None if found is None else bytes(found[_NONCE_BYTES:])

    def mget(self, keys: list[str]) -> list[bytes | None]:
        """See :meth:`squall.protocols.Blobs.mget`: one request for each, some at a time."""
        if len(keys) < 2:
            return [self.get(key) for key in keys]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self.get, keys))

    def wait(self, key: str, timeout: float) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.wait`: one request each time it is asked for."""
        waiting = self._waiting.setdefault(key, _Waiting())
        value = poll(lambda: self.get(key), timeout, waiting.asked)
        if value is not None:
            self._waiting.pop(key, None)
        return value

    def delete(self, key: str) -> None:
        """See :meth:`squall.protocols.Blobs.delete`."""
        self._waiting.pop(key, None)
        self._objects.delete(folder("blobs", key))
        for kind in ("counters", "reductions", "results"):
            self._objects.delete_prefix(folder(kind, key))

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """See :meth:`squall.protocols.Blobs.put_stream`: on S3 one request for each 8 MB, and two."""
        parts = regrouped(itertools.chain((_nonce(),), pieces), STREAM_PART_BYTES)
        self._objects.put_stream(folder("blobs", key), parts)

    def get_stream(self, key: str) -> Iterator[bytes] | None:
        """See :meth:`squall.protocols.Blobs.get_stream`: one request."""
        pieces = self._objects.stream(folder("blobs", key))
        return None if pieces is None else regrouped(_without_nonce(pieces), PART_BYTES)

    def add(self, key: str, increment: int = 1) -> int:
        """See :meth:`squall.protocols.Reductions.add`: three requests, more if others add too."""
        place = folder("counters", key)
        checked_count(key, increment)
        known = self._objects.keys(place)
        number = int(known[-1].rpartition("/")[2]) if known else -1
        while True:
            last = self._objects.find(f"{place}/{number:016d}") if number >= 0 else None
            count = int(bytes(last[_NONCE_BYTES:])) if last is not None else 0
            if increment == 0:
                return count
            count = checked_count(key, count + increment)
            number += 1
            if _created(self._objects, f"{place}/{number:016d}", b"%d" % count):
                return count

    def reduce(self, key: str, array: Numbers, op: ReduceOp, contributor: int) -> None:
        """See :meth:`squall.protocols.Reductions.reduce`: two requests."""
        given = form_of(op, array, key)
        check_contributor(key, contributor)
        place = folder("reductions", key)
        form = self._form(place)
        if form is None:
            made = msgspec.json.encode(_Form(*given, _nonce()))
            self._objects.create(f"{place}/form", made)
            form = self._form(place)
        if form is not None:
            check_same(key, _checked(form, key), given)
        self._objects.create(f"{place}/{contributor:010d}", little_endian(array))

    def reduced(self, key: str, n: int, timeout: float) -> Numbers | None:
        """See :meth:`squall.protocols.Reductions.reduced`: one request each time it is asked for.

        Then one or two of each reader, and one for each contribution of the one who folds them.
        """
        check_n(key, n)
        waiting = self._waiting.setdefault(key, _Waiting())
        ask = functools.partial(self._result, key, n, waiting, False)
        result = cast(Numbers | None, poll(ask, timeout, waiting.asked))
        if result is None and waiting.since and time.monotonic() - waiting.since >= min(timeout, FOLD_S):
            result = self._result(key, n, waiting, True)  # it cannot wait for the one who folds
        if result is not None:
            self._waiting.pop(key, None)
        return result

    # ------------------------------------------------------------------------------- private

    def _form(self, place: str) -> _Form | None:
        found = self._objects.find(f"{place}/form")
        return None if found is None else msgspec.json.decode(found, type=_Form)

    def _result(self, key: str, n: int, waiting: _Waiting, now: bool) -> Numbers | None:
        place = folder("reductions", key)
        contributions = [name for name in self._objects.keys(place) if not name.endswith("/form")]
        found = self._form(place) if len(contributions) >= n else None
        if found is None:
            return None
        results, form = f"{folder('results', key)}/{len(contributions):010d}", _checked(found, key)
        published = self._objects.find(results)
        if published is not None and published[:_NONCE_BYTES] == found.number:
            return form.array(bytes(published[_NONCE_BYTES:]))
        if not now and not self._may_fold(f"{results}-{found.number.hex()}", waiting):
            return None
        result = self._folded(form, contributions)
        if result is not None:
            self._objects.put(results, found.number + little_endian(result))
        return result

    def _may_fold(self, results: str, waiting: _Waiting) -> bool:
        """Whether the next lease is ours; it is asked for when the one before has had its time."""
        clock = time.monotonic()
        if waiting.results != results:
            waiting.results, waiting.leases, waiting.since = results, 0, 0.0
        if waiting.since and clock - waiting.since < LEASE_S:
            return False
        waiting.since = clock
        waiting.leases += 1
        return self._objects.create(f"{results}-lease-{waiting.leases:04d}", b"")

    def _folded(self, form: Form, names: list[str]) -> Numbers | None:
        """The result; None if the reduction was deleted meanwhile."""
        reduction = Reduction(form)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for at in range(0, len(names), _AT_ONCE):
                some = names[at : at + _AT_ONCE]
                for name, values in zip(some, pool.map(self._objects.find, some), strict=True):
                    if values is None:
                        return None
                    reduction.add(int(name.rpartition("/")[2]), form.array(values))
        return reduction.result()


class _Waiting:
    """What one who waits for a key has seen: of which result, how many leases, since when the last one."""

    def __init__(self) -> None:
        self.results, self.leases, self.since = "", 0, 0.0
        self.asked = Asked()


def _nonce() -> bytes:
    return os.urandom(_NONCE_BYTES)


def _created(objects: Objects, name: str, value: bytes) -> bool:
    """Create an object; whether it is ours, also if it was stored before its reply was lost."""
    nonce = _nonce()
    if objects.create(name, nonce + value):
        return True
    found = objects.find(name)
    return found is not None and found[:_NONCE_BYTES] == nonce


def _without_nonce(pieces: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    skip = _NONCE_BYTES
    for piece in pieces:
        yield piece[skip:]
        skip = max(0, skip - len(piece))


def _checked(form: _Form, key: str) -> Form:
    return checked_form(form.op, form.dtype, form.shape, key)
