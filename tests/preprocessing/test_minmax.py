from __future__ import annotations

import warnings
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import MinMaxScaler

from squall.errors import CorruptError, DataError
from squall.preprocessing.columns import as_matrix
from squall.preprocessing.minmax import MinMaxStatistics
from squall.preprocessing.transforms import transform_from_dict
from squall.records import ColumnSpec

from .blocks import block, sparse

numbers = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 1.0, 1e-300, 5e-324, 1e300]) | st.just(np.nan)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=numbers)
ranges = st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (2.0, 7.5)])


OF_X = MinMaxStatistics(("x",))


def statistics_of(rows, feature_range=(0.0, 1.0)):
    numbers = tuple(name for name, column in rows.columns.items() if as_matrix(column) is not None)
    return MinMaxStatistics(numbers, feature_range)


def fitted(rows, feature_range=(0.0, 1.0)):
    statistics = statistics_of(rows, feature_range)
    return statistics.finish(statistics.partial(rows))


def columns_of(matrix):
    return block(**{f"c{j}": matrix[:, j].copy() for j in range(matrix.shape[1])})


def scikit_learns(matrix, feature_range, new=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns of NaN only
        return MinMaxScaler(feature_range=feature_range).fit(matrix).transform(matrix if new is None else new)


@settings(max_examples=60)
@given(matrices, ranges)
def test_a_matrix_is_scaled_as_scikit_learn_does(matrix, feature_range):
    rows = block(x=matrix)
    scaled = fitted(rows, feature_range).apply(rows).columns["x"].values
    np.testing.assert_allclose(scaled, scikit_learns(matrix, feature_range), rtol=1e-12, atol=1e-12)


@settings(max_examples=30)
@given(matrices)
def test_columns_are_scaled_as_a_matrix_is(matrix):
    rows, whole = columns_of(matrix), block(x=matrix)
    scaled = fitted(rows).apply(rows).columns
    together = fitted(whole).apply(whole).columns["x"].values
    np.testing.assert_array_equal(np.stack([c.values for c in scaled.values()], axis=1), together)


@settings(max_examples=40)
@given(matrices, st.lists(st.integers(0, 12), max_size=4), st.randoms())
def test_statistics_do_not_depend_on_how_rows_are_cut_nor_on_their_order(matrix, cuts, random):
    parts = np.split(matrix, sorted(min(c, len(matrix)) for c in cuts))
    pieces = [OF_X.partial(block(x=part)) for part in parts]
    random.shuffle(pieces)
    assert OF_X.finish(reduce(OF_X.merge, pieces)) == fitted(block(x=matrix))


@settings(max_examples=40)
@given(*[hnp.arrays(np.float64, (3, 2), elements=numbers)] * 3)
def test_merge_is_associative_and_commutative(a, b, c):
    a, b, c = (OF_X.partial(block(x=m)) for m in (a, b, c))
    merge = OF_X.merge
    for left, right in [(merge(a, b), merge(b, a)), (merge(merge(a, b), c), merge(a, merge(b, c)))]:
        np.testing.assert_array_equal(left.low["x"], right.low["x"])
        np.testing.assert_array_equal(left.high["x"], right.high["x"])


def test_a_block_without_rows_changes_nothing():
    some, none = block(x=np.array([[1.0], [3.0]])), block(x=np.empty((0, 1)))
    merged = OF_X.merge(OF_X.partial(some), OF_X.partial(none))
    assert OF_X.finish(merged) == fitted(some)


@pytest.mark.parametrize("value", [0.0, -3.5, 1e9, 5e-324])
def test_a_constant_column_becomes_the_lower_end(value):
    rows = block(a=np.full(4, value))
    np.testing.assert_array_equal(fitted(rows, (2.0, 5.0)).apply(rows).columns["a"].values, 2.0)


def test_a_column_without_values_stays_missing():
    rows = block(a=np.full(3, np.nan), b=np.array([1.0, 2.0, 3.0]))
    scaled = fitted(rows).apply(rows).columns
    assert np.isnan(scaled["a"].values).all()
    assert scaled["b"].values.tolist() == [0, 0.5, 1]


def test_missing_values_stay_missing():
    rows = block(a=np.array([1.0, np.nan, 3.0]))
    np.testing.assert_array_equal(fitted(rows).apply(rows).columns["a"].values, [0, np.nan, 1])


def test_rows_beyond_the_range_of_fit_go_beyond_the_range():
    transform = fitted(block(a=np.array([0.0, 10.0])))
    assert transform.apply(block(a=np.array([-10.0, 20.0]))).columns["a"].values.tolist() == [-1, 2]


def test_integers_are_scaled_exactly_as_their_floats():
    values = np.array([-5, 0, 2**53, 7], dtype=np.int64)
    rows = block(a=values)
    expected = scikit_learns(values[:, None].astype(float), (0, 1))[:, 0]
    scaled = fitted(rows).apply(rows).columns["a"].values
    assert scaled.dtype == np.float64
    np.testing.assert_allclose(scaled, expected, rtol=1e-12)


def test_integer_columns_become_float64_in_the_schema():
    transform = fitted(block(a=np.array([1, 2]), x=np.eye(2)))
    others = [ColumnSpec("t", "categorical"), ColumnSpec("x", "dense", 2)]
    assert transform.schema([ColumnSpec("a", "int64"), *others]) == [ColumnSpec("a", "float64"), *others]


def test_text_sparse_columns_labels_and_weights_pass():
    labels, weights = np.array([0, 1], np.int32), np.array([1.0, 2.0])
    rows = block(labels, weights, a=np.array([1.0, 2.0]), t=["u", None], s=sparse(np.eye(2)))
    scaled = fitted(rows).apply(rows)
    assert scaled.columns["t"] is rows.columns["t"]
    assert scaled.columns["s"] is rows.columns["s"]
    assert (scaled.labels is labels, scaled.weights is weights) == (True, True)


def test_the_argument_is_not_changed():
    values = np.array([1.0, 2.0])
    rows = block(a=values)
    fitted(rows).apply(rows)
    assert values.tolist() == [1, 2]


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_an_infinite_value_is_refused_by_name(bad, shape):
    values = np.zeros(shape)
    values[1] = bad
    with pytest.raises(DataError, match=r"column 'height': .*infinite(?s:.)*fix: replace infinities"):
        fitted(block(age=np.zeros(3), height=values))


@pytest.mark.parametrize("other", [["u", "v"], np.zeros((2, 3)), sparse(np.eye(2))])
def test_another_column_than_in_fit_is_refused_by_name(other):
    transform = fitted(block(a=np.array([1.0, 2.0])))
    with pytest.raises(DataError, match=r"column 'a': .*1 number"):
        transform.apply(block(a=other))


def test_plain_data_and_back():
    transform = fitted(block(a=np.array([0.1, 0.7]), x=np.eye(2)))
    assert transform_from_dict(transform.to_dict()) == transform


@pytest.mark.parametrize(
    "data", [{}, {"type": "zscore"}, {"type": "minmax"}, {"type": "minmax", "scale": 1}, [], None]
)
def test_other_plain_data_is_refused(data):
    with pytest.raises(CorruptError, match="not a transform"):
        transform_from_dict(data)
