from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from squall.preprocessing.quantiles import CAPACITY, merge_sketches, sketch

SHARES = np.linspace(0, 1, 21)
numbers = st.floats(-1e300, 1e300) | st.sampled_from([0.0, 1.0, 5e-324])


@settings(max_examples=60)
@given(hnp.arrays(np.float64, st.integers(1, 40), elements=numbers | st.just(np.nan)))
def test_few_values_have_their_own_quantiles(values):
    present = values[~np.isnan(values)]
    ours = sketch(values).quantiles(SHARES)
    if not len(present):
        assert np.isnan(ours).all()
        return
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.quantile(present, SHARES)
    finite = np.isfinite(expected)
    np.testing.assert_allclose(ours[finite], expected[finite], rtol=1e-12, atol=1e-300)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["uniform", "sorted", "few", "falling"]),
    st.integers(1, 60_000),
    st.lists(st.integers(0, 60_000), max_size=12),
    st.integers(0, 2**32),
)
def test_no_rank_is_wrong_by_more_than_the_sketch_says(shape, n, cuts, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 50, n).astype(float) if shape == "few" else rng.normal(size=n)
    values = np.sort(values) if shape == "sorted" else -np.sort(values) if shape == "falling" else values
    pieces = [sketch(part) for part in np.split(values, sorted(min(c, n) for c in cuts))]
    rng.shuffle(pieces)
    merged = reduce(merge_sketches, pieces)
    assert merged.n == n == sum(len(level) << h for h, level in enumerate(merged.levels))
    queries = np.quantile(values, SHARES)
    truth = np.searchsorted(np.sort(values), queries, side="right")
    assert np.abs(merged.ranks(queries) - truth).max() <= merged.slack
    assert merged.slack <= n / CAPACITY * (np.log2(max(n / CAPACITY, 1)) + 1)
    assert all(len(level) <= CAPACITY for level in merged.levels)


def test_a_million_values_in_small_pieces():
    values = np.random.default_rng(1).permutation(1_000_000).astype(float)
    merged = reduce(merge_sketches, map(sketch, np.split(values, 1000)))
    error = np.abs(merged.quantiles(SHARES) - SHARES * 999_999) / 1_000_000
    assert merged.slack < 0.0025 * 1_000_000
    assert error.max() < 0.0005
    assert sum(level.nbytes for level in merged.levels) < 300_000


@pytest.mark.parametrize("order", [1, -1])
def test_the_smallest_and_the_largest_value_are_about_there(order):
    values = np.arange(100_000.0)[::order]
    low, high = sketch(values).quantiles(np.array([0.0, 1.0]))
    assert (low < 100, high > 99_899) == (True, True)


def test_an_empty_sketch_changes_nothing():
    some = sketch(np.arange(10.0))
    assert merge_sketches(some, sketch(np.array([np.nan]))).quantiles(SHARES).tolist() == (
        some.quantiles(SHARES).tolist()
    )
