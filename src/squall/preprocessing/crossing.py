"""Crossed columns: the values of several categorical columns as one text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from squall.records import Bytes, CategoricalColumn, Int64

SEPARATOR = b"\x1f"
"""Between the columns of a cross; part of the format.  The unit separator of ASCII."""


def crossed(names: Sequence[str], columns: Sequence[CategoricalColumn]) -> CategoricalColumn:
    """One text a row: ``value␟name=value…``, with the name of every column but the first.

    A missing value is the empty text.  No code is −1, and no text of the dictionary goes unused.
    """
    head = _compact(columns[0])
    for name, column in zip(names[1:], columns[1:], strict=True):
        head = _pair(head, SEPARATOR + f"{name}=".encode(), _compact(column))
    return head


def _compact(column: CategoricalColumn) -> CategoricalColumn:
    """The same column without −1: missing values have the code of an empty text at the end."""
    n = len(column.offsets) - 1
    codes = np.where(column.codes < 0, n, column.codes).astype(np.int32)
    return CategoricalColumn(codes, np.append(column.offsets, column.offsets[-1]), column.data)


def _pair(a: CategoricalColumn, glue: bytes, b: CategoricalColumn) -> CategoricalColumn:
    width = len(b.offsets) - 1
    pairs, codes = np.unique(a.codes.astype(np.int64) * width + b.codes, return_inverse=True)
    left, right = pairs // width, pairs % width
    middle = np.tile(np.frombuffer(glue, np.uint8), len(pairs))
    between = np.arange(len(pairs) + 1, dtype=np.int64) * len(glue)
    every = np.arange(len(pairs))
    texts = [(a.offsets, a.data, left), (between, middle, every), (b.offsets, b.data, right)]
    offsets = np.zeros(len(pairs) + 1, dtype=np.int64)
    lengths: list[Int64] = [np.diff(ends)[chosen] for ends, _, chosen in texts]
    np.cumsum(reduce(np.add, lengths), out=offsets[1:])
    data = np.empty(offsets[-1], dtype=np.uint8)
    start = offsets[:-1].copy()
    for (ends, source, chosen), length in zip(texts, lengths, strict=True):
        _copy(data, start, source, ends[:-1][chosen], length)
        start += length
    return CategoricalColumn(codes.astype(np.int32), offsets, data)


def _copy(target: Bytes, at: Int64, source: Bytes, begin: Int64, lengths: Int64) -> None:
    """``lengths[i]`` bytes from ``begin[i]`` on go to ``at[i]``, for every i."""
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(at, lengths) + within] = source[np.repeat(begin, lengths) + within]
