"""CSV text in chunks of whole records, and messages that say where in the file something is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from squall._kernels import (
    CsvFields,
    StringDictionary,
    csv_classify,
    csv_parse_float64,
    csv_parse_int64,
    csv_scan,
    csv_text,
)
from squall.data.files import read_chunks
from squall.errors import DataError
from squall.records import Float64, Int32, Int64

_QUOTE = ord('"')
_MAX_RECORD = 256_000_000
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How a file is to be read."""

    path: Path
    header: bool
    delimiter: int
    missing: list[bytes]
    chunk_bytes: int


class Chunk:
    """Some consecutive records: their fields as typed columns.

    Blanks around unquoted fields are not part of them.
    """

    def __init__(self, form: CsvFormat, buffer: bytes, fields: CsvFields, first_line: int) -> None:
        self._form, self._buffer, self._fields, self._first_line = form, buffer, fields, first_line
        self._spans = (buffer, fields.starts, fields.ends, fields.flags)

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
        return csv_classify(*self._spans, column, self.n_columns, self._form.missing, True, _QUOTE)

    def int64(self, column: int) -> tuple[Int64, npt.NDArray[np.bool_], int]:
        """(values, missing, first row that is no integer or −1)."""
        return csv_parse_int64(*self._spans, column, self.n_columns, self._form.missing, True, _QUOTE)

    def float64(self, column: int) -> tuple[Float64, int]:
        """(values, NaN where missing; first row that is no number or −1)."""
        return csv_parse_float64(*self._spans, column, self.n_columns, self._form.missing, True, _QUOTE)

    def codes(self, column: int, dictionary: StringDictionary) -> Int32:
        """Codes into ``dictionary``, which grows; −1 where missing.

        Raises
        ------
        DataError
            If a field is not UTF-8 text.
        """
        try:
            return dictionary.encode(*self._spans, column, self.n_columns, self._form.missing, True, _QUOTE)
        except ValueError as error:
            row = next((r for r in range(self.n_rows) if not _is_utf8(self._bytes(r, column))), 0)
            raise DataError(
                f"the text {self._bytes(row, column)[:80]!r} is not UTF-8",
                where=self.where(row, column),
                fix="convert the file, for example with: iconv -f latin1 -t utf-8",
            ) from error

    def text_bytes(self, column: int) -> int:
        """Bytes of all fields of a column."""
        spans = slice(column, None, self.n_columns)
        return int(
            self._fields.ends[spans].sum(dtype=np.int64) - self._fields.starts[spans].sum(dtype=np.int64)
        )

    def text(self, row: int, column: int) -> str:
        """One field; for messages and headers."""
        return self._bytes(row, column).decode(errors="replace")

    def where(self, row: int, column: int) -> str:
        """``file:line:field``, the last two counted from 1."""
        return f"{self._form.path}{self.place(row, column)}"

    def place(self, row: int, column: int) -> str:
        """The same without the file: ``:line:field``."""
        return f":{self._first_line + int(self._fields.lines[row])}:{column + 1}"

    def without_header(self) -> tuple[list[str], Chunk]:
        """(names in the first record, the records after it)."""
        f, n = self._fields, self._fields.n_columns
        for column in range(n):
            if not _is_utf8(self._bytes(0, column)):
                raise DataError(
                    f"the column name {self._bytes(0, column)[:80]!r} is not UTF-8",
                    where=self.where(0, column),
                    fix="convert the file, for example with: iconv -f latin1 -t utf-8",
                )
        names = [self.text(0, column).strip() for column in range(n)]
        rest = f._replace(
            starts=f.starts[n:], ends=f.ends[n:], flags=f.flags[n:], lines=f.lines[1:], n_rows=f.n_rows - 1
        )
        return names, Chunk(self._form, self._buffer, rest, self._first_line)

    def _bytes(self, row: int, column: int) -> bytes:
        return csv_text(self._buffer, self._fields, row, column, _QUOTE)


def read_records(form: CsvFormat, start: Callable[[list[str]], None]) -> Iterator[Chunk]:
    """All records after the header, in chunks of at least one; ``start(names)`` is called first.

    Raises
    ------
    DataError
        If a record has more or fewer fields than the first, quotes do not match, a record
        is endless, or the file cannot be read.
    """
    for i, chunk in enumerate(_chunks(form)):
        if i == 0:
            names, chunk = chunk.without_header() if form.header else (_numbers(chunk.n_columns), chunk)
            start(names)
        if chunk.n_rows:
            yield chunk


def _numbers(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def _chunks(form: CsvFormat) -> Iterator[Chunk]:
    """All records of the file, the header too, in chunks of at least one."""
    rest, line, n_columns = b"", 1, 0
    for piece, is_last in _with_end(read_chunks(form.path, form.chunk_bytes)):
        if n_columns == 0 and not rest:
            piece = piece.removeprefix(_BOM)
        buffer = rest + piece
        fields = csv_scan(buffer, form.delimiter, _QUOTE, n_columns, is_last)
        if fields.error is not None:
            raise _scan_error(form, buffer, fields, line)
        if fields.n_rows:
            yield Chunk(form, buffer, fields, line)
        n_columns, line = fields.n_columns, line + fields.n_lines
        rest = buffer[fields.consumed :]
        if len(rest) > _MAX_RECORD:
            raise DataError(
                f"the record is longer than {_MAX_RECORD:,} bytes",
                where=f"{form.path}:{line}",
                fix="is this a text file with one record a line?",
            )


def _with_end(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    for chunk in chunks:
        yield chunk, False
    yield b"", True


def _scan_error(form: CsvFormat, buffer: bytes, fields: CsvFields, first_line: int) -> DataError:
    assert fields.error is not None
    kind, _, line, found = fields.error
    where = f"{form.path}:{first_line + line}"
    record = buffer[fields.consumed : fields.consumed + 400].splitlines()[0][:80].decode(errors="replace")
    if kind == "fields":
        first = "the header" if form.header else "the first record"
        return DataError(
            f"{found} fields where {first} has {fields.n_columns}, in the record that starts {record!r}",
            where=f"{where}:{min(found, fields.n_columns) + 1}",
            fix="quote fields that hold the delimiter, complete the record, or check `delimiter`",
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
        fix='write a quote inside a quoted field twice (""), and close every quoted field',
    )


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
