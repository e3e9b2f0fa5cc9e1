"""Data sets at a place of their own: written once, whole or not at all, opened by URL."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import squall
from squall.data import stored
from squall.data.arrays import from_arrays
from squall.data.dataset import Dataset, open_dataset
from squall.data.objects import ObjectStore
from squall.data.rows import cut_blocks, join_raw
from squall.data.sources import MemorySource
from squall.errors import CorruptError, SettingError, StoreError

from .blocks import assert_same, quick, raw_block


def data_set(n=50, part_rows=7, seed=0):
    block = raw_block(n, seed)
    return Dataset(MemorySource(block, part_rows, "y", np.array(["no", "yes"]))), block


def texts(column):
    return [[*column.strings(), None][code] for code in column.codes]


def assert_same_rows(a, b):
    """Blocks hold the same rows, whatever their dictionaries are."""
    for name in a.columns:
        if name == "text":
            assert texts(a.columns[name]) == texts(b.columns[name])
        else:
            assert_same(a.columns[name], b.columns[name])
    np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_array_equal(a.weights, b.weights)


def test_what_was_written_is_what_was_there(tmp_path):
    data, block = data_set()
    written = data.write(tmp_path / "d")
    opened = squall.open_dataset(str(tmp_path / "d"))
    for found in (written, opened):
        assert_same_rows(join_raw(list(found.blocks())), block)
        assert found.schema == data.schema
        assert found.missing == data.missing
        assert len(found.info().kinds) == 5
    assert opened.key() == written.key()
    assert opened.info().location == f"file://{tmp_path}/d"
    assert opened.info().bytes == sum(f.stat().st_size for f in tmp_path.glob("d/part-*"))


@quick
@given(st.integers(0, 60), st.integers(1, 60), st.integers(1, 60))
def test_cutting_and_joining_give_the_same_rows(n, part_rows, batch):
    data, block = data_set(max(n, 1), part_rows)
    pieces = list(cut_blocks(data.blocks(), batch))
    assert [p.n_rows for p in pieces[:-1]] == [batch] * (len(pieces) - 1)
    assert 0 < pieces[-1].n_rows <= batch
    assert_same_rows(join_raw(pieces), block)


def test_small_partitions_become_one_and_transforms_are_applied(tmp_path):
    table = from_arrays(np.arange(40.0).reshape(20, 2))
    scaled = squall.MinMaxScaler().fit(table).transform(table)
    _, test = scaled.split(5, random_state=1)
    stored_test = test.write(tmp_path / "d")
    assert len(stored_test.info().source) and stored_test.info().partitions == 1
    np.testing.assert_array_equal(stored_test.to_arrays()[0], test.to_arrays()[0])


@pytest.mark.parametrize("classes", [[True, False], [0.5, 1.0], [3, 7], ["a", "ü"]])
def test_labels_of_any_sort_come_back(tmp_path, classes):
    labels = np.array(classes * 3)
    _, y = from_arrays(np.eye(6), labels).write(tmp_path / "d").to_arrays()
    assert (y.dtype.kind, y.tolist()) == (labels.dtype.kind, labels.tolist())


def test_a_data_set_is_never_replaced(tmp_path):
    data_set()[0].write(tmp_path / "d")
    before = {f.name: f.read_bytes() for f in (tmp_path / "d").iterdir()}
    with pytest.raises(StoreError, match=r"there already, and data sets never change(?s:.)*another folder"):
        data_set(seed=1)[0].write(tmp_path / "d")
    assert {f.name: f.read_bytes() for f in (tmp_path / "d").iterdir()} == before


class CutError(Exception):
    pass


@pytest.mark.parametrize("at", range(5))
def test_a_crash_while_writing_leaves_nothing_that_opens(tmp_path, monkeypatch, at):
    """As if the process died at the n-th write: nothing is cleaned up, not even what could be."""
    monkeypatch.setattr(stored, "_PART_BYTES", 1000)
    data, block = data_set()
    writes = 0

    def dying(self, key, pieces, *args, **kwargs):
        nonlocal writes
        writes += 1
        if writes > at:
            raise CutError
        return real(self, key, pieces, *args, **kwargs)

    real = ObjectStore._write_local
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "_write_local", dying)
        patch.setattr(ObjectStore, "delete", lambda self, key: None)
        with pytest.raises(CutError):
            data.write(tmp_path / "d")
    assert len(list(tmp_path.glob("d/part-*"))) == at
    with pytest.raises(StoreError, match="there is no data set"):
        open_dataset(tmp_path / "d")
    # The next attempt succeeds, and removes what the dead one left.
    written = data.write(tmp_path / "d")
    assert len(list(tmp_path.glob("d/part-*"))) == written.info().partitions > 4
    assert_same_rows(join_raw(list(open_dataset(tmp_path / "d").blocks())), block)


def test_an_error_while_writing_removes_what_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "_PART_BYTES", 1000)
    monkeypatch.setattr(ObjectStore, "create", lambda self, key, data: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        data_set()[0].write(tmp_path / "d")
    assert list((tmp_path / "d").iterdir()) == []


def test_of_two_writers_at_once_one_wins_whole(tmp_path):
    sets = [data_set(seed=seed) for seed in (1, 2)]
    outcomes: list[object] = [None, None]
    gate = threading.Barrier(2)

    def write(i):
        gate.wait()
        try:
            outcomes[i] = sets[i][0].write(tmp_path / "d")
        except StoreError as error:
            outcomes[i] = error

    threads = [threading.Thread(target=write, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [i for i in (0, 1) if isinstance(outcomes[i], Dataset)]
    assert len(winners) == 1
    assert_same_rows(join_raw(list(open_dataset(tmp_path / "d").blocks())), sets[winners[0]][1])


def manifest_of(folder: Path):
    return json.loads((folder / "manifest.json").read_text())


def damaged(folder: Path, **changes):
    (folder / "manifest.json").write_text(json.dumps(manifest_of(folder) | changes))


def test_a_newer_format_is_told(tmp_path):
    data_set()[0].write(tmp_path)
    damaged(tmp_path, format_version=99, columns="something else")
    with pytest.raises(CorruptError, match=r"a newer Squall wrote it(?s:.)*fix: upgrade Squall"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    "key",
    ["../part-00000-0123456789abcdef.safetensors", "/etc/passwd", "sub/part.safetensors", "", "..", "x"],
)
def test_only_what_lies_beside_the_manifest_is_read(tmp_path, key):
    data_set()[0].write(tmp_path)
    partitions = manifest_of(tmp_path)["partitions"]
    damaged(tmp_path, partitions=[partitions[0] | {"key": key}])
    with pytest.raises(CorruptError, match="not the name of a partition"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("changes", [{"rows": 1}, {"partitions": []}, {"columns": 5}])
def test_a_manifest_that_makes_no_sense(tmp_path, changes):
    data_set()[0].write(tmp_path)
    damaged(tmp_path, **changes)
    with pytest.raises(CorruptError):
        open_dataset(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff" * 9])
def test_what_is_no_manifest(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(CorruptError, match="not a manifest"):
        open_dataset(tmp_path)


def test_a_partition_that_changed_is_noticed(tmp_path):
    data_set()[0].write(tmp_path)
    part = next(tmp_path.glob("part-*"))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(CorruptError, match="damaged"):
        list(open_dataset(tmp_path).blocks())
    part.unlink()
    with pytest.raises(StoreError, match="does not exist"):
        list(open_dataset(tmp_path).blocks())


def test_there_is_none(tmp_path):
    with pytest.raises(StoreError, match=r"there is no data set(?s:.)*squall ingest"):
        open_dataset(tmp_path / "none")
    (tmp_path / "file.csv").touch()
    with pytest.raises(StoreError, match="it is a file, and no data set"):
        open_dataset(tmp_path / "file.csv")
    with pytest.raises(SettingError):
        open_dataset("nfs://x/y")


def test_a_model_trains_on_one(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    data = from_arrays(X, np.where(X[:, 0] > 0, "p", "n"))
    model = squall.LogisticRegression(epochs=3, random_state=0)
    here = model.fit(data).predict_proba(X)
    there = model.fit(data.write(tmp_path / "d")).predict_proba(X)
    np.testing.assert_array_equal(here, there)
