from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import _kernels as kernels

from . import oracles
from .strategies import optimizers, regularizers


def new_table(weights, optimizer, lazy):
    """A table with the given weights, float32[rows] or float32[rows, dim]."""
    weights = np.asarray(weights, np.float32).reshape(len(weights), -1)
    rows, dim = weights.shape
    table = np.zeros((rows, kernels.table_stride(optimizer, dim, lazy)), np.float32)
    table[:, :dim] = weights
    return table


def test_stride():
    assert kernels.table_stride(kernels.SGD, 1, False) == 1
    assert kernels.table_stride(kernels.SGD, 3, True) == 4
    assert kernels.table_stride(kernels.ADAGRAD, 1, True) == 3
    assert kernels.table_stride(kernels.ADAGRAD, 4, False) == 8
    with pytest.raises(ValueError, match="optimizer: 7 is unknown"):
        kernels.table_stride(7, 1, False)
    with pytest.raises(ValueError, match="dim"):
        kernels.table_stride(0, 0, False)


@given(
    optimizers,
    regularizers,
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.sampled_from([1, 3, 17]),
    st.booleans(),
)
def test_updates_and_catch_up_equal_the_eager_oracle(optimizer, penalty, seed, n_steps, dim, pull_first):
    """Each step touches a few rows; between touches a row only shrinks, in closed form."""
    rng = np.random.default_rng(seed)
    rows, rate = 9, float(rng.choice([0.01, 0.5]))
    start = rng.normal(size=(rows, dim)).astype(np.float32)
    table = new_table(start, optimizer, penalty != (0, 0))
    adagrad = optimizer == kernels.ADAGRAD
    eager = [oracles.Eager(rows - 1, adagrad, rate, *penalty, weights=start[:, j]) for j in range(dim)]
    settings = optimizer, rate, *penalty
    for step in range(n_steps):
        touched = rng.permutation(rows)[: rng.integers(0, rows)].astype(np.int64)
        grads = rng.normal(size=(len(touched), dim)).astype(np.float32)
        if pull_first:
            pulled = kernels.table_pull(table, touched, dim, *settings, step, rows - 1)
            expected = np.stack([e.w[touched] for e in eager], axis=1)
            np.testing.assert_allclose(pulled, expected, rtol=2e-4, atol=2e-5)
        kernels.table_update(table, touched, grads, *settings, step, rows - 1)
        for j, one in enumerate(eager):
            g = np.zeros(rows)
            g[touched] = grads[:, j]
            one.step(g)
    kernels.table_catch_up(table, *settings, n_steps, rows - 1, dim)
    expected = np.stack([e.w for e in eager], axis=1)
    np.testing.assert_allclose(table[:, :dim], expected, rtol=2e-4, atol=2e-5)
    if penalty != (0, 0):
        assert set(table[:, -1].view(np.int32)) == {n_steps}


@given(st.floats(1e-12, 10), st.floats(0, 10), st.integers(2, 500), st.floats(-100, 100, width=32))
def test_many_steps_in_closed_form(l2, l1, steps, weight):
    table = new_table([weight, 0], kernels.SGD, True)
    kernels.table_catch_up(table, kernels.SGD, 0.25, l1, l2, steps, 1)
    w = float(np.float32(weight))
    for _ in range(steps):
        w = np.sign(w) * max(abs(w) - 0.25 * l1, 0) / (1 + 0.25 * l2)
    np.testing.assert_allclose(table[0, 0], w, rtol=1e-6, atol=1e-6 * abs(weight) + 1e-37)


def test_a_huge_number_of_tiny_steps():
    table = new_table([1, 1], kernels.SGD, True)
    kernels.table_catch_up(table, kernels.SGD, 1e-3, 0, 1e-6, 10**9, 1)
    np.testing.assert_allclose(table[:, 0], [np.exp(-1), 1], rtol=1e-5)


def test_untouched_adagrad_rows_keep_their_initial_weight():
    table = new_table([0.5, -2, 1], kernels.ADAGRAD, True)
    kernels.table_catch_up(table, kernels.ADAGRAD, 1.0, 10, 10, 1000, 2)
    assert table[:, 0].tolist() == [0.5, -2, 1]


def test_rows_beyond_the_regularized_only_take_gradients():
    table = new_table([1, 1], kernels.SGD, True)
    kernels.table_update(
        table, np.array([0, 1]), np.ones((2, 1), np.float32), kernels.SGD, 0.5, 0.1, 0.0, 7, 1
    )
    np.testing.assert_allclose(table[:, 0], [1 - 8 * 0.05 - 0.5, 0.5], rtol=1e-6)


def test_a_row_ahead_of_the_step_is_left_alone():
    table = new_table([1, 1], kernels.SGD, True)
    table[:, -1].view(np.int32)[:] = 9
    kernels.table_pull(table, np.array([0]), 1, kernels.SGD, 0.5, 0.1, 0.0, 3, 1)
    assert table[0, 0] == 1
    assert table[:, -1].view(np.int32).tolist() == [9, 9]


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4))
def test_gather_and_add(rows, dim):
    rng = np.random.default_rng(1)
    table = rng.normal(size=(6, 5)).astype(np.float32)
    rows = np.array(rows, np.int64)
    gathered = kernels.table_gather(table, rows, dim)
    np.testing.assert_array_equal(gathered, table[rows, :dim])
    deltas = rng.integers(-4, 5, (len(rows), dim)).astype(np.float32)
    expected = table.astype(np.float64)
    np.add.at(expected[:, :dim], rows, deltas)
    kernels.table_add(table, rows, deltas)
    np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("row", [-1, 3, 2**62, -(2**63)])
def test_rows_are_checked_before_anything_changes(row):
    table = np.ones((3, 3), np.float32)
    rows = np.array([0, row], np.int64)
    ones = np.ones((2, 1), np.float32)
    settings = kernels.ADAGRAD, 0.1, 0.1, 0.0, 5, 2
    calls = [
        lambda: kernels.table_gather(table, rows, 1),
        lambda: kernels.table_pull(table, rows, 1, *settings),
        lambda: kernels.table_update(table, rows, ones, *settings),
        lambda: kernels.table_add(table, rows, ones),
    ]
    for call in calls:
        with pytest.raises(IndexError, match="rows: position 1"):
            call()
        assert (table == 1).all()


def test_shapes_and_settings_are_checked():
    rows, ones = np.array([0], np.int64), np.ones((1, 1), np.float32)
    table = np.zeros((3, 3), np.float32)
    adagrad, sgd = kernels.ADAGRAD, kernels.SGD

    def update(table=table, grads=ones, optimizer=adagrad, rate=0.1, l1=0.0, l2=0.0, step=0, regularized=2):
        kernels.table_update(table, rows, grads, optimizer, rate, l1, l2, step, regularized)

    update()
    bad = [
        ({"optimizer": sgd}, "table: has 3 columns"),
        ({"optimizer": 2}, "optimizer: 2 is unknown"),
        ({"rate": -1.0}, "learning_rate: is -1"),
        ({"rate": float("nan")}, "learning_rate: is nan"),
        ({"l1": -1.0}, "l1: is -1"),
        ({"l2": float("inf")}, "l2: is inf"),
        ({"step": -1}, "step: -1"),
        ({"step": 2**31}, "step: 2147483648"),
        ({"step": 2**63 - 1}, "step: "),
        ({"regularized": 4}, "n_regularized_rows: 4"),
        ({"regularized": -1}, "n_regularized_rows: -1"),
        ({"grads": np.ones((2, 1), np.float32)}, r"grads: has shape \(2, 1\)"),
        ({"grads": np.ones((1, 0), np.float32)}, "dim: is 0"),
        ({"grads": np.ones((1, 9), np.float32)}, "dim: is 9"),
        ({"table": np.zeros((3, 2), np.float32), "l1": 0.1}, "table: has no column for the step"),
    ]
    for change, message in bad:
        with pytest.raises(ValueError, match=message):
            update(**change)
    for dim in (0, -1, 4, 2**62):
        with pytest.raises(ValueError, match="dim"):
            kernels.table_gather(table, rows, dim)
        with pytest.raises(ValueError, match="dim"):
            kernels.table_pull(table, rows, dim, adagrad, 0.1, 0.0, 0.0, 0, 2)
