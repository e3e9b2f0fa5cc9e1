"""Which character stands between the fields of a file, where nobody said so."""

from __future__ import annotations

from squall._kernels import csv_scan
from squall.data.inputs import Input
from squall.data.streams import BOM, read_chunks

COMMA = ord(",")

_OTHERS = b"\t;|"
_NAMES = {ord("\t"): "tabs", ord(";"): "semicolons", ord("|"): "bars"}
_LOOK_BYTES = 1 << 18


def delimiter_of(source: Input, quote: int) -> int:
    """The first of comma, tab, semicolon and bar that cuts all records of a first look alike.

    Each into two fields or more, that is.  If none does it is the comma: the file has one column, or
    records that the reader will find fault with.

    Raises
    ------
    DataError
        If the file cannot be read, or is empty.
    """
    start = next(read_chunks(source, _LOOK_BYTES), b"")
    is_all = len(start) < _LOOK_BYTES
    text = start.removeprefix(BOM)
    return next((d for d in (COMMA, *_OTHERS) if _cuts_evenly(text, d, quote, is_all)), COMMA)


def _cuts_evenly(text: bytes, delimiter: int, quote: int, is_all: bool) -> bool:
    fields = csv_scan(text, delimiter, quote, is_last=is_all)
    if not fields.n_rows and not is_all:  # the first record is longer than the look
        fields = csv_scan(text, delimiter, quote)
    return fields.n_columns > 1 and fields.error is None


def told_delimiter(delimiter: int) -> str:
    """How a data set's facts name it."""
    return _NAMES.get(delimiter, repr(chr(delimiter)))
