"""What a job's driver costs: CPU time for many workers' heartbeats, and requests when nothing happens.

Run ``python benchmarks/driver.py [--workers N] [--seconds S]``.  The workers are local functions that
sleep most of the time (a fault of ``squall.testing.Chaos``), so that they do not take the driver's core
away: first each reports some times a second, then none says anything at all.  Counted are the CPU seconds
of the client's process, in which the driver lives, and of the store's, and the requests that the driver
makes to the object store and to the fast one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

import squall
from squall.procfs import stat_fields
from squall.store.connection import Connection
from squall.store.process import shared_store
from squall.testing import Chaos

REPORTING, SILENT = 1000.0, 1e7  # how many times as slow


def cpu_s(pid: int) -> float:
    """CPU seconds that another process has used."""
    fields = stat_fields(pid)
    assert fields is not None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Requests of this process to the fast store, by name."""
    counts: Counter[str] = Counter()
    request = Connection.request

    def count(self: Connection, what: Any, *rest: Any, **more: Any) -> Any:
        counts[type(what).__name__] += 1
        return request(self, what, *rest, **more)

    Connection.request = count  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        Connection.request = request  # type: ignore[method-assign]


def measure(workers: int, seconds: float, slowdown: float) -> None:
    """One job, looked at for a while when all its workers are there."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(20_000 * workers, 10))  # epochs that last
    model = squall.LogisticRegression(epochs=10**6, batch_size=10, learning_rate=0.1)
    backend = squall.LocalBackend(chaos=Chaos(slow=1.0, slowdown=slowdown))
    job = squall.submit(model, (X, X[:, 0] > 0), run=squall.Run(workers=workers, backend=backend))
    while job.logs().count("starts at minibatch") < workers:
        time.sleep(0.1)
    time.sleep(3.0)  # until they are at work
    objects, store = job._loop._objects, shared_store().pid
    with counted() as counts:
        began = time.perf_counter(), time.process_time(), cpu_s(store), objects.gets, objects.puts
        events = sum(s.n_reports.get(s.newest, 0) for s in job._loop._machine._slots)
        time.sleep(seconds)
        ended = time.perf_counter(), time.process_time(), cpu_s(store), objects.gets, objects.puts
        events = sum(s.n_reports.get(s.newest, 0) for s in job._loop._machine._slots) - events
    took, client, server, gets, puts = (b - a for a, b in zip(began, ended, strict=True))
    job.stop()
    with suppress(squall.SquallError):  # nothing was trained by those that were silent
        job.wait()
    requests = sum(counts.values())
    print(f"{workers} workers, {events / took:.1f} reports/s")
    print(f"  CPU: driver {100 * client / took:.2f} % of a core, store {100 * server / took:.2f} %")
    print(
        f"  the driver's requests a second: object store {gets / took:.2f} reads, {puts / took:.2f} writes; "
        f"fast store {requests / took:.2f} ({', '.join(counts)})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    measure(options.workers, options.seconds, REPORTING)
    measure(options.workers, options.seconds, SILENT)


if __name__ == "__main__":
    main()
