from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from squall import _kernels as kernels

from . import oracles
from .strategies import blocks, rules, small_block
from .test_tables import new_table

CLOSE = {"rtol": 5e-4, "atol": 5e-5}

# From G = 0 AdaGrad takes a full step along the sign of a first gradient, even of one that is 0 but for
# rounding, so float32 and float64 may part.  test_tables has G = 0 with gradients that are given.
FIRST_G = 0.1


def n_batches(block, batch_size):
    n = len(block["labels"]) if block["order"] is None else len(block["order"])
    return -(-n // max(batch_size, 1))


def train(block, table, settings, batch_size=4, fit_intercept=True, **more):
    """`settings` are a rule's, or an optimizer."""
    rule = settings if isinstance(settings, dict) else {"optimizer": settings, "learning_rate": 0.3}
    arguments = {
        "batch_size": batch_size, "first_batch": 0, "n_batches": n_batches(block, batch_size), "table": table,
        "rule": kernels.Rule(**rule), "fit_intercept": fit_intercept,
        "step": np.zeros(1, np.int64), "progress": None,
    } | more  # fmt: skip
    call = kernels.logistic_minibatches_dense if "X" in block else kernels.logistic_minibatches
    return call(**block, **arguments)


def densify(block, n_features):
    X = oracles.dense(block["indptr"], block["indices"], block["values"], n_features).astype(np.float32)
    return {"X": X} | {name: block[name] for name in ("labels", "weights", "order")}


def warm_state(settings, weights):
    """State columns as if there had been gradients."""
    match settings["optimizer"]:
        case kernels.SGD:
            return np.zeros((0, len(weights)))
        case kernels.ADAGRAD:
            return np.full((1, len(weights)), FIRST_G)
        case kernels.MOMENTUM | kernels.NESTEROV:
            return np.linspace(-0.1, 0.1, len(weights))[None]
        case kernels.ADAM:
            return np.tile([[0.01], [FIRST_G], [30]], len(weights))
        case kernels.FTRL:
            curvature = (settings["beta"] + np.sqrt(FIRST_G)) / settings["learning_rate"]
            return np.stack([-weights * curvature, np.full(len(weights), FIRST_G)])


def eager(block, n_features, start, settings, batch_size, fit_intercept, epochs, is_dense):
    X = densify(block, n_features)["X"].astype(np.float64)
    y = block["labels"].astype(np.float64)
    s = np.ones(len(y)) if block["weights"] is None else block["weights"].astype(np.float64)
    order = np.arange(len(y)) if block["order"] is None else block["order"]
    model = oracles.Eager(n_features, settings, start, warm_state(settings, start))
    indptr, indices = block["indptr"], block["indices"]
    loss = 0.0
    for _ in range(epochs):
        for begin in range(0, len(order), batch_size):
            rows = order[begin : begin + batch_size]
            touched = np.full(n_features + 1, is_dense)
            for row in rows:
                touched[indices[indptr[row] : indptr[row + 1]]] = True
            touched[-1] = fit_intercept
            loss += model.minibatch(X[rows], y[rows], s[rows], fit_intercept, batch_size, touched)
    return model, loss, epochs * s[order].sum()


@hypothesis_settings(deadline=None)
@given(blocks(), rules(), st.integers(1, 40), st.booleans(), st.booleans(), st.booleans())
def test_fused_loops_equal_the_eager_oracle(case, settings, batch_size, fit_intercept, warm, is_dense):
    block, n_features = case
    start = (np.random.default_rng(0).normal(size=n_features + 1) * warm).astype(np.float32)
    how = batch_size, fit_intercept
    model, loss, weight = eager(block, n_features, start, settings, *how, 2, is_dense)
    data = densify(block, n_features) if is_dense else block
    rule = kernels.Rule(**settings)
    table = new_table(start, settings["optimizer"], rule.lazy)
    state = warm_state(settings, start)
    table[:, 1 : 1 + len(state)] = state.T
    step, progress = np.zeros(1, np.int64), np.zeros(1, np.int64)
    results = [train(data, table, settings, *how, step=step, progress=progress) for _ in range(2)]
    assert step[0] == progress[0] == 2 * n_batches(block, batch_size)
    kernels.table_catch_up(table, rule, int(step[0]), n_features)
    rows = slice(None) if fit_intercept else slice(-1)  # no use was made of the intercept
    np.testing.assert_allclose(table[rows, 0], model.w[rows], **CLOSE)
    if not is_dense:
        got = table[rows, 1 : 1 + len(state)].T
        np.testing.assert_allclose(got, model.state[:, rows], rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(sum(r[0] for r in results), loss, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(sum(r[1] for r in results), weight, rtol=1e-6)
    assert all(r[2] == len(block["labels"]) for r in results)


@hypothesis_settings(deadline=None)
@given(blocks(), rules(), st.integers(1, 10), st.booleans())
def test_pull_gradient_update_is_bit_for_bit_the_fused_loop(case, settings, batch_size, fit_intercept):
    block, n_features = case
    rule = kernels.Rule(**settings)
    fused = new_table(np.zeros(n_features + 1), settings["optimizer"], rule.lazy)
    stored = fused.copy()
    total = train(block, fused, settings, batch_size, fit_intercept)[0]

    n = len(block["labels"])
    order = np.arange(n) if block["order"] is None else block["order"]
    losses = []
    for step, begin in enumerate(range(0, n, batch_size)):
        rows = order[begin : begin + batch_size].astype(np.int32)
        csr = block["indptr"], block["indices"], block["values"]
        needed, *taken = kernels.csr_minibatch(*csr, rows, n_features)
        pulled = kernels.table_pull(stored, needed, 1, rule, step, n_features)
        grad, loss, _ = kernels.csr_logistic_gradient(
            *taken, block["labels"], block["weights"], rows, pulled, fit_intercept, batch_size
        )
        kernels.table_update(stored, needed, grad, rule, step, n_features)
        losses.append(loss)
    if not fit_intercept:
        stored[-1] = fused[-1]  # a row that the loop never looks at
    np.testing.assert_array_equal(stored.view(np.int32), fused.view(np.int32))
    assert sum(losses) == total


@given(blocks(max_rows=40, max_nnz=40), rules())
def test_two_runs_are_bit_identical_and_may_be_cut_anywhere(case, settings):
    block, n_features = case
    whole = new_table(np.zeros(n_features + 1), settings["optimizer"], kernels.Rule(**settings).lazy)
    parts = whole.copy()
    result = train(block, whole, settings, 3)
    step = np.zeros(1, np.int64)
    rows = 0
    for b in range(n_batches(block, 3)):
        rows += train(block, parts, settings, 3, first_batch=b, n_batches=1, step=step)[2]
    assert rows == result[2]
    np.testing.assert_array_equal(whole.view(np.int32), parts.view(np.int32))


@given(st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 40), max_size=300))
def test_localize_numbers_in_first_seen_order(indices):
    unique, local = kernels.localize(np.array(indices, np.int32))
    assert unique.tolist() == list(dict.fromkeys(indices))
    np.testing.assert_array_equal(unique[local], indices)
    assert (unique.dtype, local.dtype) == (np.int64, np.int32)


def test_localize_many():
    indices = np.random.default_rng(0).integers(0, 50_000, 200_000).astype(np.int32)
    unique, local = kernels.localize(indices)
    np.testing.assert_array_equal(unique[local], indices)
    assert len(unique) == len(np.unique(indices))


def test_localize_survives_colliding_features():
    # Knuth's constant is odd, so features that share their low bits after it can be listed.
    inverse = pow(0x9E3779B1, -1, 2**32)
    keys = [(slot * inverse) % 2**32 for slot in range(40_000)]
    indices = np.array([key for key in keys if key < 2**31], np.int32)
    unique, local = kernels.localize(indices)
    np.testing.assert_array_equal(unique, indices)
    np.testing.assert_array_equal(local, np.arange(len(indices)))


def test_localize_refuses_negative_features():
    with pytest.raises(IndexError, match="indices: position 300: feature -7"):
        kernels.localize(np.array([5] * 300 + [-7], np.int32))


@given(blocks())
def test_gradient_is_the_derivative(case):
    block, n_features = case
    w = np.random.default_rng(3).normal(size=n_features)
    y = block["labels"].astype(np.float64)
    s = np.ones(len(y)) if block["weights"] is None else block["weights"].astype(np.float64)
    X = oracles.dense(block["indptr"], block["indices"], block["values"], n_features)
    factor = s * (oracles.sigmoid(X @ w.astype(np.float32) + 0.5) - y) / max(len(y), 1)
    gradient, loss, weight = kernels.csr_logistic_gradient(
        block["indptr"], block["indices"], block["values"], block["labels"], block["weights"],
        None, np.append(w, 0.5).astype(np.float32)[:, None], True, max(len(y), 1),
    )  # fmt: skip
    np.testing.assert_allclose(gradient[:-1, 0], X.T @ factor, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient[-1, 0], factor.sum(), rtol=1e-6, atol=1e-7 * max(s.sum(), 1))
    np.testing.assert_allclose(loss, s @ oracles.loss(X @ w.astype(np.float32) + 0.5, y), rtol=1e-5)
    assert weight == s.sum()


@pytest.mark.parametrize("dense", [False, True])
def test_divergence_stops_before_the_minibatch_is_applied(dense):
    block = small_block() | {"values": np.array([1, 1, np.inf, 1, 1], np.float32)}
    data = block
    if dense:
        X = np.ones((4, 5), np.float32)
        X[2, 0] = np.inf
        data = {"X": X} | {name: block[name] for name in ("labels", "weights", "order")}
    table = new_table(np.zeros(6), kernels.ADAGRAD, False)
    step, progress = np.zeros(1, np.int64), np.zeros(1, np.int64)
    # order is 3 0 1 2: row 2 is in the last of four minibatches; weights are not 0 by then
    loss, weight, rows = train(data, table, kernels.ADAGRAD, batch_size=1, step=step, progress=progress)
    assert np.isnan(loss)
    assert (weight, rows, step[0], progress[0]) == (4, 3, 3, 3)
    assert np.isfinite(table).all()


@pytest.mark.parametrize("dense", [False, True])
def test_margins_far_out_do_not_overflow(dense):
    block = small_block()
    data = densify(block, 5) if dense else block
    table = new_table(np.full(6, 1e4), kernels.SGD, False)
    loss, _, rows = train(data, table, kernels.SGD)
    assert np.isfinite(loss)
    assert rows == 4
    assert np.isfinite(table).all()


def test_rows_without_entries_train_the_intercept():
    n = 5
    block = {
        "indptr": np.zeros(n + 1, np.int64), "indices": np.zeros(0, np.int32), "values": None,
        "labels": np.ones(n, np.float32), "weights": None, "order": None,
    }  # fmt: skip
    table = new_table(np.zeros(1), kernels.SGD, False)  # no feature at all
    loss, weight, rows = train(block, table, {"optimizer": kernels.SGD, "learning_rate": 1.0}, batch_size=100)
    assert (loss, weight, rows) == (pytest.approx(n * np.log(2)), n, n)
    assert table[0, 0] == np.float32(0.5 * n / 100)


def test_no_rows_is_a_no_op():
    block = {
        "indptr": np.zeros(1, np.int64), "indices": np.zeros(0, np.int32), "values": None,
        "labels": np.zeros(0, np.float32), "weights": None, "order": None,
    }  # fmt: skip
    table = new_table(np.ones(3), kernels.SGD, False)
    assert train(block, table, kernels.SGD) == (0, 0, 0)
    assert (table == 1).all()


BAD_ROWS = [
    ("order", [3, 0, 1, 4], IndexError, "order: position 3: row 4"),
    ("order", [3, 0, 1, -1], IndexError, "order: position 3: row -1"),
    ("indices", [0, 3, 5, 1, 1], IndexError, "indices: row 2, position 0: feature 5"),
    ("indices", [0, 3, -4, 1, 1], IndexError, "indices: row 2, position 0: feature -4"),
    ("indptr", [0, 2, 2, 9, 5], ValueError, r"indptr: row 3 spans \[9, 5\)"),
    ("indptr", [0, 2, 2, -3, 5], ValueError, r"indptr: row 3 spans \[-3, 5\)"),
    ("labels", [0, 1, 2, 0], ValueError, "labels: row 2: label is 2"),
    ("weights", [1, 1, -2, 1], ValueError, "weights: row 2: weight is -2"),
]


@pytest.mark.parametrize(("name", "data", "error", "message"), BAD_ROWS)
def test_bad_rows_stop_the_run_before_their_minibatch(name, data, error, message):
    block = small_block()
    block[name] = np.array(data, block[name].dtype)
    table = new_table(np.zeros(6), kernels.SGD, True)
    step = np.zeros(1, np.int64)
    with pytest.raises(error, match=message):
        train(block, table, kernels.SGD, batch_size=1, step=step)
    assert step[0] == (0 if "row 3" in message else 3)  # row 3 is visited first
    assert table[4, 0] == 0  # row 2 is the only one with feature 4


def test_schedule_is_checked():
    block = small_block()
    table = new_table(np.zeros(6), kernels.SGD, False)
    bad = [
        ({"batch_size": 0, "n_batches": 1}, "batch_size: is 0"),
        ({"first_batch": -1}, "first_batch, n_batches"),
        ({"n_batches": -1}, "first_batch, n_batches"),
        ({"batch_size": 3, "n_batches": 3}, "within the 2 minibatches of 4 rows"),
        ({"first_batch": 2**63 - 1}, "first_batch, n_batches"),
        ({"step": np.zeros(2, np.int64)}, "step: has length 2"),
        ({"progress": np.zeros(0, np.int64)}, "progress: has length 0"),
        ({"rule": kernels.Rule(kernels.SGD, 0.3, 0.1)}, "table: has no column for the step"),
        ({"table": np.zeros((0, 1), np.float32)}, "table: has no row"),
    ]
    for change, message in bad:
        arguments = {"settings": kernels.SGD, "table": table} | change
        with pytest.raises(ValueError, match=message):
            train(block, **arguments)
    with pytest.raises(ValueError, match="step"):
        lazy = new_table(np.zeros(6), kernels.SGD, True)
        train(block, lazy, kernels.SGD, step=np.array([2**31 - 2]))
    with pytest.raises(ValueError, match=r"table: has 6 rows, 3"):
        X = np.zeros((4, 2), np.float32)
        train(densify(block, 5) | {"X": X}, table, kernels.SGD)


def test_gradient_checks_local_indices():
    block = small_block()
    labels = block["labels"]
    for bad in (-1, 2):
        local = np.array([0, 1, 1, bad, 0], np.int32)
        with pytest.raises(IndexError, match=r"local: row 3, position 0"):
            kernels.csr_logistic_gradient(
                block["indptr"], local, None, labels, None, None, np.zeros((3, 1), np.float32), True, 4
            )


@pytest.mark.parametrize("penalty", [(0.0, 0.0), (1e-4, 1e-3)])
def test_threads_may_share_a_table(penalty):
    """Hogwild: no crash, every minibatch counted, and the loss falls."""
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(0)
    n, n_features, nnz = 4000, 500, 10
    truth = rng.normal(size=n_features)
    indices = rng.integers(0, n_features, (n, nnz)).astype(np.int32)
    labels = (rng.random(n) < oracles.sigmoid(truth[indices].sum(1))).astype(np.float32)
    block = {
        "indptr": np.arange(0, n * nnz + 1, nnz), "indices": indices.ravel(), "values": None,
        "labels": labels, "weights": None, "order": None,
    }  # fmt: skip
    table = new_table(np.zeros(n_features + 1), kernels.ADAGRAD, penalty != (0, 0))
    step, progress = np.zeros(1, np.int64), np.zeros(1, np.int64)

    def work(_):
        rule = {"optimizer": kernels.ADAGRAD, "learning_rate": 0.5, "l1": penalty[0], "l2": penalty[1]}
        return train(block, table, rule, 20, step=step, progress=progress)

    with ThreadPoolExecutor(4) as pool:
        losses = [r[0] / r[1] for r in pool.map(work, range(8))]
    assert step[0] == progress[0] == 8 * 200
    assert min(losses[-4:]) < losses[0] < 1


def test_what_cancels_cancels_exactly():
    """Three rows at weights 0: feature 0 sees +1/2 and -1/2, which must not leave a rounding error."""
    block = {
        "indptr": np.array([0, 1, 2, 2]), "indices": np.zeros(2, np.int32), "values": None,
        "labels": np.array([0, 1, 1], np.float32), "weights": None, "order": None,
    }  # fmt: skip
    table = new_table(np.zeros(2), kernels.ADAGRAD, False)
    train(block, table, kernels.ADAGRAD)
    assert table[0].tolist() == [0, 0]
