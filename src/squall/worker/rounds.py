"""What strategies without tables are made of: rounds in which slots meet, and what a slot keeps.

Workers hold models (or other arrays) of their own.  In a *round* each slot that has rows brings an
array, and all go on from their sum, which is folded in a fixed tree over the slots
(:meth:`squall.protocols.Reductions.reduce`): its bits depend on nobody's haste.

What makes it safe against ``kill -9``: when a slot has taken a round's result over it *keeps* all
that it needs to go on, and only then does it bring anything to the next round.  So whoever succeeds
it does the work since then again, brings the same array, which counts once, and finds every round
that it has not taken over yet.  A round may be forgotten as soon as the next one is complete.

Beside :class:`Rounds`, the blobs of a job are below ``<job>/kept`` (what slots keep) and
``<job>/models`` (what slot 0, which has rows if any slot has, shows to the driver).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import numpy.typing as npt

from squall.errors import StoreError
from squall.protocols import Store
from squall.records import Float32, Numbers, Registration, WorkerTask

HOLD_S = 0.25
"""Longest wait in one request: how soon a waiting worker sees that it has to end."""

SPEAKER = 0
"""The slot that shows the model to the driver, and forgets rounds."""

Arrays = Mapping[str, npt.NDArray[Any]]


REQUEST_BYTES = 1 << 20
"""What one who adds up takes in while a request is on its way: about 1 ms at 1,200 MB/s."""


class Meeting(NamedTuple):
    """A round by its name, a part of a key, and into how many pieces each of its arrays is cut."""

    number: str
    pieces: tuple[int, ...] = (1,)


class Rounds:
    """The rounds of one job, seen by one slot.

    A long array is cut into pieces, each with a key of its own: so several servers of a store share the
    work of adding up, or, where a store cannot add, as many slots, for each asks for another piece first
    (scatter-reduce).  Each number is added up in the same order as in one piece: the bits are the same.

    Parameters
    ----------
    task : WorkerTask
        Whose slot has been registered.
    store : Store
    interrupted : callable
        Whether this worker has to end.
    shards : int or None, default 1
        Pieces of an array; None for what `n_pieces` says.

    Attributes
    ----------
    push_s, wait_s : float
        Seconds spent in sending and in waiting for others, in all.
    bytes_in, bytes_out : int
        Bytes of arrays, in all.
    """

    def __init__(
        self, task: WorkerTask, store: Store, interrupted: Callable[[], bool], shards: int | None = 1
    ) -> None:
        self._task, self._blobs, self._interrupted = task, store.blobs, interrupted
        self._shards = shards
        self.push_s = self.wait_s = 0.0
        self.bytes_in = self.bytes_out = 0

    def meeting(self, number: str, arrays: Sequence[Numbers], n: int) -> Meeting:
        """The round to which all of ``n`` slots bring arrays like these, of one axis."""
        return Meeting(number, tuple(self._n_pieces(array, n) for array in arrays))

    def meet(self, meeting: Meeting, arrays: Sequence[Numbers], n: int) -> list[Numbers] | None:
        """The sums of what ``n`` slots bring to a round; None if it was broken off: ask again.

        Parameters
        ----------
        meeting : Meeting
        arrays : sequence of ndarray
            What this slot brings, of the same types and lengths as the others; the same as before if it
            asks again.
        n : int
            How many slots there are in it: all that have rows, so that none is left behind.
        """
        started = time.perf_counter()
        parts = [part for array, k in zip(arrays, meeting.pieces, strict=True) for part in _cut(array, k)]
        keys = self._keys(meeting)
        for at in self._order(keys):
            self._blobs.reduce(keys[at], parts[at], "sum", self._task.slot)
            self.bytes_out += parts[at].nbytes
        self.push_s += time.perf_counter() - started
        return self.again(meeting, n)

    def again(self, meeting: Meeting, n: int) -> list[Numbers] | None:
        """The sums of a round to which this slot, or its predecessor, has brought its part; as `meet`."""
        began, keys = time.perf_counter(), self._keys(meeting)
        found: dict[int, Numbers] = {}
        for at in self._order(keys):
            result = self._sum(keys[at], n)
            if result is None:
                break
            found[at] = result
            self.bytes_in += result.nbytes
        self.wait_s += time.perf_counter() - began
        if len(found) < len(keys):
            return None
        parts = iter([found[at] for at in range(len(keys))])
        return [_joined(list(itertools.islice(parts, k))) for k in meeting.pieces]

    def forget(self, meeting: Meeting) -> None:
        """Remove a round that no slot needs any more, and the model that came of it."""
        for key in self._keys(meeting):
            self._blobs.delete(key)
        self._blobs.delete(_shown(self._task.job, meeting.number))

    def show(self, number: str, weights: Float32) -> None:
        """(slot 0) Let the driver have the model that came of a round, from the next `Keeper.keep` on."""
        self._blobs.put(_shown(self._task.job, number), weights.tobytes())
        self.bytes_out += weights.nbytes

    def _n_pieces(self, array: Numbers, n: int) -> int:
        wanted = n_pieces(array.nbytes, n) if self._shards is None else self._shards
        return max(1, min(wanted, len(array)))

    def _keys(self, meeting: Meeting) -> list[str]:
        place = f"{self._task.job}/rounds/{meeting.number}"
        return [f"{place}/{array}-{at}" for array, k in enumerate(meeting.pieces) for at in range(k)]

    def _order(self, keys: list[str]) -> list[int]:
        """Each slot begins with another piece."""
        first = self._task.slot % len(keys)
        return [*range(first, len(keys)), *range(first)]

    def _sum(self, key: str, n: int) -> Numbers | None:
        result = self._blobs.reduced(key, n, 0.0 if self._interrupted() else HOLD_S)
        while result is None and not self._interrupted():
            result = self._blobs.reduced(key, n, HOLD_S)
        return result


class Kept(msgspec.Struct, frozen=True):
    """What a slot has kept: facts in its state of `Control`, arrays in the blob that this names.

    ``minibatches`` stay done, ``round`` is the last that has been taken over ("" before any).
    """

    attempt: int
    minibatches: int
    round: str
    blob: str
    facts: dict[str, Any]


class Keeper:
    """Keeps what a slot's successor needs: all of it or nothing, and only from the slot's own attempt.

    An attempt writes two blobs in turn, so that the one that is named last is never written to, and
    removes its predecessor's when the first of its own is named.

    Parameters
    ----------
    task : WorkerTask
        Whose slot has been registered.
    store : Store

    Attributes
    ----------
    bytes_out : int
        Bytes of arrays, in all.
    seconds : float
        Spent in keeping, in all.
    kept_at : float
        When something was last kept, by the monotonic clock.
    """

    def __init__(self, task: WorkerTask, store: Store) -> None:
        self._task, self._blobs, self._control = task, store.blobs, store.control
        self._written, self._before = 0, -1
        self.bytes_out, self.seconds = 0, 0.0
        self.kept_at = time.monotonic()

    def taken_over(self, registration: Registration) -> tuple[Kept, dict[str, npt.NDArray[Any]]] | None:
        """What the predecessor has kept; None if nothing."""
        if not registration.state:
            return None
        kept = msgspec.msgpack.decode(registration.state, type=Kept)
        data = self._blobs.get(kept.blob)
        if data is None:
            raise StoreError(
                "what its predecessor has kept is not in the store any more",
                where=f"job {self._task.job!r}, slot {self._task.slot}",
                fix="start the job again",
            )
        self._before = kept.attempt
        return kept, unpacked(data)

    def put(self, minibatches: int, number: str, facts: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        """Write the arrays; what is given back is to be saved as the slot's state (`Strategy.state_dict`)."""
        started, task = time.perf_counter(), self._task
        self._written += 1
        blob, data = _blob(task, task.attempt, self._written % 2), packed(arrays)
        self._blobs.put(blob, data)
        self.bytes_out += len(data)
        self.seconds += time.perf_counter() - started
        kept: dict[str, Any] = msgspec.to_builtins(
            Kept(task.attempt, minibatches, number, blob, facts), builtin_types=(bytes,)
        )
        return kept

    def keep(self, minibatches: int, number: str, facts: dict[str, Any], arrays: Arrays) -> None:
        """Keep all of this: from now on a successor goes on from here.

        Raises
        ------
        StaleAttemptError
            If this attempt has been replaced.
        """
        task, started = self._task, time.perf_counter()
        state = msgspec.msgpack.encode(self.put(minibatches, number, facts, arrays))
        self._control.save_state(task.job, task.slot, task.attempt, state)
        self._control.advance(task.job, task.slot, task.attempt, minibatches)
        if self._before >= 0:
            for turn in (0, 1):
                self._blobs.delete(_blob(task, self._before, turn))
            self._before = -1
        self.kept_at = time.monotonic()
        self.seconds += time.perf_counter() - started


def latest(store: Store, task: WorkerTask) -> tuple[Kept, dict[str, npt.NDArray[Any]]] | None:
    """(driver) What slot 0 has kept last; None if nothing yet."""
    return _read(store, task, lambda kept: store.blobs.get(kept.blob), unpacked)


def shown(store: Store, task: WorkerTask) -> Float32 | None:
    """(driver) The model of the last round, flat; None before the first round is over."""

    def found(kept: Kept) -> bytes | None:
        return store.blobs.get(_shown(task.job, kept.round)) if kept.round else b""

    model = _read(store, task, found, lambda data: np.frombuffer(data, dtype=np.float32).copy())
    return None if model is None or not model[0].round else model[1]


def _read(
    store: Store, task: WorkerTask, find: Callable[[Kept], bytes | None], take: Callable[[bytes], Any]
) -> tuple[Kept, Any] | None:
    """What slot 0's state refers to; it may be replaced while it is read, so that is done again then."""
    before = None
    while True:
        state = store.control.look(task.job, SPEAKER).state
        if not state:
            return None
        kept = msgspec.msgpack.decode(state, type=Kept)
        data = find(kept)
        if data is not None:
            return kept, take(data)
        if kept == before:
            raise StoreError("its model is not in the store any more", where=f"job {task.job!r}")
        before = kept


def packed(arrays: Arrays) -> bytes:
    """Arrays by name as bytes."""
    return msgspec.msgpack.encode({name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()})


def unpacked(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays that these bytes hold."""
    plain = msgspec.msgpack.decode(data, type=dict[str, tuple[str, tuple[int, ...], bytes]])
    return {
        name: np.frombuffer(values, dtype=dtype).reshape(shape).copy()
        for name, (dtype, shape, values) in plain.items()
    }


def start_key(job: str) -> str:
    """Blob with the arrays from which all slots of a job begin, if it goes on from another one."""
    return f"{job}/start"


def n_pieces(n_bytes: int, n_slots: int) -> int:
    """Into how many pieces an array is cut unless that is set, at most as many as slots.

    Of k pieces each who adds up takes in a k-th of what all slots bring, but each slot waits for k requests:
    that is quickest where k² is all bytes by `REQUEST_BYTES`.
    """
    return max(1, min(n_slots, math.isqrt(n_slots * n_bytes // REQUEST_BYTES)))


def _cut(array: Numbers, k: int) -> list[Numbers]:
    return [array] if k == 1 else cast(list[Numbers], np.array_split(array, k))


def _joined(parts: list[Numbers]) -> Numbers:
    return parts[0] if len(parts) == 1 else cast(Numbers, np.concatenate(parts))


def _shown(job: str, number: str) -> str:
    return f"{job}/models/{number}"


def _blob(task: WorkerTask, attempt: int, turn: int) -> str:
    return f"{task.job}/kept/{task.slot}/{attempt}-{turn}"
