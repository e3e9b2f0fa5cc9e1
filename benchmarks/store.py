"""The parameter store by its ways: in mapped memory, by messages in process, and over TCP.

Run ``python benchmarks/store.py [--seconds S]``.  Two figures: one exchange (push of some 1,000
rows and pull of 1,000 others in one round trip), and rows trained a second at minibatch 200 with
39 features a row out of 2**20, by one and by two processes.  All ways take turns within a round
and the best of three rounds counts, so that a neighbour's load falls on all of them alike; the
first line is the floor, an echo of frames of the same sizes between two bare processes.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from squall.models.logistic import LogisticModel
from squall.records import CsrBlock, OptimizerSpec, Stamp, TableSpec
from squall.store import Store, connect
from squall.store.process import StoreProcess
from squall.worker.strategies import ExchangedUpdates, SharedMemoryUpdates

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


def train(way: str, url: str, token: str, job: str, slot: int, seconds: float) -> None:
    """One process's part: rows trained and seconds, after a line on standard input."""
    data, order = block(slot)
    model = LogisticModel(WIDTH)
    with connect(url, token) as store:
        store.control.register(job, slot, 0, os.getpid())
        progress = store.control.progress(job, slot)
        strategy = (
            SharedMemoryUpdates(model, store.tables, f"{job}/model", progress)  # type: ignore[arg-type]
            if way == "shared"
            else ExchangedUpdates(model, store.tables, f"{job}/model", 0, slot, 0)
        )
        strategy.step(data, order, BATCH, 0, 20)
        print("ready", flush=True)
        sys.stdin.readline()
        rows, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            rows += strategy.step(data, order, BATCH, 0, ROWS // BATCH)[2]
        print(rows, time.perf_counter() - start)


def rows_per_s(store: Store, way: str, url: str, token: str, workers: int, seconds: float) -> float:
    job = f"bench-{way}-{workers}"
    store.control.open_job(job, workers)
    store.tables.create(LogisticModel(WIDTH).table(f"{job}/model", OPTIMIZER))
    command = [sys.executable, __file__, "--worker", way, url, token, job]
    processes = [
        subprocess.Popen(
            [*command, str(slot), str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for slot in range(workers)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    results = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        rows, spent = process.communicate()[0].split()
        results.append(int(rows) / float(spent))
    store.control.close_job(job)
    return sum(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--exchanges", type=int, default=2000)
    parser.add_argument("--worker", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        way, url, token, job, slot, seconds = arguments.worker
        train(way, url, token, job, int(slot), float(seconds))
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with StoreProcess.start() as server:
        address = server.listen_tcp()
        with connect(server.address) as near, connect(address.url, address.token) as far:
            near.control.open_job("bench", 2)
            for way in ("near", "far"):
                near.tables.create(TableSpec(f"bench/{way}", WIDTH, 1, OPTIMIZER, WIDTH))
            echo = Echo()
            calls = {
                "echo of such frames": echo,
                "exchange in process": Exchanger(near, "bench/near"),
                "exchange over TCP": Exchanger(far, "bench/far"),
            }
            best: dict[str, list[float]] = {}
            for _ in range(ROUNDS):
                for name, call in calls.items():
                    times = time_each(call, arguments.exchanges)
                    if name not in best or statistics.median(times) < statistics.median(best[name]):
                        best[name] = times
            for name, times in best.items():
                print(f"{name:22s}{percentiles(times)}")
            echo.close()
            ways = {
                "mapped memory": ("shared", server.address, ""),
                "messages in process": ("messages", server.address, ""),
                "TCP": ("tcp", address.url, address.token),
            }
            for workers in (1, 2):
                rates: dict[str, float] = {}
                for _ in range(ROUNDS):
                    for name, way in ways.items():
                        rate = rows_per_s(near, *way, workers, arguments.seconds)
                        rates[name] = max(rate, rates.get(name, 0.0))
                for name, rate in rates.items():
                    print(f"{name:22s}{rate / 1e6:6.2f} M rows/s, {workers} worker{'s' * (workers > 1)}")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
