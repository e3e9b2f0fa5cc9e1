"""How long a row and a minibatch take: the real kernel on the first rows, the real store's answer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from squall.data.iterator import block_rows
from squall.data.objects import ObjectStore
from squall.data.partitions import read_training
from squall.data.rows import slice_training
from squall.data.training import load_training
from squall.driver.spec import Prepared
from squall.planning.projection import Work
from squall.records import Block, Int32, SharedTable
from squall.store import Store
from squall.store.table import table_stride

_LONG_ENOUGH_S = 0.01
_LEAST_TIMES = 5
_BLOCK_S = 0.0005
_EXCHANGE_S = 0.0001
"""What a worker does for a block and an exchange beside what is timed here, as measured once."""


def measure(
    prepared: Prepared,
    store: Store,
    table: str,
    objects: ObjectStore,
    n_slots: int,
    epochs: int,
    *,
    in_place: bool,
    together: bool,
) -> Work:
    """Time the first row block of the training data, as a worker visits it.

    Parameters
    ----------
    prepared : Prepared
        Model, optimiser and data.
    store, table
        The job's, from which is read only.
    objects : ObjectStore
        Where the data is.
    n_slots, epochs : int
        Of the job.
    in_place : bool
        Whether workers update mapped memory; else each minibatch is an exchange with the store.
    together : bool
        Whether all workers wait for each other at each minibatch: the last to be woken takes twice as long.
    """
    manifest = load_training(objects, prepared.training)
    height = block_rows(manifest, n_slots, prepared.batch_size)
    sample = read_training(objects, manifest.partitions[0])
    block = slice_training(sample, 0, min(sample.n_rows, height))
    order = np.random.default_rng(0).permutation(block.n_rows).astype(np.int32)
    if in_place:
        row_s, minibatch_s = _kernel_row_s(prepared, block, order), 0.0
    else:
        row_s = _gradient_row_s(prepared, block, order)
        minibatch_s = _exchange_s(prepared, store, table, block, order) * (2 if together else 1)
    return Work(
        rows=manifest.rows,
        epochs=epochs,
        batch_size=prepared.batch_size,
        partitions=len(manifest.partitions),
        row_s=row_s,
        minibatch_s=minibatch_s,
        block_rows=height,
        block_s=_BLOCK_S,
    )


def _kernel_row_s(prepared: Prepared, block: Block, order: Int32) -> float:
    """Seconds for a row of minibatches in place, on a table of its own."""
    spec = prepared.model.table("probe", prepared.optimizer)
    array = np.zeros((spec.rows, table_stride(spec)), dtype=np.float32)
    table, progress = SharedTable(spec, array, np.zeros(1, dtype=np.int64)), np.zeros(1, dtype=np.int64)
    count = -(-block.n_rows // prepared.batch_size)

    def visit() -> None:
        prepared.model.train_shared(block, order, prepared.batch_size, 0, count, table, progress)

    visit()  # its memory is new
    return statistics.median(_times_s(visit, time.thread_time)) / block.n_rows


def _gradient_row_s(prepared: Prepared, block: Block, order: Int32) -> float:
    """Seconds for a row of gradients that are sent away."""
    model, batch_size = prepared.model, prepared.batch_size
    dim = model.table("probe", prepared.optimizer).dim
    minibatch = order[:batch_size]

    def visit() -> None:
        needed, handle = model.needed_rows(block, minibatch)
        model.gradient(block, minibatch, handle, np.zeros((len(needed), dim), dtype=np.float32), batch_size)

    return statistics.median(_times_s(visit, time.thread_time)) / len(minibatch)


def _exchange_s(prepared: Prepared, store: Store, table: str, block: Block, order: Int32) -> float:
    """Seconds for a minibatch's way to the store and back: as much goes there as comes from there."""
    needed, _ = prepared.model.needed_rows(block, order[: prepared.batch_size])
    pull_s = min(_times_s(lambda: store.tables.pull(table, needed), time.perf_counter))
    # (where the table is mapped, reading it is no request, but an exchange with its owner is)
    request_s = min(_times_s(lambda: store.blobs.get(f"{table}/none"), time.perf_counter))
    return max(2.0 * pull_s, pull_s + request_s) + _EXCHANGE_S


def _times_s(do: Callable[[], object], clock: Callable[[], float]) -> list[float]:
    """What it takes by that clock: for ten milliseconds, or at least five times."""
    took: list[float] = []
    while len(took) < _LEAST_TIMES or sum(took) < _LONG_ENOUGH_S:
        began = clock()
        do()
        took.append(clock() - began)
    return took
