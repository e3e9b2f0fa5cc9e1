"""The rules of reductions and of uploads, without a server."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.errors import StoreError
from squall.records import Float64
from squall.store.blobs import BlobCore
from squall.store.reductions import Form, Reduction, fold
from squall.store.uploads import PART_BYTES, PATIENCE_S, Uploads, regrouped

SUM = Form("sum", "float64", (1,))


def one(value: float) -> Float64:
    return np.array([value])


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.integers(0, 40) | st.integers(0, 2**31 - 1), st.floats(-1e9, 1e9), min_size=1),
    st.randoms(),
)
def test_the_bits_depend_on_who_contributed_what(values: dict[int, float], random: object) -> None:
    orders = [sorted(values), list(values)]
    getattr(random, "shuffle")(orders[1])  # noqa: B009
    results = []
    for order in orders:
        reduction = Reduction(SUM)
        for contributor in order:
            assert reduction.add(contributor, one(values[contributor]))
            assert not reduction.add(contributor, one(1.0))
        assert Reduction.restored("k", reduction.kept()).result().tobytes() == reduction.result().tobytes()
        results.append(reduction.result().tobytes())
    assert results[0] == results[1] == fold(SUM, {k: one(v) for k, v in values.items()}).tobytes()
    exact = float(sum(map(Fraction, values.values())))
    bound = len(values) * np.finfo(float).eps * sum(map(abs, values.values()))
    assert abs(np.frombuffer(results[0])[0] - exact) <= bound


def test_folding_by_halves_holds_few_arrays() -> None:
    reduction = Reduction(SUM)
    for contributor in range(1000):
        reduction.add(contributor, one(1.0))
        assert len(reduction.nodes) <= 10
    assert reduction.result().tolist() == [1000.0]


def test_what_a_reduction_holds_is_counted() -> None:
    core = BlobCore()
    for contributor in range(3):
        core.reduce("j/r", SUM, contributor, one(1.0))
    assert core.n_bytes == 2 * 8, "of the first two, and of the third"
    core.reduced("j/r", 3)
    assert core.n_bytes == 3 * 8, "and the result, until the next comes"
    core.reduce("j/r", SUM, 3, one(1.0))
    assert core.n_bytes == 8
    core.put("j/v", b"12", b"345")
    core.reduced("j/r", 1)
    core.drop_job("j")
    assert core.n_bytes == 0


def test_uploads_in_order() -> None:
    uploads = Uploads()
    uploads.add(1, "k", 0, b"ab", 0.0)
    uploads.add(1, "k", 2, b"cd", 0.0)
    uploads.add(1, "k", 2, b"cd", 0.0)  # its reply was lost
    uploads.add(2, "other", 0, b"x", 0.0)
    assert uploads.n_bytes == 5
    for offset in (0, 3, 5):
        with pytest.raises(StoreError, match="not whole"):
            uploads.add(1, "k", offset, b"e", 0.0)
    for key, size in (("k", 5), ("other", 4)):
        with pytest.raises(StoreError, match="not whole"):
            uploads.take(1, key, size)
    assert uploads.take(1, "k", 4) == (b"ab", b"cd")
    with pytest.raises(StoreError, match="not whole"):
        uploads.take(1, "k", 4)
    assert uploads.n_bytes == 1


def test_uploads_that_are_left_are_given_up() -> None:
    uploads = Uploads()
    uploads.add(1, "a/k", 0, b"ab", 0.0)
    uploads.add(2, "b/k", 0, b"ab", 1.0)
    uploads.sweep(PATIENCE_S + 0.5)
    assert uploads.n_bytes == 2
    uploads.drop_job("b")
    assert uploads.n_bytes == 0
    with pytest.raises(StoreError, match="not whole"):
        uploads.add(1, "a/k", 2, b"cd", PATIENCE_S)
    assert uploads.n_bytes == 0


@pytest.mark.parametrize("sizes", [[], [0], [5], [PART_BYTES], [1, PART_BYTES, 0, 2], [3 * PART_BYTES + 1]])
def test_regrouped(sizes: list[int]) -> None:
    counter = itertools.count()
    pieces = [bytes([next(counter)]) * size for size in sizes]
    parts = list(regrouped(pieces))
    assert b"".join(parts) == b"".join(pieces)
    assert all(len(part) == PART_BYTES for part in parts[:-1])
    assert len(parts[-1]) <= PART_BYTES
