"""Updates by messages and updates in place are the same mathematics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from squall.protocols import SharedTables
from squall.records import Block, DenseBlock, OptimizerSpec
from squall.worker.strategies import ParameterServer
from squall.worker.updates import MetUpdates, SharedMemoryUpdates
from tests.worker.conftest import ROWS, WIDTH, Job, rows

BATCH = 48


class OnlyMessages:
    """A store's tables without the way to map them, as a store over a network is."""

    def __init__(self, tables: Any) -> None:
        self.create, self.drop, self.describe = tables.create, tables.drop, tables.describe
        self.pull, self.push, self.exchange, self.add = tables.pull, tables.push, tables.exchange, tables.add
        self.meet = tables.meet


def by_messages(store: Any) -> Any:
    """The store as a network shows it."""
    return SimpleNamespace(tables=OnlyMessages(store.tables), control=store.control)


def dense() -> DenseBlock:
    sparse = rows()
    features = np.zeros((ROWS, WIDTH), dtype=np.float32)
    np.add.at(features, (np.repeat(np.arange(ROWS), 5), sparse.indices), np.float32(1))
    return DenseBlock(features, sparse.labels, None)


def test_the_store_decides_how_updates_travel(job: Job) -> None:
    assert isinstance(job.store.tables, SharedTables)
    for store, kind in ((job.store, SharedMemoryUpdates), (by_messages(job.store), MetUpdates)):
        bound = ParameterServer().bind(job.task, job.model, store, lambda: False)
        assert isinstance(bound, kind)


@pytest.mark.parametrize("make_block", [rows, dense])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("penalty", [0.0, 1e-3])
def test_messages_give_what_updates_in_place_give(
    job: Job, make_block: Any, optimizer: Any, penalty: float
) -> None:
    block: Block = make_block()
    order = np.random.default_rng(1).permutation(ROWS).astype(np.int32)
    count = -(-ROWS // BATCH)
    job.store.control.register(job.task.job, 0, 1, 1)
    weights, losses = [], []
    for way in ("shared", "messages"):
        name = f"{job.task.job}/{way}"
        job.store.tables.create(job.model.table(name, OptimizerSpec(optimizer, 0.1, penalty, penalty)))
        progress = np.zeros(1, dtype=np.int64)
        if way == "shared":
            strategy: Any = SharedMemoryUpdates(job.model, job.store.tables, name, progress)
        else:
            task = msgspec.structs.replace(job.task, table=name)
            strategy = MetUpdates(task, job.model, by_messages(job.store))
            progress = job.store.control.progress(job.task.job, 0)
        strategy.step(block, order, BATCH, 0, 7)
        steps = strategy.step(block, order, BATCH, 7, count - 7)
        assert (steps.minibatches, steps.rows) == (count - 7, ROWS - 7 * BATCH)
        losses.append((steps.loss_sum, steps.weight_sum))
        assert progress[0] == count, "every minibatch is counted"
        weights.append(job.store.tables.pull(name))
    np.testing.assert_allclose(weights[0], weights[1], rtol=2e-4, atol=2e-6)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert np.abs(weights[0]).max() > 0.01
