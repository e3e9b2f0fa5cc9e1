"""How often each value turns up in a column: of text, and of numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from squall.errors import DataError
from squall.records import CategoricalColumn, Float64, Int64

MAX_DISTINCT = 1_000_000
"""Values that are counted one by one: what has more is an identifier, or continuous."""

TextCounts = dict[str | None, int]  # None is a missing value


class NumberCounts(NamedTuple):
    """Distinct numbers, ascending, and how often each turns up; missing ones are left out."""

    values: Float64
    counts: Int64


def count_text(name: str, column: CategoricalColumn, fix: str) -> TextCounts:
    """Counts of the texts that are there.

    Raises
    ------
    DataError
        If there are more than a million different ones; ``fix`` says what to do.
    """
    counts = np.bincount(column.codes + 1, minlength=len(column.offsets))
    strings: list[str | None] = [None, *column.strings()]
    used = np.flatnonzero(counts)
    found = {strings[code]: int(counts[code]) for code in used.tolist()}
    check_distinct(name, len(found), fix)
    return found


def merge_text(name: str, a: TextCounts, b: TextCounts, fix: str) -> TextCounts:
    """Counts of both; errors as `count_text`."""
    merged = dict(a)
    for text, n in b.items():
        merged[text] = merged.get(text, 0) + n
    check_distinct(name, len(merged), fix)
    return merged


def count_numbers(name: str, values: Float64, fix: str) -> NumberCounts:
    """Counts of the numbers (n_rows,); errors as `count_text`."""
    distinct, counts = np.unique(values[~np.isnan(values)] + 0.0, return_counts=True)  # −0.0 is 0.0
    check_distinct(name, len(distinct), fix)
    return NumberCounts(distinct, counts.astype(np.int64))


def merge_numbers(name: str, a: NumberCounts, b: NumberCounts, fix: str) -> NumberCounts:
    """Counts of both; errors as `count_text`."""
    values, place = np.unique(np.concatenate([a.values, b.values]), return_inverse=True)
    check_distinct(name, len(values), fix)
    counts = np.zeros(len(values), dtype=np.int64)
    np.add.at(counts, place, np.concatenate([a.counts, b.counts]))
    return NumberCounts(values, counts)


def check_distinct(name: str, n: int, fix: str) -> None:
    """Refuse more distinct values than are counted."""
    if n > MAX_DISTINCT:
        raise DataError(
            f"it has more than {MAX_DISTINCT:,} different values", where=f"column {name!r}", fix=fix
        )
