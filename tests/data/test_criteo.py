from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from squall import FeatureHasher
from squall._kernels import murmur3_32
from squall.data import csv_chunks
from squall.data.criteo import CATEGORIES, INTEGERS, read_criteo
from squall.errors import DataError, SettingError
from squall.testing.criteo import write_criteo


def test_what_pandas_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 50_000)
    path = tmp_path / "day.tsv"
    write_criteo(path, 3000, seed=1)
    data = read_criteo(path)
    assert (len(data), data.label, data.classes.tolist()) == (3000, "label", [0, 1])
    assert [spec.kind for spec in data.columns] == ["float64"] * 13 + ["categorical"] * 26
    names = ["label", *INTEGERS, *CATEGORIES]
    expected = pd.read_csv(path, sep="\t", names=names, dtype=dict.fromkeys(CATEGORIES, str))
    found = data.to_pandas()
    for name in INTEGERS:
        np.testing.assert_array_equal(found[name], expected[name])
    for name in CATEGORIES:
        texts = found[name].astype(object).fillna("").tolist()
        assert texts == expected[name].astype(object).fillna("").tolist()
    assert found["label"].tolist() == expected["label"].tolist()
    assert data.missing == {k: n for k, n in expected.isna().sum().items() if n}


def test_rows_without_labels(tmp_path):
    path = tmp_path / "test.tsv"
    write_criteo(path, 50, label=False)
    data = read_criteo(path)
    assert (len(data), data.label, len(data.columns)) == (50, None, 39)
    with pytest.raises(DataError, match=r"test.tsv:1:40: 39 fields where the format has 40"):
        read_criteo(path, label=True)


def test_the_same_schema_whatever_is_missing(tmp_path):
    path = tmp_path / "f.tsv"
    path.write_text("1" + "\t" * 39 + "\n0" + "\t3" * 13 + "\t05db9164" * 26)
    data = read_criteo(path)
    assert [spec.kind for spec in data.columns] == ["float64"] * 13 + ["categorical"] * 26
    assert data.missing == dict.fromkeys(INTEGERS + CATEGORIES, 1)


def test_rows_that_are_none(tmp_path):
    good = "1" + "\t3" * 13 + '\t"5db9164' * 26
    bad = {
        "1" + "\t3" * 12 + "\tx" + "\t0" * 26: r"f.tsv:2:14: expected a number in column 'I13', found 'x'",
        "1\t2": r"f.tsv:2:3: 2 fields where the format has 40",
        good[1:]: r"f.tsv:2:1: the label 'label' is missing",
    }
    path = tmp_path / "f.tsv"
    for row, message in bad.items():
        path.write_text(f"{good}\n{row}\n{good}")
        with pytest.raises(DataError, match=message):
            read_criteo(path)
        with pytest.warns(UserWarning, match=rf"1 row was skipped(.|\n)*{message}"):
            assert len(read_criteo(path, errors="skip")) == 2
    with pytest.raises(SettingError, match=r"label='yes'.*\n.*errors=1"):
        read_criteo(path, label="yes", errors=1)


@pytest.mark.parametrize("n_features", [1, 1000, 2**31 - 1])
def test_hashed_while_read_as_by_the_hasher(tmp_path, monkeypatch, n_features):
    path = tmp_path / "day.tsv"
    write_criteo(path, 500, seed=2)
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr("squall.data.csv_format.BLOCK_BYTES", 30_000)
    text = read_criteo(path)
    hashed = read_criteo(path, n_features=n_features)
    expected = FeatureHasher(n_features=n_features).fit(text).transform(text)
    assert hashed.schema == expected.schema
    found, wanted = ([block.columns["hashed"] for block in data.blocks()] for data in (hashed, expected))
    assert len(found) > 2 and all(column.values is None for column in found)
    slots, theirs = (np.concatenate([column.indices for column in side]) for side in (found, wanted))
    np.testing.assert_array_equal(slots, theirs)
    assert all(np.array_equal(c.indptr, np.arange(len(c.indices) + 1, step=26)) for c in found)
    assert hashed.missing == {name: n for name, n in text.missing.items() if name in INTEGERS}


def test_hashed_rows_are_skipped_and_settings_checked(tmp_path):
    good = "1" + "\t3" * 13 + "\tab" * 26
    path = tmp_path / "f.tsv"
    path.write_text("\n".join([good, good.replace("3", "x", 1), good.replace("ab", "cd")]))
    with pytest.warns(UserWarning, match="1 row was skipped"):
        block = next(read_criteo(path, n_features=100, errors="skip").blocks())
    assert block.n_rows == 2
    slots = block.columns["hashed"].indices.reshape(2, 26)
    assert slots[0, 0] == murmur3_32(b"C1=ab") % 100 and slots[1, 25] == murmur3_32(b"C26=cd") % 100
    with pytest.raises(SettingError, match="n_features=0 must be an integer from 1 to 2147483647"):
        read_criteo(path, n_features=0)
