"""What strategies without tables are made of: rounds in which slots meet.

Workers hold models (or other arrays) of their own.  In a *round* each slot that has rows brings an
array, and all go on from their sum, which is folded in a fixed tree over the slots
(:meth:`squall.protocols.Reductions.reduce`): its bits depend on nobody's haste.

What makes it safe against ``kill -9``: when a slot has taken a round's result over it *keeps* all
that it needs to go on, and only then does it bring anything to the next round.  So whoever succeeds
it does the work since then again, brings the same array, which counts once, and finds every round
that it has not taken over yet.  A round may be forgotten as soon as the next one is complete.

What a slot keeps, and the model that slot 0 shows to the driver: :mod:`squall.worker.keeping`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np

from squall.protocols import Store
from squall.records import Float32, Numbers, WorkerTask
from squall.worker.keeping import shown_key

HOLD_S = 0.25
"""Longest wait in one request: how soon a waiting worker sees that it has to end."""

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
        self._blobs.delete(shown_key(self._task.job, meeting.number))

    def show(self, number: str, weights: Float32) -> None:
        """(slot 0) Let the driver have the model that came of a round, from the next `Keeper.keep` on."""
        self._blobs.put(shown_key(self._task.job, number), weights.tobytes())
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
