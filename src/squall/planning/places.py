"""The place that a run names: its functions' CPU, their start, and how many there can be."""

from __future__ import annotations

import os

from squall.config import MAX_WORKERS, LocalBackend, Run, is_elsewhere
from squall.driver.ledger import load_prices
from squall.planning.projection import Place

_START_S = {"forked": 0.1, "strict": 0.8, "elsewhere": 3.0}
"""Seconds from a launch to the first minibatch: here as measured, elsewhere a cold start and its imports."""


def place_of(run: Run, workers: int, others: float) -> Place:
    """Where a job of this run would be done by so many workers, beside so many other threads."""
    backend = run.resolve_backend()
    local = backend if isinstance(backend, LocalBackend) else None
    by_memory = is_elsewhere(backend) or (local is not None and local.emulate_cpu)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = MAX_WORKERS if by_memory else max(workers, cores)
    room = backend.concurrency
    kind = "elsewhere" if local is None else "strict" if local.isolation == "strict" else "forked"
    return Place(
        workers=workers,
        memory_mb=run.memory_mb,
        start_s=_START_S[kind],
        lifetime_s=backend.lifetime_s,
        cores=None if by_memory else cores,
        most_workers=most if room is None else min(most, max(workers, room)),
        prices=load_prices(run.prices),
        others=0.0 if by_memory else max(0.0, others),
    )
