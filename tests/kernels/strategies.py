from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from squall import _kernels as kernels


@st.composite
def blocks(draw, max_rows=30, max_features=12, max_nnz=8):
    """A block of rows as a dict of the kernels' arguments, and its number of features."""
    n = draw(st.integers(0, max_rows))
    n_features = draw(st.integers(1, max_features))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = rng.integers(0, max_nnz + 1, n)  # rows may be empty, features may repeat in a row
    indptr = np.append(0, np.cumsum(lengths)).astype(np.int64)
    nnz = int(indptr[-1])
    return {
        "indptr": indptr,
        "indices": rng.integers(0, n_features, nnz).astype(np.int32),
        "values": rng.normal(size=nnz).astype(np.float32) if draw(st.booleans()) else None,
        "labels": rng.integers(0, 2, n).astype(np.float32),
        "weights": rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32) if draw(st.booleans()) else None,
        "order": rng.permutation(n).astype(np.int32) if draw(st.booleans()) else None,
    }, n_features


optimizers = st.sampled_from([kernels.SGD, kernels.ADAGRAD])
regularizers = st.sampled_from([(0.0, 0.0), (0.01, 0.0), (0.0, 0.1), (0.02, 0.05), (1e-5, 1e-7), (1.0, 0.5)])


def small_block():
    """Four rows, five features, sound in every way; tests break one thing at a time."""
    return {
        "indptr": np.array([0, 2, 2, 3, 5], np.int64),
        "indices": np.array([0, 3, 4, 1, 1], np.int32),
        "values": np.array([1, 2, -1, 0.5, 0.25], np.float32),
        "labels": np.array([0, 1, 1, 0], np.float32),
        "weights": np.array([1, 2, 1, 1], np.float32),
        "order": np.array([3, 0, 1, 2], np.int32),
    }
