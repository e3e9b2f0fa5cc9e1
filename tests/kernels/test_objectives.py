"""Sums for second-order methods against plain NumPy in double."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall._kernels import objectives as kernels

from .oracles import dense, loss, sigmoid
from .strategies import blocks, small_block

N_CLASSES = 3
ROWS = ("indptr", "indices", "values")


def oracle(kind, X, y, s, x, intercept):
    """Loss, gradient and Hessian, by one pass over the rows each."""
    outputs = x.shape[1]
    A = np.column_stack([X, np.ones(len(X)) if intercept else np.zeros(len(X))])
    z = A @ x
    if kind == kernels.SOFTMAX:
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        own = np.eye(outputs)[y.astype(int)]
        losses, slope = -np.log((p * own).sum(axis=1)), p - own
        curvature = np.einsum("na,ab->nab", p, np.eye(outputs)) - np.einsum("na,nb->nab", p, p)
    elif kind == kernels.LOGISTIC:
        p = sigmoid(z[:, 0])
        losses, slope, curvature = loss(z[:, 0], y), (p - y)[:, None], (p * (1 - p))[:, None, None]
    else:
        slope, curvature = z - y[:, None], np.ones((len(y), 1, 1))
        losses = slope[:, 0] ** 2 / 2
    hessian = np.einsum("n,nab,ni,nj->iajb", s, curvature, A, A)
    side = hessian.shape[0] * outputs
    return losses @ s, A.T @ (s[:, None] * slope), hessian.reshape(side, side)


def repeats(block, as_dense):
    rows = np.split(block["indices"], block["indptr"][1:-1])
    return not as_dense and any(len(set(row.tolist())) < len(row) for row in rows)


@settings(deadline=None, max_examples=60)
@given(
    blocks(max_rows=12, max_features=6, max_nnz=5),
    st.sampled_from([kernels.LOGISTIC, kernels.SQUARED, kernels.SOFTMAX]),
    st.booleans(),
    st.booleans(),
)
def test_all_sums_are_those_of_plain_numpy(drawn, kind, intercept, as_dense):
    block, d = drawn
    y, n = block["labels"], len(block["labels"])
    outputs = N_CLASSES if kind == kernels.SOFTMAX else 1
    draw = np.random.default_rng(n + d)
    if kind == kernels.SOFTMAX:
        y = draw.integers(0, N_CLASSES, n).astype(np.float32)
    X = dense(block["indptr"], block["indices"], block["values"], d)
    rows = (X.astype(np.float32),) if as_dense else tuple(block[name] for name in ROWS)
    s = block["weights"]
    x, v = draw.normal(size=(2, d + 1, outputs))
    if not intercept:
        x[-1] = v[-1] = 0.0
    if as_dense:
        X = rows[0].astype(np.float64)
    expected_loss, expected_gradient, hessian = oracle(
        kind, X, y, np.ones(n) if s is None else s.astype(np.float64), x, intercept
    )
    begin = draw.normal(size=x.shape)  # sums are added to what is there
    gradient, curvature = begin.copy(), np.empty((n, outputs))
    value = kernels.objective_gradient(kind, rows, y, s, x, intercept, gradient, curvature)
    np.testing.assert_allclose(value, expected_loss, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradient - begin, expected_gradient, rtol=1e-10, atol=1e-10)
    product, diagonal = np.zeros_like(x), np.zeros_like(x)
    matrix = np.zeros((x.size, x.size))
    kernels.hessian_product(kind, rows, s, curvature, v, intercept, product)
    kernels.hessian_diagonal(kind, rows, s, curvature, intercept, diagonal)
    kernels.hessian_matrix(kind, rows, s, curvature, outputs, intercept, matrix)
    np.testing.assert_allclose(product.ravel(), hessian @ v.ravel(), rtol=1e-10, atol=1e-10)
    if not repeats(block, as_dense):  # each entry counts by itself
        np.testing.assert_allclose(diagonal.ravel(), np.diag(hessian), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.triu(matrix), np.triu(hessian), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("far", [800.0, -800.0])
def test_margins_far_from_0_neither_overflow_nor_vanish(far):
    rows = (np.array([[1.0]], np.float32),)
    x, gradient, curvature = np.array([[far], [0.0]]), np.zeros((2, 1)), np.zeros((1, 1))
    y = np.array([0.0 if far > 0 else 1.0], np.float32)
    args = (rows, y, None, x, False, gradient, curvature)
    assert kernels.objective_gradient(kernels.LOGISTIC, *args) == 800.0
    assert gradient[0, 0] == np.sign(far) and curvature[0, 0] == 0.0


def arguments():
    block = small_block()
    return {
        "loss": kernels.LOGISTIC,
        "rows": tuple(block[name] for name in ROWS),
        "labels": block["labels"],
        "weights": block["weights"],
        "x": np.zeros((6, 1)),
        "fit_intercept": True,
        "gradient": np.zeros((6, 1)),
        "curvature": np.zeros((4, 1)),
    }


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"loss": 7}, ValueError, "loss: 7 is unknown"),
        ({"x": np.zeros((4, 1)), "gradient": np.zeros((4, 1))}, IndexError, "feature 3 is not in"),
        ({"x": np.zeros((0, 1))}, ValueError, "x: has no row"),
        ({"x": np.zeros((6, 1), np.float32)}, TypeError, "x: dtype is float32"),
        ({"gradient": np.zeros((5, 1))}, ValueError, "gradient: has shape"),
        ({"curvature": np.zeros((3, 1))}, ValueError, "curvature: has shape"),
        ({"labels": np.array([0, 1, 2, 0], np.float32)}, ValueError, "labels: row 2"),
        ({"weights": np.array([1, -1, 1, 1], np.float32)}, ValueError, "weights: row 1"),
        ({"rows": (np.zeros((4, 3), np.float32),)}, ValueError, "X: has 3 columns, 5 needed"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(wrong, error, says):
    with pytest.raises(error, match=says):
        kernels.objective_gradient(**(arguments() | wrong))


def test_second_derivatives_check_their_shapes():
    rows, curvature = arguments()["rows"], np.zeros((4, 1))
    with pytest.raises(ValueError, match="out: has shape"):
        kernels.hessian_product(0, rows, None, curvature, np.zeros((6, 1)), True, np.zeros((5, 1)))
    with pytest.raises(IndexError, match="feature 4 is not in"):
        kernels.hessian_diagonal(0, rows, None, curvature, True, np.zeros((5, 1)))
    with pytest.raises(ValueError, match="out: has shape"):
        kernels.hessian_matrix(0, rows, None, curvature, 1, True, np.zeros((6, 5)))
    with pytest.raises(ValueError, match="out: has 7 rows"):
        kernels.hessian_matrix(2, rows, None, np.zeros((4, 2)), 2, True, np.zeros((7, 7)))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 5.0]), st.booleans())
def test_coordinate_descent_ends_where_its_conditions_hold(n, seed, l1, start_elsewhere):
    draw = np.random.default_rng(seed)
    factor = draw.normal(size=(n + 2, n))
    q, b, l2 = factor.T @ factor + 0.1 * np.eye(n), draw.normal(size=n), 0.2
    z, free = (draw.normal(size=n) if start_elsewhere else np.zeros(n)), n - 1  # the last is not penalised
    worst = kernels.quadratic_descent(q, b, z, free, l1, l2, 1e-10, 100_000)
    assert worst <= 1e-10
    gradient = q @ z - b
    gradient[:free] += l2 * z[:free]
    slack = np.where(z[:free] != 0, np.abs(gradient[:free] + l1 * np.sign(z[:free])), 0)
    assert slack.max(initial=0) < 1e-7 and abs(gradient[-1]) < 1e-7
    assert np.all(np.abs(gradient[:free]) <= l1 + 1e-7)


def test_coordinate_descent_checks_its_arguments():
    q, b, z = np.eye(2), np.ones(2), np.zeros(2)
    with pytest.raises(ValueError, match="q: has shape"):
        kernels.quadratic_descent(np.ones((2, 3)), b, z, 2, 0.0, 0.0, 0.0, 1)
    with pytest.raises(ValueError, match="n_regularized: is 3"):
        kernels.quadratic_descent(q, b, z, 3, 0.0, 0.0, 0.0, 1)
    with pytest.raises(ValueError, match="l1: is -1"):
        kernels.quadratic_descent(q, b, z, 2, -1.0, 0.0, 0.0, 1)
