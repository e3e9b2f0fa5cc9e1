from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from squall.data.arrays import from_arrays
from squall.data.csv import read_csv
from squall.data.dataset import Dataset
from squall.data.sources import MemorySource
from squall.errors import DataError, MissingExtraError, SettingError
from squall.records import DenseColumn, NumericColumn, RawBlock

from .blocks import quick, raw_block


def in_partitions(n: int, part_rows: int) -> Dataset:
    """Rows numbered from 0 on."""
    block = RawBlock(
        n, {"id": NumericColumn(np.arange(n))}, np.arange(n, dtype=np.int32) % 2, np.arange(n) + 0.5
    )
    return Dataset(MemorySource(block, part_rows, "y", np.array(["a", "b"])))


def ids(data: Dataset) -> list[int]:
    parts = [np.zeros(0, np.int64)]
    for block in data.blocks():
        rows = block.columns["id"].values
        assert block.n_rows == len(rows) > 0
        assert np.array_equal(block.labels, rows % 2) and np.array_equal(block.weights, rows + 0.5)
        parts.append(rows)
    return np.concatenate(parts).tolist()


class Double:
    """A transform of the first numeric column."""

    def __init__(self, factor=2):
        self.factor = factor

    def apply(self, block):
        return replace(block, columns={"id": NumericColumn(block.columns["id"].values * self.factor)})

    def schema(self, columns):
        return columns

    def to_dict(self):
        return {"factor": self.factor, "array": np.arange(3)}


# -------------------------------------------------------------------------------------- split


@quick
@given(st.integers(2, 200), st.integers(1, 50), st.integers(0, 2**64 - 1), st.data())
def test_split_is_exact_and_every_row_is_on_one_side(n, part_rows, seed, data):
    whole = in_partitions(n, part_rows)
    n_test = data.draw(st.integers(1, n - 1))
    train, test = whole.split(n_test, random_state=seed)
    assert (len(train), len(test)) == (n - n_test, n_test)
    assert (len(ids(train)), len(ids(test))) == (n - n_test, n_test)
    assert sorted(ids(train) + ids(test)) == list(range(n))
    again = whole.split(n_test, random_state=seed)
    assert (ids(again[0]), ids(again[1])) == (ids(train), ids(test))
    if n_test > 1:
        a, b = test.split(n_test // 2, random_state=seed)
        assert len(a) + len(b) == n_test and sorted(ids(a) + ids(b)) == sorted(ids(test))
        c, d = train.split(1, random_state=seed) if n - n_test > 1 else (train, None)
        assert sorted(ids(c) + (ids(d) if d else [])) == sorted(ids(train))


@pytest.mark.parametrize(
    ("test", "n"), [(0.2, 2), (0.25, 2), (0.5, 5), (0.85, 8), (np.float32(0.5), 5), (np.int64(3), 3)]
)
def test_split_shares_are_rounded(test, n):
    assert len(in_partitions(10, 3).split(test, random_state=0)[1]) == n


def test_split_is_uniform_over_partitions_and_rows():
    data = in_partitions(40, 16)  # partitions of 16, 16 and 8 rows
    counts = Counter(row for seed in range(600) for row in ids(data.split(0.25, random_state=seed)[1]))
    seen = np.array([counts[i] for i in range(40)])
    # 600 draws at 1/4 each: 150, standard deviation 10.6
    assert abs(seen - 150).max() < 5 * 10.6
    assert abs(seen[:16].mean() - seen[32:].mean()) < 10


def test_split_differs_by_seed_and_without_one():
    data = in_partitions(1000, 100)
    assert ids(data.split(random_state=0)[1]) != ids(data.split(random_state=1)[1])
    assert ids(data.split()[1]) != ids(data.split()[1])
    train, test = data.split()
    assert sorted(ids(train) + ids(test)) == list(range(1000))  # one seed for both sides


def test_split_takes_numpys_generators():
    data = in_partitions(100, 10)
    for make in (np.random.default_rng, np.random.RandomState):
        assert ids(data.split(random_state=make(3))[1]) == ids(data.split(random_state=make(3))[1])


@pytest.mark.parametrize("test", [0, 10, 11, -1, 0.0, 1.0, 1.5, 0.001, float("nan"), True, "0.2", None])
def test_split_sizes_that_are_refused(test):
    with pytest.raises(SettingError, match=r"split: test="):
        in_partitions(10, 3).split(test)


@pytest.mark.parametrize("seed", [-1, 1.5, "x", True, 2**64])
def test_seeds_that_are_refused(seed):
    with pytest.raises(SettingError, match="is not a seed"):
        in_partitions(10, 3).split(random_state=seed)


def test_splits_read_one_partition_at_a_time():
    data = in_partitions(100, 10)
    reads = []
    original = data._source.read
    data._source.read = lambda i: (reads.append(i), original(i))[1]
    train, _ = data.split(random_state=0)
    assert reads == []
    blocks = train.blocks()
    next(blocks)
    assert reads == [0]


# -------------------------------------------------------------------------------- views, keys


def test_transforms_are_lazy_and_the_original_stays():
    data = in_partitions(10, 4)
    doubled = data.with_transform(Double()).with_transform(Double(5))
    assert next(doubled.blocks()).columns["id"].values.tolist() == [0, 10, 20, 30]
    assert ids(data) == list(range(10))
    train, test = doubled.split(0.3, random_state=0)
    values = sorted(v for part in (train, test) for b in part.blocks() for v in b.columns["id"].values)
    assert values == [10 * i for i in range(10)]


def test_keys_name_content():
    data = in_partitions(10, 4)
    assert data.key() == in_partitions(10, 4).key() and len(data.key()) == 32
    train, test = data.split(0.3, random_state=0)
    keys = [
        data.key(), train.key(), test.key(), data.split(0.3, random_state=1)[0].key(),
        in_partitions(11, 4).key(),
        data.with_transform(Double()).key(), data.with_transform(Double(3)).key(), data.select(["id"]).key(),
        train.split(0.5, random_state=0)[0].key(),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert train.key() == data.split(0.3, random_state=0)[0].key()


def test_keys_are_the_same_in_every_process(tmp_path, census):
    code = (
        "import sys; from squall.data.csv import read_csv\n"
        "print(read_csv(sys.argv[1], storage=sys.argv[2]).split(random_state=3)[0].key())"
    )
    keys = set()
    for name in ("a", "b"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(census), str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=True,
        )
        keys.add(done.stdout)
    assert keys == {read_csv(census, storage=tmp_path / "c").split(random_state=3)[0].key() + "\n"}


def test_select():
    data = from_arrays(pd.DataFrame({"age": [1, 2], "b": ["x", "y"], "c": [0.5, 1]}), [0, 1])
    chosen = data.select(["c", "age"])
    assert [spec.name for spec in chosen.columns] == ["c", "age"]
    assert chosen.to_arrays()[0].tolist() == [[0.5, 1], [1, 2]]
    assert chosen.label == "y"
    assert [spec.name for spec in data.select("age").columns] == ["age"]
    with pytest.raises(SettingError, match=r"no column 'agee'\n  fix: did you mean 'age'"):
        data.select(["agee"])
    with pytest.raises(SettingError, match="named twice"):
        data.select(["age", "age"])


def test_missing_follows_the_rows():
    values = np.where(np.arange(100) < 50, np.nan, 1.0)
    data = from_arrays(values.reshape(-1, 1), feature_names=["a"])
    train, test = data.split(0.5, random_state=0)
    assert train.missing["a"] + test.missing["a"] == data.missing["a"] == 50
    assert 10 < test.missing["a"] < 40


def test_repr(census):
    data = read_csv(census, label="income-per-year")
    assert repr(data) == (
        "Dataset(32,561 rows, 14 columns (6 int64, 8 categorical), "
        "label 'income-per-year' (2 classes: '<=50K', '>50K'))"
    )
    assert repr(from_arrays(np.zeros((3, 2)))) == "Dataset(3 rows, 1 column (1 dense))"
    assert "7 classes: 0, 1, 2, 3, 4, …" in repr(from_arrays(np.zeros((7, 2)), range(7)))


# ------------------------------------------------------------------------------------- export


def test_arrays_of_numbers_text_and_sparse_columns():
    block = raw_block(50)
    data = Dataset(MemorySource(block, 7, "y", np.array([10, 20])))
    numbers = data.select(["π", "dense", "dense32"])
    X, y = numbers.to_arrays()
    assert X.dtype == np.float64 and X.shape == (50, 6)
    assert np.array_equal(X[:, 0], block.columns["π"].values, equal_nan=True)
    assert np.array_equal(X[:, 4:], block.columns["dense32"].values)
    assert np.array_equal(y, np.array([10, 20])[block.labels])
    X, _ = data.select(["sparse", "dense", "ones"]).to_arrays()
    assert sparse.issparse(X) and X.format == "csr" and X.shape == (50, 21)
    assert np.array_equal(X[:, 9:12].toarray(), block.columns["dense"].values)
    X, _ = data.select(["text", "big", "dense"]).to_arrays()
    assert X.dtype == object and X.shape == (50, 5)
    assert X[:, 1].tolist() == block.columns["big"].values.tolist()  # nothing is rounded
    codes = block.columns["text"].codes
    assert X[:, 0].tolist() == [None if c < 0 else ["", "ü", "a b"][c] for c in codes]
    with pytest.raises(DataError, match="no common array"):
        data.to_arrays()
    with pytest.raises(DataError, match="sparse columns do not fit"):
        data.to_pandas()


def test_pandas(monkeypatch):
    data = Dataset(MemorySource(raw_block(50), 7, "y", np.array([10, 20]))).select(["text", "big", "dense"])
    frame = data.to_pandas()
    assert list(frame) == ["text", "big", "dense_0", "dense_1", "dense_2", "y"]
    assert (str(frame["text"].dtype), frame["big"].dtype) == ("category", np.int64)
    assert list(in_partitions(10, 3).split(1, random_state=0)[1].to_pandas()) == ["id", "y"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"squall\[pandas\]"):
        data.to_pandas()


def test_no_rows():
    block = RawBlock(0, {"x": DenseColumn(np.zeros((0, 2)))})
    data = Dataset(MemorySource(block, 10, None, None))
    assert list(data.blocks()) == [] and data.to_arrays()[0].shape == (0, 2)
    assert len(data.to_pandas()) == 0 and data.missing == {}
    with pytest.raises(SettingError, match="leaves one side without rows"):
        data.split()


# ------------------------------------------------------------------------------------ imports


@pytest.mark.parametrize("module", ["iterator", "training", "objects", "partitions"])
def test_what_workers_import_stays_small(module):
    code = f"import sys, squall.data.{module}; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extra = set(done.stdout.split()) - sys.stdlib_module_names - {"__mp_main__"}
    allowed = {"squall", "numpy", "obstore", "safetensors", "msgspec", "typing_extensions", "_native"}
    assert {m for m in extra if not m.startswith(("_", "sitecustomize", "distutils"))} <= allowed


@pytest.mark.parametrize("module", ["arrays", "csv", "dataset"])
def test_nothing_heavy_is_imported_before_it_is_needed(module):
    code = f"import sys, squall.data.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"scipy", "pandas", "sklearn"} & set(done.stdout.split())
