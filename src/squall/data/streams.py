"""Text of inputs, decompressed and made UTF-8 on the way; the compression is known by its first bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from squall.data.compression import MAGIC_BYTES, is_damage, opener_of
from squall.data.encodings import (
    MARK_BYTES,
    EncodedInput,
    Utf8Stream,
    marked_encoding,
    refuse_no_text,
)
from squall.data.inputs import Input, Seen, unseen
from squall.errors import DataError

BOM = b"\xef\xbb\xbf"
MAX_RECORD = 256_000_000


def is_splittable(source: Input) -> bool:
    """Whether reading may begin at any place: where it is, as it is neither compressed nor in UTF-16.

    Raises
    ------
    DataError
        If it is empty or of a kind that is not read.
    """
    if not source.has_ranges:
        return False
    start = _start_of(source)
    return opener_of(start, source.name) is None and marked_encoding(start) is None


def _start_of(source: Input) -> bytes:
    with source.open(0, unseen) as file:
        return _read_start(file, MAGIC_BYTES)


def _read_start(file: Any, size: int) -> bytes:
    start = b""
    while len(start) < size and (more := file.read(size - len(start))):
        start += more
    return start


class Text:
    """The decompressed bytes of an input, from a place on; UTF-8 where they are text.

    Text that begins with the byte-order mark of UTF-16 or UTF-32, and that of an `EncodedInput`, becomes
    UTF-8; such inputs have one piece only.

    Parameters
    ----------
    source : Input
    start : int
        First byte; other than 0 only where `is_splittable`.
    seen : callable
        Is told how many of the input's own bytes were read.
    is_text : bool
        Whether it must look like text.

    Raises
    ------
    DataError
        Also by `fill`: if it cannot be read, is empty, of a kind that is not read, or compressed
        and damaged or cut short; if it is not in its encoding, or no text.
    """

    def __init__(self, source: Input, start: int = 0, seen: Seen = unseen, *, is_text: bool = True) -> None:
        self._name = source.name
        self._is_new, self._held, self._is_text = start == 0, b"", is_text
        self._encoding = source.encoding if isinstance(source, EncodedInput) else None
        opener = opener_of(_start_of(source), source.name) if start == 0 else None
        self._raw = source.open(start, seen)
        try:
            self._file: Any = self._raw if opener is None else opener(self._raw)
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> Text:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the input."""
        self._file.close()
        self._raw.close()

    def fill(self, buffer: memoryview) -> int:
        """Read into all of ``buffer``, or to the end; the bytes read."""
        n = 0
        while n < len(buffer):
            try:
                more = self._read(buffer[n:])
            except Exception as error:
                if isinstance(error, DataError) or not is_damage(error):
                    raise
                raise DataError(
                    f"the file is damaged or cut short: {error}",
                    where=self._name,
                    fix="download or compress it again; nothing of it was kept",
                ) from error
            if not more:
                break
            n += more
        return n

    def _read(self, buffer: memoryview) -> int:
        if self._is_new:
            self._is_new = False
            self._held = _read_start(self._file, MARK_BYTES)
            encoding = self._encoding or marked_encoding(self._held)
            if encoding is not None:
                self._file = Utf8Stream(self._file, self._held, encoding, self._name)
                self._held = b""
            elif self._is_text:
                refuse_no_text(self._held, self._name)
        if not self._held:
            return self._file.readinto(buffer) or 0
        n = min(len(self._held), len(buffer))
        buffer[:n], self._held = self._held[:n], self._held[n:]
        return n


def read_chunks(
    source: Input, size: int = 1 << 20, seen: Seen = unseen, *, is_text: bool = True
) -> Iterator[bytes]:
    """The decompressed bytes in chunks of ``size``, the last one shorter; errors as for `Text`."""
    with Text(source, 0, seen, is_text=is_text) as text:
        buffer = bytearray(size)
        while n := text.fill(memoryview(buffer)):
            yield bytes(memoryview(buffer)[:n])


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of bytes of one input; the records that begin in it are meant.

    ``stop`` None means to the end; a compressed input has one piece only.
    """

    source: Input
    start: int = 0
    stop: int | None = None

    @property
    def n_bytes(self) -> int:
        """Of the input, as it is."""
        return (self.source.size if self.stop is None else self.stop) - self.start


def line_chunks(piece: Piece, seen: Seen = unseen, size: int = 1 << 20) -> Iterator[memoryview]:
    """The lines that begin in a piece, in chunks of whole lines; the last line, too, ends with LF.

    A byte-order mark at the beginning of the input is left out.  A chunk is valid until the next
    one is asked for.

    Raises
    ------
    DataError
        As for `Text`; and if a line is longer than 256 MB.
    """
    # A line begins after a line end: from the byte before the piece on, after the first of those.
    at = max(0, piece.start - 1)
    searching = piece.start > 0
    buffer, held = bytearray(size + 1), 0
    with Text(piece.source, at, seen) as text:
        while True:
            view = memoryview(buffer)
            n = held + text.fill(view[held:-1])
            is_last = n < len(buffer) - 1
            begin = 0
            if searching:
                begin = buffer.find(b"\n", 0, n) + 1
                searching = begin == 0
                begin = begin or n  # all of it is a line that began before
                if not searching and piece.stop is not None and at + begin >= piece.stop:
                    return  # no line begins in the piece
            elif at == 0 and piece.start == 0 and buffer.startswith(BOM):
                begin = len(BOM)
            if is_last and n > begin and view[n - 1] != 0x0A:
                view[n] = 0x0A
                n += 1
            end = 0 if searching else buffer.rfind(b"\n", begin, n) + 1  # of whole lines; 0 if there is none
            finished = searching and piece.stop is not None and at + n >= piece.stop
            if piece.stop is not None and end and at + end >= piece.stop:
                # The last line is the one that holds the byte before the stop.
                last = max(0, begin - 1, piece.stop - 1 - at)
                end, finished = buffer.find(b"\n", last, n) + 1, True
            if end > begin:
                yield view[begin:end]
            if is_last or finished:
                return
            end = max(begin, end)
            held = n - end
            if end == 0:
                if n > MAX_RECORD:
                    raise DataError(
                        f"the line is longer than {MAX_RECORD:,} bytes",
                        where=f"{piece.source.name}: byte {at}",
                        fix="is this a text file with one record a line?",
                    )
                larger = bytearray(2 * len(buffer))
                larger[:held] = view[:n]
                buffer = larger
            else:
                view[:held] = view[end:n]
            at += end


def lines_before(source: Input, place: int) -> int:
    """Line ends before that byte of a plain input: for messages."""
    n, left, buffer = 0, place, bytearray(1 << 20)
    with Text(source) as text:
        while left and (got := text.fill(memoryview(buffer)[: min(left, len(buffer))])):
            n += buffer.count(b"\n", 0, got)
            left -= got
    return n
