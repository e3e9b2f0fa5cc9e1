"""Some consecutive records of delimited text: their fields as typed columns, and where they stand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squall._kernels import (
    ColumnReading,
    CsvFields,
    StringDictionary,
    csv_classify,
    csv_parse_float64,
    csv_parse_int64,
    csv_read_columns,
    csv_text,
)
from squall.data.dialects import Dialect
from squall.data.streams import Piece, lines_before
from squall.errors import DataError
from squall.records import Float64, Int32, Int64

UTF8_FIX = (
    'give the encoding that the file was written in, such as read_csv(…, encoding="cp1252"), or convert '
    "it, for example with: iconv -f cp1252 -t utf-8"
)

Mask = npt.NDArray[np.bool_]


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
        self._missing = dialect.missing

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
        return csv_classify(*self._spans, column, self.n_columns, self._missing, True, self._dialect.quote)

    def int64(self, column: int) -> tuple[Int64, Mask, int]:
        """(values, missing, first row that is no integer or −1)."""
        return csv_parse_int64(*self._spans, column, self.n_columns, self._missing, True, self._dialect.quote)

    def float64(self, column: int) -> tuple[Float64, int]:
        """(values, NaN where missing; first row that is no number or −1)."""
        return csv_parse_float64(
            *self._spans, column, self.n_columns, self._missing, True, self._dialect.quote
        )

    def whole(self, column: int) -> tuple[Int64, Mask]:
        """(whole numbers, where they are such); ``5.0`` is one, too."""
        values, _, first_bad = self.int64(column)
        good = np.ones(self.n_rows, dtype=bool)
        for row in range(first_bad, self.n_rows) if first_bad >= 0 else ():
            number = _whole(self.text(row, column))
            good[row] = number is not None
            values[row] = number or 0
        return values, good

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
        dialect = self._dialect
        try:
            return csv_read_columns(
                *self._spans, self.n_columns, dialect.missing, True, dialect.quote, columns, first_row
            )
        except ValueError as error:
            raise self._no_utf8([column for column, _, how in columns if how is not None]) from error

    def _no_utf8(self, columns: list[int]) -> DataError:
        places = ((row, column) for column in columns for row in range(self.n_rows))
        row, column = next((at for at in places if not is_utf8(self.raw(*at))), (0, columns[0]))
        return DataError(
            f"the text {self.raw(row, column)[:80]!r} is not UTF-8",
            where=self.where(row, column),
            fix=UTF8_FIX,
        )

    def is_utf8(self) -> Mask:
        """Whether a record is UTF-8 text throughout."""
        n, spans = self.n_columns, self._fields
        if is_utf8(bytes(self._buffer[spans.starts[0] : spans.ends[-1]])):
            return np.ones(self.n_rows, dtype=bool)
        ranges = zip(spans.starts[::n].tolist(), spans.ends[n - 1 :: n].tolist(), strict=True)
        return np.array([is_utf8(bytes(self._buffer[start:end])) for start, end in ranges])

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
            raw_text = self.raw(row, column)
            good[row] = is_utf8(raw_text) and bool(raw_text.decode().strip())
        return good

    def is_missing(self, text: str) -> bool:
        """Whether a text means that there is no value."""
        return text.strip(" \t").encode() in self._missing

    def text(self, row: int, column: int) -> str:
        """One field; for messages and headers."""
        return self.raw(row, column).decode(errors="replace")

    def lines(self) -> Int64:
        """Lines of a whole input on which the records start, from 1."""
        return self._fields.lines + self._first_line + 1

    def where(self, row: int, column: int) -> str:
        """``file:line:field``, the last two counted from 1."""
        line = self._first_line + int(self._fields.lines[row])
        return f"{place(self._piece, line)}:{column + 1}"

    def names(self) -> list[str]:
        """The fields of the first record, which is the header."""
        for column in range(self.n_columns):
            if not is_utf8(self.raw(0, column)):
                raise DataError(
                    f"the column name {self.raw(0, column)[:80]!r} is not UTF-8",
                    where=self.where(0, column),
                    fix=UTF8_FIX,
                )
        return [self.text(0, column).strip() for column in range(self.n_columns)]

    def without_first(self) -> Chunk:
        """The records after the first."""
        return self.keep(np.arange(self.n_rows) > 0)

    def keep(self, rows: Mask) -> Chunk:
        """Those records only."""
        if rows.all():
            return self
        f, n = self._fields, self._fields.n_columns
        kept = f._replace(
            starts=f.starts.reshape(-1, n)[rows].ravel(),
            ends=f.ends.reshape(-1, n)[rows].ravel(),
            flags=f.flags.reshape(-1, n)[rows].ravel(),
            lines=f.lines[rows],
            n_rows=int(np.count_nonzero(rows)),
        )
        return Chunk(self._dialect, self._piece, self._buffer, kept, self._first_line)

    def raw(self, row: int, column: int) -> bytes:
        """The bytes of one field, without quotes."""
        return csv_text(self._buffer, self._fields, row, column, self._dialect.quote)


def place(piece: Piece, line: int) -> str:
    """``file:line`` of a line of a piece, which is counted from 0."""
    before = lines_before(piece.source, piece.start) if piece.start else 0
    return f"{piece.source.name}:{before + line + 1}"


def is_utf8(raw: bytes) -> bool:
    """Whether bytes are UTF-8 text."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


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
