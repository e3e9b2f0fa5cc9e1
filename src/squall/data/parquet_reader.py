"""Parquet to typed columns: one schema for all files, then rows, row group by row group."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from squall.data.arrow import Kind, Sort, arrow_column, kind_of, pyarrow, sort_of
from squall.data.csv_columns import Mask
from squall.data.hints import column_hint
from squall.data.inputs import Input, Seen, unseen
from squall.data.labels import Classes, LabelKind, are_numbers
from squall.data.parquet_file import batches_of, null_count, opened, stored_bytes, types
from squall.errors import DataError
from squall.records import CategoricalColumn, Column, ColumnSpec, Float64, Int32, NumericColumn, RawBlock

_MAX_ROWS = 1 << 20
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


class ParquetReader:
    """A `squall.protocols.Reader` of Parquet files; making it decides the schema.

    Parameters
    ----------
    inputs : list of Input
        The files.
    label, weight : str or None
        Columns that are no features.
    columns : list of str or None
        The features; all if None.
    categorical : list of str
        Features that are categories, whatever their type.
    label_kind : str
        As for :func:`squall.data.labels.are_numbers`.

    Attributes
    ----------
    columns : list of ColumnSpec
        The feature columns.
    classes : array or None
        The sorted label map.
    n_rows : int
        Number of rows.

    Raises
    ------
    DataError
        If a file cannot be read, files do not fit together, or a column cannot be kept.
    """

    def __init__(
        self,
        inputs: list[Input],
        label: str | None,
        weight: str | None,
        columns: list[str] | None,
        categorical: list[str],
        label_kind: LabelKind = "auto",
    ) -> None:
        self._label_kind = label_kind
        self._inputs, self._label, self._weight = inputs, label, weight
        self._dtypes: list[dict[str, Any]] = []
        self.n_rows = n_bytes = 0
        for found in inputs:
            with opened(found) as file:
                self._dtypes.append(types(found, file))
                self.n_rows += file.metadata.num_rows
                n_bytes += stored_bytes(file)
        if self.n_rows == 0:
            raise DataError("there are no rows", where=inputs[0].name, fix="check how it was written")
        self._row_bytes = max(8, n_bytes // self.n_rows)
        self._names = self._features(columns)
        self._check_named(categorical, "categorical")
        self._text = [name for name in self._names if name in categorical or self._sort(name) == "text"]
        kinds = {name: self._kind(name, name in categorical) for name in self._names}
        self._kinds: dict[str, Kind] = kinds
        self.columns = [ColumnSpec(name, kinds[name], self._width(name)) for name in self._names]
        self.classes = None if label is None else self._find_classes(label)

    # -------------------------------------------------------------------------------- schema

    def _features(self, columns: list[str] | None) -> list[str]:
        first = self._dtypes[0]
        roles = [("label", self._label), ("weight", self._weight), *(("columns", c) for c in columns or [])]
        for setting, name in roles:
            if name is not None and name not in first:
                hint = column_hint(name, list(first))
                raise DataError(
                    f"{setting}: there is no column {name!r}", where=self._inputs[0].name, fix=hint
                )
        if columns is None:
            columns = [name for name in first if not _PANDAS_INDEX.fullmatch(name)]
        names = [name for name in columns if name not in (self._label, self._weight)]
        if not names:
            raise DataError("there is no feature column", where=self._inputs[0].name)
        for found, dtypes in zip(self._inputs, self._dtypes, strict=True):
            for name in names + [r for r in (self._label, self._weight) if r]:
                if name not in dtypes:
                    raise DataError(
                        f"there is no column {name!r}, which {self._inputs[0].name} has",
                        where=found.name,
                        fix="name the columns that all files have in columns=",
                    )
        return names

    def _check_named(self, names: list[str], setting: str) -> None:
        for name in names:
            if name not in self._names:
                raise DataError(
                    f"{setting}: there is no column {name!r}",
                    where=self._inputs[0].name,
                    fix=column_hint(name, self._names),
                )

    def _sort(self, name: str) -> Sort:
        """What a column's values are, over all files."""
        sorts: dict[Sort, str] = {}
        for found, dtypes in zip(self._inputs, self._dtypes, strict=True):
            sorts.setdefault(sort_of(dtypes[name], f"{found.name}: column {name!r}"), found.name)
        if len(sorts) > 1:
            sorts.pop("nothing", None)
        if sorts.keys() == {"whole", "number"}:
            return "number"
        if len(sorts) > 1:
            (first, one), (second, other) = list(sorts.items())[:2]
            raise DataError(
                f"column {name!r} holds values of the sort {second!r}, and of the sort {first!r} in {one}",
                where=other,
                fix="write all files with one type, or leave the column out (columns=)",
            )
        return next(iter(sorts))

    def _kind(self, name: str, forced: bool) -> Kind:
        sort = self._sort(name)
        if forced and sort not in ("whole", "text", "nothing"):
            raise DataError(
                f"categorical: column {name!r} holds {self._dtypes[0][name]}, not whole numbers or text",
                where=self._inputs[0].name,
                fix="turn it into text when it is written",
            )
        if forced:
            return "categorical"
        return kind_of(sort, sort == "whole" and self._misses(name))

    def _width(self, name: str) -> int:
        if self._kinds[name] != "dense":
            return 1
        widths = {
            dtypes[name].list_size: found.name
            for found, dtypes in zip(self._inputs, self._dtypes, strict=True)
        }
        if len(widths) > 1:
            (a, _), (b, other) = list(widths.items())[:2]
            raise DataError(f"column {name!r} holds vectors of {b} numbers, others of {a}", where=other)
        return int(next(iter(widths)))

    def _misses(self, name: str) -> bool:
        """Whether a value is missing anywhere: as the row groups' statistics say, or else by looking."""
        for found, dtypes in zip(self._inputs, self._dtypes, strict=True):
            if str(dtypes[name]) == "null":
                return True
            with opened(found) as file:
                known = null_count(file.metadata, name)
                if known is None:
                    batches = file.iter_batches(columns=[name])
                    known = any(batch.column(0).null_count for batch in batches_of(found, batches))
                if known:
                    return True
        return False

    # -------------------------------------------------------------------------------- labels

    def _find_classes(self, label: str) -> Classes | None:
        """The sorted label map; None if labels are numbers."""
        sort = self._sort(label)
        if sort not in ("whole", "number", "text"):
            raise DataError(
                f"the label {label!r} is of type {self._dtypes[0][label]}, which is no class",
                where=self._inputs[0].name,
                fix="name a column of numbers or text",
            )
        values: set[Any] = set()
        for found, row, table in self._tables([label], [label] if sort == "text" else []):
            values.update(self._labels_of(table.column(0), sort, found, row))
            if are_numbers(self._label_kind, len(values), sort != "text", f"{found.name}: column {label!r}"):
                return None
        return np.array(sorted(values))

    def _labels_of(self, column: Any, sort: Sort, found: Input, first_row: int) -> list[Any]:
        where = f"{found.name}: column {self._label!r}"
        codes, distinct = self._coded(column, sort, where)
        self._refuse_missing(codes < 0, found, first_row)
        return [distinct[code] for code in np.unique(codes)]  # a dictionary may hold more than is used

    def _refuse_missing(self, missing: Mask, found: Input, first_row: int) -> None:
        if missing.any():
            raise DataError(
                f"the label {self._label!r} is missing or not finite in row "
                f"{first_row + int(missing.argmax()):,}",
                where=found.name,
                fix="remove the rows without a label",
            )

    def _coded(self, column: Any, sort: Sort, where: str) -> tuple[Int32, list[Any]]:
        """(number among the distinct labels, −1 where there is none; those labels)."""
        if sort == "text":
            texts = arrow_column(column, "categorical", where)
            assert isinstance(texts, CategoricalColumn)
            return texts.codes, texts.strings()
        kind: Kind = "int64" if sort == "whole" and not column.null_count else "float64"
        numbers = _numbers(column, kind, where)
        distinct, codes = np.unique(numbers, return_inverse=True)
        narrow = codes.astype(np.int32)
        if kind == "float64":
            narrow[~np.isfinite(numbers)] = -1
        return narrow, distinct.tolist()

    def _encode_labels(self, column: Any, found: Input, first_row: int) -> Int32 | Float64:
        assert self._label is not None
        where = f"{found.name}: column {self._label!r}"
        if self.classes is None:
            numbers = np.asarray(_numbers(column, "float64", where))
            self._refuse_missing(~np.isfinite(numbers), found, first_row)
            return numbers
        codes, distinct = self._coded(column, self._sort(self._label), where)
        class_of = np.searchsorted(self.classes, np.array(distinct, dtype=self.classes.dtype)).astype(
            np.int32
        )
        return class_of[codes]

    def _weights(self, column: Any, found: Input, first_row: int) -> Float64:
        where = f"{found.name}: column {self._weight!r}"
        values: Float64 = np.asarray(_numbers(column, "float64", where))
        wrong = ~(np.isfinite(values) & (values >= 0))
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"the weight of row {first_row + row:,} is {values[row]}",
                where=where,
                fix="give one finite number >= 0 for each row",
            )
        return values

    # ---------------------------------------------------------------------------------- rows

    def blocks(self, seen: Seen = unseen, target_bytes: int = 10_000_000) -> Iterator[RawBlock]:
        """Rows in the files' order, in blocks of about ``target_bytes`` when stored.

        ``seen`` is told how many bytes were read.
        """
        extra = [name for name in (self._label, self._weight) if name]
        rows = int(min(_MAX_ROWS, max(1, target_bytes // self._row_bytes)))
        text = [*self._text, *(n for n in extra if n == self._label and self._sort(n) == "text")]
        for found, first_row, table in self._tables([*self._names, *extra], text, rows, seen):
            columns: dict[str, Column] = {}
            for name in self._names:
                where = f"{found.name}: column {name!r}"
                columns[name] = arrow_column(table.column(name), self._kinds[name], where)
            labels = None
            if self._label is not None:
                labels = self._encode_labels(table.column(self._label), found, first_row)
            weights = (
                None if self._weight is None else self._weights(table.column(self._weight), found, first_row)
            )
            yield RawBlock(table.num_rows, columns, labels, weights)

    def _tables(
        self, names: list[str], text: list[str], rows: int = _MAX_ROWS, seen: Seen = unseen
    ) -> Iterator[tuple[Input, int, Any]]:
        """(file, number of its first row, table of about ``rows`` rows); a table is of one file."""
        pa = pyarrow("read_parquet")
        for found in self._inputs:
            with opened(found, text, seen) as file:
                first = n = 0
                batches: list[Any] = []
                for batch in batches_of(
                    found, file.iter_batches(batch_size=min(rows, 1 << 16), columns=names)
                ):
                    batches.append(batch)
                    n += batch.num_rows
                    if n >= rows:
                        yield found, first, pa.Table.from_batches(batches).select(names)
                        first, n, batches = first + n, 0, []
                if n:
                    yield found, first, pa.Table.from_batches(batches).select(names)


def _numbers(column: Any, kind: Kind, where: str) -> Any:
    numbers = arrow_column(column, kind, where)
    assert isinstance(numbers, NumericColumn)
    return numbers.values
