from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.errors import DataError
from squall.preprocessing.hashing import HashTransform
from squall.preprocessing.layout import FeatureLayout
from squall.preprocessing.transforms import transform_from_dict
from squall.records import ColumnSpec

from .blocks import block, dense, murmur3

words = st.text(max_size=9).filter(lambda text: max(text, default="") < "\ud800" or max(text) > "\udfff")


def slots(rows, columns, n_features):
    """Slots by row and column."""
    column = HashTransform(columns, n_features).apply(rows).columns["hashed"]
    assert column.values is None
    assert column.indptr.tolist() == list(range(0, rows.n_rows * len(columns) + 1, len(columns)))
    return column.indices.reshape(rows.n_rows, len(columns)).tolist()


def test_the_oracle_knows_the_published_vectors():
    assert murmur3(b"") == 0
    assert murmur3(b"hello, world") == 0x149BBB7F
    assert murmur3(b"The quick brown fox jumps over the lazy dog") == 0x2E4FF723


@settings(max_examples=60)
@given(words, st.lists(words | st.none(), min_size=1, max_size=8), st.integers(1, 2**31 - 1))
def test_a_slot_is_murmur3_of_column_and_value(name, values, n_features):
    expected = [[murmur3(f"{name}={value or ''}".encode()) % n_features] for value in values]
    assert slots(block(**{name: values}), [name], n_features) == expected


def test_each_row_has_one_entry_for_each_column_in_the_transforms_order():
    rows = block(b=["x", "y"], a=["y", "y"])
    expected = [
        [murmur3(f"{c}={v}".encode()) % 64 for c, v in zip("ab", pair, strict=True)] for pair in ["yx", "yy"]
    ]
    assert slots(rows, ["a", "b"], 64) == expected


def test_a_missing_value_is_the_empty_text():
    assert slots(block(a=[None, "", "x"]), ["a"], 2**20)[:2] == [[murmur3(b"a=") % 2**20]] * 2


def test_a_column_of_missing_values_only():
    assert slots(block(a=[None, None]), ["a"], 1000) == [[murmur3(b"a=") % 1000]] * 2


def test_the_dictionarys_order_does_not_matter():
    transform = HashTransform(["a"], 2**18)
    first, second = (transform.apply(block(a=v)).columns["hashed"].indices for v in (["x", "y"], ["y", "x"]))
    assert first.tolist() == second.tolist()[::-1]


def test_one_slot_takes_all():
    assert slots(block(a=["x", "y"], b=["u", None]), ["a", "b"], 1) == [[0, 0], [0, 0]]


def test_values_that_meet_in_a_slot_add_up():
    transform = HashTransform(["a", "b", "c"], 1)
    rows = transform.apply(block(a=["x"], b=["y"], c=["z"]))
    layout = FeatureLayout.of(transform.schema([ColumnSpec(n, "categorical") for n in "abc"]))
    assert dense(layout.encode(rows)).tolist() == [[3.0]]


def test_other_columns_labels_and_weights_pass():
    labels, weights = np.array([0, 1], np.int32), np.array([1.0, 2.0])
    rows = block(labels, weights, n=np.array([1.0, 2.0]), a=["x", "y"], t=["u", "v"])
    hashed = HashTransform(["a"], 8).apply(rows)
    assert list(hashed.columns) == ["n", "t", "hashed"]
    assert hashed.columns["t"] is rows.columns["t"]
    assert (hashed.labels is labels, hashed.weights is weights) == (True, True)


def test_the_schema_has_the_hashed_column_last():
    columns = [ColumnSpec("a", "categorical"), ColumnSpec("n", "int64")]
    assert HashTransform(["a"], 8, "h").schema(columns) == [
        ColumnSpec("n", "int64"),
        ColumnSpec("h", "sparse", 8),
    ]


def test_a_block_without_rows():
    assert slots(block(a=[]), ["a"], 8) == []


def test_a_missing_column_is_refused_by_name():
    with pytest.raises(DataError, match=r"column 'a': it is missing"):
        HashTransform(["a"], 8).apply(block(b=["x"]))


def test_a_column_of_numbers_is_refused_with_the_fix():
    with pytest.raises(DataError, match=r"column 'a': .*is not here(?s:.)*categorical=\['a'\]"):
        HashTransform(["a"], 8).apply(block(a=np.array([1.0])))


def test_plain_data_and_back():
    transform = HashTransform(["a", "b"], 8, "h")
    assert transform_from_dict(transform.to_dict()) == transform


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_another_process_finds_the_same_slots(seed):
    code = (
        "from squall.preprocessing.hashing import HashTransform; from squall.records import *;"
        "import numpy as np;"
        "c = CategoricalColumn.from_strings(np.array([0, 1, -1], np.int32), ['x', 'größer']);"
        "print(HashTransform(['a'], 2**18).apply(RawBlock(3, {'a': c})).columns['hashed'].indices.tolist())"
    )
    environment = os.environ | {"PYTHONHASHSEED": seed}
    answer = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, timeout=30
    )
    expected = [murmur3(f"a={value}".encode()) % 2**18 for value in ("x", "größer", "")]
    assert answer.stdout.decode().strip() == str(expected), answer.stderr.decode()


@settings(max_examples=40)
@given(st.lists(st.tuples(words | st.none(), words | st.none(), words | st.none()), min_size=1, max_size=8))
def test_a_cross_is_the_hash_of_its_columns_texts_joined(table):
    a, b, c = map(list, zip(*table, strict=True))
    transform = HashTransform(["a", "b", "c"], 1000, crosses=[["b", "a"], ["a", "b", "c"]])
    out = transform.apply(block(a=a, b=b, c=c)).columns["hashed"]
    assert np.diff(out.indptr).tolist() == [5] * len(table)
    expected = [
        [
            murmur3(f"b={y or ''}\x1fa={x or ''}".encode()) % 1000,
            murmur3(f"a={x or ''}\x1fb={y or ''}\x1fc={z or ''}".encode()) % 1000,
        ]
        for x, y, z in table
    ]
    assert out.indices.reshape(len(table), 5)[:, 3:].tolist() == expected


@settings(max_examples=40)
@given(st.lists(words | st.none(), min_size=1, max_size=8))
def test_a_sign_is_a_second_hash_of_the_same_text(values):
    out = HashTransform(["a"], 64, signed=True).apply(block(a=values)).columns["hashed"]
    assert out.indices.tolist() == [murmur3(f"a={v or ''}".encode()) % 64 for v in values]
    assert out.values.tolist() == [1 - 2 * (murmur3(f"a={v or ''}".encode(), seed=1) % 2) for v in values]


def test_signs_are_even_and_have_nothing_to_do_with_slots():
    values = [str(i) for i in range(4000)]
    out = HashTransform(["a"], 2, signed=True).apply(block(a=values)).columns["hashed"]
    for slot in (0, 1):
        assert abs(out.values[out.indices == slot].mean()) < 0.08


def test_transforms_of_older_models_are_read():
    old = {"type": "hash", "columns": ["a"], "n_features": 8, "output": "hashed"}
    assert transform_from_dict(old) == HashTransform(["a"], 8)
