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


OPTIMIZERS = {
    "sgd": kernels.SGD, "adagrad": kernels.ADAGRAD, "momentum": kernels.MOMENTUM,
    "nesterov": kernels.NESTEROV, "adam": kernels.ADAM, "ftrl": kernels.FTRL,
}  # fmt: skip
regularizers = st.sampled_from([(0.0, 0.0), (0.01, 0.0), (0.0, 0.1), (0.02, 0.05), (1e-5, 1e-7), (1.0, 0.5)])


@st.composite
def rules(draw, rates=(0.05, 0.5)):
    """Settings of `kernels.Rule`, as a dict."""
    rule = {"optimizer": draw(st.sampled_from(list(OPTIMIZERS.values())))}
    rule["learning_rate"] = draw(st.sampled_from(rates))
    rule["l1"], rule["l2"] = draw(regularizers)
    if rule["optimizer"] in (kernels.MOMENTUM, kernels.NESTEROV):
        rule["momentum"] = draw(st.sampled_from([0.0, 0.5, 0.9]))
        rule["learning_rate"] /= 5
    elif rule["optimizer"] == kernels.ADAM:
        rule["beta_1"], rule["beta_2"] = draw(st.sampled_from([(0.9, 0.999), (0.0, 0.9), (0.5, 0.99)]))
    elif rule["optimizer"] == kernels.FTRL:
        rule["beta"] = draw(st.sampled_from([0.01, 1.0]))
    if rule["optimizer"] != kernels.FTRL and draw(st.booleans()):
        rule["levels"] = np.array(
            draw(st.lists(st.sampled_from([0.0, 0.1, 0.4, 1.0]), min_size=1, max_size=6))
        )
        rule["steps_per_level"] = draw(st.integers(1, 4))
    if draw(st.booleans()):
        rule["clip_value"] = draw(st.sampled_from([0.0, 0.05]))
        rule["clip_norm"] = draw(st.sampled_from([0.0, 0.1]))
    return rule


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
