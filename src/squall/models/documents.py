"""Documents as the kernels of topic models take them: rows whose words are numbered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from squall import _kernels
from squall.records import Block, CsrBlock, DenseBlock, Float32, Float64, Int32, Int64


class Taken(NamedTuple):
    """Some documents, in the order of their block."""

    words: Int64  # (u + 1,) distinct, then the row of the totals
    rows: _kernels.SparseRows  # their words as positions in `words`

    @property
    def counts(self) -> Float32:
        """How often each entry's word comes: (nnz,)."""
        _, local, values = self.rows
        return np.ones(len(local), dtype=np.float32) if values is None else values

    def tokens(self) -> Float64:
        """Length of each document: (n,)."""
        indptr = self.rows[0]
        sums = np.concatenate(([0.0], np.cumsum(self.counts, dtype=np.float64)))
        lengths: Float64 = sums[indptr[1:]] - sums[indptr[:-1]]
        return lengths


def numbered(block: Block, rows: Int32) -> Taken:
    """These rows, sorted: minibatches come in another order each epoch, and are the same documents."""
    rows = np.sort(rows)
    csr = block if isinstance(block, CsrBlock) else _sparse(block, rows)
    if csr is not block:
        rows = np.arange(len(rows), dtype=np.int32)
    needed, indptr, local, values = _kernels.csr_minibatch(
        csr.indptr, csr.indices, csr.values, rows, csr.n_features
    )
    return Taken(needed, (indptr, local, values))


def _sparse(block: DenseBlock, rows: Int32) -> CsrBlock:
    matrix = block.features[rows]
    where, columns = np.nonzero(matrix)
    indptr = np.zeros(len(matrix) + 1, dtype=np.int64)
    np.cumsum(np.bincount(where, minlength=len(matrix)), out=indptr[1:])
    values = matrix[where, columns]
    return CsrBlock(indptr, columns.astype(np.int32), values, block.labels[rows], None, block.n_features)


def halves(documents: Taken) -> tuple[Taken, Taken]:
    """Each document's tokens dealt out in turn; where counts are no whole numbers, half of each."""
    indptr, local, _ = documents.rows
    counts = documents.counts.astype(np.float64)
    first = counts / 2
    if np.array_equal(counts, np.rint(counts)):
        ends = np.concatenate(([0.0], np.cumsum(counts)))
        begins = ends[:-1] - np.repeat(ends[indptr[:-1]], np.diff(indptr))
        first = np.floor((begins + counts + 1) / 2) - np.floor((begins + 1) / 2)  # tokens 0, 2, 4 …
    parts = (first.astype(np.float32), (counts - first).astype(np.float32))
    return tuple(Taken(documents.words, (indptr, local, part)) for part in parts)  # type: ignore[return-value]


def whole(statistics: Float32) -> Float32:
    """Sums over all words: (n_topics,)."""
    total: Float32 = statistics.sum(axis=0, dtype=np.float64).astype(np.float32)
    return total
