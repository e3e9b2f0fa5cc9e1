"""Updates by messages and updates in place are the same mathematics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from squall.errors import SettingError
from squall.protocols import SharedTables
from squall.records import Block, DenseBlock, Meeting, OptimizerSpec, Sync
from squall.worker.strategies import ParameterServer, strategy_from_dict
from squall.worker.updates import HOLD_S, MetUpdates, SharedMemoryUpdates
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


class Noting:
    """Tables of which nobody may read yet; notes how long each request would wait."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    def meet(self, *arguments: Any) -> Any:
        self.timeouts.append(arguments[-1])
        return Meeting(None, 0.0)


@pytest.mark.parametrize(("interrupted", "timeouts"), [([True], [0.0]), ([False, False, True], [HOLD_S] * 2)])
def test_who_has_no_time_for_another_wait_does_not_begin_one(
    job: Job, interrupted: list[bool], timeouts: list[float]
) -> None:
    tables, answers = Noting(), iter([*interrupted, True])
    store: Any = SimpleNamespace(tables=tables, control=job.store.control)
    strategy = MetUpdates(job.task, job.model, store, Sync(3), interrupted=lambda: next(answers))
    order = np.arange(ROWS, dtype=np.int32)
    assert strategy.step(rows(), order, BATCH, 0, 7).minibatches == 0
    assert tables.timeouts == timeouts


def dense() -> DenseBlock:
    sparse = rows()
    features = np.zeros((ROWS, WIDTH), dtype=np.float32)
    np.add.at(features, (np.repeat(np.arange(ROWS), 5), sparse.indices), np.float32(1))
    return DenseBlock(features, sparse.labels, None)


def test_the_store_decides_how_updates_travel(job: Job) -> None:
    assert isinstance(job.store.tables, SharedTables)
    for store, kind in ((job.store, SharedMemoryUpdates), (by_messages(job.store), MetUpdates)):
        bound = ParameterServer().bind(job.task, job.model, store, lambda: False, lambda epoch: [1])
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


# ------------------------------------------------------------------------------- settings


def test_all_wrong_settings_are_told_at_once() -> None:
    with pytest.raises(SettingError) as told:
        ParameterServer("aps", staleness=-1, filter="topk", compression="int9", staleness_weighting=1)  # type: ignore[arg-type]
    for part in (
        "5 settings are wrong",
        "consistency='aps' is unknown; choose from asp, bsp, ssp, hsp (did you mean \"asp\"?)",
        "staleness=-1 must be an integer from 0 to 2147483647",
        "filter='topk' is unknown; choose from threshold, significance, top-k (did you mean \"top-k\"?)",
        "compression='int9' is unknown; choose from float16, int8 (did you mean \"int8\"?)",
        "staleness_weighting=1 must be True or False",
    ):
        assert part in str(told.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"staleness": 2}, r"staleness=2 has no effect with consistency='asp'.*choose consistency=\"ssp\""),
        ({"consistency": "ssp", "staleness": 1.5}, "must be an integer"),
        ({"consistency": "bsp", "staleness_weighting": True}, 'needs consistency="asp", or "ssp"'),
        ({"consistency": "ssp", "staleness": 0, "staleness_weighting": True}, "staleness above 0"),
        ({"threshold": 0.1}, r"threshold=0.1 has no effect with filter=None; choose filter=\"threshold\""),
        ({"filter": "top-k", "significance": 0.5}, "significance=0.5 has no effect with filter='top-k'"),
        ({"filter": "top-k", "keep": 1.5}, "keep=1.5 must be a finite number above 0 and at most 1"),
        ({"filter": "threshold", "threshold": float("nan")}, "threshold=nan must be a finite number above 0"),
        ({"filter": ["top-k"]}, "filter=.* is unknown"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        ParameterServer(**settings)


@pytest.mark.parametrize(
    ("strategy", "sync", "together", "all_at_once"),
    [
        (ParameterServer(), Sync(None), False, False),
        (ParameterServer("bsp"), Sync(0), True, True),
        (ParameterServer("ssp"), Sync(3), False, False),
        (ParameterServer("ssp", staleness=np.int64(5)), Sync(5), False, False),  # type: ignore[arg-type]
        (ParameterServer("ssp", staleness=0), Sync(0), True, True),
        (ParameterServer("hsp"), Sync(None), False, True),
        (ParameterServer(staleness_weighting=True), Sync(None, True), False, False),
    ],
)
def test_what_a_strategy_asks_for(
    strategy: ParameterServer, sync: Sync, together: bool, all_at_once: bool
) -> None:
    assert (strategy.sync, strategy.synchronous, strategy.waits_for_all) == (sync, together, all_at_once)


def test_plain_data_and_back() -> None:
    for strategy in (ParameterServer(), ParameterServer("ssp", staleness=2, filter="top-k", keep=0.5)):
        plain = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(strategy)))
        assert plain["type"] == "parameter_server"
        assert strategy_from_dict(plain) == strategy
        assert eval(repr(strategy)) == strategy


@pytest.mark.parametrize(
    "settings",
    [{"consistency": "hsp"}, {"filter": "top-k"}, {"compression": "int8"}, {"staleness_weighting": True}],
)
def test_only_plain_asp_works_in_place(job: Job, settings: dict[str, Any]) -> None:
    bound = ParameterServer(**settings).bind(job.task, job.model, job.store, lambda: False, lambda epoch: [1])
    assert isinstance(bound, MetUpdates)
