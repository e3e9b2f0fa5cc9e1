"""A worker whose store is reached by TCP: the same model, whatever is lost on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from squall.records import OptimizerSpec
from squall.store import StoreAddress
from squall.store.process import shared_store
from squall.worker import main
from squall.worker.main import handle
from tests.store.proxy import Proxy, once
from tests.worker.conftest import ROWS, Context, Job, rows
from tests.worker.test_strategies import OnlyMessages


@pytest.fixture
def address() -> StoreAddress:
    return shared_store().listen_tcp()


def start_again(job: Job) -> None:
    job.store.control.close_job(job.task.job)
    job.store.control.open_job(job.task.job, 2)
    job.store.tables.create(job.model.table(job.task.table, OptimizerSpec("adagrad", 0.5)))


def by_tcp(job: Job, address: StoreAddress, **changes: object) -> dict[str, object]:
    return job.event(**{"store": address.url, "token": address.token} | changes)


def mean_loss(job: Job) -> float:
    loss, weight, _ = job.model.loss(rows(), job.weights())
    return loss / weight


def test_it_learns_as_it_does_in_shared_memory(job: Job, address: StoreAddress) -> None:
    handle(job.event(epochs=5), Context())
    near = mean_loss(job)
    start_again(job)
    result = handle(by_tcp(job, address, epochs=5), Context())
    assert result["end"] == "finished"
    assert mean_loss(job) == pytest.approx(near, rel=1e-4)
    reports = job.store.control.reports(job.task.job, 0, 0.0)
    assert sum(report.rows for report in reports) == 5 * ROWS
    assert len(reports) == result["reports"]


def test_the_same_bits_as_by_messages_in_process(
    job: Job, address: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle(by_tcp(job, address), Context())
    weights, steps = job.weights(), int(job.store.control.progress(job.task.job, 0)[0])
    start_again(job)

    def connect(url: str, token: str) -> object:
        store = StoreOfMessages(url)
        store.tables = OnlyMessages(store.tables)
        return store

    from squall.store.embedded import EmbeddedStore as StoreOfMessages

    monkeypatch.setattr(main, "connect", connect)
    handle(job.event(), Context())
    assert np.array_equal(weights, job.weights())
    assert steps == int(job.store.control.progress(job.task.job, 0)[0]) > 100


WORKER = """
import sys, msgspec
from tests.worker.conftest import Context
from squall.worker.main import handle
handle(msgspec.json.decode(sys.stdin.buffer.read()), Context())
"""


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("request_name", ["Exchange", "Push"])
def test_killed_in_the_middle_of_an_exchange(
    job: Job, address: StoreAddress, place: str, request_name: str
) -> None:
    """With its push on the way, or applied and not yet answered."""
    handle(by_tcp(job, address), Context())
    uninterrupted, total = job.weights(), int(job.store.control.progress(job.task.job, 0)[0])
    start_again(job)
    due = once(request_name, at=30 if request_name == "Exchange" else 4)

    def kill(name: str) -> bool:
        if not due(name):
            return False
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        return True

    with Proxy(address.url, **{place: kill}) as proxy:
        worker = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE)
        worker.communicate(msgspec.json.encode(by_tcp(job, address, store=proxy.url)), timeout=50)
        assert worker.returncode == -signal.SIGKILL
    done = int(job.store.control.progress(job.task.job, 0)[0])
    assert 0 < done < total
    result = handle(by_tcp(job, address, attempt=2), Context())
    assert result["end"] == "finished"
    assert np.array_equal(uninterrupted, job.weights()), "no push lost, none applied twice"
    assert int(job.store.control.progress(job.task.job, 0)[0]) == total
    assert job.store.tables.shared(job.task.table).step.item() == total


def test_a_connection_that_is_lost_now_and_then(job: Job, address: StoreAddress) -> None:
    handle(by_tcp(job, address), Context())
    uninterrupted = job.weights()
    start_again(job)
    seen = 0

    def now_and_then(name: str) -> bool:
        nonlocal seen
        seen += 1
        return name not in ("Hello", "Proof") and seen % 17 == 0

    with Proxy(address.url, after=now_and_then) as proxy:
        assert handle(by_tcp(job, address, store=proxy.url), Context())["end"] == "finished"
        assert proxy.requests.count("Hello") > 5
    assert np.array_equal(uninterrupted, job.weights())
    reports = job.store.control.reports(job.task.job, 0, 0.0)
    assert sum(report.rows for report in reports) == 2 * ROWS


def test_the_stop_flag_ends_it_within_a_block(job: Job, address: StoreAddress) -> None:
    job.store.control.request_stop(job.task.job)
    with Proxy(address.url) as proxy:
        assert handle(by_tcp(job, address, store=proxy.url, epochs=1000), Context())["end"] == "stopped"
        assert "AskStop" not in proxy.requests
    assert 0 < sum(r.rows for r in job.store.control.reports(job.task.job, 0, 0.0)) < ROWS
