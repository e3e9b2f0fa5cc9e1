"""Calls of local functions: how many a second, how fast a cold start, against a process pool.

Run ``python benchmarks/local_calls.py [--calls N] [--concurrency N]``.  The machine should be
doing nothing else; every figure is the best of three rounds, which is what the code costs
rather than what the neighbours take.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from squall.functions.local.platform import LocalPlatform
from squall.protocols import Endpoint
from squall.records import OutcomeKind, Shape

ROUNDS = 3
TASK_S = 0.010


def shape(handler: str) -> Shape:
    return Shape(f"squall.testing.handlers:{handler}", memory_mb=256, timeout_s=60.0)


def best(measure: Callable[[], float]) -> float:
    return max(measure() for _ in range(ROUNDS))


def sequential(endpoint: Endpoint, calls: int) -> float:
    """Warm no-op calls a second, each waited for before the next."""
    start = time.perf_counter()
    for _ in range(calls):
        assert endpoint.invoke({}).outcome(60).kind is OutcomeKind.RETURNED
    return calls / (time.perf_counter() - start)


def pipelined(endpoint: Endpoint, calls: int) -> float:
    """Warm no-op calls a second, all submitted at once."""
    start = time.perf_counter()
    invocations = [endpoint.invoke({}) for _ in range(calls)]
    assert all(invocation.outcome(60).kind is OutcomeKind.RETURNED for invocation in invocations)
    return calls / (time.perf_counter() - start)


def cold_ms(platform: LocalPlatform, count: int) -> tuple[float, float]:
    """Median and largest time of a first call, in a new environment, until its outcome."""
    times = []
    for number in range(count):
        fresh = Shape("squall.testing.handlers:echo", 300 + number, 60.0)
        endpoint = platform.prepare(fresh)
        start = time.perf_counter()
        outcome = endpoint.invoke({}).outcome(60)
        times.append(1e3 * (time.perf_counter() - start))
        assert outcome.cold
    return statistics.median(times), max(times)


def tasks_on_squall(endpoint: Endpoint, tasks: int) -> float:
    """Tasks of 10 ms a second."""
    start = time.perf_counter()
    invocations = [endpoint.invoke({"seconds": TASK_S}) for _ in range(tasks)]
    for invocation in invocations:
        invocation.outcome(60)
    return tasks / (time.perf_counter() - start)


def tasks_on_pool(pool: ProcessPoolExecutor, tasks: int) -> float:
    """The same on the standard library's process pool."""
    start = time.perf_counter()
    list(pool.map(time.sleep, [TASK_S] * tasks))
    return tasks / (time.perf_counter() - start)


def noops_on_pool(pool: ProcessPoolExecutor, calls: int) -> float:
    """No-op calls a second there, all submitted at once."""
    start = time.perf_counter()
    list(pool.map(abs, range(calls)))
    return calls / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--concurrency", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()

    platform = LocalPlatform(concurrency=arguments.concurrency)
    start = time.perf_counter()
    echo, sleep = platform.prepare(shape("echo")), platform.prepare(shape("sleep"))
    print(f"launcher          {1e3 * (time.perf_counter() - start):10.0f} ms to start")
    median, largest = cold_ms(platform, 20)
    print(f"cold call         {median:10.1f} ms median of 20, {largest:.1f} ms at most")
    pipelined(echo, 10 * arguments.concurrency)
    print(f"warm, sequential  {best(lambda: sequential(echo, arguments.calls)):10,.0f} calls/s")
    print(f"warm, pipelined   {best(lambda: pipelined(echo, arguments.calls)):10,.0f} calls/s")
    ours = best(lambda: tasks_on_squall(sleep, arguments.tasks))
    platform.close()

    with ProcessPoolExecutor(arguments.concurrency) as pool:
        tasks_on_pool(pool, arguments.concurrency)
        theirs = best(lambda: tasks_on_pool(pool, arguments.tasks))
        noops = best(lambda: noops_on_pool(pool, arguments.calls))
    print(f"10 ms tasks       {ours:10.1f} tasks/s, {arguments.concurrency} at once")
    print(f"  on ProcessPoolExecutor {theirs:.1f} tasks/s; no-op calls there {noops:,.0f}/s")


if __name__ == "__main__":
    main()
