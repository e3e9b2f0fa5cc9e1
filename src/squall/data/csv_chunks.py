"""Delimited text in chunks of whole records; what is malformed is an error, or told and left out."""

from __future__ import annotations

from collections.abc import Iterator

from squall._kernels import CsvError, CsvFields, csv_scan
from squall.data.csv_columns import Chunk, place
from squall.data.dialects import UNIT, Dialect
from squall.data.inputs import Input, Seen, unseen
from squall.data.skipped import Skipped
from squall.data.streams import BOM, MAX_RECORD, Piece
from squall.errors import DataError

CHUNK_BYTES = 1 << 19
"""Of text."""


def read_names(source: Input, dialect: Dialect) -> list[str]:
    """The column names of a file: of its header, or else its columns' numbers.

    Raises
    ------
    DataError
        If it holds no record.
    """
    first = next(_chunks(Piece(source), dialect, 0, Skipped(False)), None)
    if first is None:
        raise DataError("the file holds no records", where=source.name, fix="check how it was written")
    if not dialect.header:
        return [str(i) for i in range(first.n_columns)]
    return [name or f"unnamed_{i}" for i, name in enumerate(first.names())]


def read_records(
    piece: Piece,
    dialect: Dialect,
    n_columns: int,
    skipped: Skipped,
    seen: Seen = unseen,
) -> Iterator[Chunk]:
    """All records of a piece but the header, in chunks of at least one.

    Parameters
    ----------
    piece : Piece
        It begins and ends between two records.
    dialect : Dialect
    n_columns : int
        That each record must have; 0: as many as the first.
    skipped : Skipped
        Takes up records that cannot be read.
    seen : callable
        Is told how many bytes were read.

    Raises
    ------
    DataError
        If the file cannot be read, a record is endless, or one has more or fewer fields or quotes
        that do not match and is not to be skipped.
    """
    for i, chunk in enumerate(_chunks(piece, dialect, n_columns, skipped, seen)):
        rest = chunk.without_first() if i == 0 and piece.start == 0 and dialect.header else chunk
        if rest.n_rows:
            yield rest


def _chunks(
    piece: Piece, dialect: Dialect, n_columns: int, skipped: Skipped, seen: Seen = unseen
) -> Iterator[Chunk]:
    """All records, the header too, in chunks of at least one."""
    left = float("inf") if piece.stop is None else piece.stop - piece.start
    buffer, held, line, is_first = bytearray(CHUNK_BYTES), 0, dialect.skip_lines, piece.start == 0
    with dialect.open(piece, seen) as text:
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
                data, dialect.delimiter, dialect.quote, n_columns, is_last, skip=skipped.allowed
            )
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
    raw = bytes(buffer[start : start + 400]).splitlines()[0][:80]
    record = raw.replace(bytes([UNIT]), dialect.between or bytes([UNIT])).decode(errors="replace")
    if kind == "fields":
        first = dialect.widths
        return DataError(
            f"{found} fields where {first} has {fields.n_columns}, in the record that starts {record!r}",
            where=f"{where}:{min(found, fields.n_columns) + 1}",
            fix="quote fields that hold the delimiter, complete the record, or check what the delimiter is; "
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
        fix='write a quote inside a quoted field twice (""), and close every quoted field; for read_csv, if '
        'quotes mean nothing in this file, set quoting=False; errors="skip" leaves such rows out',
    )
