from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import _kernels as kernels

from . import oracles
from .strategies import blocks, small_block


@given(blocks(), st.lists(st.integers(0, 10**6), max_size=40))
def test_a_minibatch_is_fancy_indexing_with_its_features_numbered(case, picks):
    block, n_features = case
    csr = block["indptr"], block["indices"], block["values"]
    n = len(block["indptr"]) - 1
    rows = np.array([p % n for p in picks] if n else [], np.int32)
    needed, indptr, local, values = kernels.csr_minibatch(*csr, rows, n_features)
    taken = indptr, needed[local].astype(np.int32), values
    np.testing.assert_array_equal(oracles.dense(*taken, n_features), oracles.dense(*csr, n_features)[rows])
    assert needed[-1] == n_features
    assert needed[:-1].tolist() == list(dict.fromkeys(needed[local].tolist())), "in the order of their coming"
    assert (values is None) == (csr[2] is None)
    assert [a.dtype for a in (needed, indptr, local)] == [np.int64, np.int64, np.int32]


@given(
    st.lists(blocks(), min_size=1, max_size=4), st.lists(st.integers(0, 10**6), max_size=60), st.booleans()
)
def test_gather_is_fancy_indexing_of_what_is_stacked(cases, picks, with_values):
    csrs = [(b["indptr"], b["indices"], b["values"] if with_values else None) for b, _ in cases]
    width = max(n_features for _, n_features in cases)
    stacked = np.concatenate([oracles.dense(*csr, width) for csr in csrs])
    rows = np.array([p % len(stacked) for p in picks] if len(stacked) else [], np.int64)
    lengths = np.concatenate([np.diff(indptr) for indptr, _, _ in csrs])[rows]
    indptr, indices = np.full(len(rows) + 1, -1, np.int64), np.full(lengths.sum(), -1, np.int32)
    values = np.full(len(indices), np.nan, np.float32) if with_values else None
    kernels.csr_gather(csrs, rows, indptr, indices, values)
    np.testing.assert_array_equal(oracles.dense(indptr, indices, values, width), stacked[rows])


@st.composite
def side_by_side(draw):
    """Parts of a join, the matrix that each means, and the number of rows."""
    n = draw(st.sampled_from([0, 1, 3, 64, 65, 130]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parts, meant = [], []
    for kind in draw(
        st.lists(st.sampled_from(["f4", "f8", "i8", "u1", "column", "ones", "csr"]), max_size=5)
    ):
        width = draw(st.integers(1, 4))
        cells = rng.integers(-1, 2, (width, n)).T * (kind in ("f4", "csr") or 0.5)
        if kind in ("ones", "csr"):
            dense = np.abs(np.sign(cells)) if kind == "ones" else cells
            indptr = np.append(0, np.cumsum((dense != 0).sum(axis=1))).astype(np.int64)
            values = dense[dense != 0].astype(np.float32) if kind == "csr" else None
            parts.append((indptr, np.nonzero(dense)[1].astype(np.int32), values, width))
        elif kind == "column":
            dense = cells[:, :1]
            parts.append(dense[:, 0])
        else:
            dense = (np.abs(cells) if kind == "u1" else cells).astype(kind)
            parts.append(dense if draw(st.booleans()) else np.ascontiguousarray(dense))
        meant.append(dense)
    return parts, meant, n


@given(side_by_side())
def test_columns_are_joined_side_by_side(case):
    parts, meant, n = case
    indptr, indices, values, finite = kernels.csr_join(parts, n)
    matrix = np.concatenate([np.zeros((n, 0)), *meant], axis=1)
    np.testing.assert_array_equal(oracles.dense(indptr, indices, values, matrix.shape[1]), matrix)
    assert finite
    assert (values is None) == all(isinstance(part, tuple) and part[2] is None for part in parts)
    assert len(indices) == indptr[-1] == np.count_nonzero(matrix)
    assert [a.dtype for a in (indptr, indices)] == [np.int64, np.int32]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_a_join_says_whether_all_is_finite(value):
    row = np.array([0, 1]), np.array([0], np.int32), np.full(1, np.nan, np.float32), 1
    assert not kernels.csr_join([np.array([value])], 1)[3]
    assert not kernels.csr_join([np.zeros(1), row], 1)[3]
    assert kernels.csr_join([np.array([1e-50])], 1)[0].tolist() == [0, 0], "0 as float32"


@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        (np.zeros(3), ValueError, "one has 3 rows, 2 needed"),
        (np.zeros((2, 1, 1)), TypeError, "one or two dimensions"),
        (np.zeros(2, np.int32), TypeError, "parts: dtype is int32, float64 is needed"),
        ((np.array([0, 1, 2]), np.array([0, 5], np.int32), None, 5), IndexError, "row 1, .*feature 5"),
        ((np.array([0, 1, 2]), np.array([-1, 0], np.int32), None, 5), IndexError, "row 0, .*feature -1"),
        ((np.array([0, 1, 9]), np.array([0, 0], np.int32), None, 5), ValueError, "indptr: row 1"),
        ((np.array([0, 1]), np.array([0], np.int32), None, 5), ValueError, "one has 1 rows"),
        ((np.array([0, 0, 0]), np.zeros(0, np.int32), None, -1), ValueError, "width: is -1"),
        ((np.array([0, 0, 0]), np.zeros(0, np.int32), None, 2**31), ValueError, "fewer than 2.31"),
        ((np.array([0, 0, 0]), np.zeros(0, np.int32)), TypeError, "tuples .indptr"),
    ],
)  # fmt: skip
def test_what_is_joined_is_checked(part, error, message):
    with pytest.raises(error, match=message):
        kernels.csr_join([part], 2)


def test_gather_checks_what_it_writes_to():
    block = small_block()
    csr = block["indptr"], block["indices"], block["values"]
    rows = np.arange(3, dtype=np.int64)
    n = int(csr[0][3])
    for size in (n - 1, n + 1):
        with pytest.raises(ValueError, match="indices: has"):
            kernels.csr_gather([csr], rows, np.zeros(4, np.int64), np.zeros(size, np.int32), None)
    with pytest.raises(ValueError, match="indptr: has length 3, 4 needed"):
        kernels.csr_gather([csr], rows, np.zeros(3, np.int64), np.zeros(n, np.int32), None)
    with pytest.raises(IndexError, match="rows: position 2"):
        kernels.csr_gather([csr], np.array([0, 1, 99]), np.zeros(4, np.int64), np.zeros(n, np.int32), None)


@given(blocks(max_nnz=70), st.floats(-5, 5), st.integers(1, 3))
def test_margins_are_the_dense_product(case, intercept, stride):
    block, n_features = case
    csr = block["indptr"], block["indices"], block["values"]
    table = np.random.default_rng(0).normal(size=(n_features, stride)).astype(np.float32)
    coef = table[:, 0]
    expected = oracles.dense(*csr, n_features) @ coef.astype(np.float64) + intercept
    np.testing.assert_allclose(kernels.csr_margins(*csr, coef, intercept), expected, rtol=1e-5, atol=1e-5)


def test_margins_with_a_reversed_view():
    csr = np.array([0, 1, 2], np.int64), np.array([0, 2], np.int32), None
    coef = np.array([1, 2, 3], np.float32)[::-1]
    assert kernels.csr_margins(*csr, coef, 0.0).tolist() == [3, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 4095, 4096, 10_000])
def test_all_ones(dtype, n):
    values = np.ones(n, dtype)
    assert kernels.all_ones(values)
    for at in {0, n // 2, n - 1} & set(range(n)):
        for other in (0, -1, np.nan, np.nextafter(dtype(1), dtype(2))):
            values[at] = other
            assert not kernels.all_ones(values)
        values[at] = 1


@given(blocks())
def test_sound_matrices_are_valid(case):
    block, n_features = case
    kernels.csr_validate(block["indptr"], block["indices"], block["values"], n_features)


BAD = [
    ("indptr", [1, 2, 2, 3, 5], ValueError, "indptr: starts at 1"),
    ("indptr", [0, 2, 1, 3, 5], ValueError, r"indptr: row 1 spans \[2, 1\)"),
    ("indptr", [0, 2, 2, 3, 6], ValueError, r"indptr: row 3 spans \[3, 6\)"),
    ("indptr", [0, -2, 2, 3, 5], ValueError, r"indptr: row 0 spans \[0, -2\)"),
    ("indptr", [0, 2**62, 2, 3, 5], ValueError, "indptr: row 0"),
    ("indptr", [-(2**63), 2, 2, 3, 5], ValueError, "indptr: (row 0|starts)"),
    ("indptr", [0, 2, 2, 3, 4], ValueError, "indptr: ends at 4 but indices has 5"),
    ("indices", [0, 3, 5, 1, 1], IndexError, r"indices: row 2, position 0: feature 5 is not in \[0, 5\)"),
    ("indices", [0, -1, 4, 1, 1], IndexError, "indices: row 0, position 1: feature -1"),
    ("indices", [0, 3, 4, 1, 2**31 - 1], IndexError, "row 3, position 1: feature 2147483647"),
]


@pytest.mark.parametrize(("name", "data", "error", "message"), BAD)
def test_the_first_bad_row_is_named(name, data, error, message):
    block = small_block()
    block[name] = np.array(data, block[name].dtype)
    csr = block["indptr"], block["indices"], block["values"]
    with pytest.raises(error, match=message):
        kernels.csr_validate(*csr, 5)
    if not message.startswith(("indptr: starts", "indptr: ends", "indptr: (")):
        with pytest.raises(error, match=message):
            kernels.csr_margins(*csr, np.zeros(5, np.float32), 0.0)


def test_bad_value_is_named():
    block = small_block()
    block["values"][4] = np.nan
    with pytest.raises(ValueError, match="values: row 3, position 1: nan is not finite"):
        kernels.csr_validate(block["indptr"], block["indices"], block["values"], 5)


@pytest.mark.parametrize("row", [-1, 4, 2**31 - 1, -(2**31)])
def test_a_minibatch_checks_rows(row):
    block = small_block()
    with pytest.raises(IndexError, match="order: position 1"):
        kernels.csr_minibatch(block["indptr"], block["indices"], None, np.array([0, row], np.int32), 5)


def test_a_minibatch_checks_features():
    block = small_block()
    with pytest.raises(IndexError, match=r"indices: row [0-3], position [01]: feature 4"):
        kernels.csr_minibatch(block["indptr"], block["indices"], None, np.arange(4, dtype=np.int32), 4)


def test_a_minibatch_of_nothing():
    nothing = np.zeros(0, np.int32)
    needed, indptr, local, values = kernels.csr_minibatch(np.zeros(1, np.int64), nothing, None, nothing, 7)
    assert (needed.tolist(), indptr.tolist(), len(local), values) == ([7], [0], 0, None)


# ------------------------------------------------------------------------------------------- statistics


numbers = st.floats(-1e3, 1e3, width=32) | st.just(float("nan"))
entry_rows = st.lists(st.lists(st.tuples(st.integers(0, 5), numbers), max_size=7), max_size=8)


def csr_of(rows, dtype):
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    indices = np.array([i for row in rows for i, _ in row], np.int32)
    values = None if dtype is None else np.array([v for row in rows for _, v in row], dtype)
    return indptr, indices, values


@given(entry_rows, st.sampled_from([None, np.float32, np.float64]))
def test_equal_entries_are_summed(rows, dtype):
    indptr, indices, values = csr_of(rows, dtype)
    found = kernels.csr_summed(indptr, indices, values, 6)
    if all(len({i for i, _ in row}) == len(row) for row in rows):
        assert found is None
        return
    ends, places, sums = found
    assert (ends.dtype, places.dtype, sums.dtype) == (np.int64, np.int32, np.float64)
    for row, begin, end in zip(rows, ends[:-1], ends[1:], strict=True):
        expected: dict[int, float] = {}
        for i, v in row:
            expected[i] = expected.get(i, 0.0) + (1.0 if dtype is None else float(v))
        assert places[begin:end].tolist() == sorted(expected)
        np.testing.assert_array_equal(sums[begin:end], [expected[i] for i in sorted(expected)])


@given(entry_rows, st.sampled_from([None, np.float32, np.float64]))
def test_moments_and_largest_as_of_dense_rows(rows, dtype):
    rows = [list(dict(row).items()) for row in rows]
    indptr, indices, values = csr_of(rows, dtype)
    dense = np.zeros((len(rows), 6))
    for i, row in enumerate(rows):
        for j, v in row:
            dense[i, j] = 1.0 if dtype is None else v
    seen = ~np.isnan(dense)
    n, mean, m2 = kernels.csr_moments(indptr, indices, values, 6)
    assert n.tolist() == seen.sum(axis=0).tolist()
    expected = np.sum(dense, axis=0, where=seen) / np.maximum(n, 1)
    np.testing.assert_allclose(mean, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(m2, np.sum((dense - expected) ** 2, axis=0, where=seen), rtol=1e-9, atol=1e-9)
    largest = kernels.csr_largest(indptr, indices, values, 6)
    assert largest.tolist() == np.fmax.reduce(np.abs(dense), axis=0, initial=0).tolist()


@pytest.mark.parametrize("kernel", [kernels.csr_summed, kernels.csr_moments, kernels.csr_largest])
def test_statistics_check_their_arguments(kernel):
    indptr, indices = np.array([0, 2], np.int64), np.array([1, 6], np.int32)
    with pytest.raises(IndexError, match=r"indices: row 0, position 1: feature 6 is not in \[0, 6\)"):
        kernel(indptr, indices, None, 6)
    with pytest.raises(ValueError, match="values: has length 1"):
        kernel(indptr, indices, np.ones(1), 7)
    with pytest.raises(ValueError, match="indptr: row 0 spans"):
        kernel(np.array([0, 3], np.int64), indices, None, 7)
    with pytest.raises(ValueError, match="width: is -1"):
        kernel(indptr, indices, None, -1)
