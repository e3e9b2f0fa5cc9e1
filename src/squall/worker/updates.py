"""How updates reach the table: in place where it is shared memory, or by meeting its owner."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from squall.protocols import Model, SharedTables, Store
from squall.records import (
    Block,
    Float32,
    Int32,
    Int64,
    Registration,
    Stamp,
    Steps,
    Sync,
    Update,
    WorkerTask,
)
from squall.worker.compression import Compressor

HOLD_S = 0.25
"""Longest wait in one request; who has no more time than that must not wait."""

_ROW_BYTES = 4  # of a row's number, on the wire

_LEFT = "left"  # names a `_Left` in a worker's state

_NO_ROWS = np.empty(0, dtype=np.int64)
_NOTHING = np.empty((0, 1), dtype=np.float32)


class SharedMemoryUpdates:
    """Updates in place on mapped tables, waiting for nobody: the store is on this host."""

    def __init__(self, model: Model, tables: SharedTables, table: str, progress: Int64) -> None:
        self._model, self._progress = model, progress
        self._table = tables.shared(table)

    def resume(self, registration: Registration) -> int:
        """Everything is in the table."""
        return registration.minibatches

    def start_epoch(self, epoch: int) -> bool:
        """Nothing to wait for."""
        return True

    def step(self, block: Block, order: Int32, batch_size: int, first: int, count: int) -> Steps:
        """All minibatches in one kernel call, which counts them as it applies them."""
        loss, weight, rows = self._model.train_shared(
            block, order, batch_size, first, count, self._table, self._progress
        )
        return Steps(count, rows, loss, weight)

    def finish(self) -> bool:
        """Nothing is held back."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """Everything is in the table."""
        return {}


class _Gradient(NamedTuple):
    """A minibatch that has been computed and not yet been counted."""

    update: Update
    rows: int
    loss: float
    weight: float


class _Left(NamedTuple):
    """A minibatch that met nobody before its worker had to end; ``number`` are done if it has since."""

    epoch: int
    number: int
    rows: int
    loss: float
    weight: float


@dataclass(slots=True)
class _Tally:
    """What has been done since the last `Steps`; these are its fields."""

    minibatches: int = 0
    rows: int = 0
    loss_sum: float = 0.0
    weight_sum: float = 0.0
    pull_s: float = 0.0
    push_s: float = 0.0
    wait_s: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0

    def done(self, gradient: _Gradient) -> None:
        """A minibatch has been applied."""
        self.minibatches += 1
        self.seen(gradient.rows, gradient.loss, gradient.weight)

    def seen(self, rows: int, loss: float, weight: float) -> None:
        """Rows have been trained on."""
        self.rows += rows
        self.loss_sum += loss
        self.weight_sum += weight

    def exchanged(self, n_pulled: int, seconds: float, held_s: float) -> None:
        """A round trip, ``held_s`` of which were waiting for others."""
        self.wait_s += held_s
        if n_pulled:
            self.pull_s += seconds - held_s
        else:
            self.push_s += seconds - held_s

    def steps(self) -> Steps:
        """The sums."""
        return Steps(*(getattr(self, name) for name in self.__slots__))


class MetUpdates:
    """Updates that the table's owner applies: the last gradient out and the next weights in.

    The owner counts a minibatch when it applies its update, so that progress is exactly what
    has been applied, whenever this process dies.

    Parameters
    ----------
    task, model, store
        Whose slot has been registered.
    sync : Sync, optional
        What to wait for; None is `Tables.exchange`, which waits for nothing.
    compressor : Compressor, optional
        What makes updates smaller.
    interrupted : callable
        Whether this worker has to end, or would have to after another `HOLD_S`.
    barriers : bool
        Whether all slots meet before each epoch.
    """

    def __init__(
        self,
        task: WorkerTask,
        model: Model,
        store: Store,
        sync: Sync | None = None,
        compressor: Compressor | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        *,
        barriers: bool = False,
    ) -> None:
        self._task, self._model, self._tables, self._control = task, model, store.tables, store.control
        self._sync, self._compressor = sync, compressor
        self._interrupted, self._barriers = interrupted, barriers
        self._done = int(self._control.progress(task.job, task.slot)[0])
        self._tally = _Tally()
        self._epoch = -1  # begun last
        self._visited = -1  # epoch of the present minibatches
        self._left: _Left | None = None
        self._found: _Left | None = None  # the predecessor's, which has met the others since

    def resume(self, registration: Registration) -> int:
        """Hold back what the predecessor did; the owner has counted what it has applied."""
        state = msgspec.msgpack.decode(registration.state) if registration.state else {}
        if self._compressor is not None and state:
            self._compressor.load_state_dict(state)
        left = _Left(*state[_LEFT]) if _LEFT in state else None
        if left is not None and left.number == registration.minibatches:
            self._found = left
        return registration.minibatches

    def start_epoch(self, epoch: int) -> bool:
        """Wait for the others, if all begin an epoch together."""
        self._visited, found = epoch, self._found
        if found is not None and found.epoch == epoch:  # of an epoch before, the driver knows what is missing
            self._tally.seen(found.rows, found.loss, found.weight)
        self._found = None
        if not self._barriers or epoch == self._epoch:
            return True
        task, started = self._task, time.perf_counter()
        while not self._control.barrier(task.job, task.slot, task.attempt, epoch, self._hold_s()):
            if self._interrupted():
                return False
        self._tally.wait_s += time.perf_counter() - started
        self._epoch = epoch
        return True

    def step(self, block: Block, order: Int32, batch_size: int, first: int, count: int) -> Steps:
        """One round trip a minibatch, and one for the last gradient."""
        loss = self._train(block, order, batch_size, first, count)
        tally, self._tally = self._tally, _Tally()
        return tally.steps() if math.isfinite(loss) else tally.steps()._replace(loss_sum=loss)

    def _train(self, block: Block, order: Int32, batch_size: int, first: int, count: int) -> float:
        """Train, also if it is broken off; the first loss that is not finite, else 0."""
        pending: _Gradient | None = None
        for batch in range(first, first + count):
            minibatch = order[batch * batch_size : (batch + 1) * batch_size]
            needed, handle = self._model.needed_rows(block, minibatch)
            weights = self._exchange(pending, needed)
            if weights is None:
                return 0.0
            gradient, loss, weight = self._model.gradient(block, minibatch, handle, weights, batch_size)
            if not math.isfinite(loss):
                return loss
            pending = _Gradient(self._outgoing(needed, gradient, weights), len(minibatch), loss, weight)
        self._exchange(pending, _NO_ROWS)
        return 0.0

    def _outgoing(self, rows: Int64, gradient: Float32, weights: Float32) -> Update:
        if self._compressor is None:
            return Update(rows, gradient)
        return self._compressor.compress(rows, gradient, weights, self._done)

    def _exchange(self, pending: _Gradient | None, pull: Int64) -> Float32 | None:
        """The last gradient out, the next weights in; None if broken off before they were there."""
        # Numbered by the minibatch, so that a successor which repeats its predecessor's last
        # update is recognised and the update dropped.
        complete = self._done + (pending is not None)
        stamp = Stamp(self._task.slot, self._task.attempt, self._done, complete)
        weights = self._meet(None if pending is None else pending.update, pull, stamp)
        if pending is not None and (weights is not None or not self._staged):
            self._done = complete
            self._tally.done(pending)
        elif pending is not None:
            self._left = _Left(self._visited, complete, pending.rows, pending.loss, pending.weight)
            if self._compressor is not None:
                self._compressor.undo()  # a successor computes this minibatch again
        return weights

    @property
    def _staged(self) -> bool:
        return self._sync is not None and self._sync.staged

    def _meet(self, update: Update | None, pull: Int64, stamp: Stamp) -> Float32 | None:
        tally, table, started = self._tally, self._task.table, time.perf_counter()
        weights: Float32 | None
        held_s = 0.0
        if self._sync is None:
            weights = self._exchange_at_once(update, pull, stamp)
        else:
            weights, held_s = self._tables.meet(table, update, pull, stamp, self._sync, self._hold_s())
            while weights is None and not self._interrupted():
                weights, more_s = self._tables.meet(table, None, pull, stamp, self._sync, HOLD_S)
                held_s += more_s
        tally.exchanged(len(pull), time.perf_counter() - started, held_s)
        tally.bytes_out += _ROW_BYTES * len(pull)
        if update is not None:
            tally.bytes_out += _ROW_BYTES * len(update.rows) + update.values.nbytes
        if weights is not None:
            tally.bytes_in += weights.nbytes
        return weights

    def _hold_s(self) -> float:
        """For how long a first request may wait: short waits add up, and nobody else looks at the time."""
        return 0.0 if self._interrupted() else HOLD_S

    def _exchange_at_once(self, update: Update | None, pull: Int64, stamp: Stamp) -> Float32:
        push = None if update is None else (update.rows, update.decoded())
        if push is not None and not len(pull):
            self._tables.push(self._task.table, *push, stamp)
            return _NOTHING
        return self._tables.exchange(self._task.table, push, pull, stamp)

    def finish(self) -> bool:
        """Send what was held back, and tell that nobody need wait for this slot."""
        rest, task = None if self._compressor is None else self._compressor.rest(), self._task
        if rest is not None:
            stamp = Stamp(task.slot, task.attempt, self._done)
            if self._meet(rest, _NO_ROWS, stamp) is None:
                return False
        if self._sync is not None:
            self._control.finish(task.job, task.slot, task.attempt)
        return True

    def state_dict(self) -> dict[str, Any]:
        """What has been held back, and what the owner may have applied by the time a successor comes."""
        state = {} if self._compressor is None else self._compressor.state_dict()
        return state if self._left is None else state | {_LEFT: list(self._left)}
