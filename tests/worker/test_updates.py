"""Workers that meet over a table: whom they wait for, and what comes of it."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest

from squall.data.iterator import MinibatchStream, block_rows
from squall.data.objects import ObjectStore
from squall.data.training import load_training
from squall.protocols import Model
from squall.records import Chaos, OptimizerSpec, Stamp
from squall.store import StoreAddress
from squall.store.process import shared_store
from squall.store.table import ParameterTable
from squall.worker.main import handle
from squall.worker.strategies import ParameterServer
from tests.worker.conftest import ROWS, Context, Job, rows

WORKER = """
import sys, msgspec
from tests.worker.conftest import Context
from squall.worker.main import handle
handle(msgspec.json.decode(sys.stdin.buffer.read()), Context())
"""


@pytest.fixture(params=["embedded", "tcp"])
def address(request: pytest.FixtureRequest) -> StoreAddress:
    process = shared_store()
    return StoreAddress(process.address) if request.param == "embedded" else process.listen_tcp()


def event(job: Job, address: StoreAddress, slot: int, strategy: ParameterServer, **changes: Any) -> Any:
    plain = msgspec.to_builtins(strategy)
    where = {"store": address.url, "token": address.token, "n_slots": 2}
    return job.event(slot=slot, strategy=plain, **where | changes)


def run(*events: Any) -> list[str]:
    """Functions at the same time, each on a thread; how they ended."""
    with ThreadPoolExecutor(len(events)) as threads:
        return [str(ended["end"]) for ended in threads.map(lambda event: handle(event, Context()), events)]


def done(job: Job, slot: int) -> int:
    return int(job.store.control.progress(job.task.job, slot)[0])


def start_again(job: Job, n_slots: int = 2) -> None:
    job.store.control.close_job(job.task.job)
    job.store.control.open_job(job.task.job, n_slots)
    job.store.tables.create(job.model.table(job.task.table, OptimizerSpec("adagrad", 0.5)))


def minibatches(job: Job, slot: int, n_slots: int, epoch: int) -> list[tuple[Any, Any]]:
    """One slot's (block, rows) of one epoch."""
    objects, task = ObjectStore(job.task.storage), job.task
    manifest = load_training(objects, task.training)
    height = block_rows(manifest, n_slots, task.batch_size)
    found = []
    with MinibatchStream(
        objects, manifest, batch_size=task.batch_size, block_rows=height, seed=task.seed,
        n_slots=n_slots, slot=slot, epochs=task.epochs,
    ) as stream:  # fmt: skip
        for visit in stream:
            if visit.epoch == epoch:
                cuts = range(0, len(visit.order), task.batch_size)
                found += [(visit.block, visit.order[cut : cut + task.batch_size]) for cut in cuts]
    return found


def by_hand(job: Job, n_slots: int) -> np.ndarray:
    """What bsp is: at each step the mean of one gradient of every slot, or of zero."""
    model: Model = job.model
    table = ParameterTable.private(model.table("job/t", OptimizerSpec("adagrad", 0.5)), 1)
    sequence = itertools.count()
    for epoch in range(job.task.epochs):
        shares = [minibatches(job, slot, n_slots, epoch) for slot in range(n_slots)]
        assert len({len(share) for share in shares}) > 1, "one has more than the other"
        for parts in itertools.zip_longest(*shares):
            total = np.zeros((job.model.n_features + 1, 1), np.float32)
            for part in parts:
                if part is not None:
                    needed, handle = model.needed_rows(*part)
                    gradient, _, _ = model.gradient(*part, handle, table.pull(needed), job.task.batch_size)
                    total[needed] += gradient
            rows = np.flatnonzero(total)
            table.push(rows, total[rows] / np.float32(n_slots), Stamp(0, 0, next(sequence)))
    return table.pull()


def test_bsp_is_descent_by_the_minibatches_of_all(job: Job, address: StoreAddress) -> None:
    bsp = ParameterServer("bsp")
    start_again(job, n_slots=3)
    events = [event(job, address, slot, bsp, n_slots=3) for slot in (2, 0, 1)]
    assert run(*events) == ["finished"] * 3
    np.testing.assert_allclose(job.weights(), by_hand(job, 3), rtol=1e-5, atol=1e-7)
    reports = job.store.control.reports(job.task.job, 0, 0.0)
    assert sum(report.rows for report in reports) == 2 * ROWS
    assert sum(report.phases.wait for report in reports) > 0
    assert sum(report.phases.pull for report in reports) > 0
    assert sum(report.phases.bytes_out for report in reports) > 50_000


def test_ssp_without_staleness_is_bsp(job: Job) -> None:
    results = []
    for strategy in (ParameterServer("bsp"), ParameterServer("ssp", staleness=0)):
        start_again(job)
        run(*(event(job, StoreAddress(job.task.store), slot, strategy) for slot in (0, 1)))
        results.append(job.weights())
    assert np.array_equal(*results)


@pytest.mark.parametrize("staleness", [None, 1, 7])
def test_ssp_and_hsp_learn_and_count_every_row(
    job: Job, address: StoreAddress, staleness: int | None
) -> None:
    strategy = ParameterServer("ssp", staleness=staleness) if staleness else ParameterServer("hsp")
    events = [event(job, address, slot, strategy, epochs=10) for slot in (0, 1)]
    assert run(*events) == ["finished", "finished"]
    loss, weight, _ = job.model.loss(rows(), job.weights())
    assert loss / weight < 0.3
    reports = job.store.control.reports(job.task.job, 0, 0.0)
    assert sum(report.rows for report in reports) == 10 * ROWS


@pytest.mark.parametrize("minibatch", [1, 17, pytest.param(35, marks=pytest.mark.slow)])
def test_bsp_gives_the_same_bits_when_a_worker_is_killed(
    job: Job, address: StoreAddress, minibatch: int
) -> None:
    bsp = ParameterServer("bsp")
    run(*(event(job, address, slot, bsp) for slot in (0, 1)))
    expected = job.weights()
    start_again(job)
    chaos = Chaos(slot=1, attempt=1, minibatch=minibatch)
    with ThreadPoolExecutor(1) as threads:
        survivor = threads.submit(handle, event(job, address, 0, bsp), Context())
        killed = event(job, address, 1, bsp, chaos=chaos)
        ended = subprocess.run(
            [sys.executable, "-c", WORKER], input=msgspec.json.encode(killed), check=False, timeout=50
        )
        assert ended.returncode == -9
        assert done(job, 1) == minibatch
        assert not survivor.done(), "it waits for the successor"
        assert handle(event(job, address, 1, bsp, attempt=2), Context())["end"] == "finished"
        assert survivor.result(50)["end"] == "finished"
    assert np.array_equal(job.weights(), expected)


@pytest.mark.parametrize(
    "bsp", [ParameterServer("bsp"), ParameterServer("bsp", filter="top-k", keep=0.5, compression="int8")]
)
def test_who_waits_too_long_hands_over_and_nothing_is_counted_twice(job: Job, bsp: ParameterServer) -> None:
    near = StoreAddress(job.task.store)
    run(*(event(job, near, slot, bsp) for slot in (0, 1)))
    expected = job.weights()
    start_again(job)
    # Slot 1 is not there, so slot 0 hands its first update in, waits, and runs out of time.
    assert handle(event(job, near, 0, bsp), Context([900.0] * 3 + [0.1] * 9))["end"] == "handover"
    assert done(job, 0) == 0
    assert run(event(job, near, 0, bsp, attempt=2), event(job, near, 1, bsp)) == ["finished"] * 2
    assert np.array_equal(job.weights(), expected)


@pytest.mark.parametrize("consistency", ["bsp", "hsp"])
def test_who_waits_is_stopped(job: Job, address: StoreAddress, consistency: str) -> None:
    timer = threading.Timer(0.3, job.store.control.request_stop, (job.task.job,))
    timer.start()
    try:
        alone = event(job, address, 0, ParameterServer(consistency))
        assert handle(alone, Context())["end"] == "stopped"
    finally:
        timer.join()


def test_a_worker_killed_under_ssp_does_not_hold_up_the_other(job: Job, address: StoreAddress) -> None:
    ssp = ParameterServer("ssp", staleness=2)
    job.store.control.register(job.task.job, 0, 0, 1)  # so that slot 1 has somebody to wait for
    killed = event(job, address, 1, ssp, chaos=Chaos(slot=1, attempt=1, minibatch=5), n_slots=2)
    ended = subprocess.run(
        [sys.executable, "-c", WORKER], input=msgspec.json.encode(killed), check=False, timeout=50
    )
    assert ended.returncode == -9
    assert handle(event(job, address, 0, ssp), Context())["end"] == "finished"
    assert done(job, 1) == 5, "and nobody has taken its place"


@pytest.mark.parametrize(
    "strategy",
    [ParameterServer(filter="top-k", keep=0.2), ParameterServer("bsp", filter="top-k", compression="int8")],
)
def test_what_is_held_back_is_handed_over_and_sent_in_the_end(job: Job, strategy: ParameterServer) -> None:
    near, name = StoreAddress(job.task.store), f"{job.task.job}/flat"
    # A rate so small that all gradients are those at 0: their sum is what must arrive.
    spec = job.model.table(name, OptimizerSpec("sgd", 1e-6))
    job.store.tables.create(spec)
    handle(event(job, near, 0, ParameterServer(), table=name, n_slots=1), Context())
    expected = job.weights(name)
    start_again(job, n_slots=1)
    job.store.tables.create(spec)
    first = event(job, near, 0, strategy, table=name, n_slots=1)
    assert handle(first, Context([900.0] * 5 + [0.1] * 99))["end"] == "handover"
    held = msgspec.msgpack.decode(job.store.control.register(job.task.job, 0, 2, 1).state)
    assert np.frombuffer(held["values"], np.float32).any()
    second = event(job, near, 0, strategy, table=name, attempt=3, n_slots=1)
    assert handle(second, Context())["end"] == "finished"
    np.testing.assert_allclose(job.weights(name), expected, rtol=1e-3, atol=1e-9)
