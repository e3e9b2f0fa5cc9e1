"""Rounds that go on when some of the slots have answered; of the others the last answer counts.

Each slot keeps its newest answer in a blob.  A round is open until enough slots have said that theirs is
there; then one of them adds up the newest answers of *all* slots, and that sum, which says which answers
are in it, is what the round came to, for everybody.  So a slot that is slow, or dead until its successor
is there, holds nobody up, and leaves no gap: its last answer stays in the sums.  Whoever wins the right
to add up may die; after a while anybody may, and the first sum counts.

Zhang & Kwok, "Asynchronous distributed ADMM for consensus optimization", 2014 (partial barrier).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from squall.protocols import Store
from squall.records import Float64, WorkerTask
from squall.worker.keeping import packed, unpacked
from squall.worker.rounds import HOLD_S

_PATIENCE_S = 2.0  # with a slot that had won the right to add up
_KEPT = 4  # sums that stay in the store, for those who come late


class Answered(NamedTuple):
    """What a round came to; ``last`` is 1 if it was the last one, 2 if it has converged with it."""

    number: int
    sums: Float64
    last: int = 0


class PartialRounds:
    """The rounds of one job, seen by one slot.

    Parameters
    ----------
    task, store, interrupted
        As of :class:`squall.worker.rounds.Rounds`.
    slots : sequence of int
        Those that have rows.
    fraction : float
        Of them, to be waited for.

    Attributes
    ----------
    push_s, wait_s, bytes_in, bytes_out
        As of :class:`squall.worker.rounds.Rounds`.
    """

    def __init__(
        self,
        task: WorkerTask,
        store: Store,
        interrupted: Callable[[], bool],
        slots: Sequence[int],
        fraction: float,
    ) -> None:
        self._task, self._blobs, self._interrupted = task, store.blobs, interrupted
        self._slots, self._needed = list(slots), max(1, math.ceil(fraction * len(slots)))
        self._answers = 0
        self._tag = (0, 0)
        self.push_s = self.wait_s = 0.0
        self.bytes_in = self.bytes_out = 0

    def answer(self, array: Float64) -> None:
        """This slot's newest answer, from now on."""
        started = time.perf_counter()
        self._answers += 1
        self._tag = (self._task.attempt, self._answers)
        data = packed({"array": array, "tag": np.array(self._tag, dtype=np.int64)})
        self._blobs.put(self._key("answers", self._task.slot), data)
        self.bytes_out += len(data)
        self.push_s += time.perf_counter() - started

    def meet(self, number: int, *, all_slots: bool) -> Answered | None:
        """What the first round from ``number`` on that has this slot's answer in it came to.

        None if it was broken off.  With ``all_slots`` that round waits for all.
        """
        started = time.perf_counter()
        needed = len(self._slots) if all_slots else self._needed
        answered = self._ended()
        while answered is None:
            number = self._open(number)
            self._blobs.reduce(self._key("ready", number), np.ones(1), "sum", self._task.slot)
            found = self._await(number, needed)
            answered = self._ended()
            if answered is None and found is None and self._interrupted():
                break
            if answered is None and found is not None:
                answered = self._mine(number, found)
                number, needed = number + 1, self._needed
        self.wait_s += time.perf_counter() - started
        return answered

    def end(self, number: int, *, converged: bool) -> None:
        """There is no round after this one: who comes late need not wait for others."""
        self._blobs.put_if_absent(self._key("end", 0), f"{number} {1 + converged}".encode())

    def _ended(self) -> Answered | None:
        told = self._blobs.get(self._key("end", 0))
        if told is None:
            return None
        number, last = map(int, told.split())
        data = self._blobs.get(self._key("sums", number))
        if data is None:
            return None
        self.bytes_in += len(data)
        return Answered(number, unpacked(data)["sums"], last)

    def _open(self, number: int) -> int:
        """The first round from ``number`` on that nobody has added up."""
        pointer = self._blobs.get(self._key("newest", 0))
        number = max(number, 1 + int(pointer)) if pointer else number
        while self._blobs.get(self._key("sums", number)) is not None:
            number += 1
        return number

    def _await(self, number: int, needed: int) -> bytes | None:
        ready_at = math.inf
        while not self._interrupted() and self._blobs.get(self._key("end", 0)) is None:
            if ready_at == math.inf:
                if self._blobs.reduced(self._key("ready", number), needed, HOLD_S) is None:
                    if (data := self._blobs.get(self._key("sums", number))) is not None:
                        return data
                    continue
                ready_at = time.monotonic()
                if self._blobs.put_if_absent(self._key("claims", number), b"1"):
                    self._add_up(number)
            elif time.monotonic() - ready_at > _PATIENCE_S:
                self._add_up(number)
            data = self._blobs.wait(self._key("sums", number), HOLD_S)
            if data is not None:
                return data
        return None

    def _add_up(self, number: int) -> None:
        """Make the round's sum, in slot order, of the newest answers of all slots."""
        total, tags = np.zeros(0), list[Any]()
        for data in self._blobs.mget([self._key("answers", slot) for slot in self._slots]):
            assert data is not None, "the first round has waited for all"
            answer = unpacked(data)
            total = answer["array"] if not tags else total + answer["array"]
            tags.append(answer["tag"])
            self.bytes_in += len(data)
        data = packed({"sums": total, "tags": np.array(tags)})
        if self._blobs.put_if_absent(self._key("sums", number), data):
            self.bytes_out += len(data)
            self._blobs.put(self._key("newest", 0), str(number).encode())
            for kind in ("sums", "ready", "claims"):
                self._blobs.delete(self._key(kind, number - _KEPT))

    def _mine(self, number: int, data: bytes) -> Answered | None:
        """The sum, if this slot's answer is in it."""
        self.bytes_in += len(data)
        arrays = unpacked(data)
        own = self._slots.index(self._task.slot)
        if tuple(arrays["tags"][own].tolist()) != self._tag:
            return None
        return Answered(number, arrays["sums"])

    def _key(self, kind: str, number: int) -> str:
        return f"{self._task.job}/partial/{kind}/{number}"
