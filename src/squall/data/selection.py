"""Which rows of each partition belong to a data set, and in which order: its splits and its shuffle.

A split is stored as a seed and how many test rows each partition gives (of each class, if it is
stratified); the rows themselves are drawn again whenever a partition is read, so memory never
exceeds one partition.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from squall.data.seeds import rng, seeded_order
from squall.errors import SettingError
from squall.records import Int32, Int64

_ALLOT, _DRAW, _SHUFFLE = 3, 4, 5  # first parts of the keys of the three sorts of draws
_MAX_ROWS = 1_000_000_000  # the limit of NumPy's hypergeometric draw


@dataclass(frozen=True, slots=True)
class _Split:
    seed: int
    test: bool  # which side of it
    test_rows: tuple[int, ...]  # by partition
    by_class: tuple[tuple[int, ...], ...] = ()  # the same by partition and class, if stratified

    def drawn(self, chosen: Int32, labels: Int32 | None, depth: int, partition: int) -> Int32:
        """Those of the ``chosen`` rows that are on this side, ascending."""
        if not self.by_class:
            order = seeded_order(len(chosen), _DRAW, self.seed, depth, partition)
            return chosen[np.sort(self._cut(order, self.test_rows[partition]))]
        assert labels is not None  # a data set without labels is not stratified
        own, sides = labels[chosen], []
        for code, n_test in enumerate(self.by_class[partition]):
            rows = np.flatnonzero(own == code)
            order = seeded_order(len(rows), _DRAW, self.seed, depth, partition, code)
            sides.append(rows[self._cut(order, n_test)])
        return chosen[np.sort(np.concatenate(sides))]

    def _cut(self, order: Int32, n_test: int) -> Int32:
        return order[:n_test] if self.test else order[n_test:]


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows chosen out of partitions of ``sizes`` rows by zero or more splits, one in the other."""

    sizes: tuple[int, ...]
    splits: tuple[_Split, ...] = ()
    shuffle_seed: int | None = None

    def counts(self) -> list[int]:
        """Rows chosen in each partition."""
        counts = list(self.sizes)
        for split in self.splits:
            pairs = zip(counts, split.test_rows, strict=True)
            counts = [test if split.test else n - test for n, test in pairs]
        return counts

    def order(self) -> list[int]:
        """The order of the partitions."""
        n = len(self.sizes)
        return list(range(n)) if self.shuffle_seed is None else seeded_order(n, self.shuffle_seed).tolist()

    def rows_of(self, partition: int, labels: Int32 | None = None) -> Int32 | None:
        """Numbers of the rows chosen in one partition, in their order; None means all as they are.

        Parameters
        ----------
        partition : int
        labels : array (rows of the partition,), optional
            Label codes, which stratified splits need.
        """
        if not self.splits and self.shuffle_seed is None:
            return None
        chosen = np.arange(self.sizes[partition], dtype=np.int32)
        for depth, split in enumerate(self.splits):
            chosen = split.drawn(chosen, labels, depth, partition)
        if self.shuffle_seed is not None:
            chosen = chosen[seeded_order(len(chosen), _SHUFFLE, self.shuffle_seed, partition)]
        return chosen

    def shuffled(self, seed: int) -> Selection:
        """The same rows in another order; :mod:`squall.data.mixing` moves them between partitions."""
        return dataclasses.replace(self, shuffle_seed=seed)

    def split(self, n_test: int, seed: int, classes: Int64 | None = None) -> tuple[Selection, Selection]:
        """(all but ``n_test`` rows, ``n_test`` rows) drawn at random over all partitions.

        Parameters
        ----------
        n_test, seed : int
        classes : array (n_partitions, n_classes), optional
            Chosen rows of each class in each partition: every class then gives its share.
        """
        counts = self.counts()
        if sum(counts) >= _MAX_ROWS:
            raise SettingError(
                f"split: {sum(counts):,} rows are more than it can draw from ({_MAX_ROWS:,})",
                fix="split the source file before reading it",
            )
        draw = rng(_ALLOT, seed, len(self.splits))
        if classes is None:
            by_class: tuple[tuple[int, ...], ...] = ()
            allotted = draw.multivariate_hypergeometric(counts, n_test, method="marginals")
        else:
            shares = _shares(classes.sum(axis=0), n_test)
            drawn = [
                draw.multivariate_hypergeometric(own, n, method="marginals")
                for own, n in zip(classes.T, shares, strict=True)
            ]
            table = np.stack(drawn, axis=1)
            by_class = tuple(tuple(row) for row in table.tolist())
            allotted = table.sum(axis=1)
        test_rows = tuple(int(n) for n in allotted)
        train, test = (
            dataclasses.replace(self, splits=(*self.splits, _Split(seed, side, test_rows, by_class)))
            for side in (False, True)
        )
        return train, test


def _shares(totals: Int64, n_test: int) -> list[int]:
    """``n_test`` rows dealt to classes in proportion, by largest remainder."""
    exact = totals * (n_test / totals.sum())
    shares = np.floor(exact).astype(np.int64)
    most = np.argsort(shares - exact, kind="stable")  # the largest remainders first
    shares[most[: n_test - int(shares.sum())]] += 1
    return [int(n) for n in shares]
