"""Text in other encodings than UTF-8: made UTF-8 as it is read, as one stream in bounded memory."""

from __future__ import annotations

import codecs
import io
from dataclasses import dataclass
from typing import Any

from squall.data.inputs import Input, Seen
from squall.errors import DataError

MARK_BYTES = 256
"""First bytes of a text that `marked_encoding` and `refuse_no_text` want to see."""

_MARKS = {
    b"\xff\xfe\0\0": "utf-32",  # before that of UTF-16, which it begins with
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_MANY_ZEROS = 0.06  # delimiters alone in a text of other scripts are more
_LEAST_BYTES = 32
_ASCII_PAIRS = bytes(c for a in range(128) for b in range(128) for c in (a, b))  # "~{" means much to some
_CHUNK_BYTES = 1 << 18
_UTF8 = ("utf-8", "utf-8-sig")


class UndecodableError(DataError):
    """A file is not in the encoding that it should be in."""


def marked_encoding(start: bytes) -> str | None:
    """UTF-16 or UTF-32, where a text begins with the byte-order mark of one; else None."""
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)


def refuse_no_text(start: bytes, where: str) -> None:
    """Raise `DataError` if what has this start is no UTF-8 text, as bytes of 0 tell."""
    shares = [start[i::4].count(0) / max(1, len(start[i::4])) for i in range(4)]
    found = _wide_encoding(*shares)
    if found:
        raise DataError(
            f"the text looks like {found}, without a byte-order mark",
            where=where,
            fix=f'give encoding="{found}" (read_csv, read_text), or convert it: iconv -f {found} -t utf-8',
        )
    if len(start) >= _LEAST_BYTES and sum(shares) / 4 > _MANY_ZEROS:
        raise DataError(
            "the file is no text: it has many bytes of 0",
            where=where,
            fix="check that it is the right file; text in another encoding than UTF-8 is read with encoding=",
        )


def _wide_encoding(a: float, b: float, c: float, d: float) -> str | None:
    """That of a text, by the shares of zeros among the first, second, … of each four bytes."""
    if d == 1 and c > 0.5 > a:  # no character takes more than 21 bits
        return "utf-32-le"
    if a == 1 and b > 0.5 > d:
        return "utf-32-be"
    if min(b, d) > max(_MANY_ZEROS, 2 * a, 2 * c):
        return "utf-16-le"
    return "utf-16-be" if min(a, c) > max(_MANY_ZEROS, 2 * b, 2 * d) else None


def encoding_problem(encoding: Any) -> str | None:
    """What is wrong with a setting ``encoding``, if anything."""
    try:
        known = codecs.lookup(encoding)
        "".encode(encoding)  # some codecs are not of text
        known.incrementaldecoder()
    except (LookupError, TypeError, ValueError):
        return f"encoding={encoding!r} is not a text encoding that Python knows"
    return None


def keeps_ascii(encoding: str) -> bool:
    """Whether ASCII characters are the bytes that they are in UTF-8, so that undecoded lines can be cut."""
    try:
        return _ASCII_PAIRS.decode(encoding) == _ASCII_PAIRS.decode("ascii")
    except UnicodeDecodeError:
        return False


def in_utf8(inputs: list[Input], encoding: str) -> list[Input]:
    """The inputs as UTF-8: as they are, if that is what ``encoding`` says."""
    if codecs.lookup(encoding).name in _UTF8:
        return inputs
    return [EncodedInput(source, codecs.lookup(encoding).name) for source in inputs]


@dataclass(frozen=True, slots=True)
class EncodedInput:
    """An input whose text, decompressed, is in some encoding; `squall.data.streams.Text` makes it UTF-8."""

    source: Input
    encoding: str

    @property
    def name(self) -> str:
        """Path or URL."""
        return self.source.name

    @property
    def size(self) -> int:
        """Bytes, as it is stored."""
        return self.source.size

    @property
    def has_ranges(self) -> bool:
        """No: characters before a place say what there is."""
        return False

    def identity(self) -> list[Any]:
        """Its content and its encoding."""
        return [self.encoding, *self.source.identity()]

    def check_unchanged(self) -> None:
        """Raise `DataError` if it is not what it was."""
        self.source.check_unchanged()

    def open(self, start: int, seen: Seen) -> io.RawIOBase:
        """Its bytes, as they are stored."""
        return self.source.open(start, seen)

    def seekable(self, seen: Seen) -> io.RawIOBase:
        """Its bytes as a file that can seek."""
        return self.source.seekable(seen)


class Utf8Stream:
    """A file of bytes in some encoding, read as UTF-8.

    Parameters
    ----------
    file : binary file
        Is read to its end.
    start : bytes
        What was read of it already.
    encoding : str
    name : str
        Of the file, for messages.

    Raises
    ------
    UndecodableError
        By `readinto`: if it is no text in this encoding; names line and byte.
    """

    def __init__(self, file: Any, start: bytes, encoding: str, name: str) -> None:
        self._file, self._start, self._encoding, self._name = file, start, encoding, name
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready = memoryview(b"")
        self._bytes = self._lines = 0  # that were decoded
        self._ended = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def readinto(self, buffer: memoryview) -> int:
        """Read at most as much as ``buffer`` holds; the bytes read, 0 at the end."""
        while not self._ready and not self._ended:
            raw = self._start + self._file.read(_CHUNK_BYTES)
            self._start, self._ended = b"", not raw
            self._ready = memoryview(self._decoded(raw))
        n = min(len(buffer), len(self._ready))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _decoded(self, raw: bytes) -> bytes:
        held = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(raw, final=not raw)
            decoded = text.encode()
        except UnicodeError as error:
            raise self._wrong(error, held) from error
        self._bytes += len(raw)
        self._lines += text.count("\n")
        return decoded

    def _wrong(self, error: UnicodeError, held: int) -> DataError:
        what, line = "it", self._lines + 1
        if isinstance(error, UnicodeDecodeError):
            bad = error.object[error.start : error.start + 10]
            what = f"{bad!r} at byte {self._bytes - held + error.start:,}"
            line += error.object[: error.start].decode(self._encoding, "replace").count("\n")
        return UndecodableError(
            f"{what} is not {self._encoding} text",
            where=f"{self._name}:{line}",
            fix='give the encoding that the file was written in, such as encoding="cp1252" or "utf-16"',
        )
