from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import MinMaxScaler as Reference
from sklearn.utils import get_tags

import squall
from squall import FeatureHasher, MinMaxScaler
from squall.errors import DataError, SettingError

from .problems import numbers, people

X, _ = numbers(20)
frame, labels = people(20)


def test_a_matrix_becomes_a_matrix():
    scaled = MinMaxScaler().fit_transform(X)
    np.testing.assert_allclose(scaled, Reference().fit_transform(X), atol=1e-12)


def test_a_data_frame_becomes_one_with_its_index_and_order():
    indexed = frame.set_index(pd.Index(range(100, 120), name="who"))
    scaled = MinMaxScaler().fit_transform(indexed)
    assert scaled.columns.tolist() == indexed.columns.tolist()
    assert scaled.index.equals(indexed.index)
    assert [scaled.age.min(), scaled.age.max(), scaled.height.max()] == pytest.approx([0, 1, 1])
    assert scaled.job.isna().tolist() == indexed.job.isna().tolist()
    assert scaled.job.dropna().tolist() == indexed.job.dropna().tolist()


def test_a_dataset_becomes_a_dataset_that_keeps_its_labels():
    data = squall.from_arrays(frame, labels)
    scaled = MinMaxScaler().fit(data).transform(data)
    assert isinstance(scaled, squall.Dataset)
    table = scaled.to_pandas()
    assert [table.age.min(), table.age.max()] == pytest.approx([0, 1])
    assert table["y"].tolist() == labels.tolist()


def test_rows_of_other_data_are_scaled_by_what_fit_saw():
    scaler = MinMaxScaler(feature_range=(-1, 1)).fit([[0.0], [10.0]])
    assert scaler.transform([[5.0], [20.0]]).tolist() == [[0], [3]]


def test_text_becomes_a_sparse_matrix_of_slots():
    hashed = FeatureHasher(n_features=16).fit_transform(frame[["job"]])
    assert sparse.issparse(hashed)
    assert hashed.shape == (20, 16)
    assert hashed.sum(axis=1).tolist() == [1] * 20
    same_job = (frame.job.to_numpy() == "cook").nonzero()[0]
    assert len({int(hashed[[i]].indices[0]) for i in same_job}) == 1


def test_numbers_pass_beside_slots():
    hashed = FeatureHasher(n_features=16).fit_transform(frame)
    assert hashed.shape == (20, 18)
    np.testing.assert_array_equal(hashed[:, [0]].toarray()[:, 0], frame.age)


def test_an_array_of_text_is_hashed_by_column():
    hashed = FeatureHasher(n_features=2**18).fit_transform(np.array([["a", "b"], ["b", "a"]]))
    assert hashed.sum() == 4
    assert len(set(hashed.indices.tolist())) == 4  # "a" in the first column is not "a" in the second


@pytest.mark.parametrize("transformer", [MinMaxScaler(), FeatureHasher()])
def test_what_a_transformer_does_not_touch_passes(transformer):
    rows = np.array([["a"], ["b"]]) if isinstance(transformer, MinMaxScaler) else X
    passed = transformer.fit_transform(rows)
    assert passed.dtype == (object if isinstance(transformer, MinMaxScaler) else X.dtype)
    np.testing.assert_array_equal(passed, rows)


def test_the_new_column_finds_a_free_name():
    table = squall.from_arrays(pd.DataFrame({"hashed": [1, 2], "t": ["a", "b"]}))
    out = FeatureHasher(8).fit(table).transform(table)
    assert [c.name for c in out.columns] == ["hashed", "hashed_"]


@pytest.mark.parametrize("transformer", [MinMaxScaler((0, 2)), FeatureHasher(8)])
def test_clone_and_parameters(transformer):
    assert clone(transformer).get_params() == transformer.get_params()


def test_tags_say_what_they_take():
    assert get_tags(MinMaxScaler()).input_tags.allow_nan
    assert get_tags(FeatureHasher()).input_tags.string


@pytest.mark.parametrize("transformer", [MinMaxScaler(), FeatureHasher()])
def test_a_transformer_that_is_not_fitted(transformer):
    with pytest.raises(NotFittedError):
        transformer.transform(frame)


@pytest.mark.parametrize(
    "pair", [(1, 0), (1, 1), (0,), (0, 1, 2), 1, None, "01", (0, "1"), (0, float("nan")), (0, float("inf"))]
)
def test_what_is_no_range(pair):
    with pytest.raises(SettingError, match=r"MinMaxScaler: feature_range=.* must be two numbers"):
        MinMaxScaler(feature_range=pair).fit(X)


@pytest.mark.parametrize("n", [0, -1, 2**31, 8.0, None, True])
def test_what_is_no_number_of_slots(n):
    with pytest.raises(SettingError, match=r"FeatureHasher: n_features=.* from 1 to 2147483647"):
        FeatureHasher(n_features=n).fit(frame)


@pytest.mark.parametrize(
    ("transformer", "rows", "says"),
    [
        (MinMaxScaler(), sparse.csr_array(X), "column 'x': it is sparse(?s:.)*before FeatureHasher"),
        (MinMaxScaler(), X[:0], "no rows to fit on"),
        (MinMaxScaler(), np.array([[np.inf]]), "column 'x': .*infinite"),
        (FeatureHasher(), frame[:0], "no rows to fit on"),
        (FeatureHasher(), frame[[]], r"0 feature\(s\)"),
    ],
)
def test_data_that_does_not_fit(transformer, rows, says):
    with pytest.raises(DataError, match=says):
        transformer.fit(rows)


def test_other_columns_than_in_fit_are_refused():
    scaler = MinMaxScaler().fit(X)
    with pytest.raises(ValueError, match="X has 2 features, but MinMaxScaler is expecting 3 features"):
        scaler.transform(X[:, :2])
    with pytest.raises(DataError, match="missing: 'job'"):
        FeatureHasher().fit(frame).transform(frame[["age", "height"]])


def test_text_that_became_numbers_is_refused_with_the_fix():
    hasher = FeatureHasher().fit(frame)
    with pytest.raises(DataError, match=r"column 'job': it is int64 here(?s:.)*categorical=\['job'\]"):
        hasher.transform(frame.assign(job=1))
