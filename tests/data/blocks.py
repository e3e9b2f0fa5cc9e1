"""Blocks of random rows, their comparison, and settings for tests of properties."""

from __future__ import annotations

import numpy as np
from hypothesis import settings

from squall.records import (
    CategoricalColumn,
    CsrBlock,
    DenseColumn,
    NumericColumn,
    RawBlock,
    SparseColumn,
)

# Time limits of single examples say more about the machine's other tenants than about the code.
quick = settings(deadline=None, max_examples=50)


def raw_block(n: int, seed: int = 0, labels: bool = True, weights: bool = True) -> RawBlock:
    rng = np.random.default_rng(seed)
    indptr = np.append(0, np.cumsum(rng.integers(0, 4, n))).astype(np.int64)
    nnz = int(indptr[-1])
    floats = rng.normal(size=n)
    floats[::3] = np.nan
    columns = {
        "big": NumericColumn(rng.integers(-(2**63), 2**63 - 1, n)),
        "π": NumericColumn(floats),
        "text": CategoricalColumn.from_strings(rng.integers(-1, 3, n).astype(np.int32), ["", "ü", "a b"]),
        "dense": DenseColumn(rng.normal(size=(n, 3))),
        "dense32": DenseColumn(rng.normal(size=(n, 2)).astype(np.float32)),
        "ones": SparseColumn(indptr, rng.integers(0, 9, nnz).astype(np.int32), None, 9),
        "sparse": SparseColumn(indptr, rng.integers(0, 9, nnz).astype(np.int32), rng.normal(size=nnz), 9),
    }
    codes = rng.integers(0, 2, n).astype(np.int32) if labels else None
    return RawBlock(n, columns, codes, rng.random(n) if weights else None)


def csr_block(n: int, ones: bool = False, weights: bool = False, seed: int = 0) -> CsrBlock:
    rng = np.random.default_rng(seed)
    indptr = np.append(0, np.cumsum(rng.integers(0, 5, n))).astype(np.int64)
    nnz = int(indptr[-1])
    values = None if ones else rng.normal(size=nnz).astype(np.float32)
    w = rng.random(n).astype(np.float32) if weights else None
    labels = rng.integers(0, 2, n).astype(np.float32)
    return CsrBlock(indptr, rng.integers(0, 20, nnz).astype(np.int32), values, labels, w, 20)


def assert_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif hasattr(a, "__dataclass_fields__"):
        for name in a.__dataclass_fields__:
            assert_same(getattr(a, name), getattr(b, name))
    else:
        assert a == b
