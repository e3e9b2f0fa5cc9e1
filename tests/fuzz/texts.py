"""Targets: what parses text."""

from __future__ import annotations

import contextlib
import math
import re
from decimal import Decimal, localcontext
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from squall import _kernels as kernels
from tests.fuzz.mutation import exact, integers, mutated

CSV = [
    b'id,name,price\n1,"a ""b"", c",1.5\n2,"line\r\nend",-3e-2\r\n\n3,,NA\n',
    b"\xef\xbb\xbfa;b\r\n1;2\r\n 3 ;\t4\t\r\n",
    b"1\t\t68fd1e64\t0\n0\t-5\t\t2147483648\n",
    b"u\x1fi\x1fr\nx\x1fy\x1f5\n",
    b'"unclosed,1\n2,3\n',
    b"7\n8\n9",
    b"a,b\n1,2\n" * 9,
]
LIBSVM = [
    b"1 1:0.5 3:1 7:-2e-3 # comment\n-1 2:1\n\n# all\n+1\n",
    b"3 qid:1 1:1 2:1\r\n2 qid:1 2:1\r\n1 qid:2 10:.5\r\n",
    b"0 0:1 5:1\n1 5:1 0:2\n",
    b"1:1 2:1\n3:1\n",
    b"1.5 4:1 4:2\n0.25 1:1e400\n",
]
_PLAIN = re.compile(rb"[+-]?\d+(\.\d+)?")


def csv(draw: Random) -> None:
    """Scanning in one piece and in several; the columns of what was found; fields that are not as scanned."""
    text = exact(mutated(draw, CSV))
    delimiter, quote = ord(draw.choice(",,,\t;\x1f ")), draw.choice([34, 34, 34, 0, 39])
    n_columns, max_field = draw.choice([0, 0, 0, 1, 2, 3]), draw.choice([1 << 24, 1 << 24, 8])
    skip = draw.random() < 0.3
    fields = kernels.csv_scan(text, delimiter, quote, n_columns, True, max_field, skip)
    found = _rows(text, fields, quote)
    _check_follow(draw, text, delimiter, quote)
    if fields.n_skipped == 0 and max_field > 8:
        cuts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randrange(4)))
        in_pieces = _scanned(text, [*cuts, len(text)], delimiter, quote, n_columns)
        assert in_pieces == (found, fields.error and fields.error.kind), (bytes(text), cuts)
    missing = draw.choice([[], [b""], [b"NA", b"?", b""]])
    for column in range(min(fields.n_columns, 5)):
        _check_column(draw, text, fields, column, missing, quote)
    _give_wrong_fields(draw, text, fields, missing, quote)


def _rows(text: Any, fields: kernels.CsvFields, quote: int) -> list[list[bytes]]:
    columns = range(fields.n_columns)
    return [[kernels.csv_text(text, fields, row, c, quote) for c in columns] for row in range(fields.n_rows)]


def _scanned(
    text: Any, ends: list[int], delimiter: int, quote: int, n_columns: int
) -> tuple[list[list[bytes]], str | None]:
    """(rows, kind of the error) of a text that comes in pieces."""
    rows, at = list[list[bytes]](), 0
    for end in ends:
        piece = text[at:end].copy()
        fields = kernels.csv_scan(piece, delimiter, quote, n_columns, end == len(text))
        rows += _rows(piece, fields, quote)
        if fields.error is not None:
            return rows, fields.error.kind
        at, n_columns = at + fields.consumed, fields.n_columns
    return rows, None


def _check_follow(draw: Random, text: Any, delimiter: int, quote: int) -> None:
    """A stretch followed in one go ends where it does in two."""
    cut = draw.randrange(len(text) + 1)
    ends, _ = kernels.csv_follow(text, delimiter, quote)
    first, _ = kernels.csv_follow(text[:cut].copy(), delimiter, quote)
    second, _ = kernels.csv_follow(text[cut:].copy(), delimiter, quote)
    assert ends == [second[place] for place in first], (bytes(text), cut)


def _check_column(
    draw: Random, text: Any, fields: kernels.CsvFields, column: int, missing: list[bytes], quote: int
) -> None:
    strip = draw.random() < 0.5
    where = fields.starts, fields.ends, fields.flags
    how = missing, strip, quote
    evidence, _ = kernels.csv_classify(text, *where, column, fields.n_columns, *how)
    integers_, absent, bad = kernels.csv_parse_int64(text, *where, column, fields.n_columns, *how)
    floats, bad_float = kernels.csv_parse_float64(text, *where, column, fields.n_columns, *how)
    for row in range(fields.n_rows):
        raw = kernels.csv_text(text, fields, row, column, quote)
        if strip and not fields.flags[row * fields.n_columns + column] & 1:
            raw = raw.strip(b" \t")
        assert absent[row] == (raw in missing), raw
        _check_number(raw, float(floats[row]), raw in missing)
        if bad < 0 and not absent[row]:
            assert int(raw) == integers_[row], raw
    assert (bad_float < 0) == (not np.isnan(floats[~absent]).any())
    assert (kernels.csv_kind(evidence) in ("integer", "missing")) <= (bad < 0)
    dictionary = kernels.StringDictionary()
    with contextlib.suppress(ValueError):  # not UTF-8
        codes = dictionary.encode(text, *where, column, fields.n_columns, *how)
        assert ((codes < 0) == absent).all() and codes.max(initial=-1) < len(dictionary)
        offsets, data = dictionary.to_arrays()
        assert kernels.StringDictionary().encode_strings(offsets, data).tolist() == list(
            range(len(dictionary))
        )
    outs = [np.zeros(fields.n_rows + 2, kind) for kind in (np.float64, np.int64, np.int32, np.int32)]
    hows = [None, None, kernels.StringDictionary(), (b"c=", draw.choice([1, 7, 2**31 - 1]))]
    readings: Any = [(column, out, how_) for out, how_ in zip(outs, hows, strict=True)]
    with contextlib.suppress(ValueError):
        first = draw.choice([0, 0, 2, 3, -1])
        kernels.csv_read_columns(text, *where, fields.n_columns, *how, readings, first)
        assert np.array_equal(outs[0][first : first + fields.n_rows], floats, equal_nan=True)


def _check_number(raw: bytes, number: float, absent: bool) -> None:
    """What is read is what Python reads; and what is plainly a number is read."""
    if not math.isnan(number):
        assert (
            not absent
            and float(raw) == number
            and (not number or math.copysign(1, number) == math.copysign(1, float(raw)))
        ), raw
    elif _PLAIN.fullmatch(raw) and not absent:
        is_wide = b"." not in raw and not -(2**63) <= int(raw) < 2**63
        assert is_wide or math.isinf(float(raw)) or abs(int(float(raw))) > 2**53, raw


def _give_wrong_fields(
    draw: Random, text: Any, fields: kernels.CsvFields, missing: list[bytes], quote: int
) -> None:
    n = len(fields.starts) + draw.choice([0, 0, 0, 1, -1]) * (len(fields.starts) > 0)
    starts, ends = (integers(draw, n, 0, len(text), np.int32) for _ in range(2))
    flags = integers(draw, n, 0, 3, np.uint8)
    if draw.random() < 0.5:
        starts, ends = np.minimum(starts, ends), np.maximum(starts, ends)
    columns, column = draw.choice([fields.n_columns, 1, 0, -1, 3]), draw.choice([0, 1, -1, 5])
    how = missing, draw.random() < 0.5, quote
    out = np.zeros(draw.choice([n, 0, 3]), draw.choice([np.float64, np.int64, np.int32]))
    dictionary = kernels.StringDictionary()
    for read in (
        kernels.csv_classify,
        kernels.csv_parse_int64,
        kernels.csv_parse_float64,
        dictionary.encode,
    ):
        with contextlib.suppress(ValueError, IndexError):
            read(text, starts, ends, flags, column, columns, *how)
    reading = draw.choice([None, dictionary, (b"x=", 5), (b"", 0)])
    with contextlib.suppress(ValueError, IndexError, TypeError):
        kernels.csv_read_columns(
            text, starts, ends, flags, columns, *how, [(column, out, reading)], draw.choice([0, 1, -1, 2**40])
        )


def libsvm(draw: Random) -> None:
    """Rows in one piece and in several; whatever is taken is sound."""
    text = mutated(draw, LIBSVM)
    text += b"" if text.endswith(b"\n") else b"\n"
    settings: tuple[Any, ...] = (
        draw.choice([0, 1]),
        draw.random() < 0.5,
        draw.choice([-1, -1, 0, 1, 5, 2**31 - 1]),
        draw.random() < 0.5,
        draw.choice(["raise", "sum", "last"]),
        draw.random() < 0.5,
        draw.choice([[], [1.0, -1.0], [0.5]]),
        draw.choice([None, True, False]),
        draw.choice([None, True, False]),
    )
    whole, pieces = kernels.LibsvmParser(*settings), kernels.LibsvmParser(*settings)
    read = whole.feed(exact(text))
    cuts = [i + 1 for i, byte in enumerate(text) if byte == 10 and draw.random() < 0.5]
    at = 0
    for end in sorted({*cuts, len(text)}):
        if pieces.feed(exact(text[at:end])) < end - at:
            break
        at = end
    assert (read == len(text)) == (at == len(text)), text
    assert whole.seen() == pieces.seen(), text
    least, taken, again = whole.seen()["least"], whole.take(), pieces.take()
    indptr, indices, values, codes, qids = taken
    for ours, theirs in zip(taken, again, strict=True):
        assert np.array_equal(ours, theirs, equal_nan=False) if ours is not None else theirs is None, text
    if least != settings[0] - 1:
        kernels.csr_validate(indptr, indices, None, 2**31 - 1)
        assert all((np.diff(indices[a:b]) > 0).all() for a, b in pairwise(indptr)), text
    assert values is None or np.isfinite(values).all() or settings[4] == "sum", text
    assert codes is None or codes.max(initial=-1) < len(whole.seen()["labels"])
    assert qids is None or len(qids) == len(indptr) - 1


def strings(draw: Random) -> None:
    """Dictionaries of any bytes, with any offsets."""
    data = mutated(draw, [*CSV, "naïve Größe 😀".encode(), b"abab" * 20])
    n = draw.randrange(20)
    offsets = integers(draw, n, 0, len(data), np.int64)
    if draw.random() < 0.8:
        offsets = np.sort(offsets)
    dictionary, known = kernels.StringDictionary(), dict[str, int]()
    for _ in range(2):
        try:
            codes = dictionary.encode_strings(offsets, exact(data))
        except (ValueError, IndexError):
            return
        texts = [data[a:b].decode() for a, b in pairwise(offsets)]
        assert codes.tolist() == [known.setdefault(text, len(known)) for text in texts]
    out, raw = dictionary.to_arrays()
    assert [bytes(raw[a:b]).decode() for a, b in pairwise(out)] == list(known)
    dictionary.clear()
    assert len(dictionary) == 0


def decimals(draw: Random) -> None:
    """Numbers in decimal are read as the nearest double, ties to even: as Python reads them."""
    texts = [_decimal(draw) for _ in range(20)]
    text = exact("\n".join(texts).encode())
    fields = kernels.csv_scan(text)
    where = fields.starts, fields.ends, fields.flags
    numbers, _ = kernels.csv_parse_float64(text, *where, 0, 1, [])
    for raw, number in zip(texts, numbers.tolist(), strict=True):
        _check_number(raw.encode(), number, absent=False)
    parser = kernels.LibsvmParser(1, True, -1, False, "raise", True, [])
    parser.feed(exact("".join(f"1 1:{raw}\n" for raw in texts).encode()))
    _, _, values, _, _ = parser.take()
    finite = [raw for raw in texts if math.isfinite(float(raw))]
    got = [1.0] * len(finite) if values is None else values.tolist()
    assert got == [float(raw) for raw in finite], texts


def _decimal(draw: Random) -> str:
    double = np.frombuffer(draw.randbytes(8), np.float64)[0]
    match draw.randrange(5):
        case 0 if np.isfinite(double):
            return repr(float(double))
        case 1 if np.isfinite(double) and np.isfinite(after := np.nextafter(double, np.inf)):
            with localcontext() as context:  # exactly between two doubles, or just beside
                context.prec, context.Emax, context.Emin = 1200, 10**6, -(10**6)
                middle = (Decimal(float(double)) + Decimal(float(after))) / 2
                return str(middle) + draw.choice(["", "1", "0000000000000000000000001"]) * (
                    "E" not in str(middle)
                )
        case 2:
            return f"{draw.randrange(10**18)}.{draw.randrange(10**9):0{draw.randrange(1, 40)}d}"
    digits = "".join(draw.choices("0123456789", k=draw.choice([1, 5, 17, 19, 20, 40, 400])))
    point = draw.randrange(1, len(digits) + 1)
    fraction = f".{digits[point:]}" if digits[point:] else ""
    exponent = draw.choice(["", "", f"e{draw.randint(-400, 400)}", f"E+{draw.randrange(30)}"])
    return f"{draw.choice(['', '-', '+'])}{digits[:point]}{fraction}{exponent}"
