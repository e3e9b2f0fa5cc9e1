"""Blocks of raw rows for the tests, and slow, plain oracles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from squall.records import CategoricalColumn, DenseColumn, NumericColumn, RawBlock, SparseColumn


def block(labels=None, weights=None, **columns) -> RawBlock:
    """A block of columns given as arrays, lists of strings, or columns."""
    typed = {name: _column(values) for name, values in columns.items()}
    return RawBlock(_rows(next(iter(typed.values()))), typed, labels, weights)


def _column(values):
    if isinstance(values, (NumericColumn, CategoricalColumn, DenseColumn, SparseColumn)):
        return values
    if isinstance(values, list):
        return texts(values)
    return DenseColumn(values) if values.ndim == 2 else NumericColumn(values)


def _rows(column) -> int:
    if isinstance(column, CategoricalColumn):
        return len(column.codes)
    return len(column.indptr) - 1 if isinstance(column, SparseColumn) else len(column.values)


def texts(values: list[str | None]) -> CategoricalColumn:
    """A column of strings, None where one is missing."""
    known = list(dict.fromkeys(v for v in values if v is not None))
    codes = np.array([-1 if v is None else known.index(v) for v in values], dtype=np.int32)
    return CategoricalColumn.from_strings(codes, known)


def sparse(matrix: NDArray, *, ones: bool = False) -> SparseColumn:
    """All non-zero entries of a matrix, in reverse order within each row."""
    indptr, indices, values = [0], [], []
    for row in matrix:
        for j in reversed(range(len(row))):
            if row[j]:
                indices.append(j)
                values.append(row[j])
        indptr.append(len(indices))
    return SparseColumn(
        np.array(indptr, np.int64),
        np.array(indices, np.int32),
        None if ones else np.array(values, matrix.dtype),
        matrix.shape[1],
    )


def dense(rows) -> NDArray:
    """A training block as a matrix; entries of one slot add up."""
    if hasattr(rows, "features"):
        return rows.features
    X = np.zeros((rows.n_rows, rows.n_features), np.float32)
    for i in range(rows.n_rows):
        for k in range(rows.indptr[i], rows.indptr[i + 1]):
            X[i, rows.indices[k]] += 1 if rows.values is None else rows.values[k]
    return X


def murmur3(data: bytes, seed: int = 0) -> int:
    """MurmurHash3 x86 32-bit, after Austin Appleby's description."""

    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 & 0xFFFFFFFF
        k = (k << 15 | k >> 17) & 0xFFFFFFFF
        return k * 0x1B873593 & 0xFFFFFFFF

    h, whole = seed, len(data) // 4 * 4
    for i in range(0, whole, 4):
        h ^= mixed(int.from_bytes(data[i : i + 4], "little"))
        h = (h << 13 | h >> 19) & 0xFFFFFFFF
        h = (h * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= mixed(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16
