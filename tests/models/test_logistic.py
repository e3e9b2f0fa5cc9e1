from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from squall import _kernels
from squall.models.logistic import LogisticModel
from squall.optim import CODES, is_lazy
from squall.records import CsrBlock, DenseBlock, OptimizerSpec, SharedTable


def csr(X, labels, weights=None, *, ones=False):
    rows, columns = np.nonzero(X)
    indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=len(X)))).astype(np.int64)
    values = None if ones else X[rows, columns].astype(np.float32)
    return CsrBlock(indptr, columns.astype(np.int32), values, labels, weights, X.shape[1])


def of_kind(kind, X, labels, weights=None):
    return DenseBlock(X, labels, weights) if kind == "dense" else csr(X, labels, weights)


def problem(seed=0, n=40, width=6, weighted=False):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, width)) * (rng.random((n, width)) < 0.6)).astype(np.float32)
    labels = rng.integers(0, 2, n).astype(np.float32)
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], n).astype(np.float32) if weighted else None
    return X, labels, weights


def parameters(width, seed=1, scale=0.5):
    return (scale * np.random.default_rng(seed).normal(size=(width + 1, 1))).astype(np.float32)


def exact_loss(X, labels, weights, parameters):
    """Mean over rows of weight · log-loss, in float64."""
    margins = X.astype(np.float64) @ parameters[:-1] + parameters[-1]
    losses = np.logaddexp(0, np.where(labels == 1, -margins, margins))
    return float(np.mean(losses if weights is None else weights * losses))


def gradient_of(model, block, rows, whole):
    """The gradient as a full vector, with (loss, weight)."""
    needed, handle = model.needed_rows(block, rows)
    gradient, loss, weight = model.gradient(block, rows, handle, whole[needed], len(rows))
    assert gradient.shape == (len(needed), 1)
    assert gradient.dtype == np.float32
    full = np.zeros(len(whole))
    full[needed] = gradient[:, 0]
    return full, loss, weight


everything = np.arange(40, dtype=np.int32)
kinds = pytest.mark.parametrize("kind", ["dense", "csr"])


@kinds
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_the_slope_of_the_mean_loss(kind, weighted):
    X, labels, weights = problem(weighted=weighted)
    whole = parameters(6)
    gradient, _, _ = gradient_of(LogisticModel(6), of_kind(kind, X, labels, weights), everything, whole)
    at, h = whole[:, 0].astype(np.float64), 1e-5
    for j in range(7):
        step = h * np.eye(7)[j]
        ends = [exact_loss(X, labels, weights, at + sign * step) for sign in (1, -1)]
        assert gradient[j] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-6)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.integers(1, 40))
def test_sparse_and_dense_rows_give_the_same(seed, weighted, fit_intercept, n_rows):
    X, labels, weights = problem(seed, weighted=weighted)
    rows = np.random.default_rng(seed).permutation(40)[:n_rows].astype(np.int32)
    model, whole = LogisticModel(6, fit_intercept), parameters(6, seed)
    whole[-1] *= fit_intercept
    blocks = [of_kind(kind, X, labels, weights) for kind in ("dense", "csr")]
    (g1, *sums1), (g2, *sums2) = (gradient_of(model, block, rows, whole) for block in blocks)
    np.testing.assert_allclose(g1, g2, atol=1e-6)
    np.testing.assert_allclose(sums1, sums2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(*(model.outputs(block, whole) for block in blocks), atol=1e-5)


def test_only_features_that_occur_are_needed_and_the_intercept():
    X = np.array([[0, 2, 0, 1], [0, 0, 0, 3], [5, 0, 0, 0]], np.float32)
    needed, _ = LogisticModel(4).needed_rows(csr(X, np.zeros(3, np.float32)), np.array([0, 1], np.int32))
    assert sorted(needed.tolist()) == [1, 3, 4]
    assert needed[-1] == 4


def test_the_gradient_is_the_mean_over_the_rows_asked_for():
    X, labels, _ = problem()
    rows = np.array([3, 17, 4], np.int32)
    whole = parameters(6)
    gradient, loss, weight = gradient_of(LogisticModel(6), csr(X, labels), rows, whole)
    margins = X[rows] @ whole[:-1, 0] + whole[-1]
    residual = 1 / (1 + np.exp(-margins)) - labels[rows]
    np.testing.assert_allclose(gradient[:-1], X[rows].T @ residual / 3, atol=1e-6)
    assert gradient[-1] == pytest.approx(residual.mean(), abs=1e-6)
    assert loss == pytest.approx(3 * exact_loss(X[rows], labels[rows], None, whole[:, 0]), rel=1e-6)
    assert weight == 3


@kinds
def test_without_an_intercept_its_slope_is_zero(kind):
    X, labels, _ = problem()
    gradient, _, _ = gradient_of(
        LogisticModel(6, False), of_kind(kind, X, labels), everything, parameters(6) * 0
    )
    assert gradient[-1] == 0
    assert np.any(gradient[:-1])


@kinds
def test_weights_count_as_repetitions_of_rows(kind):
    X, labels, _ = problem()
    times = np.random.default_rng(3).integers(0, 4, 40)
    whole, model = parameters(6), LogisticModel(6)
    weighted = of_kind(kind, X, labels, times.astype(np.float32))
    repeated = of_kind(kind, np.repeat(X, times, axis=0), np.repeat(labels, times))
    np.testing.assert_allclose(model.loss(weighted, whole), model.loss(repeated, whole), rtol=1e-6)


@kinds
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_and_accuracy_are_scikit_learns(kind, weighted):
    X, labels, weights = problem(weighted=weighted)
    whole, model = parameters(6), LogisticModel(6)
    loss, weight, right = model.loss(of_kind(kind, X, labels, weights), whole)
    margins = X.astype(np.float64) @ whole[:-1, 0] + whole[-1]
    expected = log_loss(labels, 1 / (1 + np.exp(-margins)), sample_weight=weights)
    assert loss / weight == pytest.approx(expected, rel=1e-6)
    assert weight == pytest.approx(40 if weights is None else weights.sum())
    hits = (margins > 0) == (labels == 1)
    assert right / weight == pytest.approx(np.average(hits, weights=weights))


@kinds
def test_losses_of_parts_add_up(kind):
    X, labels, weights = problem(weighted=True)
    whole, model = parameters(6), LogisticModel(6)
    parts = [
        model.loss(of_kind(kind, X[s], labels[s], weights[s]), whole) for s in (slice(0, 7), slice(7, 40))
    ]
    np.testing.assert_allclose(
        np.sum(parts, axis=0), model.loss(of_kind(kind, X, labels, weights), whole), rtol=1e-6
    )


@kinds
@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_extreme_margins_stay_finite(kind, scale):
    block = of_kind(kind, np.array([[1.0], [-1.0]], np.float32), np.array([0, 1], np.float32))
    whole = np.array([[scale], [0]], np.float32)
    gradient, loss, _ = gradient_of(LogisticModel(1), block, np.array([0, 1], np.int32), whole)
    assert loss == pytest.approx(2 * scale)
    assert gradient.tolist() == pytest.approx([1, 0])


@kinds
def test_parameters_beyond_float32_show_in_the_loss_and_nowhere_else(kind):
    block = of_kind(kind, np.array([[3e38, 3e38]], np.float32), np.ones(1, np.float32))
    with np.errstate(all="raise"):
        loss, _, _ = LogisticModel(2).loss(block, np.array([[-3e38], [3e38], [0]], np.float32))
    assert not np.isfinite(loss) or kind == "csr"  # sums of sparse rows are taken in double


@kinds
def test_a_block_without_rows(kind):
    block = of_kind(kind, np.zeros((0, 3), np.float32), np.zeros(0, np.float32))
    assert LogisticModel(3).loss(block, parameters(3)) == (0, 0, 0)
    assert LogisticModel(3).outputs(block, parameters(3)).shape == (0,)


def new_table(spec):
    stride = _kernels.table_stride(CODES[spec.optimizer.name], 1, is_lazy(spec.optimizer))
    array = np.zeros((spec.rows, stride), np.float32)
    if is_lazy(spec.optimizer):
        array[:, -1].view(np.int32)[:] = 0
    return SharedTable(spec, array, np.zeros(1, np.int64))


@kinds
@pytest.mark.parametrize("optimizer", sorted(CODES))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_minibatch_in_place_is_pull_gradient_and_update(kind, optimizer, weighted, fit_intercept):
    X, labels, weights = problem(weighted=weighted)
    block, model = of_kind(kind, X, labels, weights), LogisticModel(6, fit_intercept)
    spec = model.table("t", OptimizerSpec(optimizer, 0.3))
    table = new_table(spec)
    whole = parameters(6)
    whole[-1] *= fit_intercept
    table.array[:, 0] = whole[:, 0]
    gradient, loss, weight = gradient_of(model, block, everything, whole)
    progress = np.zeros(1, np.int64)
    result = model.train_shared(block, everything, 40, 0, 1, table, progress)
    assert result == pytest.approx((loss, weight, 40))
    assert (progress[0], table.step[0]) == (1, 1)
    size = np.abs(gradient)
    step = {
        "sgd": gradient,
        "momentum": gradient,
        "nesterov": 1.9 * gradient,
        "ftrl": gradient / (1 + size),
        "adagrad": gradient / (size + 1e-10),
        "adam": gradient / (size + 1e-8),
    }[optimizer] * (size > 1e-7)
    np.testing.assert_allclose(table.array[:, 0], whole[:, 0] - 0.3 * step, atol=1e-5)


@kinds
def test_the_minibatches_asked_for_and_no_others_are_trained(kind):
    X, labels, _ = problem()
    block, model = of_kind(kind, X, labels), LogisticModel(6)
    order = np.random.default_rng(0).permutation(40).astype(np.int32)
    at_once, in_turns = (new_table(model.table("t", OptimizerSpec("sgd", 0.1))) for _ in range(2))
    progress = np.zeros(1, np.int64)
    whole = model.train_shared(block, order, 7, 0, 6, at_once, progress)
    parts = [model.train_shared(block, order, 7, *piece, in_turns, progress) for piece in [(0, 2), (2, 4)]]
    np.testing.assert_array_equal(at_once.array, in_turns.array)
    assert [whole[2], parts[0][2], parts[1][2]] == [40, 14, 26]
    assert progress[0] == 12


def test_the_table_has_a_row_for_the_intercept_which_is_not_penalised():
    spec = LogisticModel(6).table("t", OptimizerSpec("adagrad", 0.1, l2=0.5))
    assert (spec.name, spec.rows, spec.dim, spec.regularized_rows) == ("t", 7, 1, 6)


def test_the_model_travels_as_plain_data():
    model = LogisticModel(6, fit_intercept=False)
    assert msgspec.convert(msgspec.to_builtins(model), LogisticModel) == model
