"""CSV records to blocks of typed columns, by a schema that is assumed as long as it fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from squall._kernels import CSV_WIDE_INTEGER, csv_kind
from squall.data.csv_block import CsvBlock
from squall.data.csv_columns import Chunk, Mask
from squall.data.csv_schema import Evidence, Kind, known_texts, label_map, texts_of
from squall.data.skipped import Skipped
from squall.errors import DataError
from squall.records import Float64, Int32, RawBlock

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
        Takes blocks; their arrays are used again once it returns.
    block_bytes : int
        Of a block, about.
    skipped : Skipped
        Takes up rows whose label or weight cannot be used.
    n_features : int
        As for `CsvBlock`.

    Attributes
    ----------
    evidence : Evidence
        The assumed one, and what these rows add to it.
    fits : bool
        Whether all rows so far fit the assumption.  Once they do not no more are given.
    n_rows : int
    """

    def __init__(
        self,
        assumed: Evidence,
        forced_text: bool,
        write: Write,
        block_bytes: int,
        skipped: Skipped,
        n_features: int = 0,
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
        self._block = CsvBlock(assumed.names, self._kinds, block_bytes, n_features)

    def add(self, chunk: Chunk) -> None:
        """Take one more chunk."""
        usable, labels = self._labels(chunk)
        weights = self._weights(chunk, usable)
        fits = self.fits and self._columns(chunk, usable)
        self.n_rows += int(np.count_nonzero(usable))
        if not usable.any():
            return
        if fits and len(self._texts) == self._n_texts:
            if labels is not None and labels.dtype != np.float64:
                labels = self._class_of[labels]
            self._block.keep(usable, labels, weights)
            if self._block.n_bytes >= self._block_bytes:
                self.flush()
            return
        if self.fits:
            self.fits = False
            self._block.clear()
        for column in range(chunk.n_columns):
            self.evidence.look(chunk, column)

    def flush(self) -> None:
        """Give the rows that are held."""
        if self.fits and self._block.n_rows:
            self._write(self._block.finish())
            self._block.clear()

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
        were_asked_for = self.evidence.label_kind == "numbers"
        also = '; labels that are classes are read without label_kind="numbers"' if were_asked_for else ""
        for row in np.flatnonzero(~usable).tolist():
            self._skipped.add(
                DataError(
                    f"the label {name!r} is {chunk.text(row, column)!r}, and no number as others are",
                    where=chunk.where(row, column),
                    fix='correct the row, or leave such rows out: errors="skip"' + also,
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

    def _columns(self, chunk: Chunk, usable: Mask) -> bool:
        """Read the feature columns behind the block's rows; False if one is not as assumed."""
        for column, out, (evidence, first_bad) in self._block.read(chunk):
            if first_bad >= 0:
                if self.evidence.roles[column] != "float64":
                    return False
                self._refuse_text(chunk, column, out, usable)
            elif self._kinds[column] == "int64":
                self.evidence.seen[column] |= evidence
            elif self._kinds[column] == "float64" and evidence and not self.evidence.seen[column]:
                self.evidence.seen[column] |= chunk.classify(column)[0]  # the first values of a column
        return True

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


def same_reading(a: Evidence, b: Evidence) -> bool:
    """Whether rows are read alike by both."""
    if a.kinds() != b.kinds() or a.labels != b.labels or a.many_numbers != b.many_numbers:
        return False
    if "label" not in a.roles:
        return True
    label = a.roles.index("label")
    return csv_kind(a.seen[label]) == csv_kind(b.seen[label])
