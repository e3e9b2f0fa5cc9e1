"""Documents, one after the other: files, lines of files, or a column of a CSV file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from squall.data.delimited import Delimited, Records, Skipped, read_records, start_of
from squall.data.files import read_chunks
from squall.data.hints import column_hint
from squall.errors import DataError

_CHUNK_BYTES = 1 << 20
_BOM = "\ufeff"
_FIX = 'give its encoding=, or leave such documents out with errors="skip"'


class Document(NamedTuple):
    """A text and, if there are labels, its label."""

    text: str
    label: str | None


class Documents(Protocol):
    """Where documents come from."""

    def read(self, skipped: Skipped) -> Iterator[Document]:
        """All of them, in order.

        Raises
        ------
        DataError
            If one cannot be read and is not to be skipped.
        """


class FileDocuments:
    """Each file is one document; its folder's name is its label, if labels are wanted."""

    def __init__(self, paths: list[Path], encoding: str, labelled: bool) -> None:
        self._paths, self._encoding, self._labelled = paths, encoding, labelled

    def read(self, skipped: Skipped) -> Iterator[Document]:
        """All of them."""
        for path in self._paths:
            raw = b"" if path.stat().st_size == 0 else b"".join(read_chunks(path, _CHUNK_BYTES))
            text = _decoded(raw, self._encoding, str(path), skipped)
            if text is not None:
                yield Document(text, path.parent.name if self._labelled else None)


class LineDocuments:
    """Each line that is not blank is one document."""

    def __init__(self, paths: list[Path], encoding: str) -> None:
        self._paths, self._encoding = paths, encoding

    def read(self, skipped: Skipped) -> Iterator[Document]:
        """All of them."""
        for path in self._paths:
            for number, line in enumerate(_lines(path), 1):
                text = _decoded(line, self._encoding, f"{path}:{number}", skipped)
                if text is not None and text.strip():
                    yield Document(text, None)


class CsvDocuments:
    """Each record's field in one column is a document, that in another its label."""

    def __init__(
        self, paths: list[Path], column: str, label: str | None, separator: str, encoding: str
    ) -> None:
        self._paths, self._column, self._label = paths, column, label
        self._separator, self._encoding = separator.encode(), encoding

    def read(self, skipped: Skipped) -> Iterator[Document]:
        """All of them."""
        for path in self._paths:
            _, mark = start_of(path)
            form = Delimited(path, self._separator, ord('"'), skip_bytes=mark)
            places: tuple[int, int | None] | None = None
            for records in read_records(form, skipped):
                if places is None:
                    places = self._places(path, records)
                    records = records.keep(np.arange(records.n_rows) > 0)
                yield from self._documents(records, *places, skipped)

    def _places(self, path: Path, header: Records) -> tuple[int, int | None]:
        names = [header.text(0, column) for column in range(header.n_columns)]
        for setting, name in (("column", self._column), ("label", self._label)):
            if name is not None and name not in names:
                hint = column_hint(name, names)
                raise DataError(f"{setting}: there is no column {name!r}", where=str(path), fix=hint)
        return names.index(self._column), None if self._label is None else names.index(self._label)

    def _documents(
        self, records: Records, column: int, label: int | None, skipped: Skipped
    ) -> Iterator[Document]:
        for row in range(records.n_rows):
            text = _decoded(records.raw(row, column), self._encoding, records.where(row, column), skipped)
            if text is None:
                continue
            given = None if label is None else records.text(row, label)
            if given == "":
                assert label is not None
                what = f"the label {self._label!r} is missing"
                skipped.add(DataError(what, where=records.where(row, label), fix="remove the record"))
                continue
            yield Document(text, given)


def _lines(path: Path) -> Iterator[bytes]:
    rest = b""
    for piece in read_chunks(path, _CHUNK_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    yield rest


def _decoded(raw: bytes, encoding: str, where: str, skipped: Skipped) -> str | None:
    try:
        return raw.decode(encoding).removeprefix(_BOM)
    except UnicodeDecodeError as error:
        bad = raw[error.start : error.start + 10]
        what = f"{bad!r} at byte {error.start:,} of the document is not {encoding} text"
        skipped.add(DataError(what, where=where, fix=_FIX))
        return None
