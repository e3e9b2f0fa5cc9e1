"""Labels that are said to be classes, or numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import squall
from squall.data import labels
from squall.errors import DataError, SettingError


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Reads labels with each of the readers that guess what they are; four different ones are many."""
    for module in ("labels", "csv_schema", "libsvm_format"):
        monkeypatch.setattr(f"squall.data.{module}.MAX_CLASSES", 3)

    def read(reader, values, **settings):
        path = tmp_path / f"f.{reader}"
        match reader:
            case "csv":
                path.write_text("x,y\n" + "".join(f"1,{value}\n" for value in values))
                return squall.read_csv(path, label="y", **settings)
            case "libsvm":
                path.write_text("".join(f"{value} 1:1\n" for value in values))
                return squall.read_libsvm(path, **settings)
            case "parquet":
                pd.DataFrame({"x": 1, "y": values}).to_parquet(path)
                return squall.read_parquet(path, label="y", **settings)
            case "text":
                path.write_text("x,y\n" + "".join(f"ab,{value}\n" for value in values))
                return squall.read_text(path, column="x", label="y", **settings)
        return squall.from_arrays(np.ones((len(values), 1)), values, **settings)

    return read


ALL = ["csv", "libsvm", "parquet", "text", "arrays"]


@pytest.mark.parametrize("reader", ALL)
def test_few_numbers_stay_numbers_and_many_become_classes_as_asked(read, reader):
    few, many = [0, 2, 0, 1], [4, 3, 2, 1, 1]
    assert read(reader, few).classes.tolist() == [0, 1, 2]
    assert read(reader, few, label_kind="classes").classes.tolist() == [0, 1, 2]
    data = read(reader, few, label_kind="numbers")
    assert data.classes is None and data.label is not None
    assert data.to_arrays()[1].tolist() == few and data.to_arrays()[1].dtype == np.float64
    assert read(reader, many).classes is None
    with pytest.raises(DataError, match=r'more than 3 different labels\n  fix: .*label_kind="numbers"'):
        read(reader, many, label_kind="classes")


@pytest.mark.parametrize("reader", ["csv", "parquet", "text", "arrays"])
def test_text_is_no_number(read, reader):
    with pytest.raises(DataError, match=r"no number|to be numbers, and are text"):
        read(reader, ["a", "b", "a"], label_kind="numbers")
    assert read(reader, ["a", "b", "a"], label_kind="classes").classes.tolist() == ["a", "b"]


@pytest.mark.parametrize("reader", ALL)
def test_what_is_no_kind_is_refused(read, reader):
    with pytest.raises(SettingError, match=r"label_kind='class'"):
        read(reader, [0, 1], label_kind="class")


def test_where_a_number_is_none(read):
    with pytest.raises(DataError, match=r"f.csv:4:2: the label 'y' is 'x', and no number"):
        read("csv", [1, 2, "x"], label_kind="numbers")
    with pytest.warns(UserWarning, match="1 row was skipped"):
        data = read("csv", [1, 2, "x"], label_kind="numbers", errors="skip")
    assert data.to_arrays()[1].tolist() == [1, 2]
    with pytest.raises(SettingError, match="cannot be both"):
        read("csv", [1, 2], label_kind="numbers", categorical=["y"])


def test_rows_without_labels_have_none_of_any_kind(tmp_path):
    (tmp_path / "f.svm").write_text("1:1\n2:1\n")
    for kind in labels.LABEL_KINDS:
        assert squall.read_libsvm(tmp_path / "f.svm", label_kind=kind).label is None


def test_a_model_that_needs_others_says_so_before_it_starts(read):
    numbers = read("arrays", [0, 1, 0], label_kind="numbers")
    with pytest.raises(DataError, match=r'are numbers to predict(.|\n)*label_kind="classes"'):
        squall.submit(squall.LogisticRegression(), numbers)
    with pytest.raises(DataError, match="regression needs labels that are numbers"):
        squall.submit(squall.LinearRegression(), read("arrays", ["a", "b"], label_kind="classes"))
