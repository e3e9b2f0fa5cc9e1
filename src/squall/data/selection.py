"""Which rows of each partition belong to a data set: the splits that led to it.

A split is stored as a seed and how many test rows each partition gives; the rows themselves
are drawn again whenever a partition is read, so memory never exceeds one partition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from squall.data.seeds import rng, seeded_order
from squall.errors import SettingError
from squall.records import Int32

_ALLOT, _DRAW = 3, 4  # first parts of the keys of the two sorts of draws
_MAX_ROWS = 1_000_000_000  # the limit of NumPy's hypergeometric draw


@dataclass(frozen=True, slots=True)
class _Split:
    seed: int
    test: bool  # which side of it
    test_rows: tuple[int, ...]  # by partition


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows chosen out of partitions of ``sizes`` rows by zero or more splits, one in the other."""

    sizes: tuple[int, ...]
    splits: tuple[_Split, ...] = ()

    def counts(self) -> list[int]:
        """Rows chosen in each partition."""
        counts = list(self.sizes)
        for split in self.splits:
            pairs = zip(counts, split.test_rows, strict=True)
            counts = [test if split.test else n - test for n, test in pairs]
        return counts

    def rows_of(self, partition: int) -> Int32 | None:
        """Numbers of the rows chosen in one partition, ascending; None means all."""
        if not self.splits:
            return None
        chosen = np.arange(self.sizes[partition], dtype=np.int32)
        for depth, split in enumerate(self.splits):
            order = seeded_order(len(chosen), _DRAW, split.seed, depth, partition)
            cut = split.test_rows[partition]
            chosen = chosen[np.sort(order[:cut] if split.test else order[cut:])]
        return chosen

    def split(self, n_test: int, seed: int) -> tuple[Selection, Selection]:
        """(all but ``n_test`` rows, ``n_test`` rows) drawn at random over all partitions."""
        counts = self.counts()
        if sum(counts) >= _MAX_ROWS:
            raise SettingError(
                f"split: {sum(counts):,} rows are more than it can draw from ({_MAX_ROWS:,})",
                fix="split the source file before reading it",
            )
        draw = rng(_ALLOT, seed, len(self.splits))
        allotted = draw.multivariate_hypergeometric(counts, n_test, method="marginals")
        test_rows = tuple(int(n) for n in allotted)
        train, test = (
            Selection(self.sizes, (*self.splits, _Split(seed, side, test_rows))) for side in (False, True)
        )
        return train, test
