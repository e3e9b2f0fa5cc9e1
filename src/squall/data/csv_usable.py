"""Which records can be used, where others are left out: before anything is made of their fields."""

from __future__ import annotations

import numpy as np

from squall._kernels import CSV_TEXT
from squall.data.csv_columns import UTF8_FIX, Chunk, is_utf8
from squall.data.csv_schema import Evidence
from squall.data.csv_text import is_infinite
from squall.data.skipped import Skipped
from squall.errors import DataError


def usable_records(chunk: Chunk, evidence: Evidence, skipped: Skipped) -> Chunk:
    """The records that are UTF-8 text and hold no infinite number where there are numbers."""
    usable = chunk.is_utf8()
    for row in np.flatnonzero(~usable).tolist():
        column = next(c for c in range(chunk.n_columns) if not is_utf8(chunk.raw(row, c)))
        what = f"the text {chunk.raw(row, column)[:80]!r} is not UTF-8"
        skipped.add(DataError(what, where=chunk.where(row, column), fix=UTF8_FIX))
    for column, role in enumerate(evidence.roles):
        if role != "auto" or evidence.seen[column] & CSV_TEXT:
            continue
        for row in _infinite(chunk, column, evidence.seen[column] != 0):
            if usable[row]:
                usable[row] = False
                what = (
                    f"column {evidence.names[column]!r} holds numbers, and {chunk.text(row, column)!r} is not"
                )
                skipped.add(DataError(f"{what} a finite one", where=chunk.where(row, column)))
    return chunk.keep(usable)


def _infinite(chunk: Chunk, column: int, has_numbers: bool) -> list[int]:
    """Rows with an infinite number, if the column is one of numbers."""
    numbers, first_text = chunk.float64(column)
    if first_text < 0:
        return []
    texts = {row: chunk.text(row, column) for row in np.flatnonzero(np.isnan(numbers)).tolist()}
    texts = {row: text for row, text in texts.items() if not chunk.is_missing(text)}
    if not has_numbers and np.count_nonzero(~np.isnan(numbers)) <= len(texts):
        return []  # a column of text, in which that is a word
    return [row for row, text in texts.items() if is_infinite(text)]
