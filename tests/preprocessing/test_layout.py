from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.errors import DataError
from squall.preprocessing.layout import FeatureLayout
from squall.records import ColumnSpec as Spec
from squall.records import CsrBlock, DenseBlock, SparseColumn

from .blocks import block, dense, sparse

KINDS = ["int64", "float64", "dense", "sparse", "ones"]


@st.composite
def mixtures(draw):
    """(layout, block, the matrix that it means)."""
    n_rows = draw(st.integers(0, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    specs, columns, parts = [], {}, []
    for i, kind in enumerate(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))):
        width = 1 if kind in ("int64", "float64") else draw(st.integers(1, 4))
        values = rng.integers(-2, 3, (n_rows, width)).astype(np.float64)  # many zeros
        if kind == "ones":
            values = (values > 0).astype(np.float64)
        name = f"c{i}"
        specs.append(Spec(name, "sparse" if kind == "ones" else kind, width))
        parts.append(values)
        if kind == "int64":
            columns[name] = values[:, 0].astype(np.int64)
        elif kind == "float64":
            columns[name] = values[:, 0] + 0.1 * (values[:, 0] != 0)
            parts[-1] = columns[name][:, None]
        elif kind == "dense":
            columns[name] = values
        else:
            columns[name] = sparse(values, ones=kind == "ones")
    return FeatureLayout.of(specs), block(**columns), np.concatenate(parts, axis=1)


@settings(max_examples=150)
@given(mixtures())
def test_encoded_rows_are_the_columns_side_by_side(case):
    layout, rows, expected = case
    encoded = layout.encode(rows)
    assert isinstance(encoded, CsrBlock if layout.sparse else DenseBlock)
    assert encoded.n_features == layout.n_features == expected.shape[1]
    np.testing.assert_array_equal(dense(encoded), expected.astype(np.float32))


@settings(max_examples=50)
@given(mixtures())
def test_zeros_are_not_stored(case):
    layout, rows, expected = case
    encoded = layout.encode(rows)
    if isinstance(encoded, CsrBlock):
        assert len(encoded.indices) == encoded.indptr[-1] == np.count_nonzero(expected)


def test_columns_take_their_places_in_the_schemas_order_whatever_the_blocks():
    rows = block(b=np.array([2.0]), s=sparse(np.array([[0.0, 5.0]])), a=np.array([1]))
    layout = FeatureLayout.of([Spec("a", "int64"), Spec("s", "sparse", 2), Spec("b", "float64")])
    encoded = layout.encode(rows)
    assert encoded.indices.tolist() == [0, 2, 3]
    assert encoded.values.tolist() == [1, 5, 2]


def test_columns_that_the_layout_does_not_know_are_left_out():
    encoded = FeatureLayout.of([Spec("a", "float64")]).encode(block(a=np.array([1.0]), z=["text"]))
    assert encoded.features.tolist() == [[1.0]]


def test_ones_stay_implicit_as_long_as_all_are():
    ones = sparse(np.eye(2), ones=True)
    both = FeatureLayout.of([Spec("s", "sparse", 2), Spec("t", "sparse", 2)])
    assert both.encode(block(s=ones, t=ones)).values is None
    assert both.encode(block(s=ones, t=sparse(2 * np.eye(2)))).values.tolist() == [1, 2, 1, 2]


def test_zeros_that_a_sparse_column_stores_mean_nothing():
    column = SparseColumn(np.array([0, 2]), np.array([0, 1], np.int32), np.array([0.0, 3.0]), 2)
    assert dense(FeatureLayout.of([Spec("s", "sparse", 2)]).encode(block(s=column))).tolist() == [[0, 3]]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_rows_are_what_the_kernels_take(kind):
    values = np.array([[1.0, 0.0], [0.0, 2.0]])
    rows = block(x=values if kind == "dense" else sparse(values))
    encoded = FeatureLayout.of([Spec("x", kind, 2)]).encode(rows)
    if kind == "dense":
        assert (encoded.features.dtype, encoded.features.flags.c_contiguous) == (np.float32, True)
    else:
        assert (encoded.indptr.dtype, encoded.indices.dtype, encoded.values.dtype) == (
            np.int64,
            np.int32,
            np.float32,
        )


def test_labels_and_weights_become_float32():
    rows = block(np.array([1, 0], np.int32), np.array([0.5, 2.0]), a=np.zeros(2))
    encoded = FeatureLayout.of([Spec("a", "float64")]).encode(rows)
    assert (encoded.labels.tolist(), encoded.weights.tolist()) == ([1, 0], [0.5, 2])
    assert encoded.labels.dtype == encoded.weights.dtype == np.float32


def test_without_labels_and_weights():
    encoded = FeatureLayout.of([Spec("a", "float64")]).encode(block(a=np.zeros(2)))
    assert (encoded.labels.tolist(), encoded.weights) == ([0, 0], None)


@pytest.mark.parametrize(
    ("column", "spec", "where"),
    [
        (np.array([1.0, np.nan]), Spec("age", "float64"), "column 'age'"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), Spec("age", "dense", 2), "column 'age', feature 1"),
        (sparse(np.array([[0.0, 1.0], [np.nan, 0.0]])), Spec("age", "sparse", 2), "column 'age', feature 0"),
    ],
)
def test_a_missing_value_is_refused_by_name(column, spec, where):
    layout = FeatureLayout.of([Spec("b", "int64"), spec])
    with pytest.raises(DataError, match=rf"^{where}: 1 missing value\(s\) \(NaN\) in the first 2 rows"):
        layout.encode(block(b=np.array([1, 2]), age=column))


def test_only_a_column_of_its_own_can_be_read_as_categories():
    with pytest.raises(DataError, match=r"categorical=\['a'\]"):
        FeatureLayout.of([Spec("a", "float64")]).encode(block(a=np.array([np.nan])))
    with pytest.raises(DataError) as caught:
        FeatureLayout.of([Spec("a", "dense", 2)]).encode(block(a=np.array([[1, np.nan]])))
    assert "categorical" not in str(caught.value)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39, -1e300])
def test_a_value_that_float32_does_not_hold_is_refused(value):
    with pytest.raises(DataError, match=r"column 'a': .*the value .*float32"):
        FeatureLayout.of([Spec("a", "float64")]).encode(block(a=np.array([1.0, value])))


def test_a_missing_column_is_refused_by_name():
    with pytest.raises(DataError, match="column 'b': the data has no such column"):
        FeatureLayout.of([Spec("b", "float64")]).encode(block(a=np.zeros(1)))


def test_text_is_refused_with_the_fix():
    with pytest.raises(DataError, match=r"2 column\(s\) hold text: 't', 'u'(?s:.)*fix: .*FeatureHasher"):
        FeatureLayout.of([Spec("a", "int64"), Spec("t", "categorical"), Spec("u", "categorical")])


def test_only_some_of_many_columns_of_text_are_listed():
    with pytest.raises(DataError, match=r"9 column\(s\) hold text: '0', '1', '2', '3', '4' …"):
        FeatureLayout.of([Spec(str(i), "categorical") for i in range(9)])


def test_the_widest_space():
    assert FeatureLayout.of([Spec("s", "sparse", 2**31 - 1)]).n_features == 2**31 - 1


def test_a_wider_space_is_refused_with_the_fix():
    with pytest.raises(DataError, match=r"2,147,483,648 features(?s:.)*fix: hash to fewer"):
        FeatureLayout.of([Spec("s", "sparse", 2**31 - 1), Spec("a", "int64")])


@pytest.mark.parametrize("columns", [[], [Spec("x", "dense", 0)]])
def test_a_space_without_features_is_refused_with_the_fix(columns):
    with pytest.raises(DataError, match=r"0 features(?s:.)*fix: keep at least one"):
        FeatureLayout.of(columns)


def test_the_last_slot_of_the_widest_space_is_encoded_right():
    last = SparseColumn(np.array([0, 1]), np.array([2**31 - 3], np.int32), None, 2**31 - 2)
    rows = block(a=np.array([1.0]), s=last)
    encoded = FeatureLayout.of([Spec("a", "float64"), Spec("s", "sparse", 2**31 - 2)]).encode(rows)
    assert encoded.indices.tolist() == [0, 2**31 - 2]
