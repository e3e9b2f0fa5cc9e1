"""Ratings of one item by one user that come more than once, found in bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from squall.data.objects import ObjectStore
from squall.data.partitions import read_raw, write_partition
from squall.data.rows import take_raw
from squall.records import CategoricalColumn, Int64, PartitionInfo

_PAIRS_AT_ONCE = 1 << 23  # some 200 MB while they are sorted


class Duplicate(NamedTuple):
    """Two rows, counted over all partitions, of one user and item with none of theirs between them."""

    earlier: int
    later: int


def find_duplicates(
    store: ObjectStore, partitions: list[PartitionInfo], at_once: int = _PAIRS_AT_ONCE
) -> Iterator[Duplicate]:
    """All duplicates: one share of the users is looked at after the other.

    Parameters
    ----------
    store : ObjectStore
        Where partitions with the columns ``user`` and ``item`` are.
    partitions : list of PartitionInfo
        All of them.
    at_once : int
        Rows to be held in memory, about.
    """
    n_rows = sum(p.rows for p in partitions)
    shares = max(1, -(-n_rows // at_once))
    for share in range(shares):
        pairs, rows = _pairs(store, partitions, share, shares)
        order = np.argsort(pairs, kind="stable")
        pairs, rows = pairs[order], rows[order]
        for i in np.flatnonzero(pairs[1:] == pairs[:-1]).tolist():
            yield Duplicate(int(rows[i]), int(rows[i + 1]))


def _pairs(
    store: ObjectStore, partitions: list[PartitionInfo], share: int, shares: int
) -> tuple[Int64, Int64]:
    """(user and item in one number, number of the row) of each rating by a user of this share."""
    pairs, rows, first = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], 0
    for info in partitions:
        block = read_raw(store, info)
        users, items = block.columns["user"], block.columns["item"]
        assert isinstance(users, CategoricalColumn) and isinstance(items, CategoricalColumn)
        chosen = np.flatnonzero(users.codes % shares == share)
        pairs.append(users.codes[chosen].astype(np.int64) << 32 | items.codes[chosen])
        rows.append(chosen + first)
        first += info.rows
    return np.concatenate(pairs), np.concatenate(rows)


def drop_rows(store: ObjectStore, partitions: list[PartitionInfo], dropped: list[int]) -> list[PartitionInfo]:
    """The partitions without these rows; those that change are written anew."""
    gone = np.sort(np.array(dropped, dtype=np.int64))
    starts = [0, *itertools.accumulate(p.rows for p in partitions)]
    kept = []
    for info, (start, stop) in zip(partitions, itertools.pairwise(starts), strict=True):
        own = gone[np.searchsorted(gone, start) : np.searchsorted(gone, stop)] - start
        if len(own):
            rows = np.setdiff1d(np.arange(info.rows), own, assume_unique=True)
            info = write_partition(store, info.key, take_raw(read_raw(store, info), rows))
        kept.append(info)
    return kept
