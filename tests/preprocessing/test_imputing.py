from __future__ import annotations

import warnings
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array as sparse_array
from sklearn.impute import SimpleImputer

import squall
from squall.errors import DataError
from squall.preprocessing import counting
from squall.preprocessing.imputing import ImputeStatistics, ImputeTransform
from squall.preprocessing.transforms import transform_from_dict

from .blocks import block, sparse

STRATEGIES = ["mean", "median", "most_frequent"]
numbers = st.integers(-3, 3).map(float) | st.floats(-1e6, 1e6) | st.just(np.nan)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=numbers)


def fitted(strategy, *blocks):
    statistics = ImputeStatistics(tuple(blocks[0].columns), strategy)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="column 'x' has no value")
        return statistics.finish(reduce(statistics.merge, map(statistics.partial, blocks)))


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=50)
@given(matrix=matrices, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_numbers_are_filled_as_by_scikit_learn_however_rows_are_cut(strategy, matrix, cuts):
    parts = np.split(matrix, sorted(min(c, len(matrix)) for c in cuts))
    filled = fitted(strategy, *[block(x=part) for part in parts]).apply(block(x=matrix)).columns["x"].values
    expected = SimpleImputer(strategy=strategy, keep_empty_features=True).fit_transform(matrix)
    np.testing.assert_allclose(filled, expected, rtol=1e-6, atol=1e-9)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["a", "b", "ä", None]), min_size=1, max_size=9), st.integers(0, 9))
def test_text_is_filled_as_by_scikit_learn_however_rows_are_cut(values, cut):
    pieces = [block(t=part) for part in (values[:cut], values[cut:]) if part]
    if not any(values):
        return
    filled = fitted("most_frequent", *pieces).apply(block(t=values)).columns["t"]
    expected = SimpleImputer(strategy="most_frequent", missing_values=None).fit_transform(
        np.array(values, dtype=object)[:, None]
    )
    assert [filled.strings()[code] for code in filled.codes] == expected[:, 0].tolist()


def test_a_column_without_values_is_filled_with_a_warning():
    rows = block(a=np.full(2, np.nan), t=[None, None])
    statistics = ImputeStatistics(("a", "t"), "most_frequent")
    with pytest.warns(UserWarning) as told:
        transform = statistics.finish(statistics.partial(rows))
    assert [str(w.message) for w in told] == [
        "column 'a' has no value to learn from; missing ones become 0",
        "column 't' has no value to learn from; missing ones become 'missing_value'",
    ]
    filled = transform.apply(rows).columns
    assert filled["a"].values.tolist() == [0, 0]
    assert [filled["t"].strings()[code] for code in filled["t"].codes] == ["missing_value"] * 2


def test_sparse_numbers_count_their_zeros():
    matrix = np.array([[np.nan, 2.0], [0.0, 0.0], [3.0, np.nan]])
    filled = fitted("mean", block(x=sparse(matrix))).apply(block(x=sparse(matrix))).columns["x"]
    assert sorted(filled.values.tolist()) == [1.0, 1.5, 2.0, 3.0]


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_what_sparse_numbers_cannot_tell(strategy):
    with pytest.raises(DataError, match=r"column 'x': it is sparse(?s:.)*strategy=.mean. or .constant."):
        fitted(strategy, block(x=sparse(np.eye(2))))


def test_integers_pass_and_float32_stays():
    whole, narrow = np.array([1, 2]), np.array([[1.0], [np.nan]], np.float32)
    rows = block(a=whole, x=narrow)
    filled = fitted("mean", rows).apply(rows).columns
    assert filled["a"] is rows.columns["a"]
    assert (filled["x"].values.dtype, filled["x"].values.tolist()) == (np.float32, [[1], [1]])
    assert np.isnan(narrow[1, 0])  # the argument is not changed


def test_missing_values_that_fit_had_not_seen_are_filled():
    transform = fitted("mean", block(a=np.array([1, 3])))
    assert transform.apply(block(a=np.array([np.nan]))).columns["a"].values.tolist() == [2]


def test_too_many_different_values_to_count(monkeypatch):
    monkeypatch.setattr(counting, "MAX_DISTINCT", 3)
    with pytest.raises(DataError, match=r"column 'a': it has more than 3(?s:.)*median"):
        fitted("most_frequent", block(a=np.arange(3.0)), block(a=np.arange(3.0) + 1))


@pytest.mark.parametrize("other", [np.zeros((2, 3)), ["a", "b"]])
def test_another_column_than_in_fit_is_refused(other):
    with pytest.raises(DataError, match=r"column 'a': .*1 number"):
        ImputeTransform({"a": [0.0]}, {}).apply(block(a=other))


def test_plain_data_and_back():
    transform = ImputeTransform({"a": [0.5]}, {"t": "?"})
    assert transform_from_dict(transform.to_dict()) == transform


def test_a_hashed_column_takes_one_number():
    data = squall.from_arrays(sparse_array(np.array([[np.nan, 0, 3.0], [0, np.nan, 0]])))
    transform = squall.Imputer("constant", fill_value=7).fit(data).transform_
    assert transform == ImputeTransform({"x": [7.0]}, {}, {"x": 3})
    filled = transform.apply(next(data.blocks())).columns["x"]
    assert filled.values.tolist() == [7, 3, 7]
    with pytest.raises(DataError, match=r"not the column of 3 number\(s\) that the imputer"):
        transform.apply(block(x=sparse(np.eye(2))))
    wide = fitted("most_frequent", block(x=np.array([[5.0, 5.0], [np.nan, 5.0]])))
    assert wide == ImputeTransform({"x": [5.0]}, {}, {"x": 2})
    assert wide.apply(block(x=np.array([[np.nan, np.nan]]))).columns["x"].values.tolist() == [[5, 5]]


def test_what_was_saved_with_a_number_for_each_feature_is_read():
    old = transform_from_dict({"type": "impute", "numbers": {"x": [1.0, 1.0]}, "texts": {}})
    assert old.apply(block(x=np.array([[np.nan, 2.0]]))).columns["x"].values.tolist() == [[1, 2]]
