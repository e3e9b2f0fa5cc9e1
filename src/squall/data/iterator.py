"""What a worker visits, and the stream that brings it: shares, row blocks, prefetching.

A partition is cut into *row blocks*; each epoch deals all row blocks to the slots anew.
Everything about who visits what, and in which order, is a pure function of the manifest,
the seed, the epoch, the number of slots and the slot, so a successor takes over from the
number of minibatches that its predecessor has done, and nothing else.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import numpy as np

from squall.data.objects import ObjectStore
from squall.data.partitions import read_training
from squall.data.prefetch import Prefetcher
from squall.data.rows import slice_training
from squall.data.seeds import rng, seeded_order
from squall.records import Block, Int32, Int64, TrainingManifest

_BLOCK_BYTES = 512 * 1024  # a row block and the model rows it touches should stay in a core's cache
_BLOCKS_PER_SLOT = 8  # below this, a slot's last block decides when the epoch ends

# First parts of the keys of the random draws, so that no two draws share a stream.
_DEAL, _ORDER = 1, 2


class Share(NamedTuple):
    """One row block to visit: rows ``start`` … ``stop − 1`` of partition number ``partition``."""

    partition: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class BlockVisit:
    """A row block, and which of its minibatches are to be done now.

    Minibatch ``i`` is the rows ``order[i * batch_size : (i + 1) * batch_size]`` of ``block``;
    those from ``first`` to ``n_minibatches − 1`` are left to do.
    """

    epoch: int
    block: Block  # views of the partition
    order: Int32  # (n_rows,)
    first: int
    n_minibatches: int
    last_of_epoch: bool


def block_rows(manifest: TrainingManifest, n_slots: int, batch_size: int) -> int:
    """Rows of a row block: a multiple of ``batch_size``, at least one minibatch.

    About 512 kB of rows, so that a block stays in a core's cache while it is trained on, but
    fewer where the slots would otherwise get less than 8 blocks each.
    """
    stored = manifest.memory_bytes or sum(p.bytes for p in manifest.partitions)
    cached = _BLOCK_BYTES * manifest.rows // max(stored, 1)
    fair = manifest.rows // (_BLOCKS_PER_SLOT * n_slots)
    return max(1, min(cached, fair) // batch_size) * batch_size


def prefetch_depth(manifest: TrainingManifest, memory: int) -> int:
    """Partitions that may wait in a function of so many bytes of memory: 1 to 4.

    With the two that are in use and on their way they take an eighth of it, if that is enough.
    """
    partition = manifest.memory_bytes // max(1, len(manifest.partitions)) or 10_000_000
    return max(1, min(memory // 8 // partition - 2, 4))


def n_minibatches(rows: int, batch_size: int) -> int:
    """Minibatches of a row block; the last may be short, for none crosses a block."""
    return -(-rows // batch_size)


def shares(
    manifest: TrainingManifest, block_rows: int, seed: int, epoch: int, n_slots: int, slot: int
) -> list[Share]:
    """Row blocks that ``slot`` visits in ``epoch``, in that order.

    Every row is in exactly one slot's share.  A share's rows exceed an equal part by less
    than one block; each slot gets at least one block unless there are more slots than
    blocks, and then the slots beyond them get none in any epoch.  Partitions, and blocks
    within each, come in a new order every epoch; a slot's blocks of one partition follow
    each other, so that it is fetched once.
    """
    return all_shares(manifest, block_rows, seed, epoch, n_slots)[slot]


def all_shares(
    manifest: TrainingManifest, block_rows: int, seed: int, epoch: int, n_slots: int
) -> list[list[Share]]:
    """What each slot visits; see :func:`shares`."""
    draw = rng(_DEAL, seed, epoch)
    blocks: list[Share] = []
    for partition in draw.permutation(len(manifest.partitions)).tolist():
        rows = manifest.partitions[partition].rows
        starts = draw.permutation(-(-rows // block_rows)) * block_rows
        blocks += [Share(partition, start, min(start + block_rows, rows)) for start in starts.tolist()]
    cuts = _cuts(np.array([b.stop - b.start for b in blocks], dtype=np.int64), n_slots)
    return [blocks[low:high] for low, high in itertools.pairwise(cuts)]


def _cuts(rows: Int64, n_slots: int) -> list[int]:
    """Where to cut a sequence of blocks so that each slot gets about the same number of rows."""
    n = len(rows)
    if n <= n_slots:
        return [min(slot, n) for slot in range(n_slots + 1)]
    # A block belongs to the slot in whose equal part of all rows its middle lies.
    middles = np.cumsum(rows) - rows / 2
    cuts = np.searchsorted(middles, np.arange(n_slots + 1) * (rows.sum() / n_slots))
    numbers = np.arange(n_slots + 1)
    cuts = np.maximum.accumulate(cuts - numbers) + numbers  # nobody goes without …
    cuts = np.minimum(cuts, n - n_slots + numbers)  # … nor those who come last
    return [int(cut) for cut in cuts]


class _Task(NamedTuple):
    """What is left to do of one row block."""

    share: Share
    first: int
    n_minibatches: int
    last_of_epoch: bool


class _Group(NamedTuple):
    """Row blocks of one partition that are visited one after the other."""

    epoch: int
    partition: int
    tasks: list[_Task]


def epoch_minibatches(visits: list[Share], batch_size: int) -> int:
    """Minibatches of one slot's epoch, known without reading any data."""
    return sum(n_minibatches(share.stop - share.start, batch_size) for share in visits)


@dataclass(frozen=True)
class Deal:
    """How the rows of a training set are dealt to the slots of a job."""

    manifest: TrainingManifest
    block_rows: int
    n_slots: int
    batch_size: int
    seed: int

    @staticmethod
    def of(manifest: TrainingManifest, n_slots: int, batch_size: int, seed: int) -> Deal:
        """With row blocks as :func:`block_rows` wants them."""
        return Deal(manifest, block_rows(manifest, n_slots, batch_size), n_slots, batch_size, seed)

    def shares(self, epoch: int) -> list[list[Share]]:
        """What each slot visits in an epoch."""
        return all_shares(self.manifest, self.block_rows, self.seed, epoch, self.n_slots)

    def minibatches(self, epoch: int) -> list[int]:
        """Minibatches of each slot in an epoch."""
        return [epoch_minibatches(visits, self.batch_size) for visits in self.shares(epoch)]

    def has_rows(self, epoch: int) -> list[int]:
        """1 for each slot that has rows, else 0; the same in each epoch."""
        return [int(bool(visits)) for visits in self.shares(0)]


class Visits(Protocol):
    """What one slot has left to visit; iterated once, inside ``with``.

    ``fetch_s`` are seconds spent in reading, ``wait_s`` those in which the consumer waited for that,
    ``bytes_in`` bytes of the partitions read.
    """

    fetch_s: float
    wait_s: float
    bytes_in: int

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def __iter__(self) -> Iterator[BlockVisit]: ...


class MinibatchStream:
    """The row blocks that one slot trains on, from any position, prefetched by one thread.

    Iterate it once, inside ``with``: leaving ends the thread.  Memory: the partition in use,
    ``depth`` that wait, and one on its way.

    Parameters
    ----------
    store : ObjectStore
        Where the partitions are.
    manifest : TrainingManifest
        The training data.
    batch_size : int
        Rows of a minibatch.
    block_rows : int
        Rows of a row block; see :func:`block_rows`.
    n_slots, slot : int
        How many slots there are, and which this is.
    epochs : int
        Epochs until the stream ends.
    seed : int
        Seed of all orders, ≥ 0.
    start_minibatch : int
        Minibatches that this slot has done since ``first_epoch`` began.
    first_epoch : int
        Where minibatches are counted from.
    depth : int
        Partitions that may wait; see :func:`prefetch_depth`.

    Attributes
    ----------
    fetch_s : float
        Seconds that the thread spent reading and verifying partitions.
    wait_s : float
        Seconds that the consumer waited for the thread.
    bytes_in : int
        Bytes of the partitions fetched.

    Raises
    ------
    DataError
        While iterating, if an object is damaged (CorruptError); StoreError if it is missing.
    """

    def __init__(
        self,
        store: ObjectStore,
        manifest: TrainingManifest,
        *,
        batch_size: int,
        block_rows: int,
        n_slots: int,
        slot: int,
        epochs: int,
        seed: int,
        start_minibatch: int = 0,
        first_epoch: int = 0,
        depth: int = 1,
    ) -> None:
        self._manifest, self._batch_size, self._block_rows = manifest, batch_size, block_rows
        self._n_slots, self._slot, self._seed, self._epochs = n_slots, slot, seed, epochs
        self._start, self._first_epoch, self._depth = start_minibatch, first_epoch, depth
        self._store = store
        self._prefetcher: Prefetcher[tuple[_Group, Block]] | None = None
        self.fetch_s = 0.0
        self.wait_s = 0.0
        self.bytes_in = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread; idempotent."""
        if self._prefetcher is not None:
            self._prefetcher.close()

    def __iter__(self) -> Iterator[BlockVisit]:
        self._prefetcher = prefetcher = Prefetcher(self._fetched(), f"squall-fetch-{self._slot}", self._depth)
        try:
            while True:
                started = time.perf_counter()
                group, partition = next(prefetcher, (None, None))
                self.wait_s += time.perf_counter() - started
                if group is None or partition is None:
                    return
                for task in group.tasks:
                    yield self._visit(group, task, partition)
        finally:
            prefetcher.close()  # also when the consumer drops this iterator half-way

    def _visit(self, group: _Group, task: _Task, partition: Block) -> BlockVisit:
        number, start, stop = task.share
        order = seeded_order(stop - start, _ORDER, self._seed, group.epoch, number, start)
        block = slice_training(partition, start, stop)
        return BlockVisit(group.epoch, block, order, task.first, task.n_minibatches, task.last_of_epoch)

    def _fetched(self) -> Iterator[tuple[_Group, Block]]:
        """(runs in the thread) Each group with its partition."""
        held, partition = -1, None
        for group in self._groups():
            if group.partition != held or partition is None:
                partition = None  # let go of it before the next comes
                started = time.perf_counter()
                info = self._manifest.partitions[group.partition]
                partition, held = read_training(self._store, info), group.partition
                self.fetch_s += time.perf_counter() - started
                self.bytes_in += info.bytes
            yield group, partition

    def _groups(self) -> Iterator[_Group]:
        """What is left to do, by epoch and partition, in order."""
        for task_epoch, tasks in self._epochs_left():
            for partition, group in itertools.groupby(tasks, key=lambda task: task.share.partition):
                yield _Group(task_epoch, partition, list(group))

    def _epochs_left(self) -> Iterator[tuple[int, list[_Task]]]:
        skip = self._start
        for epoch in range(self._first_epoch, self._epochs):
            visits = shares(self._manifest, self._block_rows, self._seed, epoch, self._n_slots, self._slot)
            tasks = []
            for i, share in enumerate(visits):
                n = n_minibatches(share.stop - share.start, self._batch_size)
                first = min(skip, n)
                skip -= first
                if first < n:
                    tasks.append(_Task(share, first, n, last_of_epoch=i == len(visits) - 1))
            yield epoch, tasks
