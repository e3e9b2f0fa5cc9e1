"""Inputs cut into pieces of about one size, each of which begins and ends between two records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from squall._kernels import csv_follow
from squall.data.dialects import Dialect
from squall.data.inputs import Input
from squall.data.streams import BOM, Piece, Text, is_splittable

Each = Callable[[Callable[[Any], Any], list[Any]], list[Any]]  # calls a function for every item
Split = Callable[[Input, list[int], Each], list[Piece]]  # cuts an input at about these places

PIECE_BYTES = 32_000_000
"""Of text that one task parses, at most about."""

_CHUNK_BYTES = 1 << 20
_LOOK_BYTES = 1 << 14
_START = 0  # the place `csv_follow` calls the start of a record


def grouped_pieces(inputs: list[Input], split: Split, each: Each) -> list[list[Piece]]:
    """Pieces of the inputs in their order, in groups of up to about `PIECE_BYTES`.

    Parameters
    ----------
    inputs : list of Input
    split : callable
        Cuts one large input.
    each : callable
        Does what there is to do for that, for one stretch of the input at a time.
    """
    groups: list[list[Piece]] = []
    held, held_bytes = list[Piece](), 0
    for source in inputs:
        # Of one size, so that those who parse them are done at about the same time.
        n = -(-source.size // PIECE_BYTES) if is_splittable(source) else 1
        cuts = [i * source.size // n for i in range(1, n)]
        for piece in split(source, cuts, each) if cuts else [Piece(source)]:
            if held and held_bytes + piece.n_bytes > PIECE_BYTES:
                groups.append(held)
                held, held_bytes = [], 0
            held.append(piece)
            held_bytes += piece.n_bytes
    return [*groups, held] if held else groups


def split_lines(source: Input, cuts: list[int], each: Each) -> list[Piece]:
    """Cut anywhere: `line_chunks` finds the lines that begin in a piece."""
    edges = [0, *cuts, source.size]
    return [Piece(source, a, b) for a, b in pairwise(edges)]


# ---------------------------------------------------------------------------------------- CSV


@dataclass(frozen=True)
class _Stretch:
    source: Input
    start: int
    stop: int
    delimiter: int
    quote: int


def split_csv(dialect: Dialect, source: Input, cuts: list[int], each: Each) -> list[Piece]:
    """Cut where the first record starts at or after each place.

    Whether a line end is within quotes depends on all text before it.  So each stretch is followed
    from every state that it may begin in, apart from the others, and then they are joined.  Where
    nothing is quoted a record starts behind the next line end.
    """
    if not dialect.quote:
        firsts = (_next_line(source, cut) for cut in cuts)
        bounds = sorted({0, source.size, *(first for first in firsts if first < source.size)})
        return [Piece(source, a, b) for a, b in pairwise(bounds)]
    edges = [0, *cuts, source.size]
    stretches = [_Stretch(source, a, b, dialect.delimiter, dialect.quote) for a, b in pairwise(edges)]
    starts, place = [0], _START
    for stretch, (ends, firsts) in zip(stretches, each(_follow, stretches), strict=True):
        if stretch.start:
            first = stretch.start if place == _START else firsts[place]
            if first > starts[-1] and first < source.size:
                starts.append(first)
        place = ends[place]
    bounds = [*starts, source.size]
    return [Piece(source, a, b) for a, b in pairwise(bounds)]


def _next_line(source: Input, place: int) -> int:
    """Where the first line starts at or after that byte; the size of the input if none does."""
    with Text(source, place - 1) as text:
        buffer, at = bytearray(_LOOK_BYTES), place - 1
        while n := text.fill(memoryview(buffer)):
            if (found := buffer.find(b"\n", 0, n)) >= 0:
                return at + found + 1
            at += n
    return source.size


def _follow(stretch: _Stretch) -> tuple[list[int], list[int]]:
    """(place behind the last byte, place in the input of the first record), by that of the first byte."""
    ends, firsts = csv_follow(b"", stretch.delimiter, stretch.quote)
    at = stretch.start
    for chunk in _chunks(stretch):
        if at == 0 and chunk[: len(BOM)] == BOM:
            chunk, at = chunk[len(BOM) :], len(BOM)
        chunk_ends, chunk_firsts = csv_follow(chunk, stretch.delimiter, stretch.quote)
        for i, place in enumerate(ends):
            # A chunk that begins with a record has one at its first byte.
            found = at if place == _START and at > stretch.start else at + chunk_firsts[place]
            if firsts[i] < 0 and found >= at:
                firsts[i] = found
        ends = [chunk_ends[place] for place in ends]
        at += len(chunk)
    return ends, firsts


def _chunks(stretch: _Stretch) -> Iterator[memoryview]:
    left, buffer = stretch.stop - stretch.start, bytearray(_CHUNK_BYTES)
    with Text(stretch.source, stretch.start) as text:
        while left and (n := text.fill(memoryview(buffer)[: min(left, len(buffer))])):
            yield memoryview(buffer)[:n]
            left -= n
