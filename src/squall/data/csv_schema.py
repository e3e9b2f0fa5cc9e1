"""What must be known of all rows of a CSV file to read one of them, and how that is found out.

The kinds, for each column: int64 if every value is an integer and none is missing; float64 if
all are numbers; else categories.  Integers that float64 cannot hold never become float64: beside
fractions or missing values they are kept as text, with a warning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from squall._kernels import CSV_FLOAT, CSV_INTEGER, CSV_TEXT, CSV_WIDE_INTEGER, StringDictionary, csv_kind
from squall.data.csv_columns import Chunk
from squall.data.csv_text import is_infinite, is_plain, notation
from squall.data.labels import MAX_CLASSES, Classes, LabelKind, check_class_count, sorted_classes
from squall.errors import DataError
from squall.records import CategoricalColumn, Int32

_MAX_EXACT = 2**53
_SAMPLE_ROWS = 200

Kind = Literal["int64", "float64", "categorical", "label", "weight"]


@dataclass
class Evidence:
    """What the columns were seen to hold, in some part of the rows or in all.

    Attributes
    ----------
    names : list of str
    roles : list of {"auto", "float64", "categorical", "label", "weight"}
        What each column was said to be.
    seen : list of int
        Bits of :func:`squall._kernels.csv_classify`, or-ed.
    missing : list of bool
        Whether a value is missing.
    labels : list of str
        Different texts of the label, but for those that are numbers and too many to be classes.
    many_numbers : bool
        Whether they are, or are to be numbers.
    label_kind : str
        What they were said to be; see :func:`squall.data.labels.are_numbers`.
    notes : dict of int to str
        What is to be said of a column, and where that shows.
    """

    names: list[str]
    roles: list[str]
    seen: list[int]
    missing: list[bool]
    labels: list[str] = field(default_factory=list)
    notes: dict[int, str] = field(default_factory=dict)
    many_numbers: bool = False
    label_kind: LabelKind = "auto"

    @staticmethod
    def none(names: list[str], roles: list[str]) -> Evidence:
        """Before the first row."""
        return Evidence(names, roles, [0] * len(names), [False] * len(names))

    def copy(self) -> Evidence:
        """One that can be added to apart."""
        return Evidence(
            self.names,
            self.roles,
            [*self.seen],
            [*self.missing],
            [*self.labels],
            dict(self.notes),
            self.many_numbers,
            self.label_kind,
        )

    def include(self, other: Evidence) -> None:
        """Add what was seen in other rows, which come later."""
        self.seen = [a | b for a, b in zip(self.seen, other.seen, strict=True)]
        self.missing = [a or b for a, b in zip(self.missing, other.missing, strict=True)]
        self.labels = list(dict.fromkeys([*self.labels, *other.labels]))
        self.notes = {**other.notes, **self.notes}
        self.many_numbers |= other.many_numbers

    def judge_labels(self, forced_text: bool, where: str) -> None:
        """Let labels be numbers if they are, and too many to be classes.

        Raises
        ------
        DataError
            If they are too many, and no numbers or to be classes.
        """
        if not self.many_numbers and len(self.labels) <= MAX_CLASSES:
            return
        column = self.roles.index("label")
        if forced_text or self.label_kind == "classes" or csv_kind(self.seen[column]) == "text":
            check_class_count(MAX_CLASSES + 1, f"{where}: column {self.names[column]!r}")
        self.labels, self.many_numbers = [], True

    # ------------------------------------------------------------------------------ looking

    def look(self, chunk: Chunk, column: int) -> None:
        """See what one more chunk of a column is.

        Raises
        ------
        DataError
            If one of its numbers is infinite.
        """
        if self.roles[column] != "auto" or self.seen[column] & CSV_TEXT:
            return
        before = self.seen[column]
        n_present = chunk.n_rows
        if not before & CSV_FLOAT:
            values, absent, first_bad = chunk.int64(column)
            n_present -= int(np.count_nonzero(absent))
            self.missing[column] |= n_present < chunk.n_rows
            if first_bad < 0 and are_exact(values):
                self.seen[column] |= CSV_INTEGER if n_present else 0
                return
        seen, first_text = chunk.classify(column)
        self.seen[column] |= seen
        if seen & CSV_TEXT:
            self._note_text(chunk, column, before, first_text, n_present)

    def _note_text(self, chunk: Chunk, column: int, before: int, row: int, n_present: int) -> None:
        """One token that is no number turns a column of numbers into categories: say which."""
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
            self.notes[column] = (
                f"{chunk.where(row, column)}: column {self.names[column]!r} is read as categories: it holds "
                f"numbers, but {text!r} is none{why}; if that means 'missing', list it in missing=, if the "
                "column is text, name it in categorical="
            )
        else:
            self._note_notation(chunk, column)

    def _note_notation(self, chunk: Chunk, column: int) -> None:
        """Numbers throughout, but in a notation that is not read: say which, and where it begins."""
        rows = np.unique(np.linspace(0, chunk.n_rows - 1, _SAMPLE_ROWS, dtype=np.int64)).tolist()
        texts = {row: chunk.text(row, column) for row in rows}
        odd = [row for row, text in texts.items() if notation(text)]
        if not odd or len(odd) + sum(map(is_plain, texts.values())) <= len(rows) / 2:
            return
        text = texts[odd[0]]
        found = notation(text)
        assert found is not None
        self.notes[column] = (
            f"{chunk.where(odd[0], column)}: column {self.names[column]!r} is read as categories: its "
            f"numbers have {found[0]}, as in {text!r}; {found[1]} for it to be read as numbers, or name it "
            "in categorical= if it is text"
        )

    # ----------------------------------------------------------------------------- deciding

    def kinds(self) -> list[Kind]:
        """Of each column."""
        return [self._kind(column) for column in range(len(self.names))]

    def _kind(self, column: int) -> Kind:
        role = self.roles[column]
        if role != "auto":
            return role  # type: ignore[return-value]
        kind = csv_kind(self.seen[column])
        if kind == "text" or self._too_wide(column):
            return "categorical"
        return "float64" if kind != "integer" or self.missing[column] else "int64"

    def _too_wide(self, column: int) -> bool:
        """Whether float64 would be needed, and would round."""
        seen = self.seen[column]
        return bool(seen & CSV_WIDE_INTEGER and (seen & CSV_FLOAT or self.missing[column]))

    def warnings(self, where: str) -> list[str]:
        """What is to be said of the columns, in their order."""
        told = dict(self.notes)
        for column, name in enumerate(self.names):
            seen = self.seen[column]
            if self.roles[column] == "label":
                self._note_odd_labels(told, column, where)
            if self.roles[column] != "auto":
                continue
            if not seen:
                told[column] = f"{where}: column {name!r} holds no value; it is kept, as float64 NaN"
            elif self._too_wide(column) and not seen & CSV_TEXT:
                beside = "fractions" if seen & CSV_FLOAT else "missing values"
                told[column] = (
                    f"{where}: column {name!r} is read as categories: it holds integers beyond 2**53 beside "
                    f"{beside}, and float64 would round them; name it in categorical= if it is an identifier"
                )
        return [told[column] for column in sorted(told)]

    def _note_odd_labels(self, told: dict[int, str], column: int, where: str) -> None:
        """Say it if a few labels are no numbers, as most are: a slip makes one more class of it."""
        odd = [text for text in self.labels if not is_plain(text)]
        if 0 < len(odd) < len(self.labels) / 2 and self.label_kind != "classes":
            told[column] = (
                f"{where}: label {self.names[column]!r} is read as classes of text: most of its values are "
                f'numbers, but {odd[0]!r} is none; correct it if it is a slip, else label_kind="classes" '
                "says so"
            )


def are_exact(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    """Whether float64 holds all integers up to the largest of them."""
    return bool(values.max() <= _MAX_EXACT and values.min() >= -_MAX_EXACT)


def label_map(evidence: Evidence, forced_text: bool) -> tuple[Classes, Int32]:
    """(sorted classes, class of each of the label's texts)."""
    column = evidence.roles.index("label")
    kind = "text" if forced_text else csv_kind(evidence.seen[column])
    return sorted_classes(evidence.labels, numeric=kind != "text", integer=kind == "integer")


def known_texts(texts: list[str]) -> StringDictionary:
    """A dictionary that holds these texts by their places."""
    dictionary = StringDictionary()
    column = CategoricalColumn.from_strings(np.zeros(0, np.int32), texts)
    dictionary.encode_strings(column.offsets, column.data)
    return dictionary


def texts_of(dictionary: StringDictionary, start: int = 0) -> list[str]:
    """The texts of a dictionary from a code on."""
    return CategoricalColumn(np.zeros(0, np.int32), *dictionary.to_arrays()).strings()[start:]
