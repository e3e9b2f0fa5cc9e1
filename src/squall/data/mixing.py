"""Rows that leave their partitions: shuffled within a window that moves over the blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from squall.data.rows import join_raw, raw_bytes, take_raw, with_used_strings
from squall.data.seeds import seeded_order
from squall.records import CategoricalColumn, RawBlock

WINDOW_BYTES = 64_000_000
"""Of blocks whose rows are mixed; as large as the window of training partitions."""

_MIX = 6  # first part of the keys of these draws


def mixed_blocks(blocks: Iterator[RawBlock], seed: int) -> Iterator[RawBlock]:
    """The rows of each `WINDOW_BYTES` of consecutive blocks in random order, in as many blocks.

    Memory: two windows, of which one is the system's where blocks are mapped files.
    """
    window: list[RawBlock] = []
    size = number = 0
    for block in blocks:
        window.append(block)
        size += raw_bytes(block)
        if size >= WINDOW_BYTES:
            yield from _mixed(window, seed, number)
            window, size, number = [], 0, number + 1
    if window:
        yield from _mixed(window, seed, number)


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
