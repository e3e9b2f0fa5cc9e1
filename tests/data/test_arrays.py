from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from squall.data.arrays import from_arrays
from squall.errors import DataError, DataTypeError


def kinds(data):
    return {spec.name: (spec.kind, spec.width) for spec in data.columns}


def one_block(data):
    (block,) = data.blocks()
    return block


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_matrix_is_one_column_and_not_copied(dtype):
    X = np.arange(12, dtype=dtype).reshape(4, 3)
    data = from_arrays(X, [0, 1, 0, 1])
    assert kinds(data) == {"x": ("dense", 3)}
    assert np.shares_memory(one_block(data).columns["x"].values, X)
    assert one_block(data).columns["x"].values.dtype == dtype
    back, y = data.to_arrays()
    assert np.array_equal(back, X) and y.tolist() == [0, 1, 0, 1]


def test_large_matrices_come_in_partitions():
    X = np.zeros((300_000, 10))
    blocks = list(from_arrays(X).blocks())
    assert len(blocks) == 3 and sum(b.n_rows for b in blocks) == 300_000
    assert all(np.shares_memory(b.columns["x"].values, X) for b in blocks)


def test_any_memory_layout():
    X = np.arange(40.0).reshape(8, 5)
    for view in (np.asfortranarray(X), X[::2], X[:, ::2], X[::-1], X.astype(">f8"), X.astype(np.float16)):
        block = one_block(from_arrays(view))
        assert block.columns["x"].values.flags.c_contiguous
        assert block.columns["x"].values.dtype.isnative
        assert np.array_equal(block.columns["x"].values, view)


def test_nan_and_infinity_are_kept():
    X = np.array([[np.nan, np.inf], [-np.inf, -0.0]])
    data = from_arrays(X)
    assert np.array_equal(data.to_arrays()[0], X, equal_nan=True)
    assert data.missing == {"x": 1}


def test_integers_and_booleans_become_exact_floats():
    assert from_arrays([[1, 2], [3, 4]]).to_arrays()[0].dtype == np.float64
    assert from_arrays(np.array([[True, False]])).to_arrays()[0].tolist() == [[1.0, 0.0]]
    with pytest.raises(DataError, match=r"beyond 2\*\*53 would be rounded"):
        from_arrays(np.array([[2**53 + 1]]))
    data = from_arrays(np.array([[2**53 + 1, 5]]), feature_names=["id", "n"])
    assert kinds(data) == {"id": ("int64", 1), "n": ("int64", 1)}
    assert data.to_pandas()["id"].tolist() == [2**53 + 1]
    with pytest.raises(DataError, match="'id' holds integers beyond"):
        data.to_arrays()


def test_bytes_stay_bytes():
    X = np.arange(6, dtype=np.uint8).reshape(2, 3)
    data = from_arrays(X)
    assert np.shares_memory(one_block(data).columns["x"].values, X) and kinds(data) == {"x": ("dense", 3)}
    back, _ = data.to_arrays()
    assert back.dtype == np.float64 and np.array_equal(back, X)


def test_long_doubles_are_not_rounded_in_silence():
    X = np.array([[0.5, np.nan]], dtype=np.longdouble)
    assert np.array_equal(from_arrays(X).to_arrays()[0], X, equal_nan=True)
    with pytest.raises(DataError, match="would be rounded"):
        from_arrays(np.array([[1]], dtype=np.longdouble) / 3)


def test_numpys_own_strings():
    X = np.array([["a", "b"]], dtype=np.dtypes.StringDType())
    assert kinds(from_arrays(X)) == {"0": ("categorical", 1), "1": ("categorical", 1)}


def test_feature_names():
    data = from_arrays(np.arange(6.0).reshape(3, 2), feature_names=["a", "b"])
    assert kinds(data) == {"a": ("float64", 1), "b": ("float64", 1)}
    for names, message in ((["a"], "1 names for 2 columns"), (["a", "a"], "two columns are named 'a'")):
        with pytest.raises(DataError, match=message):
            from_arrays(np.zeros((3, 2)), feature_names=names)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), "Expected 2D array, got 1D array instead"),
        (np.zeros((2, 2, 2)), "Expected 2D array, got 3D"),
        (5.0, "Expected 2D array, got 0D"),
        (np.zeros((2, 2), dtype=complex), "Complex data not supported"),
        (np.zeros((2, 2), dtype="M8[s]"), "not a type of number"),
        ([[1, 2], [3]], "different lengths"),
        (np.ma.masked_array(np.zeros((2, 2)), True), "masked arrays"),
        (sparse.coo_array(np.zeros(3)), "Expected 2D array, got 1D sparse"),
    ],
)
def test_what_is_no_table_is_refused(X, message):
    with pytest.raises(DataError, match=message):
        from_arrays(X)


def test_tables_of_objects():
    data = from_arrays([[1, "a"], [2, None], [None, "b"]])
    assert kinds(data) == {"0": ("float64", 1), "1": ("categorical", 1)}
    assert data.to_arrays()[0][:, 1].tolist() == ["a", None, "b"]
    assert kinds(from_arrays(np.array([[1.5, 2]], dtype=object))) == {"x": ("dense", 2)}
    assert kinds(from_arrays([["a", "b"]])) == {"0": ("categorical", 1), "1": ("categorical", 1)}
    with pytest.raises(DataTypeError, match=r"X, column '0': row 1 holds \{\} of type dict, .*a string"):
        from_arrays(np.array([["a"], [{}]], dtype=object))


def test_no_rows_and_no_columns():
    assert len(from_arrays(np.zeros((0, 3)))) == 0
    assert from_arrays(np.zeros((0, 3))).to_arrays()[0].shape == (0, 3)
    assert from_arrays(np.zeros((3, 0))).to_arrays()[0].shape == (3, 0)


# ------------------------------------------------------------------------------------- sparse


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
@pytest.mark.parametrize("make", [sparse.random, sparse.random_array])
def test_any_sparse_matrix(kind, make):
    size = (20, 7) if make is sparse.random else ((20, 7),)
    X = (
        make(*size, density=0.3, format=kind, random_state=0)
        if make is sparse.random
        else make(*size, density=0.3, format=kind)
    )
    data = from_arrays(X, np.arange(20) % 2)
    assert kinds(data) == {"x": ("sparse", 7)}
    assert np.array_equal(data.to_arrays()[0].toarray(), X.toarray())


def test_csr_is_not_copied_and_ones_are_left_out():
    X = sparse.csr_array(np.array([[0.5, 0, 1], [0, 2, 0]]))
    column = one_block(from_arrays(X)).columns["x"]
    assert np.shares_memory(column.values, X.data) and np.shares_memory(column.indices, X.indices)
    assert one_block(from_arrays(sparse.csr_array(np.eye(3)))).columns["x"].values is None


def test_unsorted_and_duplicate_indices_are_summed_on_a_copy():
    X = sparse.csr_array((np.array([1.0, 2, 4]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    before = X.indices.copy()
    data = from_arrays(X)
    assert data.to_arrays()[0].toarray().tolist() == [[2, 0, 5]]
    assert np.array_equal(X.indices, before) and X.nnz == 3


def test_explicit_zeros_and_empty_rows():
    X = sparse.csr_array((np.array([0.0, 3]), np.array([0, 1]), np.array([0, 1, 1, 2])), shape=(3, 2))
    assert from_arrays(X).to_arrays()[0].toarray().tolist() == [[0, 0], [0, 0], [0, 3]]


def test_indices_that_do_not_fit():
    wide = sparse.csr_array((np.ones(1), np.array([2**31]), np.array([0, 1])), shape=(1, 2**31 + 5))
    with pytest.raises(DataError, match=r"wider than 2\*\*31 - 1\n  fix: hash"):
        from_arrays(wide)
    long = sparse.csr_array(
        (np.full(1, 2.0), np.array([5], np.int64), np.array([0, 1], np.int64)), shape=(1, 9)
    )
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    column = one_block(from_arrays(long)).columns["x"]
    assert (column.indices.dtype, column.indptr.dtype) == (np.int32, np.int64)
    broken = sparse.csr_array(np.eye(3))
    broken.indices[0] = 7
    with pytest.raises(DataError, match="sparse matrix is inconsistent"):
        from_arrays(broken)
    with pytest.raises(DataError, match="feature_names"):
        from_arrays(sparse.csr_array(np.eye(3)), feature_names=["a", "b", "c"])


def test_sparse_integers():
    assert from_arrays(sparse.csr_array(np.array([[0, 2]]))).to_arrays()[0].dtype == np.float64
    with pytest.raises(DataError, match="would be rounded"):
        from_arrays(sparse.csr_array(np.array([[0, 2**53 + 1]])))


# ------------------------------------------------------------------------------------- pandas


def test_frames_keep_names_and_types():
    frame = pd.DataFrame(
        {
            "i": [1, 2, 3],
            "u8": np.array([1, 2, 255], np.uint8),
            "f": [1.5, np.nan, 2],
            "f32": np.array([1, 2, 3], np.float32),
            "b": [True, False, True],
            "s": ["x", None, "y"],
            "o": pd.Series(["x", np.nan, "y"], dtype=object),
            "c": pd.Categorical(["hi", "lo", None], categories=["lo", "hi"]),
            "n": pd.array([1, None, 3], dtype="Int64"),
            "nb": pd.array([True, None, False], dtype="boolean"),
            "nf": pd.array([1.5, None, 3], dtype="Float64"),
            "full": pd.array([2**60 + 1, 2, 3], dtype="Int64"),
            "an": pd.array([1, None, 3], dtype="int64[pyarrow]"),
            "af": pd.array([2**60 + 1, 2, 3], dtype="int64[pyarrow]"),
            "as": pd.array(["x", None, "y"], dtype="string[pyarrow]"),
            "aa": pd.array(["x", None, "y"], dtype=pd.ArrowDtype(pa.string())),
            "ab": pd.array([True, None, False], dtype="bool[pyarrow]"),
            "ad": pd.array(["x", None, "y"], dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
            7: [1, 2, 3],
        }
    )
    data = from_arrays(frame)
    assert {name: kind for name, (kind, _) in kinds(data).items()} == {
        "i": "int64",
        "u8": "int64",
        "f": "float64",
        "f32": "float64",
        "b": "int64",
        "s": "categorical",
        "o": "categorical",
        "c": "categorical",
        "n": "float64",
        "nb": "float64",
        "nf": "float64",
        "full": "int64",
        "7": "int64",
        "an": "float64",
        "af": "int64",
        "as": "categorical",
        "aa": "categorical",
        "ab": "float64",
        "ad": "categorical",
    }
    back = data.to_pandas()
    for name in frame:
        expected = [None if pd.isna(v) else v for v in frame[name]]
        assert [None if pd.isna(v) else v for v in back[str(name)]] == expected
    assert data.missing == {"f": 1, "s": 1, "o": 1, "c": 1, "n": 1, "nb": 1, "nf": 1,
                            "an": 1, "as": 1, "aa": 1, "ab": 1, "ad": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.to_datetime(["2020-01-01"]), r"X, column 'a': dates and times .*\n  fix: .*dayofweek"),
        (pd.to_datetime(["2020-01-01"], utc=True), "dates and times"),
        (pd.to_timedelta(["1s"]), "dates and times"),
        (pd.array([0], dtype="timestamp[s][pyarrow]"), "dates and times"),
        (pd.array([[1]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))), "row 0 holds"),
        (pd.array([2**60 + 1, None], dtype="int64[pyarrow]"), "would round them"),
        (pd.Series([1j]), "type complex"),
        (pd.array([2**60 + 1, None], dtype="Int64"), "would round them"),
        (np.array([2**64 - 1], np.uint64), "beyond the range of int64"),
        (pd.Series(["a", 1], dtype=object), "row 1 holds 1 of type int in a column of text"),
        (pd.Series([2**53 + 1, None], dtype=object), "would be rounded"),
        (pd.period_range("2020", periods=1, freq="D"), "row 0 holds"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(column, message):
    with pytest.raises(DataError, match=message):
        from_arrays(pd.DataFrame({"a": column}))


def test_frame_corner_cases():
    with pytest.raises(DataError, match="two columns are named '1'"):
        from_arrays(pd.DataFrame([[1, 2]], columns=[1, "1"]))
    assert kinds(from_arrays(pd.DataFrame({"a": pd.Series([None, None], dtype=object)}))) == {
        "a": ("float64", 1)
    }
    frame = pd.DataFrame({"a": [1, 2], "y": [3, 4]}, index=[5, 5])
    data = from_arrays(frame, pd.Series([0, 1], name="y"))
    assert data.label == "y_" and list(data.to_pandas()) == ["a", "y", "y_"]


# ----------------------------------------------------------------------------- labels, weights


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([1, -1, 1], [-1, 1]),
        ([0.0, 1.5, 0.0], [0.0, 1.5]),
        (["b", "a", "b"], ["a", "b"]),
        (np.array(["b", "a", "b"], dtype=object), ["a", "b"]),
        ([True, False, True], [False, True]),
        (np.array([2, 1, 2], dtype=object), [1, 2]),
        (np.array([[1], [0], [1]]), [0, 1]),
        (pd.Series(["b", "a", "b"], name="target"), ["a", "b"]),
        (pd.Series(pd.Categorical(["b", "a", "b"], categories=["b", "a", "z"])), ["a", "b"]),
        (pd.Series([2, 1, 2], dtype="Int64"), [1, 2]),
        ([b"b", b"a", b"b"], ["a", "b"]),
        ([7, 7, 7], [7]),
    ],
)
def test_labels(y, classes):
    data = from_arrays(np.zeros((3, 1)), y)
    assert data.classes.tolist() == classes
    assert [type(c) for c in data.classes.tolist()] == [type(c) for c in classes]
    back = data.to_arrays()[1].tolist()
    assert back == [classes[c] for c in one_block(data).labels]
    assert data.label == (getattr(y, "name", None) or "y")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1], "3 rows and y has 2 labels: inconsistent numbers of samples"),
        ([0, np.nan, 1], "label of row 1 is nan: Input y contains NaN"),
        ([0, np.inf, 1], "label of row 1 is inf"),
        (["a", None, "b"], "label of row 1 is None"),
        (pd.Series(["a", None, "b"]), "label of row 1 is"),
        (pd.Series([1, None, 2], dtype="Int64"), "label of row 1 is"),
        (np.zeros((3, 2)), "y should be a 1d array, got an array of shape"),
        (np.array([1, "a", 2], dtype=object), "mixed types"),
        (np.array([1j, 2, 3]), "cannot be classes"),
        (pd.to_datetime(["2020", "2021", "2022"]), "cannot be classes"),
        ([[1], [2, 3], [4]], "different lengths"),
    ],
)
def test_labels_that_are_refused(y, message):
    with pytest.raises(DataError, match=message):
        from_arrays(np.zeros((3, 1)), y)


def test_too_many_labels():
    assert len(from_arrays(np.zeros((10_000, 1)), np.arange(10_000)).classes) == 10_000
    with pytest.raises(DataError, match="more than 10,000 different labels"):
        from_arrays(np.zeros((10_001, 1)), np.arange(10_001).astype(str))


@pytest.mark.parametrize("y", [np.arange(10_001), np.linspace(-1, 1, 10_001)])
def test_numbers_that_are_no_classes_stay_numbers(y):
    data = from_arrays(np.zeros((10_001, 1)), y)
    assert data.classes is None
    assert data.label == "y"
    np.testing.assert_array_equal(data.to_arrays()[1], y)
    left, right = data.split(test=0.5, random_state=0)
    assert sorted(np.concatenate([left.to_arrays()[1], right.to_arrays()[1]])) == y.tolist()


def test_numbers_that_would_be_rounded_are_refused():
    with pytest.raises(DataError, match=r"integers beyond 2\*\*53"):
        from_arrays(np.zeros((10_001, 1)), np.arange(10_001) + 2**53)


def test_weights():
    data = from_arrays(np.zeros((3, 1)), [0, 1, 0], weights=[0, 1, 2])
    assert one_block(data).weights.tolist() == [0, 1, 2]
    for weights in ([1, 2], [[1, 2, 3]], [1, -1, 1], [1, np.nan, 1], ["a", "b", "c"]):
        with pytest.raises(DataError, match="weight"):
            from_arrays(np.zeros((3, 1)), weights=weights)


LONE = "a\ud800"  # as from bytes that were decoded with surrogateescape


@pytest.mark.parametrize(
    ("X", "y", "settings", "where"),
    [
        ([[1.0], [2.0]], ["b", LONE], {}, "y"),
        ([["b"], [LONE]], None, {}, "X, column '0'"),
        (pd.DataFrame({"c": pd.Series(["b", LONE], dtype=object)}), None, {}, "X, column 'c'"),
        (
            pd.DataFrame({"c": pd.Categorical.from_codes([0, 1], pd.Index(["b", LONE], dtype=object))}),
            None,
            {},
            "X, column 'c'",
        ),
        (pd.DataFrame([[1], [2]], columns=pd.Index([LONE], dtype=object)), None, {}, "a column name of X"),
        ([[1.0], [2.0]], None, {"feature_names": [LONE]}, "feature_names"),
    ],
)
def test_text_that_no_file_can_hold_is_refused_where_it_is(X, y, settings, where):
    with pytest.raises(DataError, match="lone surrogate") as caught:
        from_arrays(X, y, **settings)
    assert caught.value.where == where
    str(caught.value).encode()


def test_a_sparse_matrix_of_strided_views():
    whole = sparse.random(60, 6, density=0.5, format="csr", random_state=0)
    strided = whole.copy()
    strided.data, strided.indices = np.repeat(whole.data, 2)[::2], np.repeat(whole.indices, 2)[::2]
    assert not strided.data.flags.c_contiguous
    X, _ = from_arrays(strided).to_arrays()
    assert (whole != X).nnz == 0
