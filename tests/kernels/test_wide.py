"""Softmax and factorisation machines against plain float64 descent."""

from __future__ import annotations

import numpy as np
import pytest

from squall import _kernels as kernels

N, WIDTH, RATE, BATCH = 50, 5, 0.2, 8


def problem(n_classes=3, seed=0):
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(N, WIDTH)) * (draw.random((N, WIDTH)) < 0.5)
    weights = draw.choice([0.5, 1.0, 2.0], N)
    return (
        X.astype(np.float32),
        draw.integers(0, n_classes, N),
        weights.astype(np.float32),
        draw.permutation(N),
    )


def sparse(X):
    rows, columns = np.nonzero(X)
    indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=len(X)))).astype(np.int64)
    return indptr, columns.astype(np.int32), X[rows, columns]


def softmax(X, y, W):
    z = X @ W[:-1] + W[-1]
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    losses, residual = -np.log(p[np.arange(len(y)), y]), p
    residual[np.arange(len(y)), y] -= 1
    return losses, lambda s: np.vstack([X.T @ (s[:, None] * residual), s @ residual])


def machine(X, y, W):
    w, v = W[:-1, 0], W[:-1, 1:]
    s = X @ v
    z = W[-1, 0] + X @ w + ((s**2).sum(axis=1) - (X**2) @ (v**2).sum(axis=1)) / 2
    slope = 1 / (1 + np.exp(-z)) - y

    def gradient(weights):
        f = weights * slope
        of_v = X.T @ (f[:, None] * s) - v * ((X**2).T @ f)[:, None]
        last = np.zeros(W.shape[1])
        last[0] = f.sum()
        return np.vstack([np.column_stack([X.T @ f, of_v]), last])

    return np.logaddexp(0, np.where(y == 1, -z, z)), gradient


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("model", ["softmax", "machine"])
@pytest.mark.parametrize("optimizer", [kernels.SGD, kernels.ADAGRAD])
@pytest.mark.parametrize(("dim", "most"), [(2, 0.0), (9, 0.0), (40, 0.0), (13, 0.3)])
def test_it_is_plain_descent(form, model, optimizer, dim, most):
    X, y, weights, order = problem(n_classes=dim if model == "softmax" else 2)
    start = 0.1 * np.random.default_rng(1).normal(size=(WIDTH + 1, dim))
    if model == "machine":
        start[-1, 1:] = 0
    table = np.zeros((WIDTH + 1, kernels.table_stride(optimizer, dim, False)), np.float32)
    table[:, :dim] = start
    step, progress = np.zeros(1, np.int64), np.zeros(1, np.int64)
    rows = (X,) if form == "dense" else sparse(X)
    count = -(-N // BATCH)
    arguments = rows, y.astype(np.float32), weights, order.astype(np.int32), BATCH, 0, count, table, dim
    rest = kernels.Rule(optimizer, RATE, clip_norm=most), True, step, progress
    if model == "softmax":
        loss, weight, n = kernels.softmax_minibatches(*arguments, *rest)
    else:
        loss, weight, n = kernels.fm_minibatches(kernels.LOGISTIC, *arguments, *rest)
    W, total, squares = table[:, :dim] * 0.0 + start.astype(np.float32), 0.0, np.zeros((WIDTH + 1, dim))
    W = W.astype(np.float64)
    for batch in np.split(order, range(BATCH, N, BATCH)):
        losses, gradient = (softmax if model == "softmax" else machine)(
            X[batch].astype(np.float64), y[batch], W
        )
        total += float(weights[batch] @ losses)
        g = gradient(weights[batch].astype(np.float64)) / BATCH
        if most and np.linalg.norm(g) > most:
            g *= most / np.linalg.norm(g)
        if optimizer == kernels.ADAGRAD:
            squares += g * g
            g = g / (np.sqrt(squares) + 1e-10)
        W -= RATE * g
    assert (n, step[0], progress[0]) == (N, count, count)
    assert weight == weights.sum()
    assert loss == pytest.approx(total, rel=1e-4)
    np.testing.assert_allclose(table[:, :dim], W, rtol=2e-3, atol=2e-4)


BAD = [
    ({"labels": np.full(N, 3, np.float32)}, ValueError, r"label is 3, a whole number in \[0, 3\) needed"),
    ({"labels": np.full(N, 0.5, np.float32)}, ValueError, "label is 0.5"),
    ({"labels": np.zeros(N - 1, np.float32)}, ValueError, "labels: has length"),
    ({"rows": ()}, ValueError, "rows: are 0 arrays"),
    ({"rows": (np.zeros((N, WIDTH + 1), np.float32),)}, ValueError, "X: has 6 columns, 5 needed"),
    ({"n_classes": 1}, ValueError, "n_classes: is 1"),
    ({"n_classes": 4}, ValueError, "dim|columns"),
    ({"order": np.array([N], np.int32)}, IndexError, "order: position 0"),
]


@pytest.mark.parametrize(("change", "error", "says"), BAD)
def test_what_is_wrong_is_told(change, error, says):
    X, y, _, order = problem()
    arguments = {
        "rows": (X,), "labels": y.astype(np.float32), "weights": None, "order": order.astype(np.int32),
        "batch_size": 60, "first_batch": 0, "n_batches": 1, "table": np.zeros((WIDTH + 1, 3), np.float32),
        "n_classes": 3, "rule": kernels.Rule(kernels.SGD, 0.1), "fit_intercept": True,
        "step": np.zeros(1, np.int64), "progress": None,
    }  # fmt: skip
    with pytest.raises(error, match=says):
        kernels.softmax_minibatches(**arguments | change)
    assert not arguments["table"].any()


def test_a_feature_outside_the_table_is_told():
    rows = np.array([0, 1], np.int64), np.array([WIDTH], np.int32), None
    table, step = np.zeros((WIDTH + 1, 3), np.float32), np.zeros(1, np.int64)
    rule = kernels.Rule(kernels.SGD, 0.1)
    with pytest.raises(IndexError, match=r"feature 5 is not in \[0, 5\)"):
        kernels.softmax_minibatches(
            rows, np.zeros(1, np.float32), None, None, 1, 0, 1, table, 3, rule, True, step, None
        )
    pulled = np.zeros((2, 3), np.float32)
    with pytest.raises(IndexError, match="local: row 0"):
        kernels.softmax_gradient(rows, np.zeros(1, np.float32), None, np.zeros(1, np.int32), pulled, True, 1)
