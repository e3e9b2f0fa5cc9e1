"""Several data sets one after the other, under the one schema that holds all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from squall.data.labels import MAX_CLASSES, Classes, check_class_count, exact_numbers
from squall.data.sources import digest
from squall.data.uniting import United, renumbered, united_strings
from squall.errors import DataError
from squall.records import (
    Bill,
    CategoricalColumn,
    Column,
    ColumnSpec,
    DenseColumn,
    Float64,
    Int32,
    NumericColumn,
    RawBlock,
    SparseColumn,
)

if TYPE_CHECKING:
    from squall.data.dataset import Dataset


class ConcatSource:
    """The partitions of several data sets, as they read them: splits and transforms included.

    Columns are matched by name, in the order of the first data set.  int64 and float64 become
    float64; a sparse column is as wide as the widest.  Dictionaries and label maps are united, or
    labels become numbers to predict, where they are in one of the data sets.

    Raises
    ------
    DataError
        If columns, kinds or labels do not go together.
    """

    def __init__(self, parts: Sequence[Dataset]) -> None:
        self._parts = list(parts)
        first = self._parts[0]
        for number, part in enumerate(self._parts[1:], 2):
            _check_names(first, part, number)
        specs = [_merged_spec([_spec(part, column.name) for part in self._parts]) for column in first.columns]
        self._united = {spec.name: found for spec in specs if (found := _united(self._parts, spec))}
        self.columns = [_as_wide(spec, self._united.get(spec.name)) for spec in specs]
        self.label = first.label
        self.classes: Classes | None = _merged_classes(self._parts)
        self._codes = [_translation(part.classes, self.classes) for part in self._parts]
        self._places = [(i, p) for i, part in enumerate(self._parts) for p in part.partitions()]
        self.rows = [self._parts[i].partition_rows()[p] for i, p in self._places]
        self.missing: dict[str, int] | None = None

    def read(self, partition: int) -> RawBlock:
        """All rows of one partition."""
        part, number = self._places[partition]
        block = self._parts[part].partition(number)
        codes = self._codes[part]
        labels = block.labels if block.labels is None or codes is None else codes[block.labels]
        columns = {}
        for spec in self.columns:
            column = block.columns[spec.name]
            if united := self._united.get(spec.name):
                column = renumbered(column, united.numbers[part], united.strings)
            columns[spec.name] = _conformed(column, spec)
        return RawBlock(block.n_rows, columns, labels, block.weights, block.qid)

    def dictionary(self, column: str) -> CategoricalColumn | None:
        """The strings that the column's numbers stand for in all parts, if all have such."""
        united = self._united.get(column)
        return None if united is None else united.strings

    def key(self) -> str:
        """A name for the content."""
        return digest(["concat", [part.key() for part in self._parts]])

    def bill(self) -> Bill | None:
        """What functions cost that this process had read the parts; None if none did."""
        bills = [bill for part in self._parts if (bill := part.bill) is not None]
        return sum(bills[1:], start=bills[0]) if bills else None


def _united(parts: list[Dataset], spec: ColumnSpec) -> United | None:
    if spec.kind not in ("categorical", "sparse"):
        return None
    if spec.kind == "categorical" and not all(part.is_as_read for part in parts):
        return None  # a transform may have given it other strings
    return united_strings(spec, [part.shared_strings(_spec(part, spec.name)) for part in parts])


def _as_wide(spec: ColumnSpec, united: United | None) -> ColumnSpec:
    if united is None or spec.kind != "sparse":
        return spec
    return ColumnSpec(spec.name, spec.kind, len(united.strings.offsets) - 1)


def _spec(part: Dataset, name: str) -> ColumnSpec:
    return next(c for c in part.columns if c.name == name)


def _check_names(first: Dataset, other: Dataset, number: int) -> None:
    have, had = {c.name for c in other.columns}, {c.name for c in first.columns}
    told = [f"{n!r} is only in the first" for n in sorted(had - have)]
    told += [f"{n!r} is not in the first" for n in sorted(have - had)]
    if told:
        more = f" and {len(told) - 3} more" if len(told) > 3 else ""
        raise DataError(
            f"data set {number} has other columns: {'; '.join(told[:3])}{more}",
            where="concat",
            fix="select() the columns that all have",
        )
    if first.label != other.label:
        raise DataError(
            f"the label of data set {number} is {other.label!r}, and that of the first {first.label!r}",
            where="concat",
            fix="read all with the same label",
        )


def _merged_spec(specs: list[ColumnSpec]) -> ColumnSpec:
    first = specs[0]
    kinds = {spec.kind for spec in specs}
    if kinds == {"int64", "float64"}:
        return ColumnSpec(first.name, "float64")
    widths = {spec.width for spec in specs}
    if len(kinds) == 1 and (len(widths) == 1 or first.kind == "sparse"):
        return ColumnSpec(first.name, first.kind, max(widths))
    shown = " and ".join(
        dict.fromkeys(f"{s.kind}{f' of {s.width}' if s.kind == 'dense' else ''}" for s in specs)
    )
    fix = "read both with categorical=[…] or with numbers only" if len(kinds) > 1 else "give matrices alike"
    raise DataError(f"it is {shown}", where=f"concat: column {first.name!r}", fix=fix)


def _merged_classes(parts: list[Dataset]) -> Classes | None:
    maps = [part.classes for part in parts if part.classes is not None]
    if not maps:
        return None
    are_numbers = all(m.dtype.kind in "iuf" for m in maps)
    if len(maps) < len(parts) and are_numbers:
        return None
    if len(maps) < len(parts):
        raise DataError(
            "labels are classes that are no numbers in one data set, and numbers to predict in another",
            where="concat",
            fix="read all with labels of one sort",
        )
    sorts = {"text" if m.dtype.kind in "UOT" else "numbers" for m in maps if len(m)}
    if len(sorts) > 1:
        raise DataError(
            "labels are text in one data set and numbers in another",
            where="concat",
            fix="read all with labels of one sort",
        )
    merged = np.unique(np.concatenate(maps))
    if len(merged) > MAX_CLASSES and are_numbers:
        return None
    check_class_count(len(merged), "concat")
    return merged


def _translation(own: Classes | None, merged: Classes | None) -> Int32 | Float64 | None:
    """What a part's codes become: those of the merged map, or the numbers that its own one holds."""
    if own is None:
        return None
    if merged is None:
        return exact_numbers(own, "concat")
    return np.searchsorted(merged, own).astype(np.int32)


def _conformed(column: Column, spec: ColumnSpec) -> Column:
    if isinstance(column, SparseColumn) and column.width != spec.width:
        return SparseColumn(column.indptr, column.indices, column.values, spec.width)
    if isinstance(column, NumericColumn) and spec.kind == "float64" and column.values.dtype == np.int64:
        return NumericColumn(_exact(column.values, spec.name))
    if isinstance(column, DenseColumn) and column.values.dtype != np.float64:
        return DenseColumn(column.values.astype(np.float64))  # a column has one type throughout
    return column


def _exact(values: Any, name: str) -> Any:
    if np.any(np.abs(values.astype(np.float64)) >= 2.0**53):
        raise DataError(
            "it holds integers beyond 2**53, which float64, as the other data set has it, would round",
            where=f"concat: column {name!r}",
            fix=f"read both with categorical=[{name!r}]",
        )
    return values.astype(np.float64)
