"""What a slot keeps of each round beside its state, for as long as a successor would need it.

Of a round there is a *trace* of each slot's own, and one that is the same for all, which slot 0 writes.
Both follow from what all have brought, so whoever does a round again writes the same bytes again: they
need no fence.  A trace is written before the state that refers to it, and removed when neither that
state nor the one before, at which other slots may still be, needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from squall.errors import StoreError
from squall.protocols import Store
from squall.records import WorkerTask
from squall.worker.keeping import SPEAKER, Arrays, packed, unpacked
from squall.worker.rounds import HOLD_S

_COMMON = "common"


class Traces:
    """The traces of one job, seen by one slot.

    Parameters
    ----------
    task, store, interrupted
        As of :class:`squall.worker.rounds.Rounds`.

    Attributes
    ----------
    bytes_out : int
        Bytes of arrays, in all.
    seconds : float
        Spent in writing, in all.
    left : list of int
        Rounds of which traces are in the store; to be kept with the slot's state.
    """

    def __init__(self, task: WorkerTask, store: Store, interrupted: Callable[[], bool]) -> None:
        self._task, self._blobs, self._interrupted = task, store.blobs, interrupted
        self._needed: list[int] = []
        self.bytes_out, self.seconds = 0, 0.0
        self.left: list[int] = []

    def take_over(self, left: list[int], needed: Sequence[int]) -> None:
        """Go on from a predecessor's state, which needs these; other slots may still be at it."""
        self.left, self._needed = left, list(needed)

    def write(self, number: int, own: Arrays, common: Arrays) -> None:
        """Add a round's; ``common`` is what slot 0 writes."""
        started = time.perf_counter()
        written = {self._key(self._task.slot, number): own}
        if self._task.slot == SPEAKER:
            written[self._key(_COMMON, number)] = common
        for key, arrays in written.items():
            data = packed(arrays)
            self._blobs.put(key, data)
            self.bytes_out += len(data)
        self.left = [*dict.fromkeys([*self.left, number])]
        self.seconds += time.perf_counter() - started

    def forget(self, needed: Sequence[int]) -> None:
        """Remove what neither the state that has just been kept needs, which is this, nor the one before."""
        started = time.perf_counter()
        still = {*needed, *self._needed}
        for number in self.left:
            if number not in still:
                self._blobs.delete(self._key(self._task.slot, number))
                if self._task.slot == SPEAKER:
                    self._blobs.delete(self._key(_COMMON, number))
        self.left = [number for number in self.left if number in still]
        self._needed = list(needed)
        self.seconds += time.perf_counter() - started

    def own(self, numbers: Sequence[int]) -> dict[int, dict[str, npt.NDArray[Any]]]:
        """What this slot has written of these rounds, by number."""
        found = self._blobs.mget([self._key(self._task.slot, number) for number in numbers])
        traces = {n: unpacked(data) for n, data in zip(numbers, found, strict=True) if data is not None}
        if len(traces) < len(numbers):
            raise StoreError(
                f"what it has kept of rounds {numbers[0]} to {numbers[-1]} is not in the store any more",
                where=f"job {self._task.job!r}, slot {self._task.slot}",
                fix="start the job again",
            )
        return traces

    def common(self, numbers: Sequence[int]) -> dict[int, dict[str, npt.NDArray[Any]]] | None:
        """What slot 0 has written, or will yet, of these rounds, by number; None if it was broken off."""
        traces = {}
        for number in numbers:
            key = self._key(_COMMON, number)
            data = self._blobs.get(key)
            while data is None and not self._interrupted():
                data = self._blobs.wait(key, HOLD_S)
            if data is None:
                return None
            traces[number] = unpacked(data)
        return traces

    def _key(self, whose: int | str, number: int) -> str:
        return f"{self._task.job}/traces/{whose}/{number}"
