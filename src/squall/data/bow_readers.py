"""Bags of words in UCI's and in LDA-C's format, to rows of counts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from squall.data.counts import MAX_COUNT, CountRows, sorted_rows
from squall.data.csv_chunks import read_records
from squall.data.csv_columns import Chunk
from squall.data.dialects import Dialect
from squall.data.inputs import Input, Seen, unseen
from squall.data.skipped import Skipped
from squall.data.streams import Piece, line_chunks, read_chunks
from squall.errors import DataError
from squall.records import Int64

_CHUNK_BYTES = 1 << 20
_EMPTY_ROWS = 1 << 20  # at once
_MAX_DOCUMENTS = 2**31
_NUMBER_LINE = rb"[ \t]*(\d{1,18})[ \t]*"
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?" + rb"\r?\n".join([_NUMBER_LINE] * 3) + rb"(?:\r?\n|$)")
_DOCUMENT = re.compile(rb"[ \t]*\d{1,18}(?:[ \t]+\d{1,18}:\d{1,18})*+[ \t\r]*")
_PAIR = re.compile(rb"\d{1,18}:\d{1,18}")
_COLON_TO_BLANK = bytes.maketrans(b":", b" ")
_FIX = 'correct it, or leave it out with errors="skip"'


def is_uci(source: Input) -> bool:
    """Whether a file begins as UCI's do: three lines of one number each."""
    return _header(source) is not None


def _header(source: Input) -> re.Match[bytes] | None:
    return _HEADER.match(next(read_chunks(source, 1 << 12), b""))


class UciReader:
    """Documents of a UCI ``docword`` file.

    Parameters
    ----------
    source : Input
        The file.
    words : list of str or None
        Its vocabulary.
    skipped : Skipped
        Takes up malformed records.

    Attributes
    ----------
    width : int
        Words in the vocabulary.

    Raises
    ------
    DataError
        If the first lines are not as they should be, or the vocabulary is of another size.
    """

    def __init__(self, source: Input, words: list[str] | None, skipped: Skipped) -> None:
        self._source, self._skipped = source, skipped
        header = _header(source)
        if header is None:
            raise DataError(
                "the first three lines are not the numbers of documents, words and records",
                where=f"{source.name}:1",
                fix='if it is LDA-C, set format="ldac"',
            )
        self._n_documents, self.width, self._n_records = (int(n) for n in header.groups())
        if self._n_documents > _MAX_DOCUMENTS:
            raise DataError(f"{self._n_documents:,} documents are more than 2**31", where=f"{source.name}:1")
        if words is not None and len(words) != self.width:
            raise DataError(
                f"the file is of {self.width:,} words and the vocabulary has {len(words):,}",
                where=source.name,
                fix="give the vocabulary that belongs to it",
            )
        self._dialect = Dialect(
            False, ord(" "), missing=[], quote=0, is_fixed=True, blanks=True, skip_lines=3
        )

    def rows(self, seen: Seen = unseen) -> Iterator[CountRows]:
        """The documents, also those without words, in blocks of some records."""
        rest = np.zeros((4, 0), dtype=np.int64)  # document, word, count and line of what may go on
        done = n_records = 0
        for records in read_records(Piece(self._source), self._dialect, 3, self._skipped, seen):
            n_records += records.n_rows
            entries = np.concatenate([rest, self._entries(records, rest)], axis=1)
            if not entries.shape[1]:
                continue
            last = int(entries[0, -1])
            complete = int(np.searchsorted(entries[0], last))
            if complete:
                yield from self._documents(entries[:, :complete], done, last - 1)
                done = last - 1
            rest = entries[:, complete:]
        # Of those that are skipped some have been counted here, too.
        if n_records + self._skipped.count < self._n_records or (
            n_records > self._n_records and not self._skipped.allowed
        ):
            raise DataError(
                f"{n_records:,} records where line 3 promises {self._n_records:,}",
                where=self._source.name,
                fix="the file may have been cut short: download it again",
            )
        yield from self._documents(rest, done, self._n_documents)

    def _entries(self, records: Chunk, before: Int64) -> Int64:
        """(document, word, count, line) of each record that is as it should be."""
        (documents, a), (words, b), (counts, c) = (records.whole(column) for column in range(3))
        # What is no number must not count as a step back, nor make one of those after it.
        first = int(before[0, -1]) if before.shape[1] else 0
        a &= (documents >= 1) & (documents <= self._n_documents)
        known = np.where(a, documents, 0)
        ascends = known >= np.maximum.accumulate(np.concatenate([[first], known]))[:-1]
        b &= (words >= 1) & (words <= self.width)
        c &= (counts >= 0) & (counts <= MAX_COUNT)
        good = a & ascends & b & c
        for row in np.flatnonzero(~good).tolist():
            column = 0 if not (a[row] and ascends[row]) else 1 if not b[row] else 2
            expected = (
                f"a document from 1 to {self._n_documents:,}, not before the one above it,",
                f"a word from 1 to {self.width:,}",
                "a count from 0 to 2**53",
            )[column]
            told = f"{records.text(row, column)[:80]!r} where {expected} is expected"
            self._skipped.add(DataError(told, where=records.where(row, column), fix=_FIX))
        return np.stack([documents, words - 1, counts, records.lines()])[:, good]

    def _documents(self, entries: Int64, done: int, last: int) -> Iterator[CountRows]:
        """Documents ``done + 1`` … ``last``."""
        order, again = sorted_rows(entries[0], entries[1])
        entries = entries[:, order]
        for i in again.tolist():
            document, word, _, line = entries[:, i].tolist()
            what = f"word {word + 1} comes twice in document {document}"
            self._skipped.add(
                DataError(what, where=f"{self._source.name}:{line}:2", fix=f"add the counts up; {_FIX}")
            )
        entries = np.delete(entries, again, axis=1)
        for start in range(done, last, _EMPTY_ROWS):
            stop = min(start + _EMPTY_ROWS, last)
            own = entries[
                :, np.searchsorted(entries[0], start, "right") : np.searchsorted(entries[0], stop, "right")
            ]
            lengths = np.bincount(own[0] - start - 1, minlength=stop - start)
            yield CountRows(lengths, own[1].astype(np.int32), own[2])


class LdacReader:
    """Documents of an LDA-C file; parameters and errors as of `UciReader`."""

    def __init__(self, source: Input, words: list[str] | None, skipped: Skipped) -> None:
        self._source, self._skipped = source, skipped
        self.width = 2**31 - 1
        if words is None:
            quiet = LdacReader(source, [], Skipped(skipped.allowed))
            quiet.width = self.width
            self.width = 1 + max((int(rows.words.max(initial=-1)) for rows in quiet.rows()), default=-1)
        else:
            self.width = len(words)

    def rows(self, seen: Seen = unseen) -> Iterator[CountRows]:
        """The documents, in blocks of some lines."""
        first = 1
        for chunk in line_chunks(Piece(self._source), seen, _CHUNK_BYTES):
            lines = bytes(chunk).split(b"\n")[:-1]
            yield self._documents(lines, first)
            first += len(lines)

    def _documents(self, lines: list[bytes], first_line: int) -> CountRows:
        kept, numbers = [], []
        for number, line in enumerate(lines, first_line):
            if _DOCUMENT.fullmatch(line):
                kept.append(line)
                numbers.append(number)
            elif line.strip():
                self._skipped.add(self._malformed(line, number))
        flat = np.fromstring(b" ".join(kept).translate(_COLON_TO_BLANK), dtype=np.int64, sep=" ")
        lengths = np.array([line.count(b":") for line in kept], dtype=np.int64)
        heads = np.cumsum(2 * lengths + 1) - 2 * lengths - 1
        promised, pairs = flat[heads], np.delete(flat, heads).reshape(-1, 2)
        return self._checked(lengths, pairs[:, 0], pairs[:, 1], promised, numbers)

    def _checked(
        self, lengths: Int64, words: Int64, counts: Int64, promised: Int64, lines: list[int]
    ) -> CountRows:
        """The documents that are as they should be, words ascending."""
        row = np.repeat(np.arange(len(lengths)), lengths)
        order, again = sorted_rows(row, words)
        words, counts = words[order], counts[order]
        bad: dict[int, str] = {}
        for i in np.flatnonzero(counts > MAX_COUNT).tolist():
            bad[int(row[i])] = f"the count {counts[i]} is beyond 2**53"
        for i in again.tolist():
            bad[int(row[i])] = f"word {words[i]} comes twice"
        for i in np.flatnonzero(words >= self.width).tolist():
            bad[int(row[i])] = f"word {words[i]} is beyond the {self.width:,} words there are (from 0 on)"
        for r in np.flatnonzero(promised != lengths).tolist():
            bad[r] = f"{lengths[r]} words where the first number promises {promised[r]}"
        for r in sorted(bad):
            self._skipped.add(DataError(bad[r], where=f"{self._source.name}:{lines[r]}", fix=_FIX))
        keep = np.ones(len(lengths), dtype=bool)
        keep[list(bad)] = False
        cells = keep[row]
        return CountRows(lengths[keep], words[cells].astype(np.int32), counts[cells])

    def _malformed(self, line: bytes, number: int) -> DataError:
        fields = line.split()
        for i, token in enumerate(fields):
            if not (re.fullmatch(rb"\d{1,18}", token) if i == 0 else _PAIR.fullmatch(token)):
                expected = "the number of different words" if i == 0 else "word:count"
                shown = token[:80].decode(errors="replace")
                return DataError(
                    f"{shown!r} where {expected} is expected",
                    where=f"{self._source.name}:{number}:{i + 1}",
                    fix=_FIX,
                )
        raise AssertionError(line)
