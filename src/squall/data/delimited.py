"""Delimited records that may be malformed: each is read, or told with its place and skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from squall._kernels import (
    CsvFields,
    StringDictionary,
    csv_parse_float64,
    csv_parse_int64,
    csv_scan,
    csv_text,
)
from squall.data.files import read_chunks
from squall.errors import DataError
from squall.records import Float64, Int32, Int64

_CHUNK_BYTES = 1 << 20
_START_BYTES = 1 << 20  # in which the first line has to end
_SHOWN = 10  # of what was skipped
_BOM = b"\xef\xbb\xbf"
_BLANKS = re.compile(rb"[ \t]+")
_ODD_BLANKS = (b"\t", b"  ", b" \n", b" \r", b"\n ")
_AROUND_LINES = re.compile(rb" ?(\r?\n) ?")
_UNIT = b"\x1f"  # stands for a separator of several characters

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Skipped:
    """What was skipped, or the rule that nothing is.

    Parameters
    ----------
    allowed : bool
        Whether anything may be skipped.
    """

    allowed: bool
    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, error: DataError) -> None:
        """Count a malformed record.

        Raises
        ------
        DataError
            ``error`` itself, if nothing may be skipped.
        """
        if not self.allowed:
            raise error
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{error.where}: {error.what}")

    def warnings(self, what: str) -> list[str]:
        """What to tell about it, to follow the name of the source."""
        if not self.count:
            return []
        more = f"\n  … and {self.count - _SHOWN:,} more" if self.count > _SHOWN else ""
        lines = "".join(f"\n  {line}" for line in self.shown)
        return [f": {self.count:,} malformed {what} skipped:{lines}{more}"]


@dataclass(frozen=True, slots=True)
class Delimited:
    """How a file is written: ``separator`` between fields, ``quote`` (a byte; 0: none) around some."""

    path: Path
    separator: bytes
    quote: int = 0
    n_columns: int = 0  # 0: as many as the first record has
    first_line: int = 1  # of what is read
    skip_bytes: int = 0  # before it
    blanks: bool = False  # fields are separated by any number of blanks and tabs

    @property
    def delimiter(self) -> int:
        """The byte that stands between fields once chunks are read."""
        return self.separator[0] if len(self.separator) == 1 else _UNIT[0]


class Records:
    """Some consecutive records."""

    def __init__(self, form: Delimited, buffer: memoryview, fields: CsvFields, first_line: int) -> None:
        self._form, self._buffer, self._fields, self._first_line = form, buffer, fields, first_line
        self._spans = (buffer, fields.starts, fields.ends, fields.flags)

    @property
    def n_rows(self) -> int:
        """Number of records."""
        return self._fields.n_rows

    @property
    def n_columns(self) -> int:
        """Fields of each."""
        return self._fields.n_columns

    def float64(self, column: int) -> Float64:
        """Numbers of a column; NaN where there is none."""
        return csv_parse_float64(*self._spans, column, self.n_columns, [], True, self._form.quote)[0]

    def int64(self, column: int) -> tuple[Int64, Mask]:
        """(whole numbers of a column, where they are such); ``5.0`` is one, too."""
        values, _, first_bad = csv_parse_int64(
            *self._spans, column, self.n_columns, [], True, self._form.quote
        )
        good = np.ones(self.n_rows, dtype=bool)
        for row in range(first_bad, self.n_rows) if first_bad >= 0 else ():
            whole = _whole(self.text(row, column))
            good[row] = whole is not None
            values[row] = whole or 0
        return values, good

    def codes(self, column: int, dictionary: StringDictionary) -> Int32:
        """Codes into ``dictionary``, which grows; the column has to be text throughout."""
        return dictionary.encode(*self._spans, column, self.n_columns, [], True, self._form.quote)

    def is_text(self, column: int) -> Mask:
        """Where a column holds UTF-8 text that is not blank."""
        starts, ends = (spans[column :: self.n_columns] for spans in (self._fields.starts, self._fields.ends))
        raw = np.frombuffer(self._buffer, dtype=np.uint8)
        good = ends > starts
        odd = np.flatnonzero(good)
        odd = odd[np.isin(raw[starts[odd]], (32, 9))]  # only what begins blank may be blank
        if not bytes(self._buffer).isascii():
            odd = np.arange(self.n_rows)
        for row in odd.tolist():
            good[row] = bool(_decoded(self.raw(row, column)).strip())
        return good

    def keep(self, rows: Mask) -> Records:
        """Those records only."""
        if rows.all():
            return self
        f, n = self._fields, self.n_columns
        kept = f._replace(
            starts=f.starts.reshape(-1, n)[rows].ravel(),
            ends=f.ends.reshape(-1, n)[rows].ravel(),
            flags=f.flags.reshape(-1, n)[rows].ravel(),
            lines=f.lines[rows],
            n_rows=int(np.count_nonzero(rows)),
        )
        return Records(self._form, self._buffer, kept, self._first_line)

    def text(self, row: int, column: int) -> str:
        """One field; for messages and headers."""
        return self.raw(row, column).decode(errors="replace").strip()

    def lines(self) -> Int64:
        """Lines of the file on which the records start, from 1."""
        return self._fields.lines + self._first_line

    def where(self, row: int, column: int) -> str:
        """``file:line:field``, the last two counted from 1."""
        return f"{self._form.path}:{self._first_line + int(self._fields.lines[row])}:{column + 1}"

    def raw(self, row: int, column: int) -> bytes:
        """The bytes of one field, without quotes."""
        return csv_text(self._buffer, self._fields, row, column, self._form.quote)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ""


def _whole(text: str) -> int | None:
    """The integer that a text means, if it fits into 64 bits."""
    try:
        number = int(text)
    except ValueError:
        try:
            real = float(text)
        except ValueError:
            return None
        if not real.is_integer() or abs(real) > 2.0**53:
            return None
        number = int(real)
    return number if -(2**63) <= number < 2**63 else None


def read_records(form: Delimited, skipped: Skipped) -> Iterator[Records]:
    """All records of a file, in chunks.

    Raises
    ------
    DataError
        If a record is malformed and nothing may be skipped, or the file cannot be read.
    """
    rest, line, n_columns = b"", form.first_line, form.n_columns
    for chunk, is_last in _chunks(form):
        buffer, at = rest + chunk, 0
        while True:
            view = memoryview(buffer)[at:]
            fields = csv_scan(view, form.delimiter, form.quote, n_columns, is_last)
            if fields.n_rows:
                yield Records(form, view, fields, line)
            n_columns = fields.n_columns
            if fields.error is None:
                at, line = at + fields.consumed, line + fields.n_lines
                break
            start = at + fields.consumed
            end = buffer.find(b"\n", start) + 1
            if end == 0 and not is_last:
                at, line = start, line + fields.n_lines  # its end is yet to come
                break
            at = end or len(buffer)
            line += fields.error[2]
            skipped.add(_malformed(form, buffer[start:at], fields, line))
            line += 1
        rest = buffer[at:]


def _chunks(form: Delimited) -> Iterator[tuple[bytes, bool]]:
    """Chunks in which each separator is one byte; whether they are the last."""
    tail, to_skip = b"", form.skip_bytes
    several = len(form.separator) > 1 or form.blanks
    for piece in read_chunks(form.path, _CHUNK_BYTES):
        piece, to_skip = piece[to_skip:], max(0, to_skip - len(piece))
        if several:  # only whole lines, so that no separator is cut
            piece = tail + piece
            cut = piece.rfind(b"\n") + 1
            piece, tail = _separated(form, piece[:cut]), piece[cut:]
        if piece:
            yield piece, False
    yield _separated(form, tail), True


def _separated(form: Delimited, lines: bytes) -> bytes:
    """Lines in which one byte stands for each separator."""
    if len(form.separator) > 1:
        return lines.replace(form.separator, _UNIT)
    if form.blanks and (b" " in (lines[:1], lines[-1:]) or any(odd in lines for odd in _ODD_BLANKS)):
        return _AROUND_LINES.sub(rb"\1", _BLANKS.sub(b" ", lines)).strip(b" ")
    return lines


def start_of(path: Path) -> tuple[bytes, int]:
    """(the first line that is not blank, bytes of a byte-order mark).

    Raises
    ------
    DataError
        If the file cannot be read, or has no such line.
    """
    start = next(read_chunks(path, _START_BYTES), b"")
    mark = len(_BOM) if start.startswith(_BOM) else 0
    line = next((line for line in start[mark:].splitlines() if line.strip()), None)
    if line is None:
        raise DataError("the file holds no records", where=str(path))
    return line, mark


def _malformed(form: Delimited, record: bytes, fields: CsvFields, line: int) -> DataError:
    assert fields.error is not None
    kind, _, _, found = fields.error
    shown = record.rstrip(b"\r\n")[:80].replace(_UNIT, form.separator).decode(errors="replace")
    where = f"{form.path}:{line}"
    if kind == "fields":
        return DataError(
            f"{found} fields where {fields.n_columns} are expected, in the record that starts {shown!r}",
            where=f"{where}:{min(found, fields.n_columns) + 1}",
            fix='correct it, or leave such records out with errors="skip"',
        )
    what = {"long": "the field is longer than 16 MB", "quote": "text follows a closing quote"}
    return DataError(
        f"{what.get(kind, 'a quote is opened and never closed')}, in the record that starts {shown!r}",
        where=where,
        fix='correct it, or leave such records out with errors="skip"',
    )
