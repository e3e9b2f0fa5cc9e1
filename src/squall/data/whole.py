"""A worker's whole share of the rows as one block, the same in each epoch.

For strategies whose workers solve a problem of their own over all their rows
(:attr:`squall.protocols.StrategySettings.whole_shares`): an epoch is one visit, of one minibatch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import numpy as np

from squall.data.iterator import BlockVisit, Deal
from squall.data.objects import ObjectStore
from squall.data.partitions import read_training
from squall.data.rows import join_training, slice_training
from squall.errors import DataError
from squall.records import Block

_USABLE = 0.4
"""Of a function's memory: the share is there twice while its pieces are put together."""


class WholeShare:
    """Implements :class:`squall.data.iterator.Visits`: the rows are read with the first visit.

    Parameters
    ----------
    store : ObjectStore
        Where the partitions are.
    deal : Deal
        Whose first epoch's shares these are.
    slot : int
        Whose share.
    first_epoch, epochs : int
        Visits are of epochs ``first_epoch`` … ``epochs − 1``; none if the slot has no rows.
    memory : int
        Bytes of the function.

    Raises
    ------
    DataError
        If the share does not fit into the memory; while iterating, if a partition is damaged.
    """

    def __init__(
        self, store: ObjectStore, deal: Deal, slot: int, first_epoch: int, epochs: int, memory: int
    ) -> None:
        self._store, self._deal, self._slot = store, deal, slot
        self._epochs = range(first_epoch, epochs)
        self.fetch_s = self.wait_s = 0.0
        self.bytes_in = 0
        needed = deal.manifest.memory_bytes // deal.n_slots
        if needed > _USABLE * memory:
            raise DataError(
                f"a share of {needed >> 20:,} MB does not fit into a function of {memory >> 20:,} MB",
                where=f"worker {slot}",
                fix="use more workers, or give each more memory",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __iter__(self) -> Iterator[BlockVisit]:
        if not self._epochs or not self._deal.shares(0)[self._slot]:
            return
        block = self._read()
        order = np.arange(block.n_rows, dtype=np.int32)
        for epoch in self._epochs:
            yield BlockVisit(epoch, block, order, 0, 1, last_of_epoch=True)

    def _read(self) -> Block:
        started = time.perf_counter()
        pieces, held, partition = [], -1, None
        for share in self._deal.shares(0)[self._slot]:
            if share.partition != held or partition is None:
                info = self._deal.manifest.partitions[share.partition]
                partition, held = read_training(self._store, info), share.partition
                self.bytes_in += info.bytes
            pieces.append(slice_training(partition, share.start, share.stop))
        block = join_training(pieces)
        self.fetch_s = self.wait_s = time.perf_counter() - started
        return block
