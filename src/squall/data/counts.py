"""Rows of word counts on their way to blocks: one sparse column ``counts``, and its vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from squall.data.ingest import store_blocks, store_dictionary
from squall.data.objects import ObjectStore
from squall.errors import DataError
from squall.records import (
    CategoricalColumn,
    ColumnSpec,
    Float64,
    Int32,
    Int64,
    Manifest,
    RawBlock,
    SparseColumn,
)

COLUMN = "counts"
MAX_COUNT = 2**53
_MAX_FLOAT32 = 2**24
_MAX_WIDTH = 2**31 - 1


class CountRows(NamedTuple):
    """Some documents: words by document, ascending; how often each comes."""

    lengths: Int64  # (n_rows,) different words of each document
    words: Int32  # (nnz,)
    counts: Int64  # (nnz,)
    labels: Int32 | Float64 | None = None  # (n_rows,)


def count_blocks(rows: Iterable[CountRows], width: int, target_bytes: int = 10_000_000) -> Iterator[RawBlock]:
    """The rows in blocks of about ``target_bytes`` when stored."""
    parts: list[CountRows] = []
    n_bytes = 0
    for part in rows:
        parts.append(part)
        n_bytes += 8 * len(part.words) + 8 * len(part.lengths)
        if n_bytes >= target_bytes:
            yield _block(parts, width)
            parts, n_bytes = [], 0
    if parts:
        yield _block(parts, width)


def _block(parts: list[CountRows], width: int) -> RawBlock:
    lengths = np.concatenate([part.lengths for part in parts])
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    words = np.concatenate([part.words for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    # Float32 holds every count that a document is likely to have.
    wide = len(counts) and counts.max() > _MAX_FLOAT32
    values: Any = None if (counts == 1).all() else counts.astype(np.float64 if wide else np.float32)
    labels = [part.labels for part in parts if part.labels is not None]
    column = SparseColumn(indptr, words, values, width)
    return RawBlock(len(lengths), {COLUMN: column}, np.concatenate(labels) if labels else None)


def sorted_rows(documents: Int64, words: Int64) -> tuple[Int64, Int64]:
    """(order by document and word; places in it whose document and word are those before)."""
    order = np.lexsort((words, documents))
    same = (np.diff(documents[order]) == 0) & (np.diff(words[order]) == 0)
    return order, np.flatnonzero(same) + 1


def write_counts(
    store: ObjectStore,
    prefix: str,
    blocks: Iterator[RawBlock],
    width: int,
    vocabulary: Sequence[str] | None,
    source: str,
) -> Manifest:
    """Store blocks of counts and their vocabulary; a manifest without labels and warnings.

    ``source`` names what was read, for messages.

    Raises
    ------
    DataError
        If there are no words or no rows.
    """
    if width == 0:
        raise DataError("the file holds no words", where=source, fix="check how it was written")
    if width > _MAX_WIDTH:
        raise DataError(f"the vocabulary has {width:,} words; up to 2**31 - 1 are possible", where=source)
    partitions, _ = store_blocks(store, prefix, blocks)
    rows = sum(p.rows for p in partitions)
    if rows == 0:
        raise DataError("there are no documents", where=source, fix="check how it was written")
    dictionaries = {}
    if vocabulary is not None:
        strings = CategoricalColumn.from_strings(np.zeros(0, dtype=np.int32), list(vocabulary))
        dictionaries[COLUMN] = store_dictionary(store, prefix, 0, strings)
    return Manifest(
        rows=rows,
        columns=[ColumnSpec(COLUMN, "sparse", width)],
        partitions=partitions,
        dictionaries=dictionaries,
    )
