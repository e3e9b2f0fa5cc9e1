from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from squall import _kernels as kernels

from . import oracles
from .strategies import OPTIMIZERS, rules


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
    strides = [kernels.table_stride(code, 2, True) for code in OPTIMIZERS.values()]
    assert strides == [3, 5, 5, 5, 9, 7]
    with pytest.raises(ValueError, match="optimizer: 7 is unknown"):
        kernels.table_stride(7, 1, False)
    with pytest.raises(ValueError, match="dim"):
        kernels.table_stride(0, 0, False)


@hypothesis_settings(deadline=None)
@given(
    rules(),
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.sampled_from([1, 3, 13, 17]),  # by 1, 4, 8 and 16
    st.booleans(),
)
def test_updates_and_catch_up_equal_the_eager_oracle(settings, seed, n_steps, dim, pull_first):
    """Each step touches a few rows; between touches a row changes in closed form, or not at all."""
    rng = np.random.default_rng(seed)
    rows, settings = 9, settings | {"clip_norm": 0.0}  # the oracle has a vector for each column
    rule = kernels.Rule(**settings)
    start = rng.normal(size=(rows, dim)).astype(np.float32)
    table = new_table(start, settings["optimizer"], rule.lazy)
    eager = [oracles.Eager(rows - 1, settings, weights=start[:, j]) for j in range(dim)]
    for step in range(n_steps):
        touched = rng.permutation(rows)[: rng.integers(0, rows)].astype(np.int64)
        grads = rng.normal(size=(len(touched), dim)).astype(np.float32)
        if pull_first:
            pulled = kernels.table_pull(table, touched, dim, rule, step, rows - 1)
            expected = np.stack([e.w[touched] for e in eager], axis=1)
            np.testing.assert_allclose(pulled, expected, rtol=5e-4, atol=5e-5)
        kernels.table_update(table, touched, grads, rule, step, rows - 1)
        for j, one in enumerate(eager):
            g = np.zeros(rows)
            g[touched] = grads[:, j]
            one.step(g, touched)
    kernels.table_catch_up(table, rule, n_steps, rows - 1, dim)
    expected = np.stack([e.w for e in eager], axis=1)
    np.testing.assert_allclose(table[:, :dim], expected, rtol=5e-4, atol=5e-5)
    if rule.lazy:
        assert set(table[:, -1].view(np.int32)) == {n_steps}


@hypothesis_settings(deadline=None)
@given(rules(), st.integers(2, 600), st.integers(0, 2**32 - 1))
def test_a_long_rest_equals_as_many_steps_without_gradient(settings, steps, seed):
    rule = kernels.Rule(**settings)
    rng = np.random.default_rng(seed)
    start = rng.normal(size=5).astype(np.float32)
    table = new_table(start, settings["optimizer"], rule.lazy)
    eager = oracles.Eager(4, settings, weights=start)
    grads, rows = rng.normal(size=(5, 1)).astype(np.float32), np.arange(5)
    kernels.table_update(table, rows, grads, rule, 0, 4)
    eager.step(grads[:, 0].astype(np.float64))
    for _ in range(steps - 1):
        eager.step(np.zeros(5), np.zeros(5, bool))
    in_parts = table.copy()
    for until in (1, steps // 3, steps // 2, steps):
        kernels.table_catch_up(in_parts, rule, until, 4)
    kernels.table_catch_up(table, rule, steps, 4)
    for got in (table, in_parts):
        np.testing.assert_allclose(got[:, 0], eager.w, rtol=2e-4, atol=2e-6)


@given(st.floats(1e-12, 10), st.floats(0, 10), st.integers(2, 500), st.floats(-100, 100, width=32))
def test_many_steps_in_closed_form(l2, l1, steps, weight):
    table = new_table([weight, 0], kernels.SGD, True)
    kernels.table_catch_up(table, kernels.Rule(kernels.SGD, 0.25, l1, l2), steps, 1)
    w = float(np.float32(weight))
    for _ in range(steps):
        w = np.sign(w) * max(abs(w) - 0.25 * l1, 0) / (1 + 0.25 * l2)
    np.testing.assert_allclose(table[0, 0], w, rtol=1e-6, atol=1e-6 * abs(weight) + 1e-37)


def test_a_huge_number_of_tiny_steps():
    table = new_table([1, 1], kernels.SGD, True)
    kernels.table_catch_up(table, kernels.Rule(kernels.SGD, 1e-3, 0, 1e-6), 10**9, 1)
    np.testing.assert_allclose(table[:, 0], [np.exp(-1), 1], rtol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values())
def test_a_row_pulled_twice_at_once_reads_the_same(optimizer):
    table = new_table([0.5, 0.7], optimizer, True)
    rule = kernels.Rule(optimizer, 0.1, 0.01, 0.1)
    kernels.table_update(table, np.array([0, 1]), np.ones((2, 1), np.float32), rule, 0, 2)
    pulled = kernels.table_pull(table, np.array([0, 1, 0, 0]), 1, rule, 9, 2)[:, 0]
    assert pulled[0] == pulled[2] == pulled[3] == table[0, 0]
    assert pulled[0] != pulled[1]


@pytest.mark.parametrize("optimizer", [kernels.ADAGRAD, kernels.ADAM, kernels.FTRL])
def test_rows_without_a_gradient_keep_their_initial_weight(optimizer):
    table = new_table([0.5, -2, 1], optimizer, True)
    rule = kernels.Rule(optimizer, 1.0, 10, 10)
    kernels.table_catch_up(table, rule, 1000, 2)
    assert table[:, 0].tolist() == [0.5, -2, 1]
    kernels.table_update(table, np.arange(3), np.zeros((3, 1), np.float32), rule, 1000, 2)
    assert table[:, 0].tolist() == [0.5, -2, 1]


def test_adam_corrects_its_bias_by_the_row_s_own_updates():
    table = new_table([0, 0], kernels.ADAM, False)
    rule = kernels.Rule(kernels.ADAM, 0.1)
    for step in (0, 1, 2):
        kernels.table_update(table, np.array([0]), np.ones((1, 1), np.float32), rule, step, 0)
    kernels.table_update(table, np.array([1]), np.ones((1, 1), np.float32), rule, 100_000, 0)
    np.testing.assert_allclose(table[:, 0], [-0.3, -0.1], rtol=1e-5)
    assert table[:, 3].tolist() == [3, 1]


@pytest.mark.parametrize("beta_2", [0.9, 0.999, 0.99999])
def test_adam_after_very_many_updates(beta_2):
    """Where the biases are gone, or their table is at its end."""
    rule = kernels.Rule(kernels.ADAM, 0.1, beta_2=beta_2)
    for n in (1000, 65_535, 65_536, 10**6, 2**24):
        table = np.array([[0, 0.5, 0.25, n]], np.float32)
        kernels.table_update(table, np.array([0]), np.full((1, 1), 0.5, np.float32), rule, 0, 0)
        rate = 0.1 / np.sqrt(0.25 / (1 - float(np.float32(beta_2)) ** (n + 1)))
        np.testing.assert_allclose(table[0, 0], -rate * 0.5, rtol=1e-4)


def test_ftrl_without_penalty_is_adagrad():
    """McMahan 2011: the two differ by their penalties only."""
    rng = np.random.default_rng(0)
    ftrl, adagrad = (new_table(np.full(4, 0.5), code, False) for code in (kernels.FTRL, kernels.ADAGRAD))
    for step in range(50):
        g = rng.normal(size=(4, 1)).astype(np.float32)
        for table, rule in (
            (ftrl, kernels.Rule(kernels.FTRL, 0.3, beta=0.0)),
            (adagrad, kernels.Rule(kernels.ADAGRAD, 0.3)),
        ):
            kernels.table_update(table, np.arange(4), g, rule, step, 4)
    np.testing.assert_allclose(ftrl[:, 0], adagrad[:, 0], rtol=1e-4, atol=1e-5)


def test_ftrl_makes_weights_exactly_zero():
    rule = kernels.Rule(kernels.FTRL, 0.3, 0.1, 0.0)
    table = new_table(np.zeros(2), kernels.FTRL, True)
    kernels.table_update(table, np.arange(2), np.array([[0.09], [0.5]], np.float32), rule, 0, 2)
    assert table[0, 0] == 0
    assert table[1, 0] < 0
    kernels.table_catch_up(table, rule, 5, 2)  # the penalty has grown to 5 times as much
    assert table[1, 0] == 0


def test_clipping_is_of_the_whole_gradient():
    rule = kernels.Rule(kernels.SGD, 1.0, clip_value=4.0, clip_norm=2.5)
    table = new_table(np.zeros(3), kernels.SGD, False)
    grads = np.array([[3], [-9], [0]], np.float32)
    kernels.table_update(table, np.arange(3), grads, rule, 0, 3)
    np.testing.assert_allclose(table[:, 0], [-1.5, 2, 0])
    assert grads[1, 0] == -9  # the caller's array is its own


def test_steps_are_counted_by_threads_together():
    step = np.zeros(1, np.int64)
    with ThreadPoolExecutor(4) as pool:
        before = list(pool.map(lambda _: kernels.step_advance(step), range(400)))
    assert sorted(before) == list(range(400))
    assert step[0] == 400
    with pytest.raises(ValueError, match="step: has length 2"):
        kernels.step_advance(np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": 6}, "optimizer: 6 is unknown"),
        ({"learning_rate": -1.0}, "learning_rate: is -1"),
        ({"learning_rate": float("nan")}, "learning_rate: is nan"),
        ({"l1": -1.0}, "l1: is -1"),
        ({"l2": float("inf")}, "l2: is inf"),
        ({"momentum": 1.0}, "momentum: is 1"),
        ({"beta_1": -0.1}, "beta_1: is -0.1"),
        ({"beta_2": float("nan")}, "beta_2: is nan"),
        ({"beta": -1.0}, "beta: is -1"),
        ({"clip_value": -1.0}, "clip_value: is -1"),
        ({"clip_norm": float("nan")}, "clip_norm: is nan"),
        ({"levels": np.zeros(0)}, "levels: is empty"),
        ({"levels": np.array([0.5, 1.5])}, r"levels: 1.5 is not in \[0, 1\]"),
        ({"levels": np.array([np.nan])}, "levels: nan"),
        ({"levels": np.ones(2), "steps_per_level": 0}, "steps_per_level: is 0"),
        ({"levels": np.ones(2), "optimizer": kernels.FTRL}, "levels: FTRL"),
    ],
)
def test_rules_are_checked_when_made(settings, message):
    with pytest.raises(ValueError, match=message):
        kernels.Rule(**{"optimizer": kernels.SGD, "learning_rate": 0.1} | settings)


def test_rows_beyond_the_regularized_only_take_gradients():
    table = new_table([1, 1], kernels.SGD, True)
    rule = kernels.Rule(kernels.SGD, 0.5, 0.1)
    kernels.table_update(table, np.array([0, 1]), np.ones((2, 1), np.float32), rule, 7, 1)
    np.testing.assert_allclose(table[:, 0], [1 - 8 * 0.05 - 0.5, 0.5], rtol=1e-6)


def test_a_row_ahead_of_the_step_is_left_alone():
    table = new_table([1, 1], kernels.SGD, True)
    table[:, -1].view(np.int32)[:] = 9
    kernels.table_pull(table, np.array([0]), 1, kernels.Rule(kernels.SGD, 0.5, 0.1), 3, 1)
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


def test_wide_rows_are_gathered_and_added_to_whole():
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 40, 60)
    for dim in (3, 4, 11, 50):  # in vectors of four, and what is left
        table = rng.integers(-9, 9, (40, dim + 1)).astype(np.float32)
        np.testing.assert_array_equal(kernels.table_gather(table, rows, dim), table[rows, :dim])
        deltas = rng.integers(-4, 5, (60, dim)).astype(np.float32)
        expected = table.copy()
        np.subtract.at(expected[:, :dim], rows, 2 * deltas)
        kernels.table_add(table, rows, deltas, -2.0)
        np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("row", [-1, 3, 2**62, -(2**63)])
def test_rows_are_checked_before_anything_changes(row):
    table = np.ones((3, 3), np.float32)
    rows = np.array([0, row], np.int64)
    ones = np.ones((2, 1), np.float32)
    settings = kernels.Rule(kernels.ADAGRAD, 0.1, 0.1), 5, 2
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

    def update(table=table, grads=ones, optimizer=adagrad, l1=0.0, step=0, regularized=2):
        rule = kernels.Rule(optimizer, 0.1, l1)
        kernels.table_update(table, rows, grads, rule, step, regularized)

    update()
    bad = [
        ({"optimizer": sgd}, "table: has 3 columns"),
        ({"step": -1}, "step: -1"),
        ({"step": 2**31}, "step: 2147483648"),
        ({"step": 2**63 - 1}, "step: "),
        ({"regularized": 4}, "n_regularized_rows: 4"),
        ({"regularized": -1}, "n_regularized_rows: -1"),
        ({"grads": np.ones((2, 1), np.float32)}, r"grads: has shape \(2, 1\)"),
        ({"grads": np.ones((1, 0), np.float32)}, "dim: is 0"),
        ({"grads": np.ones((1, 9), np.float32)}, "dim: is 9"),
        ({"table": np.zeros((3, 2), np.float32), "l1": 0.1}, "table: has no column for the step"),
        ({"table": np.zeros((3, 2), np.float32), "optimizer": kernels.MOMENTUM}, "table: has no column"),
    ]
    for change, message in bad:
        with pytest.raises(ValueError, match=message):
            update(**change)
    for dim in (0, -1, 4, 2**62):
        with pytest.raises(ValueError, match="dim"):
            kernels.table_gather(table, rows, dim)
        with pytest.raises(ValueError, match="dim"):
            kernels.table_pull(table, rows, dim, kernels.Rule(adagrad, 0.1), 0, 2)
