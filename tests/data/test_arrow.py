from __future__ import annotations

import datetime
import decimal
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.data.arrays import from_arrays
from squall.errors import DataError, MissingExtraError

from .blocks import quick


def kinds(data):
    return {spec.name: (spec.kind, spec.width) for spec in data.columns}


def cells(data, name):
    """The values of a column, None where one is missing."""
    (block,) = data.blocks()
    column = block.columns[name]
    if hasattr(column, "codes"):
        return [None if code < 0 else column.strings()[code] for code in column.codes]
    return [None if v != v else v for v in column.values.tolist()]


TABLE = {
    "i8": (pa.array([1, 2, -3], pa.int8()), "int64"),
    "u64": (pa.array([1, 2**63 - 1, 0], pa.uint64()), "int64"),
    "wide": (pa.array([2**60 + 1, -(2**63), 3]), "int64"),
    "null": (pa.array([1, None, 2**53]), "float64"),
    "bool": (pa.array([True, False, True]), "int64"),
    "bools": (pa.array([True, None, False]), "float64"),
    "half": (pa.array(np.array([1, 2, 3], np.float16)), "float64"),
    "f32": (pa.array([1.5, None, 3], pa.float32()), "float64"),
    "f64": (pa.array([0.1, None, -3.0]), "float64"),
    "none": (pa.nulls(3), "float64"),
    "s": (pa.array(["x", None, "ü"]), "categorical"),
    "large": (pa.array(["x", "", "x"], pa.large_string()), "categorical"),
    "dict": (pa.array(["lo", None, "lo"]).dictionary_encode(), "categorical"),
    "ints": (pa.array([7, None, 7]).dictionary_encode(), "categorical"),
    "whole": (pa.array([decimal.Decimal(5), None, None], pa.decimal128(18, 0)), "float64"),
    "price": (
        pa.array([decimal.Decimal("12.34"), None, decimal.Decimal("0.10")], pa.decimal128(9, 2)),
        "float64",
    ),
}


@pytest.mark.parametrize("chunked", [False, True])
def test_tables_keep_names_types_and_values(chunked):
    table = pa.table({name: values for name, (values, _) in TABLE.items()})
    if chunked:
        table = pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 2)])
    data = from_arrays(table, pa.chunked_array([[1], [0, 1]]), weights=pa.array([1.0, 2.0, 3.0]))
    assert kinds(data) == {name: (kind, 1) for name, (_, kind) in TABLE.items()}
    for name, (values, kind) in TABLE.items():
        expected = [
            str(v)
            if v is not None and kind == "categorical"
            else float(v)
            if isinstance(v, decimal.Decimal)
            else v
            for v in values.to_pylist()
        ]
        assert cells(data, name) == expected, name
    assert data.classes.tolist() == [0, 1]
    (block,) = data.blocks()
    assert block.labels.tolist() == [1, 0, 1] and block.weights.tolist() == [1, 2, 3]


def test_a_record_batch_names_and_no_rows():
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    assert kinds(from_arrays(batch, feature_names=["p", "q"])) == {"p": ("int64", 1), "q": ("categorical", 1)}
    empty = from_arrays(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}))
    assert len(empty) == 0 and kinds(empty) == {"a": ("int64", 1), "b": ("categorical", 1)}


def test_numbers_are_not_copied():
    values = np.arange(5.0)
    (block,) = from_arrays(pa.table({"a": values})).blocks()
    assert np.shares_memory(block.columns["a"].values, values)


def test_vectors_of_one_length_are_a_dense_column():
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), 3)
    for table in (pa.table({"v": vectors}), pa.table({"v": pa.chunked_array([vectors[:1], vectors[1:]])})):
        data = from_arrays(table)
        assert kinds(data) == {"v": ("dense", 3)}
        (block,) = data.blocks()
        assert block.columns["v"].values.dtype == np.float32
        assert np.array_equal(block.columns["v"].values, matrix)


def test_dictionaries_of_chunks_become_one():
    chunks = pa.chunked_array(
        [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", "b"]).dictionary_encode()]
    )
    assert cells(from_arrays(pa.table({"a": chunks})), "a") == ["b", "a", "c", "b"]
    holds_null = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", None, "c"]))
    assert cells(from_arrays(pa.table({"a": holds_null})), "a") == ["a", None, "c"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            pa.array([datetime.date(2020, 1, 1)]),
            r"X, column 'a': dates and times \(date32.*\n  fix: turn them",
        ),
        (pa.array([1], pa.timestamp("us", "UTC")), r"dates and times \(timestamp\[us, tz=UTC\]"),
        (pa.array([1], pa.duration("s")), "dates and times"),
        (pa.array([[1, 2]]), r"nested values \(list(.|\n)*fixed_size_list"),
        (pa.array([{"b": 1}]), r"nested values \(struct"),
        (pa.array([b"x"]), "type binary is not supported"),
        (pa.array([2**60 + 1, None]), "beyond 2\\*\\*53 beside missing values"),
        (pa.array([2**64 - 1], pa.uint64()), "beyond the range of int64"),
        (pa.array([decimal.Decimal("0.1")], pa.decimal128(30, 2)), "would round decimals of 30 digits"),
        (
            pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0]), 2, mask=pa.array([True])),
            "a vector is missing",
        ),
        (pa.array([b"\xff"]).view(pa.string()), "not UTF-8 text"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        from_arrays(pa.table({"a": values}))


def test_what_is_no_table_is_refused():
    with pytest.raises(DataError, match="got one Arrow array instead"):
        from_arrays(pa.array([1, 2]))
    with pytest.raises(DataError, match="two columns are named 'a'"):
        from_arrays(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(DataError, match="1 names for 2 columns"):
        from_arrays(pa.table({"a": [1], "b": [2]}), feature_names=["a"])


@pytest.mark.parametrize("y", [["b", "a", "b"], [1, 0, 1], [True, False, True]])
def test_labels(y):
    data = from_arrays(np.zeros((3, 1)), pa.array(y))
    assert data.to_arrays()[1].tolist() == y
    assert from_arrays(np.zeros((3, 1)), pa.chunked_array([y])).classes.tolist() == sorted(set(y))
    if y[0] == "b":
        assert from_arrays(np.zeros((3, 1)), pa.array(y).dictionary_encode()).to_arrays()[1].tolist() == y
    with pytest.raises(DataError, match="label of row 1"):
        from_arrays(np.zeros((3, 1)), pa.array([y[0], None, y[2]]))


def test_without_pyarrow_it_says_what_to_install(monkeypatch):
    table = pa.table({"a": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"type Table needs pyarrow\n  fix: .*squall\[parquet\]"):
        from_arrays(table)


@quick
@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=8), st.data())
def test_integers_are_kept_exactly_or_refused(values, data):
    cut = data.draw(st.integers(0, len(values)))
    array = pa.chunked_array([pa.array(values[:cut], pa.int64()), pa.array(values[cut:], pa.int64())])
    try:
        found = cells(from_arrays(pa.table({"a": array})), "a")
    except DataError:
        assert None in values and any(v is not None and abs(v) > 2**53 for v in values)
    else:
        assert found == values


@quick
@given(
    st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=3)), min_size=1, max_size=8)
)
def test_text_is_kept(values):
    assert cells(from_arrays(pa.table({"a": pa.array(values, pa.string())})), "a") == values
