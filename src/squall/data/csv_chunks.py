"""CSV text in chunks of whole records, and messages that say where in the file something is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from squall._kernels import (
    ColumnReading,
    CsvError,
    CsvFields,
    StringDictionary,
    csv_classify,
    csv_parse_float64,
    csv_parse_int64,
    csv_read_columns,
    csv_scan,
    csv_text,
)
from squall.data.byte_sources import Input, Seen
from squall.data.skipped import MAX_SHOWN
from squall.data.streams import BOM, MAX_RECORD, Piece, Text, lines_before
from squall.errors import DataError
from squall.records import Float64, Int32, Int64

CHUNK_BYTES = 1 << 19
"""Of text."""

_QUOTE = ord('"')
_UTF8 = "convert the file, for example with: iconv -f latin1 -t utf-8"


@dataclass(frozen=True)
class Dialect:
    """How a file is written; ``quote`` 0 means that fields are never quoted."""

    header: bool
    delimiter: int
    missing: list[bytes]
    quote: int = _QUOTE
    is_fixed: bool = False  # the number of fields

    @property
    def widths(self) -> str:
        """What says how many fields a record has."""
        return "the format" if self.is_fixed else "the header" if self.header else "the first record"


@dataclass
class Skipped:
    """Rows that were left out, where that is asked for."""

    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, error: DataError) -> None:
        """One more."""
        self.count += 1
        if len(self.shown) < MAX_SHOWN:
            self.shown.append(f"{error.where}: {error.what}")


class Chunk:
    """Some consecutive records: their fields as typed columns.

    Blanks around unquoted fields are not part of them.  Valid until the next chunk is read.
    """

    def __init__(
        self, dialect: Dialect, piece: Piece, buffer: memoryview, fields: CsvFields, first_line: int
    ) -> None:
        self._dialect, self._piece, self._buffer = dialect, piece, buffer
        self._fields, self._first_line = fields, first_line
        self._spans = (buffer, fields.starts, fields.ends, fields.flags)
        self._missing, self._quote = dialect.missing, dialect.quote

    @property
    def n_rows(self) -> int:
        """Number of records."""
        return self._fields.n_rows

    @property
    def n_columns(self) -> int:
        """Fields of each record."""
        return self._fields.n_columns

    def classify(self, column: int) -> tuple[int, int]:
        """(evidence, row of the first text or −1); see :func:`squall._kernels.csv_classify`."""
        return csv_classify(*self._spans, column, self.n_columns, self._missing, True, self._quote)

    def int64(self, column: int) -> tuple[Int64, npt.NDArray[np.bool_], int]:
        """(values, missing, first row that is no integer or −1)."""
        return csv_parse_int64(*self._spans, column, self.n_columns, self._missing, True, self._quote)

    def float64(self, column: int) -> tuple[Float64, int]:
        """(values, NaN where missing; first row that is no number or −1)."""
        return csv_parse_float64(
            *self._spans, column, self.n_columns, self._missing, True, self._dialect.quote
        )

    def codes(self, column: int, dictionary: StringDictionary) -> Int32:
        """Codes into ``dictionary``, which grows; −1 where missing.

        Raises
        ------
        DataError
            If a field is not UTF-8 text.
        """
        try:
            return dictionary.encode(
                *self._spans, column, self.n_columns, self._missing, True, self._dialect.quote
            )
        except ValueError as error:
            raise self._no_utf8([column]) from error

    def columns(self, columns: list[ColumnReading], first_row: int) -> list[tuple[int, int]]:
        """Read several columns at once; see :func:`squall._kernels.csv_read_columns`.

        Raises
        ------
        DataError
            If a field of a text column is not UTF-8 text.
        """
        try:
            return csv_read_columns(
                *self._spans, self.n_columns, self._missing, True, self._quote, columns, first_row
            )
        except ValueError as error:
            raise self._no_utf8([column for column, _, how in columns if how is not None]) from error

    def _no_utf8(self, columns: list[int]) -> DataError:
        places = ((row, column) for column in columns for row in range(self.n_rows))
        row, column = next((at for at in places if not _is_utf8(self._bytes(*at))), (0, columns[0]))
        return DataError(
            f"the text {self._bytes(row, column)[:80]!r} is not UTF-8",
            where=self.where(row, column),
            fix=_UTF8,
        )

    def is_missing(self, text: str) -> bool:
        """Whether a text means that there is no value."""
        return text.strip(" \t").encode() in self._missing

    def text(self, row: int, column: int) -> str:
        """One field; for messages and headers."""
        return self._bytes(row, column).decode(errors="replace")

    def where(self, row: int, column: int) -> str:
        """``file:line:field``, the last two counted from 1."""
        line = self._first_line + int(self._fields.lines[row])
        return f"{place(self._piece, line)}:{column + 1}"

    def names(self) -> list[str]:
        """The fields of the first record, which is the header."""
        for column in range(self.n_columns):
            if not _is_utf8(self._bytes(0, column)):
                raise DataError(
                    f"the column name {self._bytes(0, column)[:80]!r} is not UTF-8",
                    where=self.where(0, column),
                    fix=_UTF8,
                )
        return [self.text(0, column).strip() for column in range(self.n_columns)]

    def without_first(self) -> Chunk:
        """The records after the first."""
        f, n = self._fields, self._fields.n_columns
        rest = f._replace(
            starts=f.starts[n:], ends=f.ends[n:], flags=f.flags[n:], lines=f.lines[1:], n_rows=f.n_rows - 1
        )
        return Chunk(self._dialect, self._piece, self._buffer, rest, self._first_line)

    def _bytes(self, row: int, column: int) -> bytes:
        return csv_text(self._buffer, self._fields, row, column, self._dialect.quote)


def place(piece: Piece, line: int) -> str:
    """``file:line`` of a line of a piece, which is counted from 0."""
    before = lines_before(piece.source, piece.start) if piece.start else 0
    return f"{piece.source.name}:{before + line + 1}"


def read_names(source: Input, dialect: Dialect) -> list[str]:
    """The column names of a file: of its header, or else its columns' numbers.

    Raises
    ------
    DataError
        If it holds no record.
    """
    first = next(_chunks(Piece(source), dialect, 0, None), None)
    if first is None:
        raise DataError("the file holds no records", where=source.name)
    if not dialect.header:
        return [str(i) for i in range(first.n_columns)]
    return [name or f"unnamed_{i}" for i, name in enumerate(first.names())]


def read_records(
    piece: Piece,
    dialect: Dialect,
    n_columns: int,
    skipped: Skipped | None = None,
    seen: Seen = lambda _: None,
) -> Iterator[Chunk]:
    """All records of a piece but the header, in chunks of at least one.

    Parameters
    ----------
    piece : Piece
        It begins and ends between two records.
    dialect : Dialect
    n_columns : int
        That each record must have.
    skipped : Skipped, optional
        Takes up records that cannot be read; else they are errors.
    seen : callable
        Is told how many bytes were read.

    Raises
    ------
    DataError
        If a record has more or fewer fields, quotes do not match, a record is endless, or the
        file cannot be read.
    """
    for i, chunk in enumerate(_chunks(piece, dialect, n_columns, skipped, seen)):
        rest = chunk.without_first() if i == 0 and piece.start == 0 and dialect.header else chunk
        if rest.n_rows:
            yield rest


def _chunks(
    piece: Piece, dialect: Dialect, n_columns: int, skipped: Skipped | None, seen: Seen = lambda _: None
) -> Iterator[Chunk]:
    """All records, the header too, in chunks of at least one."""
    left = float("inf") if piece.stop is None else piece.stop - piece.start
    buffer, held, line, is_first = bytearray(CHUNK_BYTES), 0, 0, piece.start == 0
    with Text(piece.source, piece.start, seen) as text:
        while True:
            view = memoryview(buffer)
            wanted = min(len(buffer) - held, left)
            got = text.fill(view[held : held + int(wanted)])
            left -= got
            n = held + got
            is_last = got < wanted or left == 0
            begin = len(BOM) if is_first and buffer.startswith(BOM) else 0
            data = view[begin:n]
            fields = csv_scan(
                data, dialect.delimiter, dialect.quote, n_columns, is_last, skip=skipped is not None
            )
            if skipped is not None:
                skipped.count += fields.n_skipped - len(fields.skipped)
                for error, start in fields.skipped:
                    skipped.add(_scan_error(piece, dialect, data, fields, line, error, start))
            if fields.n_rows:
                yield Chunk(dialect, piece, data, fields, line)
            if fields.error is not None:
                raise _scan_error(piece, dialect, data, fields, line, fields.error, fields.consumed)
            if is_last:
                return
            n_columns, line, end = fields.n_columns, line + fields.n_lines, begin + fields.consumed
            is_first = is_first and end == 0
            held = n - end
            if end:
                view[:held] = view[end:n]
                continue
            if n > MAX_RECORD:
                raise DataError(
                    f"the record is longer than {MAX_RECORD:,} bytes",
                    where=place(piece, line),
                    fix="is this a text file with one record a line?",
                )
            buffer = bytearray(2 * len(buffer))
            buffer[:held] = view[:n]


def _scan_error(
    piece: Piece,
    dialect: Dialect,
    buffer: memoryview,
    fields: CsvFields,
    first_line: int,
    error: CsvError,
    start: int,
) -> DataError:
    kind, _, line, found = error
    where = place(piece, first_line + line)
    record = bytes(buffer[start : start + 400]).splitlines()[0][:80].decode(errors="replace")
    if kind == "fields":
        first = dialect.widths
        return DataError(
            f"{found} fields where {first} has {fields.n_columns}, in the record that starts {record!r}",
            where=f"{where}:{min(found, fields.n_columns) + 1}",
            fix="quote fields that hold the delimiter, complete the record, or check `delimiter`; "
            'errors="skip" leaves such rows out',
        )
    if kind == "long":
        return DataError(
            f"the field is longer than 16 MB, in the record that starts {record!r}",
            where=f"{where}:{found + 1}",
            fix="a quote may never have been closed",
        )
    what = "a quote is opened and never closed" if kind == "unterminated" else "text follows a closing quote"
    return DataError(
        f"{what}, in the record that starts {record!r}",
        where=where,
        fix='write a quote inside a quoted field twice (""), and close every quoted field; or, if quotes '
        "mean nothing in this file, set quoting=False",
    )


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
