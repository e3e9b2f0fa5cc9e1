"""How ADMM scales: really with two workers here, and on AWS Lambda with measured work in virtual time.

    python benchmarks/admm_scaling.py                          # all tables, some minutes
    python benchmarks/admm_scaling.py --parts real             # one and two workers, on this machine
    python benchmarks/admm_scaling.py --parts picture --svg docs/admm_scaling.svg

The work of a round is measured here: real cores (:mod:`squall.optim.consensus`) on as many rows as a
worker would have.  Messages are played on the simulator's clock: each is cut into chunks that take their
turn on the function's link and on the server, and what a slot sends, in which order and into how many
pieces, are the rules of :mod:`squall.worker.rounds`; traces for successors are sent, too.  Figures of AWS
Lambda: 75 MB/s a function, stores of 1,200 MB/s, 1 ms a request.  The workers' work differs by 5 % (normal).
What the driver adds is played by its real core (:mod:`squall.simulation`): launches on its ramp, cold starts
of 0.3 s (log-normal, deviation 0.3), a report of each worker and round, and the end.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from admm import Problem, clicks
from sklearn.exceptions import ConvergenceWarning

import squall
from squall.models.logistic import LogisticModel
from squall.models.objectives import ShareObjective
from squall.optim.consensus.admm import Consensus
from squall.optim.consensus.agreement import ConsensusSettings, Contribution
from squall.optim.consensus.metrics import Penalty
from squall.optim.consensus.participant import Participant
from squall.records import CsrBlock
from squall.simulation.clock import VirtualClock
from squall.simulation.job import simulate
from squall.simulation.scenario import Scenario, Workload
from squall.worker.rounds import n_pieces

FUNCTION_BYTES_S, SERVER_BYTES_S, LATENCY_S = 75e6, 1200e6, 1e-3
PASSES, SPREAD, ROUNDS = 6.0, 0.05, 4
ROUNDS_OF_A_JOB = 20
PLACES = ((1, 1), (2, 1), (8, 1), (64, 1), (64, 2), (256, 1), (256, 8))  # workers, servers of the store
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

    def round_s(self, n: int) -> float:
        """Seconds of a round of width ``n``."""
        share = self.work.round_s(self.rows / self.n_slots, n)
        if self.n_slots == 1:
            return share
        return Platform(self.n_slots, n, self.servers, self.encoding, self.shards, share).play()

    def efficiency(self, n: int) -> float:
        """Of a round of width ``n``: the time of one worker, by the time of so many and their number."""
        return self.work.round_s(self.rows, n) / self.n_slots / self.round_s(n)

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


class Whole(NamedTuple):
    """A job of so many rounds: its seconds, those before its last worker began, and the driver's of CPU."""

    time_s: float
    began_s: float
    cpu_s: float
    events: int


def whole(n_slots: int, round_s: float) -> Whole:
    """With its driver: every worker does a round's work ``ROUNDS_OF_A_JOB`` times, the last one the longest.

    Who starts earlier waits for the last one in the first round, so that is when all end.
    """
    workload = Workload(
        n_workers=n_slots, rows=n_slots, epochs=ROUNDS_OF_A_JOB, batch_size=1, block=1, rows_per_s=1 / round_s
    )
    started = time.process_time()
    played = simulate(Scenario(workload=workload, silence_s=600.0))  # workers here say nothing in a round
    spent = time.process_time() - started
    return Whole(played.time_s, played.time_s - ROUNDS_OF_A_JOB * round_s, spent, played.n_events)


def tables(work: Work, rows: float) -> None:
    print("\nefficiency of a round, d = 10,000\n\nworkers servers   float64   float32   int16")
    for n_slots, servers in PLACES[1:]:
        told = [f"{Job(work, rows, n_slots, servers, e).efficiency(10_000):8.0%}" for e in BYTES]
        print(f"{n_slots:7} {servers:7}  {'  '.join(told)}", flush=True)
    for n_slots in (64, 256):
        print(f"\n{n_slots} workers: d from which on it is below 50 %\n\nencoding  servers  one key   pieces")
        for e in BYTES:
            for servers in (1, 2, 8):
                told = [
                    f"{Job(work, rows, n_slots, servers, e, shards).crossing():9,}" for shards in (1, None)
                ]
                print(f"{e or 'float64':8} {servers:8} {'  '.join(told)}", flush=True)


def with_driver(work: Work, rows: float) -> None:
    print(f"\na job of {ROUNDS_OF_A_JOB} rounds, d = 10,000, int16, with its driver")
    print("\nworkers servers   seconds   start and end   speed-up   efficiency   driver: events, CPU")
    alone = None
    for n_slots, servers in PLACES:
        job = whole(n_slots, Job(work, rows, n_slots, servers, "int16").round_s(10_000))
        alone = alone or job.time_s
        gain = alone / job.time_s
        print(
            f"{n_slots:7} {servers:7} {job.time_s:9.1f} {job.began_s:15.2f} {gain:10.1f} "
            f"{gain / n_slots:12.0%} {job.events:10,} {job.cpu_s:6.1f} s",
            flush=True,
        )


def real(rows: int) -> None:
    """Two workers beside one, on this machine, in turn; per pass, as their numbers differ a little."""
    problem = clicks(rows, 0.0, 1e-4)
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for turn, workers in itertools.product(range(4), found):
        strategy = squall.ADMM(tol=1e-14, max_rounds=12)
        model = squall.LogisticRegression(l2=problem.l2, strategy=strategy)
        model.fit(problem.X, problem.y, run=squall.Run(workers=workers, store="tcp"))
        history = model.history_[1:]
        passes = sum(record.solver.passes for record in history if record.solver is not None)
        seconds = history[-1].time_s - model.history_[0].time_s
        if turn:  # the first one starts functions
            found[workers].append((seconds / len(history), seconds / passes))
    rounds, passed = ({w: float(np.median([f[i] for f in of])) for w, of in found.items()} for i in (0, 1))
    print(f"\n{rows:,} rows of 39, d = 10,000, on this machine (median of {len(found[1])})")
    for w in found:
        print(f"{w} workers: {rounds[w]:.3f} s a round, {passed[w]:.4f} s a pass")
    print(
        f"efficiency of 2: {rounds[1] / rounds[2] / 2:.0%} by the round, "
        f"{passed[1] / passed[2] / 2:.0%} by the pass"
    )


# --------------------------------------------------------------------------------------- picture

WIDTHS = tuple(int(10 ** (k / 2)) for k in range(6, 13))
LINES: dict[str, tuple[str, int, str | None, int | None]] = {
    "float64, 1 server, one key": ("#52525b", 1, None, 1),
    "int16, 1 server, one key": ("#1d4ed8", 1, "int16", 1),
    "float64, 8 servers, pieces": ("#ea580c", 8, None, None),
    "int16, 8 servers, pieces": ("#0f766e", 8, "int16", None),
}
LEFT, TOP, PLOT, HIGH, GAP = 56, 44, 330, 250, 60


def picture(work: Work, rows: float) -> str:
    """Efficiency of a round against the width, with 64 and 256 workers, as SVG."""
    wide, tall = 2 * LEFT + 2 * PLOT + GAP, TOP + HIGH + 84
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    low, high = math.log10(WIDTHS[0]), math.log10(WIDTHS[-1])
    for panel, n_slots in enumerate((64, 256)):
        left = LEFT + panel * (PLOT + GAP)
        parts.append(f'<text x="{left}" y="{TOP - 16}">efficiency of a round, {n_slots} workers</text>')
        for percent in (0, 25, 50, 75, 100):
            y = TOP + HIGH * (1 - percent / 100)
            parts.append(f'<path d="M{left} {y:.1f}h{PLOT}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
        for power in range(math.ceil(low), math.floor(high) + 1):
            x = left + PLOT * (power - low) / (high - low)
            parts.append(f'<text x="{x:.1f}" y="{TOP + HIGH + 18}" text-anchor="middle">{10**power:,}</text>')
        for colour, servers, encoding, shards in LINES.values():
            points = []
            for n in WIDTHS:
                value = Job(work, rows, n_slots, servers, encoding, shards).efficiency(n)
                print(n_slots, encoding, servers, shards, f"{n:,} {value:.0%}", sep="\t", flush=True)
                x = left + PLOT * (math.log10(n) - low) / (high - low)
                points.append(f"{x:.1f},{TOP + HIGH * (1 - value):.1f}")
            parts.append(
                f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
    parts.append(f'<text x="{LEFT}" y="{TOP + HIGH + 40}">coefficients of features that occur</text>')
    for i, (name, (colour, *_)) in enumerate(LINES.items()):
        parts.append(f'<text x="{LEFT + 190 * i}" y="{TOP + HIGH + 66}" fill="{colour}">● {name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=float, default=1e7, help="of the whole set that is played")
    parser.add_argument("--parts", default="real,tables,driver", help="of real, tables, driver, picture")
    parser.add_argument("--svg", type=Path, help="where the picture goes")
    options = parser.parse_args()
    parts, rows = options.parts.split(","), options.rows
    if "picture" in parts and options.svg is None:
        parser.error("--parts picture needs --svg")
    if "real" in parts:
        warnings.simplefilter("ignore", ConvergenceWarning)  # there are no more rounds than are measured
        real(400_000)
    if parts == ["real"]:
        return
    work = measured(clicks(int(rows / 64), 0.0, 1e-4))
    alone = work.round_s(rows, 10_000)
    print(
        f"\nwork: {1e9 * work.row_pass:.0f} ns a row and pass, "
        f"{1e9 * work.coefficient:.0f} ns a coefficient; "
        f"a round of {rows:,.0f} rows takes one worker {alone:.2f} s"
    )
    if "tables" in parts:
        tables(work, rows)
    if "driver" in parts:
        with_driver(work, rows)
    if "picture" in parts:
        options.svg.write_text(picture(work, rows))


if __name__ == "__main__":
    main()
