"""Ratings to codes in one pass: dictionaries grow, and are the same for all blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from squall._kernels import StringDictionary
from squall.data.csv_chunks import read_records
from squall.data.csv_columns import Chunk, Mask
from squall.data.inputs import Seen, unseen
from squall.data.ratings_form import RatingForm
from squall.data.skipped import Skipped
from squall.data.streams import Piece
from squall.errors import DataError
from squall.records import CategoricalColumn, Column, Float64, Int64, NumericColumn, RawBlock

_ROW_BYTES = 24
_ELSEWHERE = CategoricalColumn.from_strings(np.zeros(0, dtype=np.int32), [])
_FIX = 'correct it, or leave such records out with errors="skip"'


class RatingsReader:
    """A `squall.protocols.Reader` of files of ratings.

    Parameters
    ----------
    forms : list of RatingForm
        The files.
    skipped : Skipped
        Takes up malformed records.
    """

    def __init__(self, forms: list[RatingForm], skipped: Skipped) -> None:
        self._forms, self._skipped = forms, skipped
        self._ids = {"user": StringDictionary(), "item": StringDictionary()}
        self.has_rating = forms[0].rating is not None
        self.has_time = forms[0].time is not None

    def dictionary(self, name: str) -> CategoricalColumn:
        """The ids of users or items by code, once all blocks have been read."""
        return CategoricalColumn(np.zeros(0, dtype=np.int32), *self._ids[name].to_arrays())

    def blocks(self, seen: Seen = unseen, target_bytes: int = 10_000_000) -> Iterator[RawBlock]:
        """Rows in the files' order; their categorical columns leave out what `dictionary` gives.

        ``seen`` is told how many bytes were read.

        Raises
        ------
        DataError
            If a record is malformed and is not to be skipped.
        """
        rows = max(1, target_bytes // _ROW_BYTES)
        parts: list[tuple[Any, ...]] = []
        n = 0
        for form, records, ratings, times in self._clean(self._skipped, seen):
            users = records.codes(form.user, self._ids["user"])
            items = records.codes(form.item, self._ids["item"])
            parts.append((users, items, ratings, times))
            n += records.n_rows
            if n >= rows:
                yield self._block(parts)
                parts, n = [], 0
        if n:
            yield self._block(parts)

    def _block(self, parts: list[tuple[Any, ...]]) -> RawBlock:
        users, items, ratings, times = (
            None if values[0] is None else np.concatenate(values) for values in zip(*parts, strict=True)
        )
        assert users is not None and items is not None
        columns: dict[str, Column] = {
            "user": CategoricalColumn(users, _ELSEWHERE.offsets, _ELSEWHERE.data),
            "item": CategoricalColumn(items, _ELSEWHERE.offsets, _ELSEWHERE.data),
        }
        if times is not None:
            columns["time"] = NumericColumn(times)
        return RawBlock(len(users), columns, ratings)

    def _clean(
        self, skipped: Skipped, seen: Seen = unseen
    ) -> Iterator[tuple[RatingForm, Chunk, Float64 | None, Int64 | None]]:
        """Records without those that are malformed, and their numbers."""
        for form in self._forms:
            for records in read_records(Piece(form.source), form.dialect, 0, skipped, seen):
                ratings = None if form.rating is None else records.float64(form.rating)[0]
                times, whole = (None, None) if form.time is None else records.whole(form.time)
                good = {form.user: records.is_text(form.user), form.item: records.is_text(form.item)}
                if form.rating is not None and ratings is not None:
                    good[form.rating] = np.isfinite(ratings)
                if form.time is not None and whole is not None:
                    good[form.time] = whole
                keep = np.logical_and.reduce(list(good.values()))
                _tell_bad(form, records, good, keep, skipped)
                if keep.any():
                    yield (
                        form,
                        records.keep(keep),
                        None if ratings is None else ratings[keep],
                        None if times is None else times[keep],
                    )

    def locate(self, row: int) -> tuple[str, str, str]:
        """(``file:line`` of that rating, its user, its item); reads the files again."""
        for form, records, _, _ in self._clean(Skipped(self._skipped.allowed)):
            if row < records.n_rows:
                where = records.where(row, form.user).rpartition(":")[0]
                return where, records.text(row, form.user), records.text(row, form.item)
            row -= records.n_rows
        raise AssertionError("the files have fewer rows than before")


def _tell_bad(form: RatingForm, records: Chunk, good: dict[int, Mask], keep: Mask, skipped: Skipped) -> None:
    expected = {
        form.user: "an id of a user, as UTF-8 text",
        form.item: "an id of an item, as UTF-8 text",
        form.rating: "a finite number",
        form.time: "a time as a whole number of 64 bits (time=None leaves it out)",
    }
    for row in np.flatnonzero(~keep).tolist():
        column = next(column for column in sorted(good) if not good[column][row])
        skipped.add(
            DataError(
                f"{records.text(row, column)[:80]!r} where {expected[column]} is expected",
                where=records.where(row, column),
                fix=_FIX,
            )
        )
