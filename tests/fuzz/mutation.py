"""Inputs that are nearly right: texts with pieces exchanged, and arrays that may not fit."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

_TOKENS = [
    *b'" , \t ; \n \r : # \0 \xff \xc3 \x1f 0 1'.split(b" "),
    *b'"" :: \r\n \n\n qid: qid:9007199254740993 1:1 0:0 2147483647:1 2147483648:1'.split(b" "),
    *b"-1 +1 -0.0 .5 5. 9223372036854775807 9223372036854775808 -9223372036854775808".split(b" "),
    *b"1e400 -1e-400 nan inf NA ? 0x1p3 1_0 4.9e-324 2.2250738585072014e-308 1e-5000000000".split(b" "),
    b"123456789012345678901234567890",
    *b"1.7976931348623157e308 \xc3\xa9 \xf0\x9f\x98\x80 \xed\xa0\x80 \xf4\x90\x80\x80".split(b" "),
    b" ",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"0." + b"0" * 400 + b"1",
    b"1" * 800,
    b"\x80" * 16,
]


def mutated(draw: Random, corpus: list[bytes], most: int = 4096) -> bytes:
    """A text of the corpus, or of several, with some pieces exchanged."""
    text = bytearray(draw.choice(corpus) * draw.choice([1, 1, 1, 2, 9]))
    for _ in range(draw.choice([0, 1, 1, 2, 3, 8])):
        at = draw.randrange(len(text) + 1)
        match draw.randrange(7):
            case 0:
                text[at:at] = draw.choice(_TOKENS)
            case 1:
                text[at : at + draw.randrange(1, 9)] = b""
            case 2 if at < len(text):
                text[at] = draw.randrange(256)
            case 3 if at < len(text):
                text[at] ^= 1 << draw.randrange(8)
            case 4:
                other = draw.choice(corpus)
                text[at:] = other[draw.randrange(len(other) + 1) :]
            case 5:
                text[at:at] = text[at : at + draw.randrange(64)] * draw.randrange(1, 40)
            case 6:
                text[at:at] = draw.choice(_TOKENS) * draw.randrange(1, 70)
    return bytes(text[:most])


def exact(data: bytes) -> np.ndarray[Any, Any]:
    """The bytes in memory that ends where they end, so that reading beyond is seen."""
    return np.frombuffer(data, dtype=np.uint8).copy()


def integers(draw: Random, n: int, low: int, high: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Mostly from [low, high], now and then anything."""
    bounds = np.iinfo(dtype)
    odd = [bounds.min, bounds.max, low - 1, high + 1, 0, -1]
    wild = 0.02 if draw.random() < 0.3 else 0.0
    numbers = [
        draw.choice(odd) if draw.random() < wild else draw.randint(low, max(low, high)) for _ in range(n)
    ]
    return np.array([min(max(number, bounds.min), bounds.max) for number in numbers], dtype=dtype)


def csr(draw: Random) -> tuple[Any, Any, Any, int]:
    """(indptr, indices, values or None, width) that are sound more often than not."""
    rows, width = draw.randrange(12), draw.choice([1, 2, 7, 1000])
    lengths = [draw.randrange(6) for _ in range(rows)]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    nnz = int(indptr[-1])
    if draw.random() < 0.2:
        indptr = integers(draw, draw.randrange(rows + 3), 0, nnz, np.int64)
    indices = integers(draw, nnz if draw.random() < 0.9 else draw.randrange(9), 0, width - 1, np.int32)
    values = None
    if draw.random() < 0.7:
        odd = [0.0, -0.0, 1.0, float("nan"), float("inf"), 1e38, 1e-40]
        numbers = [draw.choice(odd) if draw.random() < 0.1 else draw.gauss(0, 1) for _ in indices]
        with np.errstate(over="ignore"):
            values = np.array(numbers, dtype=draw.choice([np.float32, np.float64]))
    return indptr, indices, values, width
