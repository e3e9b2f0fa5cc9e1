"""Quantiles of a stream in bounded memory, mergeable, with a bound that the sketch itself knows.

Buffers by level, as in Manku, Rajagopalan & Lindsay (SIGMOD 1998): an item of level *h* stands
for 2**h values.  A level with more than ``CAPACITY`` items is sorted and every second one goes
up a level, which moves no rank by more than 2**h; the sum of these steps is the sketch's
``slack``.  With n values it is at most ``n / CAPACITY · (log2(n / CAPACITY) + 1)`` (0.25 % of a
million rows' ranks), usually a tenth of that, and 0 for up to ``CAPACITY`` values: exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from squall.records import Float64, Int64

CAPACITY = 4096
"""Items of a level.  A column's sketch takes up to 32 kB a level: 0.25 MB for a million values."""


class QuantileSketch(NamedTuple):
    """Values of one feature; ``levels[h]`` has items that stand for 2**h values each."""

    n: int  # values, of which none is missing
    levels: tuple[Float64, ...]
    slack: int  # no rank is wrong by more
    turns: int  # compactions so far: they keep the even and the odd items in turn

    def ranks(self, values: Float64) -> Int64:
        """About how many values are ≤ each of these; wrong by at most ``slack``."""
        items, weights = self._weighted()
        below = np.concatenate([np.zeros(1, np.int64), np.cumsum(weights)])
        return below[np.searchsorted(items, values, side="right")]

    def quantiles(self, shares: Float64) -> Float64:
        """Values at these shares (0 to 1), between two values in proportion, as ``numpy.quantile``.

        NaN without values.
        """
        if not self.n:
            return np.full(len(shares), np.nan)
        items, weights = self._weighted()
        ends = np.cumsum(weights)
        places = np.asarray(shares) * (self.n - 1)
        lower = np.floor(places).astype(np.int64)
        at, after = (
            items[np.searchsorted(ends, np.minimum(rank, self.n - 1), side="right")]
            for rank in (lower, lower + 1)
        )
        return _between(at, after, places - lower)

    def _weighted(self) -> tuple[Float64, Int64]:
        items = np.concatenate(self.levels)
        weights = np.concatenate([np.full(len(level), 1 << h) for h, level in enumerate(self.levels)])
        order = np.argsort(items, kind="stable")
        return items[order], weights[order]


def _between(low: Float64, high: Float64, part: Float64) -> Float64:
    """NumPy's interpolation, to the last bit: a value on an edge must be on the same side of it."""
    with np.errstate(over="ignore", invalid="ignore"):
        step = high - low
        between = np.where(part < 0.5, low + step * part, high - step * (1 - part))
    return np.where(np.isfinite(step), between, low * (1 - part) + high * part)


def sketch(values: Float64) -> QuantileSketch:
    """The sketch of these values; NaN is left out."""
    present = values[~np.isnan(values)]
    return _compressed(len(present), [present], 0, 0)


def merge_sketches(a: QuantileSketch, b: QuantileSketch) -> QuantileSketch:
    """The sketch of the values of both."""
    height = max(len(a.levels), len(b.levels))
    empty = np.empty(0)
    pairs = [[*s.levels, *[empty] * (height - len(s.levels))] for s in (a, b)]
    levels = [np.concatenate(pair) for pair in zip(*pairs, strict=True)]
    return _compressed(a.n + b.n, levels, a.slack + b.slack, a.turns + b.turns)


def _compressed(n: int, levels: list[Float64], slack: int, turns: int) -> QuantileSketch:
    at = 0
    while at < len(levels):
        if len(levels[at]) > CAPACITY:
            items = np.sort(levels[at])
            even = len(items) // 2 * 2
            levels[at] = items[even:]
            promoted = items[turns % 2 : even : 2]
            levels[at + 1 : at + 2] = [np.concatenate([*levels[at + 1 : at + 2], promoted])]
            slack += 1 << at
            turns += 1
        at += 1
    return QuantileSketch(n, tuple(levels), slack, turns)
