from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder

from squall.errors import DataError
from squall.preprocessing import counting
from squall.preprocessing.layout import FeatureLayout
from squall.preprocessing.onehot import OneHotStatistics
from squall.preprocessing.transforms import transform_from_dict
from squall.records import ColumnSpec

from .blocks import block, dense

texts = st.sampled_from(["a", "b", "c", "ä", "", None])
tables = st.lists(st.tuples(texts, texts), min_size=1, max_size=12)


def columns(rows):
    first, second = zip(*rows, strict=True)
    return block(u=list(first), v=list(second))


def fitted(rows, *more, **settings):
    statistics = OneHotStatistics(tuple(rows.columns), "onehot", **settings)
    return statistics.finish(reduce(statistics.merge, map(statistics.partial, [rows, *more])))


def encoded(transform, rows):
    specs = transform.schema([ColumnSpec(name, "categorical") for name in rows.columns])
    return dense(FeatureLayout.of(specs).encode(transform.apply(rows)))


@settings(max_examples=60)
@given(tables, tables, st.sampled_from([None, 2, 3, 0.3]), st.integers(1, 12))
def test_slots_are_scikit_learns_however_rows_are_cut(seen, new, least, cut):
    unknown = "ignore" if least is None else "infrequent_if_exist"
    theirs = OneHotEncoder(handle_unknown=unknown, min_frequency=least, sparse_output=False)
    theirs.fit(np.array(seen, dtype=object))
    pieces = [columns(part) for part in (seen[:cut], seen[cut:]) if part]
    ours = fitted(*pieces, unknown="ignore" if least is None else "infrequent", min_frequency=least)
    rows = columns(new)
    np.testing.assert_array_equal(encoded(ours, rows), theirs.transform(np.array(new, dtype=object)))


def test_names_of_slots():
    transform = fitted(block(t=["b", "a", "b", None, "c"]), min_frequency=2)
    assert transform.slot_names() == ["t_b", "t_infrequent"]
    assert fitted(block(t=["b", None])).slot_names() == ["t_b", "t_None"]


def test_an_unseen_category_has_no_slot_or_is_an_error():
    seen, new = block(t=["a", "b"]), block(t=["b", "z", None])
    assert encoded(fitted(seen), new).tolist() == [[0, 1], [0, 0], [0, 0]]
    strict = fitted(seen, unknown="error")
    assert encoded(strict, block(t=["b"])).tolist() == [[0, 1]]
    with pytest.raises(DataError, match=r"column 't': 2 categories were not seen in fit: 'z', None"):
        strict.apply(new)


def test_columns_of_numbers_labels_and_weights_pass():
    labels, weights = np.array([0, 1], np.int32), np.array([1.0, 2.0])
    rows = block(labels, weights, t=["a", "b"], a=np.array([1.0, 2.0]))
    statistics = OneHotStatistics(("t",), "onehot")
    out = statistics.finish(statistics.partial(rows)).apply(rows)
    assert list(out.columns) == ["a", "onehot"]
    assert out.columns["a"] is rows.columns["a"]
    assert (out.labels is labels, out.weights is weights) == (True, True)


def test_without_text_nothing_changes():
    rows = block(a=np.array([1.0]))
    transform = OneHotStatistics((), "onehot").finish({})
    assert transform.apply(rows) is rows
    assert transform.schema([ColumnSpec("a", "float64")]) == [ColumnSpec("a", "float64")]


def test_too_many_categories(monkeypatch):
    monkeypatch.setattr(counting, "MAX_DISTINCT", 2)
    with pytest.raises(DataError, match=r"column 't': it has more than 2(?s:.)*FeatureHasher"):
        fitted(block(t=["a", "b"]), block(t=["c"]))


@pytest.mark.parametrize("other", [block(a=np.zeros(1)), block(t=np.zeros(1))])
def test_a_column_that_is_missing_or_no_text(other):
    with pytest.raises(DataError, match="column 't'"):
        fitted(block(t=["a"])).apply(other)


def test_plain_data_and_back():
    transform = fitted(block(t=["b", "a", "b", None]), min_frequency=2)
    assert transform_from_dict(transform.to_dict()) == transform
