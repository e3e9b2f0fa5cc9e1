"""Rows that leave their partitions: shuffled within a window that moves over the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from squall.data.rows import join_raw, raw_bytes, take_raw, with_used_strings
from squall.data.seeds import seeded_order
from squall.records import CategoricalColumn, RawBlock

WINDOW_BYTES = 64_000_000
"""Of blocks whose rows are mixed; as large as the window of training partitions."""

_MIX = 6  # first part of the keys of these draws


class Placed(NamedTuple):
    """Rows, and where they stand: behind ``row`` others of a window of blocks ``first`` … ``stop − 1``."""

    first: int
    stop: int
    row: int
    n_rows: int  # of the window
    block: RawBlock


def mixed(blocks: Iterator[RawBlock], seed: int | None, first: int = 0) -> Iterator[Placed]:
    """The rows of each `WINDOW_BYTES` of consecutive blocks in random order, in as many blocks.

    Without a seed each block is a window, and its rows stay as they are.  What a window becomes depends
    on its blocks, the number of its first one and the seed only.

    Memory: two windows, of which one is the system's where blocks are mapped files.

    Parameters
    ----------
    blocks : iterator of RawBlock
    seed : int or None
    first : int
        Number of the first block; a window begins with it.
    """
    window: list[RawBlock] = []
    size, stop = 0, first
    for block in blocks:
        window.append(block)
        size, stop = size + raw_bytes(block), stop + 1
        if seed is None or size >= WINDOW_BYTES:
            yield from _placed(window, seed, first)
            window, size, first = [], 0, stop
    if window:
        yield from _placed(window, seed, first)


def _placed(window: list[RawBlock], seed: int | None, first: int) -> Iterator[Placed]:
    n_rows, row = sum(block.n_rows for block in window), 0
    for block in window if seed is None else _mixed(window, seed, first):
        yield Placed(first, first + len(window), row, n_rows, block)
        row += block.n_rows


def _mixed(window: list[RawBlock], seed: int, number: int) -> Iterator[RawBlock]:
    joined = join_raw(window)
    merged = [name for name, c in joined.columns.items() if _is_merged(c, window[0].columns[name])]
    order = seeded_order(joined.n_rows, _MIX, seed, number)
    for rows in np.array_split(order, len(window)):
        block = take_raw(joined, rows)
        for name in merged:
            block.columns[name] = with_used_strings(block.columns[name])
        yield block


def _is_merged(joined: object, first: object) -> bool:
    """Whether a column's dictionary was put together for the window."""
    return (
        isinstance(joined, CategoricalColumn)
        and isinstance(first, CategoricalColumn)
        and joined.data is not first.data
    )
