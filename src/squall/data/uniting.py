"""One dictionary for data sets that each have their own, and what their numbers become in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from squall._kernels import StringDictionary
from squall.errors import DataError
from squall.records import CategoricalColumn, Column, ColumnSpec, Int32, SparseColumn


class United(NamedTuple):
    """The strings of all, and for each its numbers there; None where they stay as they are."""

    strings: CategoricalColumn
    numbers: list[Int32 | None]


def united_strings(spec: ColumnSpec, strings: Sequence[CategoricalColumn | None]) -> United | None:
    """The dictionary of a column of several data sets; None if it has none there.

    Raises
    ------
    DataError
        If a sparse column's positions stand for strings in some of them only.
    """
    known = [own for own in strings if own is not None]
    if len(known) < len(strings) and known and spec.kind == "sparse":
        here, there = (1 + [own is None for own in strings].index(is_none) for is_none in (False, True))
        raise DataError(
            f"its positions stand for words in data set {here}, and in data set {there} it is not known for "
            "which",
            where=f"concat: column {spec.name!r}",
            fix="read all with vocabulary=",
        )
    if not known or len(known) < len(strings):
        return None  # categories bring their strings along
    dictionary = StringDictionary()
    places = [dictionary.encode_strings(own.offsets, own.data) for own in known]
    same = [np.array_equal(own, np.arange(len(own))) for own in places]
    merged = CategoricalColumn(np.zeros(0, np.int32), *dictionary.to_arrays())
    return United(merged, [None if s else p for s, p in zip(same, places, strict=True)])


def renumbered(column: Column, numbers: Int32 | None, united: CategoricalColumn) -> Column:
    """A column of one of the data sets with numbers of the united dictionary."""
    if isinstance(column, CategoricalColumn):
        codes = column.codes if numbers is None else np.append(numbers, np.int32(-1))[column.codes]
        return CategoricalColumn(codes, united.offsets, united.data)
    if not isinstance(column, SparseColumn):
        return column
    width = len(united.offsets) - 1
    if numbers is None:
        return SparseColumn(column.indptr, column.indices, column.values, width)
    indices = numbers[column.indices]
    rows = np.repeat(np.arange(len(column.indptr) - 1), np.diff(column.indptr))
    order = np.lexsort((indices, rows))
    values = None if column.values is None else column.values[order]
    return SparseColumn(column.indptr, indices[order], values, width)
