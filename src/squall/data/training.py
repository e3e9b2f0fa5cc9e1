"""Training partitions: shuffled float32 rows, cut into objects of about one size.

Rows pass through a window in memory; when it is full, they leave it as partitions, in random
order.  A data set hands its own partitions over in random order too, so a file sorted by label
becomes partitions of mixed rows, in bounded memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from squall._kernels import all_ones, csr_gather
from squall.data.objects import ObjectStore
from squall.data.partitions import (
    FORMAT_VERSION,
    SUFFIX,
    Layout,
    Scratch,
    Shapes,
    allocate,
    check_format,
    put_partition,
)
from squall.data.rows import join_weights, training_row_bytes
from squall.data.seeds import seeded_order
from squall.errors import CorruptError, DataError, StoreError
from squall.records import Block, CsrBlock, DenseBlock, Float32, Int32, Int64, PartitionInfo, TrainingManifest

_THREADS = 2  # gathering, checksums and writing leave the interpreter to others
_IN_FLIGHT = 4  # partitions
_FLOAT = np.dtype(np.float32)
_NO_ROWS = np.empty(0, dtype=np.int64)


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
    and written by threads.  Memory: two windows at most (blocks that are views of the caller's
    arrays take none), and a partition for each thread.

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
    data = store.get(key)
    check_format(data, where)
    try:
        return msgspec.json.decode(data, type=TrainingManifest)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the object is not a training manifest: {error}", where=where, fix=fix) from error


class _Form(NamedTuple):
    """What all blocks of one data set have in common."""

    kind: Literal["csr", "dense"]
    n_features: int

    @staticmethod
    def of(block: Block) -> _Form:
        return _Form("dense" if isinstance(block, DenseBlock) else "csr", block.n_features)


class _Window:
    """Blocks in memory, whose rows are numbered through."""

    def __init__(self, form: _Form, blocks: list[Block]) -> None:
        self._form = form
        self.labels = np.concatenate([b.labels for b in blocks])
        self._weights = join_weights(blocks)
        # Only small arrays are joined; the cells stay where they are until they are gathered.
        self._sparse = [b for b in blocks if isinstance(b, CsrBlock)]
        self._has_values = any(b.values is not None and not all_ones(b.values) for b in self._sparse)
        self._lengths = np.concatenate([np.diff(b.indptr) for b in self._sparse] or [_NO_ROWS])
        self._dense = _joined([b.features for b in blocks if isinstance(b, DenseBlock)])

    def encode(self, rows: Int32, scratch: Scratch) -> tuple[memoryview, int]:
        """(the partition of these rows, its number of stored values)."""
        n, width = len(rows), self._form.n_features
        nnz = int(self._lengths[rows].sum()) if self._dense is None else n * width
        arrays: Shapes = {"labels": (_FLOAT, (n,))}
        if self._weights is not None:
            arrays["weights"] = (_FLOAT, (n,))
        if self._dense is not None:
            arrays["features"] = (_FLOAT, (n, width))
        else:
            arrays |= {"indptr": (np.dtype(np.int64), (n + 1,)), "indices": (np.dtype(np.int32), (nnz,))}
            if self._has_values:
                arrays["values"] = (_FLOAT, (nnz,))
        data, places = allocate(Layout(self._form.kind, n, n_features=width), arrays, scratch)
        # In "raise" mode NumPy would go through memory of its own.
        np.take(self.labels, rows, out=places["labels"], mode="clip")
        if self._weights is not None:
            np.take(self._weights, rows, out=places["weights"], mode="clip")
        if self._dense is not None:
            np.take(self._dense, rows, axis=0, out=places["features"], mode="clip")
        else:
            cells = [(b.indptr, b.indices, b.values) for b in self._sparse]
            target = places["indptr"], places["indices"], places.get("values")
            csr_gather(cells, rows.astype(np.int64), *target)
        return data, nnz


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
        self._target, self._window_bytes = target_bytes, max(window_bytes, target_bytes)
        self._waiting: list[Block] = []
        self._row_bytes: list[Int64] = []  # of those, block by block
        self._waiting_bytes = 0
        self._turns = 0
        self._threads, self._scratch = threads, Scratch()
        self._writing: deque[Future[PartitionInfo]] = deque()
        self._written: list[PartitionInfo] = []
        self._form: _Form | None = None

    def add(self, block: Block) -> None:
        form = _Form.of(block)
        if self._form not in (None, form):
            raise DataError(
                f"blocks of one data set differ: {self._form} and {form}",
                fix="give every block the same transforms, fitted once",
            )
        self._form = form
        if block.n_rows:
            self._waiting.append(block)
            self._row_bytes.append(training_row_bytes(block))
            self._waiting_bytes += int(self._row_bytes[-1].sum())
        if self._waiting_bytes >= self._window_bytes:
            self._flush(form)

    def finish(self) -> TrainingManifest:
        if self._form is None:
            raise DataError(
                "there are no rows to train on", fix="check the data set, or the split, given to fit"
            )
        if self._waiting:
            self._flush(self._form)
        self._await(0)
        rows = sum(p.rows for p in self._written)
        return TrainingManifest(rows, self._form.n_features, self._form.kind, self._written, FORMAT_VERSION)

    def _flush(self, form: _Form) -> None:
        """Cut the window's rows into partitions of one size, none above the target unless one row is."""
        window = _Window(form, self._waiting)
        self._turns += 1
        order = seeded_order(len(window.labels), self._seed, self._turns)
        ends = np.cumsum(np.concatenate(self._row_bytes)[order])
        self._waiting, self._row_bytes, self._waiting_bytes = [], [], 0
        n = -(-int(ends[-1]) // self._target)
        cuts = np.searchsorted(ends, np.arange(1, n) * (ends[-1] / n))
        for rows in np.split(order, np.unique(cuts)):
            if len(rows):
                number = len(self._written) + len(self._writing)
                key = f"{self._prefix}/part-{number:05d}{SUFFIX}"
                task = self._threads.submit(_gather_and_write, self._store, key, window, rows, self._scratch)
                self._writing.append(task)
                self._await(_IN_FLIGHT)

    def _await(self, most: int) -> None:
        """Take in what is written, until no more than ``most`` partitions are in flight."""
        while len(self._writing) > most:
            self._written.append(self._writing.popleft().result())


def _gather_and_write(
    store: ObjectStore, key: str, window: _Window, rows: Int32, scratch: Scratch
) -> PartitionInfo:
    data, nnz = window.encode(rows, scratch)
    return put_partition(store, key, data, len(rows), nnz)


def _joined(parts: list[Float32]) -> Float32 | None:
    return np.concatenate(parts) if len(parts) > 1 else next(iter(parts), None)
