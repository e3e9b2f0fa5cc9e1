"""What a slot keeps so that a successor can go on, and the model that slot 0 shows to the driver.

Of strategies without tables (:mod:`squall.worker.rounds`).  The blobs of a job are below ``<job>/kept`` and,
of slot 0, which has rows if any slot has, ``<job>/models``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from squall.errors import StoreError
from squall.protocols import Store
from squall.records import Float32, Registration, WorkerTask

SPEAKER = 0
"""The slot that shows the model to the driver, and forgets rounds."""

Arrays = Mapping[str, npt.NDArray[Any]]


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
        return store.blobs.get(shown_key(task.job, kept.round)) if kept.round else b""

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


def shown_key(job: str, number: str) -> str:
    """Blob with the model that came of a round."""
    return f"{job}/models/{number}"


def _blob(task: WorkerTask, attempt: int, turn: int) -> str:
    return f"{task.job}/kept/{task.slot}/{attempt}-{turn}"
