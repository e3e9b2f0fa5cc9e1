from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

from squall.errors import DataError
from squall.preprocessing.tfidf import TfidfStatistics
from squall.preprocessing.transforms import transform_from_dict
from squall.records import SparseColumn

from .blocks import block, sparse

counts = st.integers(0, 4).map(float)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=counts)
options = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["l1", "l2", None]),
        "use_idf": st.booleans(),
        "smooth_idf": st.booleans(),
        "sublinear_tf": st.booleans(),
    }
)


def fitted(*blocks, **settings):
    statistics = TfidfStatistics(("x",), **settings)
    return statistics.finish(reduce(statistics.merge, map(statistics.partial, blocks)))


def weights(column):
    if not isinstance(column, SparseColumn):
        return column.values
    shape = len(column.indptr) - 1, column.width
    return sp.csr_array((column.values, column.indices, column.indptr), shape=shape).toarray()


@pytest.mark.parametrize("of", [lambda m: m, sparse])
@settings(max_examples=60)
@given(matrix=matrices, chosen=options, cut=st.integers(1, 9))
def test_weights_are_scikit_learns_however_rows_are_cut(of, matrix, chosen, cut):
    with np.errstate(divide="ignore"):
        theirs = TfidfTransformer(**chosen).fit(sp.csr_array(matrix)).transform(sp.csr_array(matrix))
    pieces = [block(x=of(part)) for part in (matrix[:cut], matrix[cut:]) if len(part)]
    ours = fitted(*pieces, **chosen).apply(block(x=of(matrix)))
    np.testing.assert_allclose(weights(ours.columns["x"]), theirs.toarray(), rtol=1e-9, atol=1e-12)


def test_a_stored_zero_is_as_good_as_none():
    indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32)
    with_zero = block(x=SparseColumn(indptr, indices, np.array([1.0, 0.0, 2.0]), 2))
    without = block(x=sparse(np.array([[1.0, 0.0], [0.0, 2.0]])))
    assert fitted(with_zero) == fitted(without)
    for sublinear in (True, False):
        transform = fitted(without, sublinear_tf=sublinear)
        np.testing.assert_array_equal(
            weights(transform.apply(with_zero).columns["x"]), weights(transform.apply(without).columns["x"])
        )


def test_a_term_that_no_row_of_fit_has_is_finite():
    transform = fitted(block(x=np.array([[1.0, 0.0]])), smooth_idf=False, norm=None)
    assert transform.apply(block(x=np.array([[1.0, 3.0]]))).columns["x"].values.tolist() == [[1, 3]]


def test_an_empty_row_stays_empty():
    rows = block(x=np.array([[1.0, 2.0], [0.0, 0.0]]))
    assert fitted(rows).apply(rows).columns["x"].values[1].tolist() == [0, 0]


def test_a_negative_count_is_refused_where_it_has_no_logarithm():
    rows = block(x=np.array([[-1.0]]))
    assert fitted(rows).apply(rows).columns["x"].values.tolist() == [[-1]]
    with pytest.raises(DataError, match=r"column 'x': .*negative count"):
        fitted(rows, sublinear_tf=True).apply(rows)


def test_another_width_is_refused():
    with pytest.raises(DataError, match=r"column 'x': .*2 number"):
        fitted(block(x=np.eye(2))).apply(block(x=np.eye(3)))


def test_plain_data_and_back():
    for settings_ in ({}, {"use_idf": False, "norm": None}):
        transform = fitted(block(x=np.eye(2)), **settings_)
        assert transform_from_dict(transform.to_dict()) == transform
