"""Documents, one after the other: files, lines of files, or a column of a CSV file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from squall.data.csv_chunks import read_records
from squall.data.csv_columns import Chunk
from squall.data.dialects import Dialect
from squall.data.encodings import UndecodableError
from squall.data.hints import column_hint
from squall.data.inputs import Input, Seen
from squall.data.skipped import Skipped
from squall.data.streams import Piece, line_chunks, read_chunks
from squall.errors import DataError

_BOM = "\ufeff"
_FIX = 'give its encoding=, or leave such documents out with errors="skip"'


class Document(NamedTuple):
    """A text and, if there are labels, its label."""

    text: str
    label: str | None


class Documents(Protocol):
    """Where documents come from."""

    def read(self, skipped: Skipped, seen: Seen) -> Iterator[Document]:
        """All of them, in order; ``seen`` is told how many bytes were read.

        Raises
        ------
        DataError
            If one cannot be read and is not to be skipped.
        """


class FileDocuments:
    """Each file is one document; its folder's name is its label, if labels are wanted."""

    def __init__(self, inputs: list[Input], encoding: str, labelled: bool) -> None:
        self._inputs, self._encoding, self._labelled = inputs, encoding, labelled

    def read(self, skipped: Skipped, seen: Seen) -> Iterator[Document]:
        """All of them."""
        for source in self._inputs:
            try:
                raw = b"".join(read_chunks(source, 1 << 16, seen, is_text=False)) if source.size else b""
            except UndecodableError as error:
                skipped.add(error)
                continue
            text = _decoded(raw, self._encoding, source.name, skipped)
            if text is not None:
                yield Document(text, folder_of(source) if self._labelled else None)


class LineDocuments:
    """Each line that is not blank is one document."""

    def __init__(self, inputs: list[Input], encoding: str) -> None:
        self._inputs, self._encoding = inputs, encoding

    def read(self, skipped: Skipped, seen: Seen) -> Iterator[Document]:
        """All of them."""
        for source in self._inputs:
            for number, line in enumerate(_lines(source, seen), 1):
                text = _decoded(line, self._encoding, f"{source.name}:{number}", skipped)
                if text is not None and text.strip():
                    yield Document(text, None)


class CsvDocuments:
    """Each record's field in one column is a document, that in another its label."""

    def __init__(
        self, inputs: list[Input], column: str, label: str | None, separator: str, encoding: str
    ) -> None:
        self._inputs, self._column, self._label = inputs, column, label
        self._encoding = encoding
        # The header is looked at here: it may be of any encoding.
        self._dialect = Dialect(False, ord(separator), missing=[])

    def read(self, skipped: Skipped, seen: Seen) -> Iterator[Document]:
        """All of them."""
        for source in self._inputs:
            places: tuple[int, int | None] | None = None
            for records in read_records(Piece(source), self._dialect, 0, skipped, seen):
                if places is None:
                    places = self._places(source, records)
                    records = records.without_first()
                yield from self._documents(records, *places, skipped)

    def _places(self, source: Input, header: Chunk) -> tuple[int, int | None]:
        names = [header.text(0, column).strip() for column in range(header.n_columns)]
        for setting, name in (("column", self._column), ("label", self._label)):
            if name is not None and name not in names:
                hint = column_hint(name, names)
                raise DataError(f"{setting}: there is no column {name!r}", where=source.name, fix=hint)
        return names.index(self._column), None if self._label is None else names.index(self._label)

    def _documents(
        self, records: Chunk, column: int, label: int | None, skipped: Skipped
    ) -> Iterator[Document]:
        for row in range(records.n_rows):
            text = _decoded(records.raw(row, column), self._encoding, records.where(row, column), skipped)
            if text is None:
                continue
            given = None if label is None else records.text(row, label).strip()
            if given == "":
                assert label is not None
                what = f"the label {self._label!r} is missing"
                skipped.add(DataError(what, where=records.where(row, label), fix="remove the record"))
                continue
            yield Document(text, given)


def folder_of(source: Input) -> str:
    """The name of the folder that a file is in."""
    return source.name.rpartition("/")[0].rpartition("/")[2]


def _lines(source: Input, seen: Seen) -> Iterator[bytes]:
    for chunk in line_chunks(Piece(source), seen):
        yield from bytes(chunk).split(b"\n")[:-1]


def _decoded(raw: bytes, encoding: str, where: str, skipped: Skipped) -> str | None:
    try:
        return raw.decode(encoding).removeprefix(_BOM)
    except UnicodeDecodeError as error:
        bad = raw[error.start : error.start + 10]
        what = f"{bad!r} at byte {error.start:,} of the document is not {encoding} text"
        skipped.add(DataError(what, where=where, fix=_FIX))
        return None
