"""How ADMM scales on AWS Lambda: measured work, and messages in virtual time.

    python benchmarks/admm_scaling.py    # efficiency, and widths at which messages dominate

The work of a round is measured here: real cores (:mod:`squall.optim.consensus`) on as many rows as a
worker would have.  Messages are played on the simulator's clock: each is cut into chunks that take their
turn on the function's link and on the server, and what a slot sends, in which order and into how many
pieces, are the rules of :mod:`squall.worker.rounds`; traces for successors are sent, too.  Figures of AWS
Lambda: 75 MB/s a function, stores of 1,200 MB/s, 1 ms a request.  The workers' work differs by 5 % (normal).
"""

from __future__ import annotations

import argparse
import time
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from admm import Problem, clicks

from squall.models.logistic import LogisticModel
from squall.models.objectives import ShareObjective
from squall.optim.consensus.admm import Consensus
from squall.optim.consensus.agreement import ConsensusSettings, Contribution
from squall.optim.consensus.metrics import Penalty
from squall.optim.consensus.participant import Participant
from squall.records import CsrBlock
from squall.simulation.clock import VirtualClock
from squall.worker.rounds import n_pieces

FUNCTION_BYTES_S, SERVER_BYTES_S, LATENCY_S = 75e6, 1200e6, 1e-3
PASSES, SPREAD, ROUNDS = 6.0, 0.05, 4
CHUNK = 64 << 10
BYTES = {None: 8, "float32": 4, "int16": 2}
TRACE_BYTES = 8  # a coefficient and round, of each slot; slot 0 sends 16 and a model of 4 more


class Work(NamedTuple):
    """Seconds of a worker's round: of a pass over a row, and of a coefficient."""

    row_pass: float
    coefficient: float

    def round_s(self, rows: float, n: int) -> float:
        return PASSES * rows * self.row_pass + n * self.coefficient


def measured(problem: Problem) -> Work:
    """CPU time of a pass over many rows, and of all else in a round, with few."""
    rows, width = problem.X.shape
    return Work(a_pass(problem.block(slice(None)), rows) / rows, beside_passes(problem) / width)


def a_pass(block: CsrBlock, rows: int) -> float:
    objective = ShareObjective(LogisticModel(block.n_features), [block], rows)
    started = time.thread_time()
    for _ in range(5):
        objective.gradient(np.full(objective.n, 1e-3))
    return (time.thread_time() - started) / 5


def beside_passes(problem: Problem, rows: int = 200) -> float:
    """Of one of 64 participants in a round with all that acceleration remembers; the others are as it is."""
    block = problem.block(slice(rows))
    objective = ShareObjective(LogisticModel(block.n_features), [block], 64 * rows)
    n = objective.n
    agreed = ConsensusSettings(n, 64, Penalty(0.0, problem.l2, n - 1), tol=1e-14, full=False)
    worker = Participant(objective, Consensus(agreed, np.zeros(n)))
    loss, curvature = worker.prepare()
    worker.begin(64 * loss, 64 * curvature)
    spent = []
    for _ in range(30):
        started = time.thread_time()
        worker.absorb(Contribution.unpacked(64 * worker.contribute().packed(), agreed))
        spent.append(time.thread_time() - started)
    return float(np.median(spent[20:]))


class _Queue:
    """A link or a server: one chunk at a time, in the order in which they come."""

    def __init__(self, clock: VirtualClock, bytes_s: float) -> None:
        self._clock, self._bytes_s, self._free = clock, bytes_s, 0.0

    def take(self, size: int, then: Callable[[], object]) -> None:
        self._free = max(self._free, self._clock.now) + size / self._bytes_s
        self._clock.after(self._free - self._clock.now, then)


class Platform:
    """So many workers and servers, playing rounds of a width and encoding."""

    def __init__(
        self, n_slots: int, n: int, servers: int, encoding: str | None, shards: int | None, work_s: float
    ) -> None:
        self.clock = VirtualClock()
        self._n_slots, self._n, self._encoding, self._work_s = n_slots, n, encoding, work_s
        size = BYTES[encoding] * n
        k = n_pieces(size, n_slots) if shards is None else shards
        self._pieces = [size // k] * k
        self._links = [_Queue(self.clock, FUNCTION_BYTES_S) for _ in range(n_slots)]
        self._servers = [_Queue(self.clock, SERVER_BYTES_S) for _ in range(servers)]
        self._draw = np.random.default_rng(0)
        self._there: dict[str, int] = {}
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self.ended: list[float] = []

    def play(self) -> float:
        """Seconds of a round, on average."""
        for slot in range(self._n_slots):
            self._go(self._slot(slot))
        while self.clock.step():
            pass
        return max(self.ended) / ROUNDS

    def _go(self, steps: Iterator[Callable[[Callable[[], object]], None]]) -> None:
        step = next(steps, None)
        if step is None:
            self.ended.append(self.clock.now)
        else:
            step(lambda: self._go(steps))

    def _slot(self, slot: int) -> Iterator[Callable[[Callable[[], object]], None]]:
        for number in range(ROUNDS):
            seconds = self._work_s * max(0.5, 1 + SPREAD * self._draw.normal())
            yield lambda then, seconds=seconds: self.clock.after(seconds, then)  # type: ignore[misc]
            k = len(self._pieces)
            order = [(slot + at) % k for at in range(k)]
            for at in order:
                key = f"job/rounds/{number}/0-{at}"
                yield lambda then, key=key, at=at: self._put(slot, key, self._pieces[at], then)  # type: ignore[misc]
            for at in order:
                key = f"job/rounds/{number}/0-{at}"
                yield lambda then, key=key, at=at: self._get(slot, key, self._pieces[at], then)  # type: ignore[misc]
            if self._n_slots > 1:
                size = self._n * (TRACE_BYTES if slot else 3 * TRACE_BYTES + 4)
                key = f"job/traces/{slot}/{number}"
                yield lambda then, key=key, size=size: self._put(slot, key, size, then)  # type: ignore[misc]

    def _put(self, slot: int, key: str, size: int, then: Callable[[], object]) -> None:
        link, server = self._links[slot], self._server(key)

        def arrived() -> None:
            self._there[key] = self._there.get(key, 0) + 1
            for wakes in self._waiting.pop(key, []) if self._there[key] >= self._n_slots else []:
                wakes()
            self.clock.after(LATENCY_S / 2, then)

        self._send(link, server, size, arrived)

    def _get(self, slot: int, key: str, size: int, then: Callable[[], object]) -> None:
        def ready() -> None:
            self._send(self._server(key), self._links[slot], size, then)

        if self._there.get(key, 0) >= self._n_slots:
            self.clock.after(LATENCY_S / 2, ready)
        else:
            self._waiting.setdefault(key, []).append(lambda: self.clock.after(LATENCY_S / 2, ready))

    def _send(self, first: _Queue, second: _Queue, size: int, then: Callable[[], object]) -> None:
        chunks = [CHUNK] * (size // CHUNK) + [size % CHUNK]
        left = len(chunks)

        def one_is_through() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.clock.after(LATENCY_S / 2, then)

        for chunk in chunks:
            first.take(chunk, lambda chunk=chunk: second.take(chunk, one_is_through))  # type: ignore[misc]

    def _server(self, key: str) -> _Queue:
        return self._servers[zlib.crc32(key.encode()) % len(self._servers)]


class Job(NamedTuple):
    """What is played: so many rows, and functions and servers of which kind."""

    work: Work
    rows: float
    n_slots: int
    servers: int
    encoding: str | None = None
    shards: int | None = None

    def efficiency(self, n: int) -> float:
        """Of a round of width ``n``: the time of one worker, by the time of so many and their number."""
        share = self.work.round_s(self.rows / self.n_slots, n)
        took = Platform(self.n_slots, n, self.servers, self.encoding, self.shards, share).play()
        return self.work.round_s(self.rows, n) / self.n_slots / took

    def crossing(self) -> int:
        """The width, to 10 %, from which on efficiency is below a half."""
        low, high = 1_000.0, 20_000_000.0
        while high > 1.1 * low:
            middle = (low * high) ** 0.5
            if self.efficiency(int(middle)) < 0.5:
                high = middle
            else:
                low = middle
        return int(float(f"{low:.1e}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=float, default=1e7, help="of the whole set")
    rows = parser.parse_args().rows
    work = measured(clicks(int(rows / 64), 0.0, 1e-4))
    print(
        f"work: {1e9 * work.row_pass:.0f} ns a row and pass, {1e9 * work.coefficient:.0f} ns a coefficient; "
        f"a round of {rows:,.0f} rows takes one worker {work.round_s(rows, 10_000):.2f} s"
    )
    print("\nefficiency of a round, d = 10,000\n\nworkers servers   float64   float32   int16")
    for n_slots, servers in ((2, 1), (8, 1), (64, 1), (64, 2), (256, 1), (256, 8)):
        told = [f"{Job(work, rows, n_slots, servers, e).efficiency(10_000):8.0%}" for e in BYTES]
        print(f"{n_slots:7} {servers:7}  {'  '.join(told)}", flush=True)
    print("\n64 workers: d from which on it is below 50 %\n\nencoding  servers  one key   pieces")
    for e in BYTES:
        for servers in (1, 2, 8):
            told = [f"{Job(work, rows, 64, servers, e, shards).crossing():9,}" for shards in (1, None)]
            print(f"{e or 'float64':8} {servers:8} {'  '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
