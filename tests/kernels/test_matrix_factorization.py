"""Matrix factorisation against plain float64 descent, rating by rating."""

from __future__ import annotations

import numpy as np
import pytest

from squall import _kernels as kernels

USERS, ITEMS, N, RATE, L2, SHARE = 5, 7, 60, 0.05, 0.1, 1 / 200


def problem(n_factors, seed=0):
    draw = np.random.default_rng(seed)
    pairs = np.column_stack([draw.integers(0, USERS, N), USERS + draw.integers(0, ITEMS, N)])
    table = (0.3 * draw.normal(size=(USERS + ITEMS + 1, 1 + n_factors))).astype(np.float32)
    table[-1] = 0
    indptr = 2 * np.arange(N + 1, dtype=np.int64)
    labels = draw.normal(size=N).astype(np.float32)
    weights = draw.choice([0.0, 0.5, 1.0, 2.0], N).astype(np.float32)
    return indptr, pairs.astype(np.int32).ravel(), labels, weights, table


def descent(pairs, labels, weights, order, table, sizes, cosine=True):
    """The same in NumPy: (table, loss)."""
    table, loss = table.astype(np.float64), 0.0
    for rows in np.split(order, np.cumsum(sizes)[:-1]):
        rate = RATE * (0.5 * (1 + np.cos(np.pi * table[-1, 0])) if cosine else 1.0)
        for row in rows.tolist():
            user, item = pairs[2 * row : 2 * row + 2]
            b, p, c, q = table[user, 0], table[user, 1:].copy(), table[item, 0], table[item, 1:].copy()
            error = labels[row] - b - c - p @ q
            loss += weights[row] * error**2
            if weights[row] == 0:
                continue
            for at, bias, own, other in ((user, b, p, q), (item, c, q, p)):
                table[at, 0] = (1 - rate * L2) * bias + rate * weights[row] * error
                table[at, 1:] = (1 - rate * L2) * own + rate * weights[row] * error * other
        table[-1, 0] += SHARE * len(rows)
    return table, loss


@pytest.mark.parametrize("n_factors", [1, 3, 8, 11, 20, 100, 133])
@pytest.mark.parametrize("cosine", [False, True])
def test_in_place_it_is_plain_descent(n_factors, cosine):
    indptr, pairs, labels, weights, table = problem(n_factors)
    order = np.random.default_rng(1).permutation(N).astype(np.int32)
    expected, loss = descent(pairs, labels, weights, order, table, [25, 25, 10], cosine)
    step, progress = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    settings = RATE, L2, cosine, SHARE
    sums = kernels.mf_minibatches(
        indptr, pairs, labels, weights, order, 25, 0, 3, table, *settings, step, progress
    )
    np.testing.assert_allclose(table, expected, rtol=2e-4, atol=2e-5)
    assert sums == pytest.approx((loss, weights.sum(), N), rel=1e-4)
    assert (step[0], progress[0]) == (3, 3)


@pytest.mark.parametrize("n_factors", [2, 20])
def test_its_update_makes_the_pulled_rows_the_trained_ones(n_factors):
    indptr, pairs, labels, weights, table = problem(n_factors)
    expected, loss = descent(pairs, labels, weights, np.arange(N), table, [N])
    before = table.copy()
    gradient, *sums = kernels.mf_gradient(indptr, pairs, labels, weights, table, RATE, L2, True, SHARE)
    np.testing.assert_allclose(table - RATE * gradient, expected, rtol=2e-4, atol=2e-5)
    np.testing.assert_array_equal(table, before)
    assert sums == pytest.approx((loss, weights.sum()), rel=1e-4)


def test_outputs_are_as_far_as_rows_go():
    indptr, pairs, _, _, table = problem(6)
    full = kernels.mf_outputs(indptr, pairs, table)
    own = table.astype(np.float64)
    users, items = own[pairs[::2]], own[pairs[1::2]]
    np.testing.assert_allclose(
        full, users[:, 0] + items[:, 0] + (users[:, 1:] * items[:, 1:]).sum(axis=1), rtol=1e-5, atol=1e-6
    )
    some = kernels.mf_outputs(np.array([0, 1, 1, 2]), np.array([2, 8], dtype=np.int32), table)
    assert some.tolist() == [table[2, 0], 0.0, table[8, 0]]


def test_an_error_that_is_not_finite_ends_it_before_its_step():
    indptr, pairs, labels, weights, table = problem(4)
    table[:-1] = 1e30
    before, step = table.copy(), np.zeros(1, dtype=np.int64)
    sums = kernels.mf_minibatches(
        indptr, pairs, labels, weights, None, N, 0, 1, table, RATE, L2, True, SHARE, step, None
    )
    assert np.isnan(sums[0])
    assert (sums[2], step[0]) == (0, 0)
    np.testing.assert_array_equal(table, before)
    assert np.isnan(kernels.mf_gradient(indptr, pairs, labels, None, table, RATE, L2, True, SHARE)[1])


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"indices": [0, 12]}, IndexError, r"row 0, position 1: feature 12 is not in \[0, 12\)"),
        ({"indices": [-1, 7]}, IndexError, r"position 0: feature -1"),
        ({"indices": [3, 3]}, ValueError, "user and item are both 3"),
        ({"indptr": [0, 1], "indices": [3]}, ValueError, "row 0 has 1 entries, a user and an item needed"),
        ({"labels": [np.nan]}, ValueError, "label is nan"),
        ({"weights": [-1.0]}, ValueError, "weight is -1"),
        ({"l2": -1.0}, ValueError, "l2: is -1"),
        ({"learning_rate": np.inf}, ValueError, "learning_rate: is inf"),
        ({"table": np.zeros((0, 3), np.float32)}, ValueError, r"table: has shape \(0, 3\)"),
        ({"table": np.zeros((3, 1), np.float32)}, ValueError, r"table: has shape \(3, 1\)"),
    ],
)
def test_what_is_wrong_is_told(change, error, says):
    given = {
        "indptr": [0, 2],
        "indices": [0, 7],
        "labels": [1.0],
        "weights": [1.0],
        "order": None,
        "batch_size": 1,
        "first_batch": 0,
        "n_batches": 1,
        "table": np.zeros((USERS + ITEMS + 1, 4), np.float32),
        "learning_rate": RATE,
        "l2": L2,
        "cosine": False,
        "share": SHARE,
        "step": np.zeros(1, dtype=np.int64),
        "progress": None,
    } | change
    types = {"indptr": np.int64, "indices": np.int32, "labels": np.float32, "weights": np.float32}
    for name, dtype in types.items():
        given[name] = np.array(given[name], dtype=dtype)
    with pytest.raises(error, match=says):
        kernels.mf_minibatches(**given)


def test_outputs_check_their_rows():
    table = np.zeros((5, 3), np.float32)
    with pytest.raises(IndexError, match="feature 4 is not in"):
        kernels.mf_outputs(np.array([0, 1]), np.array([4], dtype=np.int32), table)
    with pytest.raises(ValueError, match="has 3 entries, at most 2"):
        kernels.mf_outputs(np.array([0, 3]), np.array([1, 2, 3], dtype=np.int32), table)
