from __future__ import annotations

import datetime
import decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.data.arrays import from_arrays
from squall.errors import DataError
from squall.testing.leaks import LeakCheck

from .blocks import quick
from .test_arrow import cells, kinds


@pytest.fixture(scope="module", autouse=True)
def runtime_of_polars(leak_check: LeakCheck) -> None:
    leak_check.adopt_runtime(lambda: pl.LazyFrame({"a": [1]}).collect())


COLUMNS = {
    "i8": (pl.Series([1, 2, -3], dtype=pl.Int8), "int64"),
    "u64": (pl.Series([1, 2**63 - 1, 0], dtype=pl.UInt64), "int64"),
    "wide": (pl.Series([2**60 + 1, -(2**63), 3]), "int64"),
    "null": (pl.Series([1, None, 2**53]), "float64"),
    "bool": (pl.Series([True, False, True]), "int64"),
    "bools": (pl.Series([True, None, False]), "float64"),
    "f32": (pl.Series([1.5, None, 3], dtype=pl.Float32), "float64"),
    "f64": (pl.Series([0.1, None, -3.0]), "float64"),
    "none": (pl.Series([None, None, None]), "float64"),
    "s": (pl.Series(["x", None, "ü"]), "categorical"),
    "absent": (pl.Series([None, None, None], dtype=pl.String), "categorical"),
    "cat": (pl.Series(["x", None, "b"], dtype=pl.Categorical), "categorical"),
    "enum": (pl.Series(["lo", None, "hi"], dtype=pl.Enum(["lo", "hi"])), "categorical"),
    "whole": (pl.Series([decimal.Decimal(2**60 + 1), decimal.Decimal(5), decimal.Decimal(-1)]), "int64"),
    "price": (pl.Series(["12.34", None, "0.10"]).cast(pl.Decimal(9, 2)), "float64"),
}


def test_frames_keep_names_types_and_values():
    frame = pl.DataFrame({name: series for name, (series, _) in COLUMNS.items()})
    data = from_arrays(frame, pl.Series("target", ["b", "a", "b"]), weights=pl.Series([1.0, 2.0, 3.0]))
    assert kinds(data) == {name: (kind, 1) for name, (_, kind) in COLUMNS.items()}
    for name, (series, _) in COLUMNS.items():
        expected = [
            float(v) if isinstance(v, decimal.Decimal) and name == "price" else v for v in series.to_list()
        ]
        assert cells(data, name) == expected, name
    assert (data.label, data.classes.tolist()) == ("target", ["a", "b"])
    (block,) = data.blocks()
    assert block.labels.tolist() == [1, 0, 1] and block.weights.tolist() == [1, 2, 3]


def test_names_no_rows_and_vectors():
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert kinds(from_arrays(frame, feature_names=["p", "q"])) == {"p": ("int64", 1), "q": ("categorical", 1)}
    assert kinds(from_arrays(frame.clear())) == {"a": ("int64", 1), "b": ("categorical", 1)}
    vectors = pl.DataFrame({"v": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Float32, 2))})
    data = from_arrays(vectors)
    assert kinds(data) == {"v": ("dense", 2)}
    assert next(data.blocks()).columns["v"].values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pl.Series([datetime.date(2020, 1, 1)]),
            r"X, column 'a': dates and times \(Date\).*\n  fix: .*weekday",
        ),
        (pl.Series([datetime.timedelta(1)]), "dates and times"),
        (pl.Series([[1, 2]]), r"type List\(Int64\) is not supported"),
        (pl.Series([{"b": 1}]), "type Struct"),
        (pl.Series([b"x"]), "type Binary is not supported"),
        (pl.Series([2**60 + 1, None]), "beyond 2\\*\\*53 beside missing values"),
        (pl.Series([2**64 - 1], dtype=pl.UInt64), "beyond the range of int64"),
        (pl.Series(["0.1"]).cast(pl.Decimal(30, 2)), "would round decimals of up to 30 digits"),
        (pl.Series([None, [1, 2]], dtype=pl.Array(pl.Float64, 2)), "a vector is missing"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(column, message):
    with pytest.raises(DataError, match=message):
        from_arrays(pl.DataFrame({"a": column}))


def test_what_is_no_frame_is_refused():
    with pytest.raises(DataError, match=r"LazyFrame has not been computed yet\n  fix: give frame.collect"):
        from_arrays(pl.LazyFrame({"a": [1]}))
    with pytest.raises(DataError, match="Expected 2D array"):
        from_arrays(pl.Series([1, 2]))


@pytest.mark.parametrize("y", [["b", "a", "b"], [1, 0, 1], [True, False, True]])
def test_labels(y):
    assert from_arrays(np.zeros((3, 1)), pl.Series(y)).to_arrays()[1].tolist() == y
    with pytest.raises(DataError, match="label of row 1"):
        from_arrays(np.zeros((3, 1)), pl.Series([y[0], None, y[2]]))


@quick
@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=8))
def test_integers_are_kept_exactly_or_refused(values):
    frame = pl.DataFrame({"a": pl.Series(values, dtype=pl.Int64)})
    try:
        found = cells(from_arrays(frame), "a")
    except DataError:
        assert None in values and any(v is not None and abs(v) > 2**53 for v in values)
    else:
        assert found == values


@quick
@given(
    st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=3)), min_size=1, max_size=8)
)
def test_text_is_kept(values):
    assert cells(from_arrays(pl.DataFrame({"a": pl.Series(values, dtype=pl.String)})), "a") == values
