"""Time and cost of a job, before it runs: arithmetic on what was measured; no I/O.

Every worker visits its part of the rows in each epoch: a row takes ``row_s`` of a whole CPU, a
minibatch ``minibatch_s`` on its way to the store and back, and a row block ``block_s``.  A function has
a CPU for 1,769 MB of memory and the share of one for less, as on AWS Lambda, or shares this machine's
cores with the other functions and whatever else runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from squall.driver.keeping import FLUSH_S
from squall.driver.ledger import PriceList
from squall.driver.record import INTERVAL_S
from squall.driver.window import LOOK_S
from squall.records import Expected

ONE_CPU_MB = 1769
"""Memory with which a function gets a whole CPU (AWS Lambda's documentation, 2024)."""


NOTHING = Expected(0.0, 0.0)


@dataclass(frozen=True)
class Work:
    """What there is to do, and how long a part of it takes.

    Attributes
    ----------
    rows, epochs, batch_size, partitions : int
        So many rows, in so many objects, visited so often, in minibatches of that size.
    row_s : float
        Seconds of a whole CPU for a row.
    minibatch_s : float
        Seconds for the exchange with the store after each minibatch.
    block_rows : int
        Rows of a row block.
    block_s : float
        Seconds of a whole CPU for what is done once a block: its order, reports, a look for a stop.
    """

    rows: int
    epochs: int
    batch_size: int
    partitions: int
    row_s: float
    minibatch_s: float = 0.0
    block_rows: int = 1
    block_s: float = 0.0


@dataclass(frozen=True)
class Place:
    """Where it is done.

    Attributes
    ----------
    workers, memory_mb : int
        Functions, and the memory of each.
    start_s, lifetime_s : float
        From a launch to its first minibatch; the longest that a function may run.
    cores : int, optional
        Cores that all functions share; None if each gets CPU time in proportion to its memory.
    most_workers : int
        That this place can have.
    others : float
        Threads that want these cores, too.
    prices : PriceList
        What they cost.
    """

    workers: int
    memory_mb: int
    start_s: float
    lifetime_s: float
    cores: int | None
    most_workers: int
    prices: PriceList
    others: float = 0.0

    @property
    def cpu(self) -> float:
        """CPUs that each function has: at most one, for a worker is one thread."""
        if self.cores is None:
            return min(1.0, self.memory_mb / ONE_CPU_MB)
        return min(1.0, self.cores / (self.workers + self.others))


def project(work: Work, place: Place, spent: Expected = NOTHING) -> Expected:
    """What the whole job will have taken in the end, on top of what is spent already."""
    exchange_s = work.minibatch_s / work.batch_size  # where cores are shared, the store's are, too
    row_s = (work.row_s + work.block_s / work.block_rows) / place.cpu
    row_s += exchange_s if place.cores is None else exchange_s / place.cpu
    # (its last row block may make one worker's part a little larger than the others')
    run_s = place.start_s + work.epochs * math.ceil(work.rows / place.workers) * row_s
    return Expected(spent.time_s + run_s, spent.cost_usd + _cost_usd(work, place, run_s))


def _cost_usd(work: Work, place: Place, run_s: float) -> float:
    prices, workers = place.prices, place.workers
    step = prices.granularity_s
    gb_seconds = workers * math.ceil(run_s / step) * step * place.memory_mb / 1024
    invocations = workers * max(1, math.ceil(run_s / place.lifetime_s))
    # (whose rows lie in one object fetches it once; each has read the manifest before)
    fetched = workers if work.partitions == 1 else work.epochs * (work.partitions + workers - 1)
    gets = workers + fetched + run_s / LOOK_S
    puts = run_s / INTERVAL_S + run_s / FLUSH_S
    return (
        gb_seconds * prices.gb_second
        + invocations * prices.request
        + run_s / 3600 * prices.store_hour
        + gets * prices.object_get
        + puts * prices.object_put
    )
