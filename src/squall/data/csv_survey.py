"""The first pass over a CSV file: one schema, decided over all of it.

The kinds, for each column: int64 if every value is an integer and none is missing; float64 if
all are numbers; else categories.  Integers that float64 cannot hold never become float64: beside
fractions or missing values they are kept as text, with a warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from squall._kernels import CSV_FLOAT, CSV_INTEGER, CSV_TEXT, CSV_WIDE_INTEGER, StringDictionary, csv_kind
from squall.data.csv_chunks import Chunk, CsvFormat
from squall.data.csv_text import is_infinite, is_plain, notation
from squall.data.hints import column_hint
from squall.data.labels import (
    MAX_CLASSES,
    Classes,
    check_class_count,
    exact_numbers,
    sorted_classes,
)
from squall.errors import DataError
from squall.records import CategoricalColumn, ColumnSpec, Float64, Int32

_MAX_EXACT = 2**53
_SAMPLE_ROWS = 200

Kind = Literal["int64", "float64", "categorical"]


@dataclass(frozen=True, slots=True)
class CsvLabel:
    """The label column: where it is, and the class, or the number, of each of its texts."""

    name: str
    column: int
    classes: Classes | None
    texts: StringDictionary
    class_of: Int32 | Float64  # (n_texts,) code of the class, or else the number, by code of the text


class Survey:
    """What the columns were seen to hold, over all chunks."""

    def __init__(self, form: CsvFormat, label: str | int | None, categorical: list[str]) -> None:
        self._path = str(form.path)
        self._wanted, self._categorical = label, categorical
        self.names: list[str] = []
        self.n_rows = 0
        self.warnings: list[str] = []  # each to follow the file's name
        self._label = -1
        self._label_texts = StringDictionary()

    def start(self, names: list[str]) -> None:
        """Take the column names, and check those that were asked for."""
        self.names = [name or f"unnamed_{i}" for i, name in enumerate(names)]
        twice = next((n for i, n in enumerate(self.names) if n in self.names[:i]), None)
        if twice is not None:
            raise DataError(
                f"two columns are named {twice!r}",
                where=f"{self._path}:1",
                fix="give every column its own name",
            )
        for name in self._categorical:
            if name not in self.names:
                raise self._no_column("categorical", name)
        if self._wanted is not None:
            self._label = self._find_label(self._wanted)
        if len(self.names) - (self._label >= 0) == 0:
            raise DataError(
                "there is no feature column", where=self._path, fix="check `delimiter` and `label`"
            )
        self._evidence = [0] * len(self.names)
        self._some_missing = [False] * len(self.names)
        self._forced = [name in self._categorical for name in self.names]

    def _find_label(self, label: str | int) -> int:
        if isinstance(label, int) and -len(self.names) <= label < len(self.names):
            return label % len(self.names)
        if str(label) not in self.names:
            raise self._no_column("label", str(label))
        return self.names.index(str(label))

    def _no_column(self, setting: str, name: str) -> DataError:
        hint = column_hint(name, self.names)
        if len(self.names) == 1:  # the line was not cut at all: probably it is cut elsewhere
            other = max("\t;|", key=self.names[0].count)
            if other in self.names[0]:
                hint = f"the file looks separated by {other!r}: give delimiter={other!r}"
        if setting == "label":
            hint += " (leave `label` out to read rows without labels)"
        return DataError(f"{setting}: there is no column {name!r}", where=self._path, fix=hint)

    def add(self, chunk: Chunk) -> None:
        """Look at one more chunk."""
        self.n_rows += chunk.n_rows
        for column in range(len(self.names)):
            if column == self._label:
                self._look_at_label(chunk, column)
            elif not self._forced[column] and not self._evidence[column] & CSV_TEXT:
                self._look(chunk, column)

    def check(self) -> None:
        """There must have been rows."""
        if not self.names:
            raise DataError("the file holds no records", where=self._path)
        if self.n_rows == 0:
            raise DataError(
                "the file has a header and no rows",
                where=self._path,
                fix="if its first line is data, set header=False",
            )

    def _look(self, chunk: Chunk, column: int) -> None:
        before = self._evidence[column]
        n_present = chunk.n_rows
        if not before & CSV_FLOAT:
            values, absent, first_bad = chunk.int64(column)
            n_present -= int(np.count_nonzero(absent))
            self._some_missing[column] |= n_present < chunk.n_rows
            if first_bad < 0 and values.max() <= _MAX_EXACT and values.min() >= -_MAX_EXACT:
                self._evidence[column] |= CSV_INTEGER if n_present else 0
                return
        seen, first_text = chunk.classify(column)
        self._evidence[column] |= seen
        if seen & CSV_TEXT:
            self._warn_of_text(chunk, column, before, first_text, n_present)

    def _warn_of_text(self, chunk: Chunk, column: int, before: int, row: int, n_present: int) -> None:
        """One token that is no number turns a column of numbers into categories: say which.

        Raises
        ------
        DataError
            If it is an infinite number: no model could be trained on it.
        """
        numbers, _ = chunk.float64(column)
        text = chunk.text(row, column)
        if before or np.count_nonzero(~np.isnan(numbers)) > n_present / 2:
            if is_infinite(text):
                raise DataError(
                    f"column {self.names[column]!r} holds numbers, and {text!r} is not a finite one",
                    where=chunk.where(row, column),
                    fix=f"correct it, or list {text!r} in missing= to read it as missing; if the column is "
                    "text, name it in categorical=",
                )
            other = notation(text)
            why = f" ({other[0]}: {other[1]})" if other else ""
            self._warn(
                f"{chunk.place(row, column)}: column {self.names[column]!r} is read as categories: it holds "
                f"numbers, but {text!r} is none{why}; if that means 'missing', list it in missing=, if the "
                "column is text, name it in categorical="
            )
        else:
            self._warn_of_notation(chunk, column)

    def _warn_of_notation(self, chunk: Chunk, column: int) -> None:
        """Numbers throughout, but in a notation that is not read: say which, and where it begins."""
        rows = np.unique(np.linspace(0, chunk.n_rows - 1, _SAMPLE_ROWS, dtype=np.int64)).tolist()
        texts = {row: chunk.text(row, column) for row in rows}
        odd = [row for row, text in texts.items() if notation(text)]
        if not odd or len(odd) + sum(map(is_plain, texts.values())) <= len(rows) / 2:
            return
        text = texts[odd[0]]
        found = notation(text)
        assert found is not None
        self._warn(
            f"{chunk.place(odd[0], column)}: column {self.names[column]!r} is read as categories: its "
            f"numbers have {found[0]}, as in {text!r}; {found[1]} for it to be read as numbers, or name it "
            "in categorical= if it is text"
        )

    def _warn(self, message: str) -> None:
        self.warnings.append(message)

    def _look_at_label(self, chunk: Chunk, column: int) -> None:
        codes = chunk.codes(column, self._label_texts)
        missing = codes < 0
        if missing.any():
            row = int(missing.argmax())
            raise DataError(
                f"the label {self.names[column]!r} is missing: {chunk.text(row, column)!r}",
                where=chunk.where(row, column),
                fix="remove the row; or, if that text is a class, set missing= without it",
            )
        if not self._forced[column]:
            self._evidence[column] |= chunk.classify(column)[0]
        if self._label_kind() == "text":
            check_class_count(len(self._label_texts), self._label_place)

    def _label_kind(self) -> str:
        return "text" if self._forced[self._label] else csv_kind(self._evidence[self._label])

    @property
    def _label_place(self) -> str:
        return f"{self._path}: column {self.names[self._label]!r}"

    def finish_label(self) -> CsvLabel | None:
        """The label map."""
        if self._label < 0:
            return None
        texts = CategoricalColumn(np.zeros(0, np.int32), *self._label_texts.to_arrays()).strings()
        kind, name = self._label_kind(), self.names[self._label]
        classes, class_of = sorted_classes(texts, numeric=kind != "text", integer=kind == "integer")
        if len(classes) <= MAX_CLASSES:
            return CsvLabel(name, self._label, classes, self._label_texts, class_of)
        numbers = exact_numbers(classes, self._label_place)[class_of]
        return CsvLabel(name, self._label, None, self._label_texts, numbers)

    def finish_columns(self) -> list[ColumnSpec]:
        """The schema of the feature columns, with a warning for each surprise in it."""
        return [
            ColumnSpec(name, self._kind(column))
            for column, name in enumerate(self.names)
            if column != self._label
        ]

    def _kind(self, column: int) -> Kind:
        evidence, name = self._evidence[column], self.names[column]
        if self._forced[column]:
            return "categorical"
        kind = csv_kind(evidence)
        if kind == "missing":
            self._warn(f": column {name!r} holds no value; it is kept, as float64 NaN")
        too_wide = evidence & CSV_WIDE_INTEGER and (evidence & CSV_FLOAT or self._some_missing[column])
        if too_wide and not evidence & CSV_TEXT:
            beside = "fractions" if evidence & CSV_FLOAT else "missing values"
            self._warn(
                f": column {name!r} is read as categories: it holds integers beyond 2**53 beside "
                f"{beside}, and float64 would round them; name it in categorical= if it is an identifier"
            )
        if kind == "text" or too_wide:
            return "categorical"
        return "float64" if kind != "integer" or self._some_missing[column] else "int64"
