"""What a data set says of itself, and its rows in other orders and companies."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from squall.data import mixing, summary
from squall.data.arrays import from_arrays
from squall.data.dataset import Dataset
from squall.data.sources import MemorySource
from squall.errors import DataError, SettingError
from squall.records import CategoricalColumn, DenseColumn, NumericColumn, RawBlock

from .blocks import quick, raw_block

FRAME = pd.DataFrame(
    {
        "age": [31, 40, 25, 40],
        "pay": [1.5, np.nan, 2.5, 0.5],
        "job": ["cook", None, "pilot", "cook"],
    }
)
Y = ["no", "yes", "no", "no"]


def people() -> Dataset:
    return from_arrays(FRAME, Y)


def labelled(codes, part_rows, classes):
    codes = np.asarray(codes, np.int32)
    block = RawBlock(len(codes), {"id": NumericColumn(np.arange(len(codes)))}, codes)
    return Dataset(MemorySource(block, part_rows, "y", np.arange(classes)))


def ids(data):
    return [i for block in data.blocks() for i in block.columns["id"].values.tolist()]


# ---------------------------------------------------------------------- what it says of itself


def test_head():
    rows = people().head(2)
    assert rows == [
        {"age": 31, "pay": 1.5, "job": "cook", "y": "no"},
        {"age": 40, "pay": None, "job": None, "y": "yes"},
    ]
    assert len(people().head()) == len(people().head(99)) == 4
    assert people().head(0) == []
    assert len(labelled([0] * 9, 2, 1).head(5)) == 5
    with pytest.raises(SettingError, match="n=-1"):
        people().head(-1)


def test_head_of_matrices():
    matrix = np.array([[0.0, 2.0], [0.0, 0.0]])
    assert from_arrays(matrix).head(1) == [{"x": [0, 2]}]
    assert from_arrays(sparse.csr_array(matrix)).head() == [{"x": {1: 2}}, {"x": {}}]
    assert from_arrays(sparse.csr_array(matrix > 0)).head(1) == [{"x": {1: 1}}]


def test_describe_numbers_and_text():
    age, pay, job = people().describe().columns
    assert (age.min, age.max, age.mean, age.distinct, age.missing) == (25, 40, 34, 3, 0)
    assert age.std == pytest.approx(FRAME.age.std(ddof=0))
    assert age.quartiles == tuple(FRAME.age.quantile([0.25, 0.5, 0.75]))
    assert (pay.missing, pay.distinct, pay.mean) == (1, 3, 1.5)
    assert (job.missing, job.distinct, job.top, job.mean) == (1, 2, [("cook", 2), ("pilot", 1)], None)
    assert people().describe().labels == [("no", 3), ("yes", 1)]
    assert sum(age.histogram) == 4 and age.histogram[0] == 1 and age.histogram[-1] == 2


@quick
@given(st.integers(1, 50), st.integers(1, 50))
def test_describe_does_not_depend_on_partitions(n, part_rows):
    cut, whole = (
        Dataset(MemorySource(raw_block(n), rows, "y", np.array(["a", "b"]))).describe()
        for rows in (part_rows, n)
    )
    for a, b in zip(cut.columns, whole.columns, strict=True):
        for name in summary.ColumnSummary.__struct_fields__:
            x, y = getattr(a, name), getattr(b, name)
            if name == "top":
                assert dict(x) == dict(y)
            else:
                assert x == (pytest.approx(y, rel=1e-9) if isinstance(y, (float, tuple)) else y), (
                    a.name,
                    name,
                )
    assert cut.labels == whole.labels


def test_describe_matrices():
    matrix = np.array([[0.0, 2.0], [0.0, 0.0]])
    (dense,) = from_arrays(matrix).describe().columns
    (thin,) = from_arrays(sparse.csr_array(matrix)).describe().columns
    assert (dense.zeros, dense.mean, dense.width) == (0.75, 0.5, 2)
    assert (thin.zeros, thin.mean, thin.max) == (0.75, 2, 2)


def test_describe_shows_itself():
    shown = repr(people().describe())
    assert shown.startswith("4 rows\ncolumn  kind")
    assert "cook 50%" in shown and "label y: no: 3 (75.0%), yes: 1 (25.0%)" in shown


def test_describe_what_is_missing_or_much_or_odd(monkeypatch):
    monkeypatch.setattr(summary, "MAX_DISTINCT", 2)
    a, t, gone = from_arrays(
        pd.DataFrame({"a": [1.0, np.inf, 3.0], "t": ["u", "v", "w"], "gone": [np.nan] * 3})
    ).describe().columns  # fmt: skip
    assert (a.distinct, a.max, a.mean) == (None, np.inf, 2)
    assert (t.distinct, t.top) == (None, [])
    assert (gone.missing, gone.min, gone.mean, gone.distinct, gone.histogram) == (3, None, None, 0, [])


def test_large_integers_are_told_apart():
    (a,) = from_arrays(pd.DataFrame({"a": [2**53, 2**53 + 1]})).describe().columns
    assert a.distinct == 2


def test_a_data_set_without_rows():
    empty = from_arrays(FRAME[:0])
    assert [c.min for c in empty.describe().columns] == [None] * 3
    assert "0 rows" in repr(empty.describe())
    assert empty.info().rows == 0
    assert list(empty.iter_batches()) == []


def test_info():
    told = people().info()
    assert (told.rows, told.columns, told.label, told.classes) == (4, 3, "y", ["no", "yes"])
    assert told.kinds == {"int64": 1, "float64": 1, "categorical": 1}
    assert (told.source, told.location, told.bytes) == ("arrays in memory", None, None)
    assert "label" in str(told)
    assert "features   3" in str(from_arrays(np.eye(3)).info())


def test_schema():
    assert people().schema == people().split(0.5)[0].schema
    assert people().schema.classes == ["no", "yes"]


# ---------------------------------------------------------------------- other orders and companies


@quick
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 20), st.integers(0, 99))
def test_shuffle_keeps_every_row(n, part_rows, test, seed):
    data = labelled([0] * n, part_rows, 1)
    shuffled = data.shuffle(seed)
    assert sorted(ids(shuffled)) == list(range(n)) and len(shuffled) == n
    assert ids(data.shuffle(seed)) == ids(shuffled)
    assert shuffled.key() != data.key()
    if test < n:
        a, b = shuffled.split(test, random_state=1)
        assert sorted(ids(a) + ids(b)) == list(range(n))


def test_shuffle_mixes_the_rows_of_a_window(monkeypatch):
    data = labelled([0] * 1000, 100, 1)
    order = ids(data.shuffle(1))
    assert order != ids(data) and order != ids(data.shuffle(2))
    parts = np.array(order).reshape(10, 100) // 100
    assert all(len(set(part)) > 5 for part in parts.tolist()), "of a small set rows come from anywhere"
    assert len({row["id"] // 100 for row in data.shuffle(1).head(10)}) > 3
    for side in data.shuffle(1).split(0.5, random_state=0):
        assert len({row["id"] // 100 for row in side.head(10)}) > 3
    monkeypatch.setattr(mixing, "WINDOW_BYTES", 4 * 100 * 12)  # four partitions
    parts = np.array(ids(data.shuffle(1))).reshape(10, 100) // 100
    assert [len(set(parts[a:b].ravel().tolist())) for a, b in ((0, 4), (4, 8), (8, 10))] == [4, 4, 2]
    assert len(set(parts[0].tolist())) == 4 and sorted(parts.ravel().tolist()) == sorted([*range(10)] * 100)


def test_shuffled_text_keeps_its_strings_and_no_others(tmp_path):
    texts = [f"t{i}" for i in range(60)] + [None] * 4
    blocks = [CategoricalColumn.from_strings(np.array([0, 1, -1], np.int32), [f"{i}", "x"]) for i in range(9)]
    data = from_arrays(pd.DataFrame({"s": texts}))
    assert sorted(str(row["s"]) for row in data.shuffle(0).head(64)) == sorted(map(str, texts))
    sources = [Dataset(MemorySource(RawBlock(3, {"s": column}, None), 3, None, None)) for column in blocks]
    shuffled = sources[0].concat(*sources[1:]).shuffle(0)
    seen = [row["s"] for row in shuffled.head(27)]
    assert sorted(map(str, seen)) == sorted([*map(str, range(9)), *["x"] * 9, *["None"] * 9])
    for block in shuffled.blocks():
        column = block.columns["s"]
        assert sorted(column.strings()) == sorted({column.strings()[c] for c in column.codes if c >= 0})
    assert [row["s"] for row in shuffled.write(tmp_path / "d").head(27)] == seen


@quick
@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=120),
    st.integers(1, 50),
    st.floats(0.1, 0.9),
    st.integers(0, 2**64 - 1),
)
def test_a_stratified_split_gives_each_class_its_share(codes, part_rows, share, seed):
    data = labelled(codes, part_rows, 4)
    n_test = round(share * len(codes))
    if not 0 < n_test < len(codes):
        return
    train, test = data.split(n_test, random_state=seed, stratify=True)
    assert sorted(ids(train) + ids(test)) == list(range(len(codes))) and len(test) == n_test
    totals = np.bincount(codes, minlength=4)
    found = np.bincount(np.asarray(codes)[ids(test)], minlength=4)
    assert np.abs(found - totals * n_test / len(codes)).max() < 1
    assert ids(data.split(n_test, random_state=seed, stratify=True)[1]) == ids(test)
    if len(train) > 1:  # one in the other
        a, b = train.split(1, random_state=seed, stratify=True)
        assert sorted(ids(a) + ids(b)) == sorted(ids(train))


def test_what_has_no_labels_is_not_stratified():
    with pytest.raises(DataError, match="no labels to stratify by"):
        from_arrays(np.eye(4)).split(0.5, stratify=True)


def test_batches():
    batches = list(labelled([0, 1] * 10, 3, 2).iter_batches(8))
    assert [len(X) for X, _ in batches] == [8, 8, 4]
    assert np.concatenate([X for X, _ in batches])[:, 0].tolist() == list(range(20))
    assert np.concatenate([y for _, y in batches]).tolist() == [0, 1] * 10
    (X, y), = from_arrays(sparse.csr_array(np.eye(3))).iter_batches()  # fmt: skip
    assert (X.toarray().tolist(), y) == (np.eye(3).tolist(), None)
    with pytest.raises(SettingError, match="batch_size=0"):
        people().iter_batches(0)


def test_concat_by_name_with_labels_united():
    other = from_arrays(FRAME[["job", "pay", "age"]].assign(age=[0.5, 1.0, 2.0, np.nan]), ["maybe"] * 4)
    train, _ = people().split(1, random_state=0)
    both = train.concat(other, people())
    table = both.to_pandas()
    assert len(both) == 11 and both.classes.tolist() == ["maybe", "no", "yes"]
    assert table.columns.tolist() == ["age", "pay", "job", "y"]
    assert table.age.dtype == np.float64
    assert table["y"].tolist()[3:7] == ["maybe"] * 4 and table["y"].tolist()[7:] == Y
    assert table["job"].astype(object).where(table["job"].notna(), None).tolist()[7:] == [
        "cook", None, "pilot", "cook",
    ]  # fmt: skip
    assert both.missing == {
        "pay": both.to_pandas().pay.isna().sum(),
        "job": table["job"].isna().sum(),
        "age": 1,
    }
    assert both.key() == train.concat(other, people()).key() != people().concat(other).key()
    assert len(both.split(4, random_state=1)[1]) == 4
    assert people().concat() is not None


def test_concat_of_matrices():
    narrow, wide = from_arrays(sparse.csr_array(np.eye(2))), from_arrays(sparse.csr_array(np.eye(4)))
    X, _ = narrow.concat(wide).to_arrays()
    assert X.shape == (6, 4) and X.sum() == 6
    f32, f64 = (from_arrays(np.eye(2, dtype=t)) for t in (np.float32, np.float64))
    assert next(f32.concat(f64).blocks()).columns["x"].values.dtype == np.float64
    assert isinstance(next(f32.concat(f64).blocks()).columns["x"], DenseColumn)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            from_arrays(FRAME.drop(columns="age"), Y),
            r"data set 2 has other columns: 'age' is only in the first",
        ),
        (from_arrays(FRAME.assign(z=1), Y), r"'z' is not in the first(?s:.)*select"),
        (from_arrays(FRAME.assign(age="x"), Y), r"concat: column 'age': it is int64 and categorical"),
        (from_arrays(FRAME), r"the label of data set 2 is None, and that of the first 'y'"),
        (from_arrays(FRAME, [0, 1, 0, 1]), r"labels are text in one data set and numbers in another"),
    ],
)
def test_what_does_not_go_together(other, says):
    with pytest.raises(DataError, match=says):
        people().concat(other)


def test_integers_that_would_be_rounded():
    big, fractions = (from_arrays(pd.DataFrame({"a": v})) for v in ([2**60 + 1], [0.5]))
    with pytest.raises(DataError, match=r"beyond 2\*\*53"):
        list(big.concat(fractions).blocks())


def test_dense_matrices_of_other_widths():
    with pytest.raises(DataError, match="column 'x': it is dense of 2 and dense of 3"):
        from_arrays(np.eye(2)).concat(from_arrays(np.eye(3)))


def priced(prices, label="price"):
    """Rows whose label is a number to predict."""
    rows = np.arange(len(prices))
    block = RawBlock(len(prices), {"id": NumericColumn(rows)}, np.array(prices, np.float64))
    return Dataset(MemorySource(block, 2, label, None))


def test_numbers_to_predict(tmp_path):
    data = priced([1.5, 2.5, 9.0])
    assert data.head(1) == [{"id": 0, "price": 1.5}]
    assert "price (numbers)" in str(data.info()) and "label 'price' (numbers)" in repr(data)
    _, price = data.describe().columns
    assert (price.name, price.max, data.describe().label) == ("price", 9, None)
    both = data.concat(data)
    assert both.to_arrays()[1].tolist() == [1.5, 2.5, 9, 1.5, 2.5, 9]
    assert both.write(tmp_path / "d").to_arrays()[1].tolist() == both.to_arrays()[1].tolist()
    with pytest.raises(DataError, match="no labels to stratify by"):
        data.split(1, stratify=True)
    few = from_arrays(pd.DataFrame({"id": [1, 2]}), pd.Series([7, 8], name="price"))
    assert data.concat(few).to_arrays()[1].tolist() == [1.5, 2.5, 9, 7, 8], "few numbers look like classes"
    assert few.concat(data).classes is None and few.classes.tolist() == [7, 8]
    many = [from_arrays(np.zeros((6000, 1)), np.arange(6000.0) + i) for i in (0, 0.5)]
    assert many[0].concat(many[1]).to_arrays()[1].tolist() == [*range(6000), *np.arange(6000) + 0.5]
    with pytest.raises(DataError, match="classes that are no numbers in one data set, and numbers to pred"):
        data.concat(from_arrays(pd.DataFrame({"id": [1, 2]}), pd.Series(["low", "high"], name="price")))
