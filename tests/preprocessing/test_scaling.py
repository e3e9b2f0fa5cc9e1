from __future__ import annotations

import warnings
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse as sp
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from squall.errors import DataError
from squall.preprocessing.scaling import MaxAbsStatistics, StandardStatistics
from squall.preprocessing.transforms import transform_from_dict
from squall.records import ColumnSpec, SparseColumn

from .blocks import block, sparse

numbers = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 1.0, 1e-12, 0.1]) | st.just(np.nan)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=numbers)
SORTS = [
    (StandardStatistics(("x",)), StandardScaler()),
    (StandardStatistics(("x",), with_std=False), StandardScaler(with_std=False)),
    (StandardStatistics(("x",), with_mean=False), StandardScaler(with_mean=False)),
    (MaxAbsStatistics(("x",)), MaxAbsScaler()),
]
SPARSE_SORTS = SORTS[2:]


def fitted(statistics, rows):
    return statistics.finish(statistics.partial(rows))


def theirs(scaler, matrix):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns of NaN only
        return scaler.fit(matrix).transform(matrix)


def matrix_of(column: SparseColumn):
    values = np.ones(len(column.indices)) if column.values is None else column.values
    return sp.csr_array((values, column.indices, column.indptr), shape=(len(column.indptr) - 1, column.width))


@pytest.mark.parametrize(("statistics", "scaler"), SORTS)
@settings(max_examples=40)
@given(matrix=matrices)
def test_a_matrix_is_scaled_as_scikit_learn_does(statistics, scaler, matrix):
    rows = block(x=matrix)
    ours = fitted(statistics, rows).apply(rows).columns["x"].values
    np.testing.assert_allclose(ours, theirs(scaler, matrix), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("statistics", "scaler"), SPARSE_SORTS)
@settings(max_examples=30)
@given(matrix=matrices)
def test_a_sparse_matrix_is_scaled_as_scikit_learn_does(statistics, scaler, matrix):
    rows = block(x=sparse(matrix))
    ours = fitted(statistics, rows).apply(rows).columns["x"]
    expected = theirs(scaler, sp.csr_array(matrix))
    np.testing.assert_allclose(matrix_of(ours).toarray(), expected.toarray(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("of", [lambda m: m, sparse])
@pytest.mark.parametrize("statistics", [s for s, _ in SPARSE_SORTS])
@settings(max_examples=25)
@given(matrix=matrices, cuts=st.lists(st.integers(0, 12), max_size=4), random=st.randoms())
def test_statistics_do_not_depend_on_how_rows_are_cut_nor_on_their_order(
    of, statistics, matrix, cuts, random
):
    parts = np.split(matrix, sorted(min(c, len(matrix)) for c in cuts))
    pieces = [statistics.partial(block(x=of(part))) for part in parts]
    random.shuffle(pieces)
    merged = statistics.finish(reduce(statistics.merge, pieces))
    whole = fitted(statistics, block(x=of(matrix)))
    np.testing.assert_allclose(merged.scale["x"], whole.scale["x"], rtol=1e-9, atol=0)


def test_a_large_mean_costs_no_digits():
    rng = np.random.default_rng(0)
    values = 1e9 + rng.normal(size=100_000)
    statistics = StandardStatistics(("a",))
    pieces = [statistics.partial(block(a=part)) for part in np.split(values, 50)]
    transform = statistics.finish(reduce(statistics.merge, pieces))
    np.testing.assert_allclose(transform.scale["a"], np.std(values - 1e9), rtol=1e-7)
    np.testing.assert_allclose(transform.center["a"], np.mean(values), rtol=1e-15)


@pytest.mark.parametrize("value", [0.0, -3.5, 0.1, 1e9, 1e150])
@pytest.mark.parametrize("statistics", [StandardStatistics(("a",)), MaxAbsStatistics(("a",))])
def test_a_constant_column_stays_finite(statistics, value):
    rows = [block(a=np.full(n, value)) for n in (7, 1, 13)]
    merged = statistics.finish(reduce(statistics.merge, map(statistics.partial, rows)))
    scaled = merged.apply(rows[0]).columns["a"].values
    standard = isinstance(statistics, StandardStatistics)
    np.testing.assert_allclose(scaled, 0.0 if standard or not value else np.sign(value), atol=1e-9 * value)


@pytest.mark.parametrize("statistics", [StandardStatistics(("a",)), MaxAbsStatistics(("a",))])
def test_a_column_without_values_stays_missing(statistics):
    rows = block(a=np.full(3, np.nan))
    assert np.isnan(fitted(statistics, rows).apply(rows).columns["a"].values).all()


def test_entries_of_one_slot_count_as_their_sum():
    column = SparseColumn(np.array([0, 2, 3]), np.array([1, 1, 0], np.int32), None, 3)  # row 0: 2 in slot 1
    assert fitted(MaxAbsStatistics(("x",)), block(x=column)).scale["x"] == [1, 2, 1]
    whole = SparseColumn(np.array([0, 1, 2]), np.array([1, 0], np.int32), np.array([2.0, 1.0]), 3)
    statistics = StandardStatistics(("x",), with_mean=False)
    assert fitted(statistics, block(x=column)) == fitted(statistics, block(x=whole))


def test_integers_become_float64_and_others_pass():
    rows = block(a=np.array([1, 3]), t=["u", None])
    transform = fitted(StandardStatistics(("a",)), rows)
    assert transform.apply(rows).columns["a"].values.tolist() == [-1, 1]
    assert transform.apply(rows).columns["t"] is rows.columns["t"]
    assert transform.schema([ColumnSpec("a", "int64")]) == [ColumnSpec("a", "float64")]


def test_a_sparse_column_is_not_centred_in_silence():
    transform = fitted(StandardStatistics(("x",)), block(x=np.eye(2)))
    with pytest.raises(DataError, match=r"column 'x': .*fill its zeros(?s:.)*with_mean=False"):
        transform.apply(block(x=sparse(np.eye(2))))


@pytest.mark.parametrize("of", [lambda m: m, sparse])
@pytest.mark.parametrize("statistics", [StandardStatistics(("x",)), MaxAbsStatistics(("x",))])
def test_an_infinite_value_is_refused_by_name(statistics, of):
    with pytest.raises(DataError, match=r"column 'x': .*infinite"):
        statistics.partial(block(x=of(np.array([[1.0, -np.inf]]))))


def test_numbers_whose_squares_overflow_are_refused():
    with np.errstate(over="ignore"), pytest.raises(DataError, match="beyond float64"):
        fitted(StandardStatistics(("a",)), block(a=np.array([1e200, -1e200])))


@pytest.mark.parametrize("other", [["u", "v"], np.zeros((2, 3))])
def test_another_column_than_in_fit_is_refused_by_name(other):
    transform = fitted(MaxAbsStatistics(("a",)), block(a=np.array([1.0, 2.0])))
    with pytest.raises(DataError, match=r"column 'a': .*1 number"):
        transform.apply(block(a=other))


def test_plain_data_and_back():
    transform = fitted(StandardStatistics(("a", "x")), block(a=np.array([0.1, 0.7]), x=np.eye(2)))
    assert transform_from_dict(transform.to_dict()) == transform
