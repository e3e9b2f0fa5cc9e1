"""How delimited text is written, and that text with one byte between fields, whatever there was."""

from __future__ import annotations

import re
from dataclasses import dataclass

from squall.data.inputs import Seen, unseen
from squall.data.streams import Piece, Text

UNIT = 0x1F
"""Stands between fields once a delimiter of several characters was replaced."""

_QUOTE = ord('"')
_CHUNK_BYTES = 1 << 20
_BLANKS = re.compile(rb"[ \t]+")
_ODD_BLANKS = (b"\t", b"  ", b" \n", b" \r", b"\n ")
_AROUND_LINES = re.compile(rb" ?(\r?\n) ?")


@dataclass(frozen=True)
class Dialect:
    """How a file is written; ``quote`` 0 means that fields are never quoted."""

    header: bool
    delimiter: int
    missing: list[bytes]
    quote: int = _QUOTE
    is_fixed: bool = False  # the number of fields
    between: bytes = b""  # what stands for the delimiter, if that is several characters
    blanks: bool = False  # whether any number of blanks and tabs is one delimiter
    skip_lines: int = 0  # before the first record

    @property
    def widths(self) -> str:
        """What says how many fields a record has."""
        return "the format" if self.is_fixed else "the header" if self.header else "the first record"

    def open(self, piece: Piece, seen: Seen = unseen) -> Text | OneByteText:
        """The text of a piece, each delimiter one byte."""
        text = Text(piece.source, piece.start, seen)
        return OneByteText(text, self) if self.between or self.blanks or self.skip_lines else text


class OneByteText:
    """A text in which each delimiter is made one byte, without its first lines; see `Text`."""

    def __init__(self, text: Text, dialect: Dialect) -> None:
        self._text, self._dialect = text, dialect
        self._ready, self._tail, self._ended = memoryview(b""), b"", False
        self._to_skip = dialect.skip_lines

    def __enter__(self) -> OneByteText:
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()

    def fill(self, buffer: memoryview) -> int:
        """Read into all of ``buffer``, or to the end; the bytes read."""
        n = 0
        while n < len(buffer) and self._has_more():
            size = min(len(buffer) - n, len(self._ready))
            buffer[n : n + size] = self._ready[:size]
            self._ready = self._ready[size:]
            n += size
        return n

    def _has_more(self) -> bool:
        while not self._ready and not self._ended:
            chunk = bytearray(_CHUNK_BYTES)
            got = self._text.fill(memoryview(chunk))
            self._ended = got < len(chunk)
            lines = self._tail + chunk[:got]
            # Only whole lines, so that no delimiter is cut.
            cut = len(lines) if self._ended else lines.rfind(b"\n") + 1
            lines, self._tail = lines[:cut], lines[cut:]
            while self._to_skip and lines:
                lines = lines[lines.find(b"\n") + 1 or len(lines) :]
                self._to_skip -= 1
            self._ready = memoryview(self._one_byte(lines))
        return bool(self._ready)

    def _one_byte(self, lines: bytes) -> bytes:
        if self._dialect.between:
            return lines.replace(self._dialect.between, bytes([UNIT]))
        if b" " in (lines[:1], lines[-1:]) or any(odd in lines for odd in _ODD_BLANKS):
            return _AROUND_LINES.sub(rb"\1", _BLANKS.sub(b" ", lines)).strip(b" ")
        return lines
