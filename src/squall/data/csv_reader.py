"""CSV records to blocks of typed columns, by a schema that is assumed as long as it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from squall._kernels import CSV_WIDE_INTEGER, StringDictionary, csv_kind
from squall.data.csv_columns import Chunk, Mask
from squall.data.csv_schema import Evidence, Kind, are_exact, known_texts, label_map, texts_of
from squall.data.skipped import Skipped
from squall.errors import DataError
from squall.records import CategoricalColumn, Column, Float64, Int32, NumericColumn, RawBlock

Write = Callable[[RawBlock], None]


class CsvParser:
    """Takes chunks of one part of the rows; gives blocks, and what the columns were seen to hold.

    Parameters
    ----------
    assumed : Evidence
        What is known of all rows; the kinds that follow from it are assumed.
    forced_text : bool
        Whether the label is text whatever it looks like.
    write : callable
        Takes blocks.
    block_bytes : int
        Of a block, about.
    skipped : Skipped
        Takes up rows whose label or weight cannot be used.

    Attributes
    ----------
    evidence : Evidence
        The assumed one, and what these rows add to it.
    fits : bool
        Whether all rows so far fit the assumption.  Once they do not no more are given.
    n_rows : int
    """

    def __init__(
        self, assumed: Evidence, forced_text: bool, write: Write, block_bytes: int, skipped: Skipped
    ) -> None:
        self.evidence, self.fits, self.n_rows = assumed.copy(), True, 0
        self._kinds: list[Kind] = assumed.kinds()
        self._write, self._block_bytes, self._skipped = write, block_bytes, skipped
        self._label = assumed.roles.index("label") if "label" in assumed.roles else -1
        self._weight = assumed.roles.index("weight") if "weight" in assumed.roles else -1
        self._forced_text = forced_text
        self._texts = known_texts(assumed.labels)
        self._n_texts = len(assumed.labels)
        self._class_of = np.zeros(0, np.int32)
        if self._label >= 0 and not assumed.many_numbers:
            self._class_of = label_map(assumed, forced_text)[1]
        self._block = _Block(assumed.names, self._kinds)

    def add(self, chunk: Chunk) -> None:
        """Take one more chunk."""
        usable, labels = self._labels(chunk)
        weights = self._weights(chunk, usable)
        parts = self._columns(chunk, usable) if self.fits else None
        self.n_rows += int(np.count_nonzero(usable))
        if not usable.any():
            return
        if self.fits:
            if parts is not None and len(self._texts) == self._n_texts:
                if labels is not None:
                    parts.append(labels if labels.dtype == np.float64 else self._class_of[labels])
                if weights is not None:
                    parts.append(weights)
                self._block.add(parts if usable.all() else [part[usable] for part in parts])
                if self._block.n_bytes >= self._block_bytes:
                    self.flush()
                return
            self.fits = False
            self._block = _Block(self.evidence.names, self._kinds)
        for column in range(chunk.n_columns):
            self.evidence.look(chunk, column)

    def flush(self) -> None:
        """Give the rows that are held."""
        if self.fits and self._block.n_rows:
            self._write(self._block.finish(self._label >= 0, self._weight >= 0))
            self._block = _Block(self.evidence.names, self._kinds)

    def _labels(self, chunk: Chunk) -> tuple[Mask, Int32 | Float64 | None]:
        """(rows that can be used, codes into the label's texts, or the numbers that labels are)."""
        if self._label < 0:
            return np.ones(chunk.n_rows, dtype=bool), None
        if self.evidence.many_numbers:
            return self._numeric_labels(chunk)
        known = len(self._texts)
        codes = chunk.codes(self._label, self._texts)
        if len(self._texts) > known:
            self.evidence.labels += texts_of(self._texts, known)
            self.evidence.seen[self._label] |= chunk.classify(self._label)[0]
            self.evidence.judge_labels(self._forced_text, chunk.where(0, self._label))
        usable = codes >= 0
        for row in np.flatnonzero(~usable).tolist():
            self._skipped.add(
                DataError(
                    f"the label {self.evidence.names[self._label]!r} is missing: "
                    f"{chunk.text(row, self._label)!r}",
                    where=chunk.where(row, self._label),
                    fix="remove the row; or, if that text is a class, set missing= without it",
                )
            )
        return usable, codes

    def _numeric_labels(self, chunk: Chunk) -> tuple[Mask, Float64]:
        column, name = self._label, self.evidence.names[self._label]
        numbers, _ = chunk.float64(column)
        usable = np.isfinite(numbers)
        for row in np.flatnonzero(~usable).tolist():
            self._skipped.add(
                DataError(
                    f"the label {name!r} is {chunk.text(row, column)!r}, and no number like those before it",
                    where=chunk.where(row, column),
                    fix='correct the row, or leave such rows out: errors="skip"',
                )
            )
        if np.any(np.abs(numbers) > 2.0**53) and chunk.classify(column)[0] & CSV_WIDE_INTEGER:
            raise DataError(
                f"the label {name!r} holds integers beyond 2**53, which would be rounded",
                where=chunk.where(0, column),
                fix="is this an identifier? If not, write it with a decimal point",
            )
        return usable, numbers

    def _weights(self, chunk: Chunk, usable: Mask) -> Any:
        """Sample weights; rows without one that can be used are noted in ``usable``."""
        if self._weight < 0:
            return None
        weights, _ = chunk.float64(self._weight)
        bad = ~(weights >= 0) & usable  # NaN, too, which stands for all that is no number
        for row in np.flatnonzero(bad).tolist():
            self._skipped.add(
                DataError(
                    f"the weight {self.evidence.names[self._weight]!r} is "
                    f"{chunk.text(row, self._weight)!r}, which is no finite number >= 0",
                    where=chunk.where(row, self._weight),
                    fix="correct or remove the row",
                )
            )
        usable &= ~bad
        return weights

    def _columns(self, chunk: Chunk, usable: Mask) -> list[Any] | None:
        """The feature columns as assumed; None if one is not."""
        parts = []
        for column, (kind, texts) in enumerate(zip(self._kinds, self._block.texts, strict=True)):
            if kind in ("label", "weight"):
                continue
            if kind == "categorical":
                part = self._codes(chunk, column, texts)
            else:
                part = self._numbers(chunk, column, usable)
            if part is None:
                return None
            parts.append(part)
        return parts

    def _codes(self, chunk: Chunk, column: int, texts: StringDictionary) -> Int32:
        known = len(texts)
        codes = chunk.codes(column, texts)
        # New strings enter the block's dictionary: about their share of the text, and an offset each.
        self._block.n_bytes += (len(texts) - known) * (8 + chunk.text_bytes(column) // chunk.n_rows)
        return codes

    def _numbers(self, chunk: Chunk, column: int, usable: Mask) -> Any:
        if self._kinds[column] == "int64":
            integers, absent, first_bad = chunk.int64(column)
            if first_bad >= 0 or absent.any():
                return None
            if not are_exact(integers):
                self.evidence.seen[column] |= chunk.classify(column)[0]
            return integers
        numbers, first_bad = chunk.float64(column)
        if self.evidence.roles[column] == "float64":
            if first_bad >= 0:
                self._refuse_text(chunk, column, numbers, usable)
            return numbers
        if first_bad >= 0:
            return None
        if not self.evidence.seen[column] and not np.isnan(numbers).all():
            self.evidence.seen[column] |= chunk.classify(column)[0]  # the first values of a column
        return numbers

    def _refuse_text(self, chunk: Chunk, column: int, numbers: Any, usable: Mask) -> None:
        """Rows with text where there must be a number."""
        for row in np.flatnonzero(np.isnan(numbers)).tolist():
            text = chunk.text(row, column)
            if usable[row] and not chunk.is_missing(text):
                usable[row] = False
                self._skipped.add(
                    DataError(
                        f"expected a number in column {self.evidence.names[column]!r}, found {text!r}",
                        where=chunk.where(row, column),
                        fix='correct the row, or leave such rows out: errors="skip"',
                    )
                )


class _Block:
    """Parts of columns on their way to one block, which has dictionaries of its own."""

    def __init__(self, names: list[str], kinds: list[Kind]) -> None:
        self._names, self._kinds = names, kinds
        self.texts = [StringDictionary() for _ in kinds]
        self._parts: list[list[Any]] = []
        self.n_rows = self.n_bytes = 0

    def add(self, parts: list[Any]) -> None:
        """One part for each feature column, then for labels, then for weights."""
        self._parts.append(parts)
        self.n_rows += len(parts[0])
        self.n_bytes += sum(part.nbytes for part in parts)

    def finish(self, has_labels: bool, has_weights: bool) -> RawBlock:
        joined: Iterator[Any] = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        columns: dict[str, Column] = {}
        for name, kind, texts in zip(self._names, self._kinds, self.texts, strict=True):
            if kind == "categorical":
                columns[name] = CategoricalColumn(next(joined), *texts.to_arrays())
            elif kind in ("int64", "float64"):
                columns[name] = NumericColumn(next(joined))
        labels = next(joined) if has_labels else None
        return RawBlock(self.n_rows, columns, labels, next(joined) if has_weights else None)


def same_reading(a: Evidence, b: Evidence) -> bool:
    """Whether rows are read alike by both."""
    if a.kinds() != b.kinds() or a.labels != b.labels or a.many_numbers != b.many_numbers:
        return False
    if "label" not in a.roles:
        return True
    label = a.roles.index("label")
    return csv_kind(a.seen[label]) == csv_kind(b.seen[label])
