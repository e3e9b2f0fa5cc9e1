"""Training partitions: shuffled float32 rows, cut into objects of about one size.

Rows pass through a window in memory; when it is full, they leave it as partitions, in random
order.  A data set hands its own partitions over in random order too, so a file sorted by label
becomes partitions of mixed rows, in bounded memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from squall._kernels import all_ones, csr_gather
from squall.data.layouts import Layout, Scratch, Shapes, allocate
from squall.data.objects import ObjectStore
from squall.data.packing import index_bits
from squall.data.packing import packed as packed_arrays
from squall.data.partitions import FORMAT_VERSION, SUFFIX, put_partition
from squall.data.rows import join_weights, training_row_bytes
from squall.data.seeds import seeded_order
from squall.data.versions import PACKED_VERSION, check_format
from squall.errors import CorruptError, DataError, StoreError
from squall.preprocessing.ids import distinct
from squall.records import Block, CsrBlock, DenseBlock, Float32, Int32, Int64, PartitionInfo, TrainingManifest

_THREADS = 2  # gathering, checksums and writing leave the interpreter to others
_IN_FLIGHT = 4  # partitions
_FLOAT, _INT32, _INT64 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int64)
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
    packed: bool | None = None,
    grouped: bool = False,
    block_rows: int = 0,
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
        Size of a partition in memory, and of the window within which rows are shuffled.
    packed : bool, optional
        Whether sparse rows are packed (:mod:`squall.data.packing`); by default they are where the
        store is reached over a network.  The rows are the same.
    grouped : bool
        Whether sparse rows of the same first index stay together in a window; such groups come in
        random order.  Each row needs an entry.
    block_rows : int
        See :class:`~squall.records.TrainingManifest`.

    Raises
    ------
    DataError
        If there is no block at all, or blocks differ in kind or width.
    StoreError
        If the store refuses, or other training data is there already.
    """
    key = manifest_key(prefix)
    with ThreadPoolExecutor(_THREADS, "squall-write") as threads:
        packed = store.folder is None if packed is None else packed
        writer = _Writer(store, prefix, seed, target_bytes, window_bytes, threads, packed, grouped)
        for block in blocks:
            writer.add(block)
        manifest = msgspec.structs.replace(writer.finish(), block_rows=block_rows)
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

    def __init__(self, form: _Form, blocks: list[Block], packed: bool) -> None:
        self._form, self._packed = form, packed
        self.labels = np.concatenate([b.labels for b in blocks])
        self._weights = join_weights(blocks)
        # Only small arrays are joined; the cells stay where they are until they are gathered.
        self._sparse = [b for b in blocks if isinstance(b, CsrBlock)]
        self._has_values = any(b.values is not None and not all_ones(b.values) for b in self._sparse)
        self._lengths = np.concatenate([np.diff(b.indptr) for b in self._sparse] or [_NO_ROWS])
        self._dense = _joined([b.features for b in blocks if isinstance(b, DenseBlock)])

    def encode(self, rows: Int32, scratch: Scratch) -> tuple[memoryview, int]:
        """(the partition of these rows, its number of stored values)."""
        if self._dense is not None:
            return self._encode_dense(rows, self._dense, scratch)
        nnz = int(self._lengths[rows].sum())
        arrays: Shapes = {"indptr": (_INT64, (len(rows) + 1,)), "indices": (_INT32, (nnz,))}
        if self._has_values:
            arrays["values"] = (_FLOAT, (nnz,))
        if not self._packed:
            data, places = self._allocate(rows, arrays, scratch)
            self._gather(rows, places)
            return data, nnz
        plain = {name: np.empty(shape, dtype) for name, (dtype, shape) in arrays.items()}
        self._gather(rows, plain)
        bits = index_bits(self._form.n_features)
        narrow = packed_arrays(plain["indptr"], plain["indices"], self.labels[rows], bits)
        if self._has_values:
            narrow["values"] = plain["values"]
        shapes = {name: (array.dtype, array.shape) for name, array in narrow.items()}
        data, places = self._allocate(rows, shapes, scratch, bits)
        for name, array in narrow.items():
            places[name][...] = array
        return data, nnz

    def _encode_dense(self, rows: Int32, features: Float32, scratch: Scratch) -> tuple[memoryview, int]:
        shape = len(rows), self._form.n_features
        data, places = self._allocate(rows, {"features": (_FLOAT, shape)}, scratch)
        # In "raise" mode NumPy would go through memory of its own.
        np.take(features, rows, axis=0, out=places["features"], mode="clip")
        return data, math.prod(shape)

    def _allocate(
        self, rows: Int32, arrays: Shapes, scratch: Scratch, bits: int = 0
    ) -> tuple[memoryview, dict[str, Any]]:
        """A partition with places for the arrays; labels (if not packed) and weights are in theirs."""
        n = len(rows)
        arrays = {"labels": (_FLOAT, (n,)), **arrays}
        if self._weights is not None:
            arrays["weights"] = (_FLOAT, (n,))
        version = PACKED_VERSION if bits else FORMAT_VERSION
        layout = Layout(
            self._form.kind, n, n_features=self._form.n_features, format_version=version, index_bits=bits
        )
        data, places = allocate(layout, arrays, scratch)
        if not bits:
            np.take(self.labels, rows, out=places["labels"], mode="clip")
        if self._weights is not None:
            np.take(self._weights, rows, out=places["weights"], mode="clip")
        return data, places

    def grouped(self, order: Int32) -> Int32:
        """The rows in this order, but each with all those of its first index, where the first of them is."""
        first = np.concatenate([b.indices[b.indptr[:-1]] for b in self._sparse])[order]
        groups, group = distinct(first.astype(np.int64))
        n = len(order)
        at = np.empty(len(groups), dtype=np.int64)
        at[group[::-1]] = np.arange(n - 1, -1, -1)  # of several rows of a group the first is written last
        together: Int32 = order[np.sort(at[group] * n + np.arange(n)) % n]  # the row's place breaks ties
        return together

    def _gather(self, rows: Int32, places: dict[str, Any]) -> None:
        cells = [(b.indptr, b.indices, b.values) for b in self._sparse]
        csr_gather(cells, rows.astype(np.int64), places["indptr"], places["indices"], places.get("values"))


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
        packed: bool,
        grouped: bool,
    ) -> None:
        self._packed, self._grouped, self._memory_bytes = packed, grouped, 0
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
        return TrainingManifest(
            rows,
            self._form.n_features,
            self._form.kind,
            self._written,
            PACKED_VERSION if self._packed and self._form.kind == "csr" else FORMAT_VERSION,
            self._memory_bytes,
        )

    def _flush(self, form: _Form) -> None:
        """Cut the window's rows into partitions of one size, none above the target unless one row is."""
        window = _Window(form, self._waiting, self._packed)
        self._turns += 1
        order = seeded_order(len(window.labels), self._seed, self._turns)
        if self._grouped:
            order = window.grouped(order)
        ends = np.cumsum(np.concatenate(self._row_bytes)[order])
        self._memory_bytes += int(ends[-1])
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
