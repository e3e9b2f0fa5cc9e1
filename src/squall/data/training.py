"""Training partitions: shuffled float32 rows, cut into objects of about one size.

Rows pass through a window in memory.  When it is full, half of its rows, drawn at random,
leave as partitions and the other half waits to be mixed with what follows; so a file sorted
by label becomes partitions of mixed rows, in bounded memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import msgspec
import numpy as np

from squall.data.objects import ObjectStore
from squall.data.partitions import FORMAT_VERSION, SUFFIX, write_partition
from squall.data.rows import join_training, take_training, training_row_bytes
from squall.data.seeds import seeded_order
from squall.errors import CorruptError, DataError, StoreError
from squall.records import Block, DenseBlock, Int32, PartitionInfo, TrainingManifest

_THREADS = 2  # gathering, checksums and writing leave the interpreter to others
_IN_FLIGHT = 4  # partitions


def manifest_key(prefix: str) -> str:
    """Name of the manifest of the training data written below ``prefix``."""
    return f"{prefix}/manifest.json"


def write_training(
    blocks: Iterator[Block],
    store: ObjectStore,
    prefix: str,
    seed: int,
    target_bytes: int = 10_000_000,
    window_bytes: int = 64_000_000,
) -> TrainingManifest:
    """Write blocks as shuffled training partitions, and their manifest last.

    The result depends on the blocks, the seed and the two sizes only.  Partitions are gathered
    and written by threads.  Memory: about three times ``window_bytes``, and the partitions in
    flight.

    Parameters
    ----------
    blocks : iterator of CsrBlock or DenseBlock
        All of one kind and width; blocks without rows are welcome.
    store : ObjectStore
        Where to write.
    prefix : str
        Folder for the objects.  Writing the same again, at once or later, changes nothing.
    seed : int
        Seed of the shuffle, ≥ 0.
    target_bytes, window_bytes : int
        Size of a partition, and of the window within which rows are shuffled.

    Raises
    ------
    DataError
        If there is no block at all, or blocks differ in kind or width.
    StoreError
        If the store refuses, or other training data is there already.
    """
    key = manifest_key(prefix)
    with ThreadPoolExecutor(_THREADS, "squall-write") as threads:
        writer = _Writer(store, prefix, seed, target_bytes, window_bytes, threads)
        for block in blocks:
            writer.add(block)
        manifest = writer.finish()
    if not store.create(key, msgspec.json.encode(manifest)) and load_training(store, key) != manifest:
        raise StoreError(
            "other training data was written there before",
            where=f"{store.url}/{prefix}",
            fix="give each job a prefix of its own, or remove that folder",
        )
    return manifest


def load_training(store: ObjectStore, key: str) -> TrainingManifest:
    """The manifest of that name.

    Raises
    ------
    StoreError
        If it does not exist: then the data set was not written to its end.
    CorruptError
        If it is not a manifest of a known format version.
    """
    where = f"{store.url}/{key}"
    fix = "remove the job's folder and start it again"
    try:
        manifest = msgspec.json.decode(store.get(key), type=TrainingManifest)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the object is not a training manifest: {error}", where=where, fix=fix) from error
    if manifest.format_version != FORMAT_VERSION:
        raise CorruptError(f"unknown format version {manifest.format_version}", where=where, fix=fix)
    return manifest


class _Writer:
    """The window, and the partitions written so far."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        seed: int,
        target_bytes: int,
        window_bytes: int,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._store, self._prefix, self._seed = store, prefix, seed
        self._target, self._window = target_bytes, max(window_bytes, target_bytes)
        self._waiting: list[Block] = []
        self._waiting_bytes = 0
        self._turns = 0
        self._threads = threads
        self._writing: deque[Future[PartitionInfo]] = deque()
        self._written: list[PartitionInfo] = []

    def add(self, block: Block) -> None:
        if block.n_rows or not self._waiting:
            self._waiting.append(block)
            self._waiting_bytes += int(training_row_bytes(block).sum())
        if self._waiting_bytes >= self._window:
            window, order = self._shuffled()
            half = len(order) // 2
            self._write(window, order[:half])
            # Kept in the order of arrival: reading memory forwards is faster, and they are drawn again.
            rest = take_training(window, np.sort(order[half:]))
            self._waiting = [rest]
            self._waiting_bytes = int(training_row_bytes(rest).sum())

    def finish(self) -> TrainingManifest:
        if not self._waiting:
            raise DataError(
                "there are no rows to train on", fix="check the data set, or the split, given to fit"
            )
        window, order = self._shuffled()
        self._write(window, order)
        self._await(0)
        rows = sum(p.rows for p in self._written)
        kind: Literal["csr", "dense"] = "dense" if isinstance(window, DenseBlock) else "csr"
        return TrainingManifest(rows, window.n_features, kind, self._written, FORMAT_VERSION)

    def _shuffled(self) -> tuple[Block, Int32]:
        window = join_training(self._waiting)
        self._turns += 1
        return window, seeded_order(window.n_rows, self._seed, self._turns)

    def _write(self, window: Block, order: Int32) -> None:
        """Cut ``order`` into partitions of one size, none above the target unless one row is."""
        ends = np.cumsum(training_row_bytes(window)[order])
        if not len(ends):
            return
        n = -(-int(ends[-1]) // self._target)
        cuts = np.searchsorted(ends, np.arange(1, n) * (ends[-1] / n))
        for rows in np.split(order, np.unique(cuts)):
            if len(rows):
                number = len(self._written) + len(self._writing)
                key = f"{self._prefix}/part-{number:05d}{SUFFIX}"
                self._writing.append(self._threads.submit(_gather_and_write, self._store, key, window, rows))
                self._await(_IN_FLIGHT)

    def _await(self, most: int) -> None:
        """Take in what is written, until no more than ``most`` partitions are in flight."""
        while len(self._writing) > most:
            self._written.append(self._writing.popleft().result())


def _gather_and_write(store: ObjectStore, key: str, window: Block, rows: Int32) -> PartitionInfo:
    return write_partition(store, key, take_training(window, rows))
