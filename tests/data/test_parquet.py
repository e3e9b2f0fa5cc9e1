from __future__ import annotations

import datetime
import decimal
import sys
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.data.finding import local_file
from squall.data.parquet import read_parquet
from squall.data.parquet_reader import ParquetReader
from squall.errors import DataError, MissingExtraError, SettingError

from .blocks import quick

FRAME = pd.DataFrame(
    {
        "id": [2**60 + 1, 2, -3, 4],
        "n": pd.array([1, None, 3, 4], dtype="Int32"),
        "x": [0.5, np.nan, -1.0, 2.0],
        "city": ["Rome", None, "Oslo", "Rome"],
        "level": pd.Categorical(["lo", "hi", None, "lo"], categories=["lo", "mid", "hi"]),
        "flag": [True, False, True, True],
        "y": ["b", "a", "b", "b"],
        "w": [1.0, 0.5, 2.0, 0.0],
    }
)


@pytest.fixture
def write(tmp_path):
    def write(table, name="f.parquet", **settings):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(table, pd.DataFrame):
            table = pa.Table.from_pandas(table)
        pq.write_table(table, path, **settings)
        return path

    return write


def kinds(data):
    return {spec.name: spec.kind for spec in data.columns}


def values(data, name):
    back = data.select([name]).to_pandas()[name]
    return [None if pd.isna(v) else v for v in back.tolist()]


# -------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "settings", [{}, {"row_group_size": 2}, {"use_dictionary": False, "write_statistics": False}]
)
def test_what_pandas_writes_is_read_back(write, settings):
    data = read_parquet(write(FRAME, **settings), label="y", weight="w")
    assert kinds(data) == {
        "id": "int64", "n": "float64", "x": "float64", "city": "categorical", "level": "categorical",
        "flag": "int64",
    }  # fmt: skip
    for name in kinds(data):
        assert values(data, name) == [None if pd.isna(v) else v for v in FRAME[name]]
    assert (data.label, data.classes.tolist()) == ("y", ["a", "b"])
    assert np.concatenate([b.labels for b in data.blocks()]).tolist() == [1, 0, 1, 1]
    assert np.concatenate([b.weights for b in data.blocks()]).tolist() == FRAME["w"].tolist()
    assert data.missing == {"n": 1, "x": 1, "city": 1, "level": 1}


def test_columns_are_chosen_in_their_order_and_others_not_looked_at(write):
    table = pa.table({"d": [datetime.date(2020, 1, 1)], "a": [1], "b": ["x"], "y": [0]})
    data = read_parquet(write(table), columns=["b", "a"], label="y")
    assert kinds(data) == {"b": "categorical", "a": "int64"}


def test_categories_on_request(write):
    table = pa.table({"zip": [10115, None, 10117], "flag": [True, False, None], "s": ["x", "y", "x"]})
    data = read_parquet(write(table), categorical=["zip", "flag", "s"])
    assert kinds(data) == {"zip": "categorical", "flag": "categorical", "s": "categorical"}
    assert values(data, "zip") == ["10115", None, "10117"] and values(data, "flag") == ["true", "false", None]


def test_vectors_are_dense_columns(write):
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), 3)
    data = read_parquet(write(pa.table({"v": vectors}), row_group_size=3))
    assert [(c.kind, c.width) for c in data.columns] == [("dense", 3)]
    assert np.array_equal(data.to_arrays()[0], matrix)


def test_an_index_without_a_name_is_no_feature(write):
    frame = FRAME[["id", "x"]].set_axis([9, 8, 7, 6])
    assert "__index_level_0__" in pq.read_schema(write(frame)).names
    assert kinds(read_parquet(write(frame))) == {"id": "int64", "x": "float64"}
    named = read_parquet(write(frame), columns=["__index_level_0__"])
    assert values(named, "__index_level_0__") == [9, 8, 7, 6]


def test_a_column_without_values_stays_with_a_warning(write):
    path = write(pa.table({"a": [1, 2], "none": pa.nulls(2), "s": pa.nulls(2, pa.string())}))
    for _ in range(2):
        with pytest.warns(UserWarning) as told:
            data = read_parquet(path)
        assert [str(w.message).partition(": ")[2][:13] for w in told] == ["column 'none'", "column 's' ho"]
    assert kinds(data) == {"a": "int64", "none": "float64", "s": "categorical"}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pa.array([datetime.datetime(2020, 1, 1)]),
            "column 'a': dates and times .*\n  fix: .*leave the column out",
        ),
        (pa.array([[1, 2]]), "column 'a': nested values"),
        (pa.array([{"b": 1}]), "column 'a': nested values"),
        (pa.array([b"x"]), "type binary"),
        (pa.array([decimal.Decimal("1.5")], pa.decimal128(38, 1)), "would round decimals of 38 digits"),
        (pa.array([2**60 + 1, None]), "column 'a': integers beyond 2\\*\\*53 beside missing"),
        (pa.array([2**64 - 1], pa.uint64()), "beyond the range of int64"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(write, column, message, own_storage):
    path = write(pa.table({"b": ["x"] * len(column), "a": column}))
    with pytest.raises(DataError, match=message):
        read_parquet(path)
    assert not list(own_storage.rglob("manifest*"))


def test_decimals_are_read_as_from_text(write):
    table = pa.table({"p": pa.array([decimal.Decimal("12.34"), None], pa.decimal128(9, 2))})
    assert values(read_parquet(write(table)), "p") == [12.34, None]


# -------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (pa.array([1, -1, 1]), [-1, 1]),
        (pa.array([True, False, True]), [0, 1]),
        (pa.array([1.5, 0.0, 1.5]), [0.0, 1.5]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"]),
        (pa.DictionaryArray.from_arrays(pa.array([2, 0, 2]), pa.array(["a", "unused", "b"])), ["a", "b"]),
        (pa.array([2**60 + 1, 0, 2**60 + 1]), [0, 2**60 + 1]),
    ],
)
def test_label_maps_are_sorted(write, labels, classes):
    data = read_parquet(write(pa.table({"x": [1, 2, 3], "y": labels}), row_group_size=2), label="y")
    assert data.classes.tolist() == classes
    assert np.concatenate([b.labels for b in data.blocks()]).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (pa.array(["a", "b", None]), "the label 'y' is missing or not finite in row 2\n  fix: remove"),
        (pa.array([1.0, np.inf, 0.0]), "not finite in row 1"),
        (pa.array([1, None, 0]), "missing or not finite in row 1"),
        (pa.array([datetime.date(2020, 1, 1)] * 3), "dates and times"),
        (pa.FixedSizeListArray.from_arrays(pa.array([1.0] * 3), 1), "which is no class"),
    ],
)
def test_labels_that_are_refused(write, labels, message):
    with pytest.raises(DataError, match=message):
        read_parquet(write(pa.table({"x": [1, 2, 3], "y": labels}), row_group_size=1), label="y")


def test_too_many_labels_and_bad_weights(write):
    many = pa.table({"x": [0] * 10_001, "y": list(range(10_001)), "w": [1.0] * 10_000 + [-1.0]})
    data = read_parquet(write(many), label="y")
    assert data.classes is None and data.to_arrays()[1].tolist() == list(range(10_001))
    text = pa.table({"x": [0] * 10_001, "y": [f"id{i}" for i in range(10_001)]})
    with pytest.raises(DataError, match="more than 10,000 different labels"):
        read_parquet(write(text), label="y")
    late = pa.table({"x": [0] * 20_002, "y": [*map(float, range(20_001)), None]})
    with pytest.raises(DataError, match=r"label 'y' is missing or not finite in row 20,001"):
        read_parquet(write(late), label="y")
    with pytest.raises(DataError, match=r"column 'w': the weight of row 10,000 is -1.0"):
        read_parquet(write(many), weight="w")


# --------------------------------------------------------------------------------------- files


def test_many_files_have_one_schema(write, tmp_path):
    write(pa.table({"n": [1, 2], "s": ["b", "a"], "m": [1, 2]}), "d/1.parquet")
    write(pa.table({"m": pa.nulls(1), "s": ["c"], "n": [0.5]}), "d/2.parquet")
    (tmp_path / "d" / "_SUCCESS").touch()
    write(pa.table({"z": [1]}), "d/_old.parquet")
    files = [tmp_path / "d" / "1.parquet", tmp_path / "d" / "2.parquet"]
    found = [read_parquet(where) for where in (tmp_path / "d", f"{tmp_path}/d/[0-9].parquet", files)]
    assert len({data.key() for data in found}) == 1
    assert kinds(found[0]) == {"n": "float64", "s": "categorical", "m": "float64"}
    assert [values(found[0], name) for name in "nsm"] == [[1, 2, 0.5], ["b", "a", "c"], [1, 2, None]]
    assert values(read_parquet(files[::-1]), "s") == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"b": [1]}, "2.parquet: there is no column 'a', which .*1.parquet has"),
        (
            {"a": ["x"]},
            "2.parquet: column 'a' holds values of the sort 'text', and of the sort 'whole' in .*1.parquet",
        ),
    ],
)
def test_files_that_do_not_fit_together(write, second, message):
    files = [write(pa.table({"a": [1]}), "1.parquet"), write(pa.table(second), "2.parquet")]
    with pytest.raises(DataError, match=message):
        read_parquet(files)


def test_values_in_folder_names_are_told(write):
    path = write(pa.table({"a": [1]}), "year=2020/1.parquet")
    with pytest.warns(UserWarning, match="the folder's name 'year=2020' is not read as a column"):
        read_parquet(path)


def test_damaged_files(write, tmp_path, own_storage):
    table = pa.table({"a": np.random.default_rng(0).random(50_000)})
    whole = write(table, write_page_checksum=True).read_bytes()
    broken = bytearray(whole)
    broken[100:2000] = bytes(1900)
    for content in (b"", b"PAR1", b"a,b\n1,2\n", whole[:-10], whole[:1000], bytes(broken)):
        (tmp_path / "g.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"g.parquet: this is no Parquet file, or damaged"):
            read_parquet(tmp_path / "g.parquet", label=None)
    assert not list(own_storage.rglob("manifest*"))


def test_no_rows_no_file_no_column(write, tmp_path):
    with pytest.raises(DataError, match="there are no rows"):
        read_parquet(write(pa.table({"a": pa.array([], pa.int64())})))
    with pytest.raises(DataError, match=r"did you mean 'f.parquet'\?"):
        read_parquet(tmp_path / "g.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="the folder holds no file"):
        read_parquet(tmp_path / "empty")
    with pytest.raises(DataError, match="no file matches the pattern"):
        read_parquet(tmp_path / "*.pq")
    path = write(FRAME)
    for settings in ({"label": "yy"}, {"weight": "yy"}, {"columns": ["yy"]}, {"categorical": ["yy"]}):
        with pytest.raises(DataError, match="there is no column 'yy'\n  fix: "):
            read_parquet(path, **settings)
    with pytest.raises(DataError, match="there is no feature column"):
        read_parquet(path, label="y", columns=["y"])
    with pytest.raises(DataError, match="'x' holds double, not whole numbers or text"):
        read_parquet(path, categorical=["x"])


def test_all_wrong_settings_at_once():
    with pytest.raises(SettingError) as caught:
        read_parquet("f", label=3, weight=["w"], columns="abc", categorical=["a", "a"])
    told = str(caught.value)
    assert all(s in told for s in ("label=3", "weight=", "columns='abc'", "categorical names a column twice"))
    for path in (3, [], [b"x", 3]):
        with pytest.raises(SettingError, match=r"is not a path|names no file"):
            read_parquet(path)


def test_without_pyarrow_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"read_parquet needs pyarrow\n  fix: .*squall\[parquet\]"):
        read_parquet("f.parquet")


# -------------------------------------------------------------------------------------- storing


def test_a_file_is_read_once_for_each_content_and_settings(write, monkeypatch):
    path = write(FRAME)
    first = read_parquet(path, label="y")
    with monkeypatch.context() as patch:
        patch.setattr("squall.data.parquet.ParquetReader", lambda *_: pytest.fail("read again"))
        assert read_parquet(path, label="y").key() == first.key()
    assert read_parquet(path, label="y", weight="w").key() != first.key()
    assert len(read_parquet(write(FRAME[:2]))) == 2


def test_a_file_that_changes_meanwhile_leaves_nothing(write, monkeypatch, own_storage):
    path = write(FRAME)
    original = ParquetReader.blocks

    def blocks(self, seen):
        yield from original(self, seen)
        path.write_bytes(path.read_bytes() + b"x")

    monkeypatch.setattr(ParquetReader, "blocks", blocks)
    with pytest.raises(DataError, match="the file changed while it was read"):
        read_parquet(path)
    assert not list(own_storage.rglob("manifest*"))


def test_memory_is_bounded(write):
    rng = np.random.default_rng(0)
    n = 500_000  # one row group of 16 MB
    path = write(pa.table({f"c{i}": rng.random(n) for i in range(4)}), row_group_size=n, compression="zstd")
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        sizes = [
            b.n_rows
            for b in ParquetReader([local_file(path)], None, None, None, []).blocks(target_bytes=500_000)
        ]
    finally:
        pa.set_memory_pool(before)
    assert sum(sizes) == n and len(sizes) > 25
    assert 0 < pool.max_memory() < 10_000_000


cells = {
    "i": st.one_of(st.none(), st.integers(-(2**53), 2**53)),
    "f": st.one_of(st.none(), st.floats(allow_nan=False)),
    "s": st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=3)),
    "w": st.integers(-(2**63), 2**63 - 1),
}


@quick
@given(
    st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=12),
    st.integers(1, 12),
    st.integers(1, 5),
    st.booleans(),
)
def test_what_is_written_is_read(tmp_path_factory, rows, group, files, statistics):
    folder = tmp_path_factory.mktemp("p")
    schema = pa.schema({"i": pa.int64(), "f": pa.float64(), "s": pa.string(), "w": pa.int64()})
    table = pa.Table.from_pylist(rows, schema)
    for number, start in enumerate(range(0, len(rows), files)):
        part = table.slice(start, files)
        pq.write_table(
            part, folder / f"{number:02}.parquet", row_group_size=group, write_statistics=statistics
        )
    inputs = [local_file(path) for path in sorted(folder.iterdir())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blocks = list(ParquetReader(inputs, None, None, None, []).blocks(target_bytes=100))
    for name in cells:
        found = []
        for block in blocks:
            column = block.columns[name]
            if name == "s":
                found += [None if code < 0 else column.strings()[code] for code in column.codes]
            else:
                found += [None if v != v else v for v in column.values.tolist()]
        assert found == [row[name] for row in rows]
