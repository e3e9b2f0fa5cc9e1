from __future__ import annotations

import warnings
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import KBinsDiscretizer

from squall.errors import DataError
from squall.preprocessing.binning import BinStatistics
from squall.preprocessing.layout import FeatureLayout
from squall.preprocessing.transforms import transform_from_dict
from squall.records import ColumnSpec

from .blocks import block, dense, sparse

numbers = st.integers(-9, 9).map(float) | st.floats(-1e6, 1e6).map(lambda x: round(x, 3))
matrices = hnp.arrays(np.float64, st.tuples(st.integers(2, 30), st.integers(1, 3)), elements=numbers)


def fitted(*blocks, **settings):
    statistics = BinStatistics(tuple(blocks[0].columns), "binned", **settings)
    return statistics.finish(reduce(statistics.merge, map(statistics.partial, blocks)))


@settings(max_examples=60)
@given(matrices, st.integers(2, 9), st.sampled_from(["onehot", "ordinal"]), st.integers(1, 29))
def test_bins_are_scikit_learns_however_rows_are_cut(matrix, n_bins, encode, cut):
    theirs = KBinsDiscretizer(
        n_bins=n_bins, encode=encode.replace("onehot", "onehot-dense"), quantile_method="linear"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant columns, and bins that are one
        expected = theirs.fit_transform(matrix)
    pieces = [block(x=part) for part in (matrix[:cut], matrix[cut:]) if len(part)]
    transform = fitted(*pieces, n_bins=n_bins, encode=encode)
    out = transform.apply(block(x=matrix))
    specs = transform.schema([ColumnSpec("x", "dense", matrix.shape[1])])
    np.testing.assert_array_equal(dense(FeatureLayout.of(specs).encode(out)), expected)


def test_bins_hold_about_as_many_rows_each():
    values = np.random.default_rng(0).exponential(size=50_000)
    pieces = [block(a=part) for part in np.split(values, 25)]
    bins = fitted(*pieces, n_bins=20, encode="ordinal").apply(block(a=values)).columns["a"].values
    counts = np.bincount(bins.astype(int))
    assert len(counts) == 20
    assert np.abs(counts - 2500).max() < 0.004 * 50_000


def test_a_missing_value_is_in_no_bin():
    rows = block(a=np.array([1.0, 2.0, np.nan, 4.0]))
    assert np.diff(fitted(rows, n_bins=2).apply(rows).columns["binned"].indptr).tolist() == [1, 1, 0, 1]
    ordinal = fitted(rows, n_bins=2, encode="ordinal").apply(rows).columns["a"].values
    np.testing.assert_array_equal(ordinal, [0, 1, np.nan, 1])


def test_values_beyond_those_of_fit_are_in_the_outer_bins():
    transform = fitted(block(a=np.arange(10.0)), n_bins=4, encode="ordinal")
    assert transform.apply(block(a=np.array([-np.inf, -5.0, 99.0, np.inf]))).columns["a"].values.tolist() == [
        0, 0, 3, 3,
    ]  # fmt: skip


@pytest.mark.parametrize("values", [np.full(5, 7.0), np.full(5, np.nan), np.array([7, 7])])
def test_a_column_of_one_value_or_none_has_one_bin(values):
    rows = block(a=values)
    transform = fitted(rows)
    assert transform.slot_names() == ["a_0"]
    assert transform.apply(rows).columns["binned"].width == 1


def test_names_of_slots():
    rows = block(a=np.arange(4.0), x=np.arange(8.0).reshape(4, 2))
    assert fitted(rows, n_bins=2).slot_names() == ["a_0", "a_1", "x0_0", "x0_1", "x1_0", "x1_1"]


def test_others_pass():
    rows = block(a=np.arange(2.0), t=["u", "v"], s=sparse(np.eye(2)))
    statistics = BinStatistics(("a",), "binned")
    out = statistics.finish(statistics.partial(rows)).apply(rows)
    assert list(out.columns) == ["t", "s", "binned"]
    assert (out.columns["t"], out.columns["s"]) == (rows.columns["t"], rows.columns["s"])


def test_an_infinite_value_is_refused():
    with pytest.raises(DataError, match=r"column 'a': .*infinite"):
        fitted(block(a=np.array([np.inf])))


@pytest.mark.parametrize("other", [block(b=np.zeros(1)), block(a=["u"]), block(a=np.zeros((1, 2)))])
def test_another_column_than_in_fit_is_refused(other):
    with pytest.raises(DataError, match=r"column 'a': .*1 number"):
        fitted(block(a=np.arange(3.0))).apply(other)


def test_plain_data_and_back():
    transform = fitted(block(a=np.arange(9.0)), n_bins=3)
    assert transform_from_dict(transform.to_dict()) == transform
