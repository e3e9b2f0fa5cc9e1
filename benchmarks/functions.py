"""Functions for many items: Squall beside concurrent.futures, joblib (loky), Ray and Lithops.

Run ``python benchmarks/functions.py [--workers N] [--rounds N]``.  Three sorts of work: 1,000 that do
nothing, 100 that sleep for 10 ms, 8 that sleep for 1 s.  All contenders are warm, have as many
workers, and take turns within a round; the best round of each counts, and ratios are to Squall's.
Peers that are not installed are left out, and that is said (``pip install ray lithops``).  Lithops gets 20
of the 1,000 and of the 100, because a task takes it a fifth of a second; its time is scaled up.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import joblib

import squall

Mapper = Callable[[Callable[[Any], Any], list[Any]], object]
WORK = {"1,000 x nothing": (1000, 0.0), "100 x 10 ms": (100, 0.01), "8 x 1 s": (8, 1.0)}
LITHOPS_TASKS = 20


def pause(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def ours(workers: int) -> Iterator[Mapper]:
    """`squall.map`: a job, and so a folder, a key and a bill, for each."""
    run = squall.Run(workers=workers)
    yield lambda fn, items: squall.map(fn, items, run=run).results()


def our_executor(workers: int) -> Iterator[Mapper]:
    """`squall.Executor`: an invocation for each item."""
    with squall.Executor(squall.Run(workers=workers)) as executor:
        yield lambda fn, items: list(executor.map(fn, items))


def futures(workers: int) -> Iterator[Mapper]:
    with ProcessPoolExecutor(workers) as pool:
        yield lambda fn, items: list(pool.map(fn, items))


def loky(workers: int) -> Iterator[Mapper]:
    yield lambda fn, items: joblib.Parallel(n_jobs=workers)(joblib.delayed(fn)(item) for item in items)


def ray_tasks(workers: int) -> Iterator[Mapper]:
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        remote = ray.remote(pause)  # (made for each map, it would be sent each time)
        yield lambda _, items: ray.get([remote.remote(item) for item in items])
    finally:
        ray.shutdown()


def lithops_localhost(workers: int) -> Iterator[Mapper]:
    import lithops

    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home  # it keeps what it knows of Python there
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        config = {
            "lithops": {
                "backend": "localhost",
                "storage": "localhost",
                "log_level": "ERROR",
                "telemetry": False,
            },
            "localhost": {"runtime": sys.executable, "worker_processes": workers},
        }
        executor = lithops.FunctionExecutor(config=config)
        yield lambda fn, items: executor.get_result(executor.map(fn, items))
        executor.clean()


CONTENDERS: dict[str, tuple[str | None, Callable[[int], Iterator[Mapper]]]] = {
    "squall.map": (None, ours),
    "squall.Executor": (None, our_executor),
    "concurrent.futures": (None, futures),
    "joblib (loky)": (None, loky),
    "Ray": ("ray", ray_tasks),
    "Lithops localhost": ("lithops", lithops_localhost),
}


def seconds(mapper: Mapper, name: str, count: int, each: float) -> float:
    """Time of one piece of work."""
    some = min(count, LITHOPS_TASKS) if "Lithops" in name else count
    start = time.perf_counter()
    mapper(pause, [each] * some)
    return (time.perf_counter() - start) * count / some


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    best: dict[str, dict[str, float]] = {}
    with contextlib.ExitStack() as stack:
        mappers: dict[str, Mapper] = {}
        for name, (needs, make) in CONTENDERS.items():
            if needs is not None and importlib.util.find_spec(needs) is None:
                print(f"{name} is left out: {needs} is not installed")
                continue
            mappers[name] = stack.enter_context(contextlib.contextmanager(make)(arguments.workers))
            mappers[name](pause, [0.0] * arguments.workers * 2)  # warm
        for _ in range(arguments.rounds):
            for work, (count, each) in WORK.items():
                for name, mapper in mappers.items():
                    took = seconds(mapper, name, count, each)
                    times = best.setdefault(name, {})
                    times[work] = min(took, times.get(work, took))
                    print(f"{work}: {name} {took:.3f} s", file=sys.stderr, flush=True)
    print(f"{'':20}" + "".join(f"{work:>26}" for work in WORK))
    for name, times in best.items():
        cells = [f"{times[work]:10.3f} s {times[work] / best['squall.map'][work]:8.2f} x" for work in WORK]
        print(f"{name:20}" + "".join(f"{cell:>26}" for cell in cells))


if __name__ == "__main__":
    main()
