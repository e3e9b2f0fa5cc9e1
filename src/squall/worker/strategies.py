"""Strategies: how one worker's minibatches become a shared model."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from squall.protocols import Model, SharedTables, Strategy, Tables
from squall.records import Block, Int32, Int64, Stamp, WorkerTask


class ParameterServer(msgspec.Struct, frozen=True, tag="parameter_server"):
    """Asynchronous minibatch descent through the parameter store's tables.

    Each minibatch's gradient is taken at the weights as they are when it starts and applied
    at once by the table's optimiser, without waiting for other workers (asp).
    """

    consistency: str = "asp"

    def bind(self, task: WorkerTask, model: Model, tables: Tables, progress: Int64) -> Strategy:
        """The strategy at work in one worker."""
        if isinstance(tables, SharedTables):
            return SharedMemoryUpdates(model, tables, task.table, progress)
        done = int(progress[0])
        return ExchangedUpdates(model, tables, task.table, done, task.slot, task.attempt)


class SharedMemoryUpdates:
    """Updates in place on mapped tables: the store is on this host."""

    def __init__(self, model: Model, tables: SharedTables, table: str, progress: Int64) -> None:
        self._model, self._progress = model, progress
        self._table = tables.shared(table)

    def step(
        self, block: Block, order: Int32, batch_size: int, first: int, count: int
    ) -> tuple[float, float, int]:
        """All minibatches in one kernel call, which counts them as it applies them."""
        return self._model.train_shared(block, order, batch_size, first, count, self._table, self._progress)

    def finish_epoch(self, epoch: int) -> None:
        """Nothing is held back between epochs."""

    def state_dict(self) -> dict[str, Any]:
        """Everything is in the table."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Everything is in the table."""


class ExchangedUpdates:
    """Updates by messages: the last gradient out and the next weights in, in one round trip.

    The store counts a minibatch when it applies its push, so that progress is exactly what has
    been applied, whenever this process dies.
    """

    def __init__(self, model: Model, tables: Tables, table: str, done: int, slot: int, attempt: int) -> None:
        self._model, self._tables, self._table, self._done = model, tables, table, done
        self._slot, self._attempt = slot, attempt

    def _stamp(self) -> Stamp:
        # Numbered by the minibatch, so that a successor which repeats its predecessor's last
        # push is recognised and the push dropped.
        return Stamp(self._slot, self._attempt, self._done, self._done + 1)

    def step(
        self, block: Block, order: Int32, batch_size: int, first: int, count: int
    ) -> tuple[float, float, int]:
        """One exchange a minibatch; the last gradient is pushed before it returns."""
        loss_sum = weight_sum = 0.0
        rows = 0
        pending: tuple[Int64, Any] | None = None
        for batch in range(first, first + count):
            minibatch = order[batch * batch_size : (batch + 1) * batch_size]
            needed, handle = self._model.needed_rows(block, minibatch)
            weights = self._tables.exchange(self._table, pending, needed, self._stamp())
            self._done += pending is not None
            pending = None
            gradient, loss, weight = self._model.gradient(block, minibatch, handle, weights, batch_size)
            if not np.isfinite(loss):
                return loss, weight, rows
            pending = (needed, gradient)
            loss_sum, weight_sum, rows = loss_sum + loss, weight_sum + weight, rows + len(minibatch)
        if pending is not None:
            self._tables.push(self._table, *pending, self._stamp())
            self._done += 1
        return loss_sum, weight_sum, rows

    def finish_epoch(self, epoch: int) -> None:
        """Nothing is held back between epochs."""

    def state_dict(self) -> dict[str, Any]:
        """Everything is in the table."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Everything is in the table."""


def strategy_from_dict(data: dict[str, Any]) -> ParameterServer:
    """The strategy that a task names."""
    return msgspec.convert(data, ParameterServer)
