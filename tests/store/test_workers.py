"""Several processes at one table, one of them killed in the middle (faults 1, 2, 3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from squall.errors import StaleAttemptError
from squall.records import OptimizerSpec, Stamp, TableSpec
from squall.store.embedded import EmbeddedStore
from squall.store.process import StoreProcess
from squall.testing.stores import filled, rows_of

WORKER = """
import os, sys
import numpy as np
from squall.records import Stamp
from squall.store.embedded import connect

address, job, slot, attempt, n = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
with connect(address) as store:
    done = store.control.register(job, slot, attempt, os.getpid()).minibatches
    progress = store.control.progress(job, slot)
    own = np.arange(slot * 500, slot * 500 + 500)
    all_rows, rng = np.arange(1000), np.random.default_rng(slot)
    print("ready", flush=True)
    sys.stdin.readline()
    while done < n and not store.control.stop_requested(job):
        store.tables.add(f"{job}/sum", own, np.ones((500, 1), np.float32), Stamp(slot, attempt, done))
        gradient = rng.normal(size=(1000, 1)).astype(np.float32)
        store.tables.push(f"{job}/shared", all_rows, gradient, Stamp(slot, attempt, done))
        done += 1
        progress[0] = done
    heavy = {"sklearn", "scipy", "asyncio", "multiprocessing", "rich", "typer"} & set(sys.modules)
    print(sorted(heavy), flush=True)
"""


def worker(server: StoreProcess, job: str, slot: int, attempt: int, n: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, server.address, job, str(slot), str(attempt), str(n)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def finish(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert output == "[]\n", "a worker imports no more than it needs"


@pytest.fixture
def tables(store: EmbeddedStore, job: str) -> tuple[str, str]:
    """A table for sums, and one that all update at once."""
    store.tables.create(TableSpec(f"{job}/sum", 1000, 1, OptimizerSpec("sgd", 1.0), 1000))
    store.tables.create(TableSpec(f"{job}/shared", 1000, 1, OptimizerSpec("adagrad", 0.1, l2=1e-3), 1000))
    return f"{job}/sum", f"{job}/shared"


def test_two_processes_at_once(
    server: StoreProcess, store: EmbeddedStore, job: str, tables: tuple[str, str]
) -> None:
    n = 3000
    workers = [worker(server, job, slot, 0, n) for slot in range(2)]
    for process in workers:
        go(process)
    for process in workers:
        finish(process)
    assert np.array_equal(store.tables.pull(tables[0]), filled((1000, 1), n))
    weights = store.tables.pull(tables[1])
    assert np.isfinite(weights).all() and weights.any()
    assert [store.control.progress(job, slot).item() for slot in range(3)] == [n, n, 0]
    # Python's += on the shared step loses a few when two meet; never invents any.
    assert n <= store.tables.shared(tables[1]).step.item() <= 2 * n


TCP_WORKER = """
import os, sys
import numpy as np
from squall.records import Stamp
from squall.store import connect

url, token, job, slot, n = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
rows, ones = np.arange(1000), np.ones((1000, 1), np.float32)
with connect(url, token) as store:
    store.control.register(job, slot, 0, os.getpid())
    for done in range(n):
        store.tables.exchange(f"{job}/sum", (rows, ones), rows, Stamp(slot, 0, done, done + 1))
heavy = {"sklearn", "scipy", "asyncio", "multiprocessing", "rich", "typer"} & set(sys.modules)
assert not heavy, heavy
"""


def test_two_processes_over_tcp_lose_nothing(
    server: StoreProcess, store: EmbeddedStore, job: str, tables: tuple[str, str]
) -> None:
    """The server applies one update after the other, all on the same rows."""
    n, address = 500, server.listen_tcp()
    arguments = [sys.executable, "-c", TCP_WORKER, address.url, address.token, job]
    workers = [subprocess.Popen([*arguments, str(slot), str(n)]) for slot in range(2)]
    assert [process.wait(50) for process in workers] == [0, 0]
    assert np.array_equal(store.tables.pull(tables[0]), filled((1000, 1), -2 * n))
    assert store.tables.shared(tables[0]).step.item() == 2 * n
    assert [store.control.progress(job, slot).item() for slot in range(3)] == [n, n, 0]


def test_a_killed_worker_leaves_a_usable_table(
    server: StoreProcess, store: EmbeddedStore, job: str, tables: tuple[str, str]
) -> None:
    n = 100_000_000
    process = worker(server, job, 0, 0, n)
    go(process)
    progress = store.control.progress(job, 0)
    while progress[0] < 200:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    done = progress.item()
    sums = store.tables.pull(tables[0])[:500]
    assert ((sums == done) | (sums == done + 1)).all(), "at most one minibatch is torn"
    assert np.isfinite(store.tables.pull(tables[1])).all()

    target = done + 50
    successor = worker(server, job, 0, 1, target)
    with pytest.raises(StaleAttemptError):
        store.tables.push(tables[1], rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, target))
    go(successor)
    finish(successor)
    sums = store.tables.pull(tables[0])[:500]
    assert ((sums == target) | (sums == target - 1)).all(), "nothing is applied twice"
    assert server.alive


def test_the_stop_flag_reaches_a_running_worker(
    server: StoreProcess, store: EmbeddedStore, job: str, tables: tuple[str, str]
) -> None:
    process = worker(server, job, 0, 0, 100_000_000)
    go(process)
    while store.control.progress(job, 0)[0] == 0:
        time.sleep(0.001)
    store.control.request_stop(job)
    finish(process)
