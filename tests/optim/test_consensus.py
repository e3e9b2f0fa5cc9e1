"""Consensus ADMM's cores, with all workers played in this process, against solvers of the whole problem."""

from __future__ import annotations

import csv
import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge

from squall.models.linear import LinearModel
from squall.models.logistic import LogisticModel
from squall.models.objectives import ShareObjective
from squall.models.softmax import SoftmaxModel
from squall.optim.consensus.admm import Consensus
from squall.optim.consensus.agreement import ConsensusSettings
from squall.optim.consensus.anderson import coefficients
from squall.optim.consensus.exchange import decoded, encoded
from squall.optim.consensus.grid import Grid
from squall.optim.consensus.metrics import DiagonalMetric, MatrixMetric, Penalty
from squall.optim.consensus.participant import PASSES, Participant
from squall.records import CsrBlock, DenseBlock

WIDTH = 12


def problem(kind="logistic", n=400, seed=0):
    """A model and rows of it: dense, some columns far larger than others, weighted."""
    draw = np.random.default_rng(seed)
    X = (draw.normal(size=(n, WIDTH)) * np.geomspace(0.1, 3, WIDTH)).astype(np.float32)
    z = X @ draw.normal(size=(WIDTH, 3)) + draw.normal(size=(n, 3))
    weights = draw.choice([0.5, 1.0, 2.0], n).astype(np.float32)
    model, y = {
        "logistic": (LogisticModel(WIDTH), z[:, 0] > 0.3),
        "linear": (LinearModel(WIDTH), z[:, 0]),
        "softmax": (SoftmaxModel(WIDTH, 3), z.argmax(axis=1)),
    }[kind]
    return model, DenseBlock(X, y.astype(np.float32), weights)


def shares(block, n_slots):
    """Unequal parts of a block; of more than one the first is one row."""
    cuts = np.unique(np.append([0, 1], np.linspace(0, block.n_rows, n_slots)[1:].astype(int)))
    if n_slots == 1:
        return [block]
    return [
        DenseBlock(block.features[a:b], block.labels[a:b], block.weights[a:b])
        for a, b in itertools.pairwise(cuts)
    ]


def play(model, parts, l1=0.0, l2=0.0, max_rounds=60, lose=None, **settings):
    """Rounds until it has converged; (solution, records, participants)."""
    n_rows = sum(part.n_rows for part in parts)
    objectives = [ShareObjective(model, [part], n_rows) for part in parts]
    penalty = Penalty(l1, l2, objectives[0].n_regularized)
    agreed = ConsensusSettings(objectives[0].n, len(parts), penalty, **settings)
    workers = [Participant(o, Consensus(agreed, np.zeros(o.n))) for o in objectives]
    prepared = [worker.prepare() for worker in workers]
    for worker in workers:
        worker.begin(sum(loss for loss, _ in prepared), sum(curvature for _, curvature in prepared))
    records = []
    for number in range(max_rounds):
        if lose is not None:
            lose(number, workers)
        brought = [encoded(worker.contribute(), agreed) for worker in workers]
        sums = [np.sum(arrays, axis=0, dtype=arrays[0].dtype) for arrays in zip(*brought, strict=True)]
        taken = [worker.absorb(decoded(sums, worker.consensus)) for worker in workers]
        assert all(record == taken[0] for record in taken)  # there is no master
        records.append(taken[0])
        if records[-1].converged:
            break
    return workers[0].consensus.solution, records, workers


def objective(model, block, l1, l2):
    whole = ShareObjective(model, [block], block.n_rows)
    penalty = Penalty(l1, l2, whole.n_regularized)

    def value_and_slope(x):
        loss, gradient = whole.gradient(x)
        return loss + penalty.value(x), gradient + penalty.ridge(whole.n) * x

    return value_and_slope, whole.n


def minimum(model, block, l2):
    value, n = objective(model, block, 0.0, l2)
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
    return minimize(value, np.zeros(n), jac=True, method="L-BFGS-B", options=options).fun


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("kind", ["logistic", "linear", "softmax"])
def test_it_comes_to_the_minimum_with_any_number_of_workers(kind, full):
    model, block = problem(kind)
    l2 = 0.01
    best = minimum(model, block, l2)
    value, _ = objective(model, block, 0.0, l2)
    for n_slots in (1, 2, 5):
        x, records, _ = play(model, shares(block, n_slots), l2=l2, full=full)
        assert records[-1].converged
        assert 0 <= value(x)[0] - best + 1e-12 <= 1e-6 * best
        assert max(record.passes for record in records) <= PASSES + 1


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("encoding", "exact"), [("float32", 1e-6), ("int16", 1e-9)])
def test_small_numbers_lead_to_the_same_minimum(encoding, exact, full):
    model, block = problem("logistic")
    l1, l2 = 0.03, 0.005
    value, _ = objective(model, block, l1, l2)
    known, plain, _ = play(model, shares(block, 5), l1, l2, tol=1e-13, max_rounds=300, full=full)
    settings = {"full": full, "encoding": encoding}
    x, records, _ = play(model, shares(block, 5), l1, l2, tol=1e-10, max_rounds=300, **settings)
    assert records[-1].converged and plain[-1].converged
    gradient = value(x)[1]
    off = np.where(x != 0, np.abs(gradient + l1 * np.sign(x)), np.maximum(np.abs(gradient) - l1, 0.0))
    off[-1] = abs(gradient[-1])
    assert off.max() < 1e-5
    np.testing.assert_array_equal(x != 0, known != 0)
    if encoding == "int16":  # to any precision
        x, _, workers = play(model, shares(block, 5), l1, l2, tol=1e-13, max_rounds=300, **settings)
        np.testing.assert_allclose(x, known, atol=3 * exact)
        duals = sum(worker.u for worker in workers)
        np.testing.assert_allclose(duals, workers[0].consensus.dual_sum, atol=1e-12)


def test_sums_on_a_grid_are_exact_and_what_is_beyond_its_end_stays_there():
    draw = np.random.default_rng(0)
    grid = Grid.of(np.array([1.0, 4.0, 0.25]), 2.0, 5)
    assert grid is not None and grid.most == 6553
    vectors = draw.normal(size=(5, 3)) * 0.1
    integers = [grid.integers(vector) for vector in vectors]
    rounded = np.array([grid.values(i) for i in integers])
    assert np.abs(rounded - vectors).max() <= grid.spacing.max() / 2
    np.testing.assert_allclose(grid.values(np.sum(integers, axis=0, dtype=np.int16)), rounded.sum(axis=0))
    far = grid.integers(np.full(3, 1e9))
    assert far.tolist() == [6553] * 3 and np.sum([far] * 5, axis=0, dtype=np.int16).tolist() == [32765] * 3
    assert Grid.of(np.ones(3), 0.0, 5) is None and Grid.of(np.ones(3), np.inf, 5) is None
    assert Grid.of(np.ones(3), 1.0, 40_000) is None


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("kind", "l1"), [("logistic", 0.03), ("linear", 0.1), ("softmax", 0.02)])
def test_an_elastic_net_meets_its_optimality_conditions(kind, l1, full):
    model, block = problem(kind)
    l2 = 0.005
    value, _ = objective(model, block, l1, l2)
    supports = []
    for n_slots in (1, 4):
        x, records, _ = play(model, shares(block, n_slots), l1, l2, tol=1e-10, max_rounds=150, full=full)
        assert records[-1].converged
        gradient, n = value(x)[1], len(x) - (3 if kind == "softmax" else 1)
        off = np.where(x[:n] != 0, np.abs(gradient[:n] + l1 * np.sign(x[:n])), np.abs(gradient[:n]) - l1)
        assert off.max() < 1e-3 * l1 and np.abs(gradient[n:]).max() < 1e-3 * l1
        supports.append(np.flatnonzero(x))
    assert 0 < len(supports[0]) < len(x)
    np.testing.assert_array_equal(*supports)


def test_it_is_what_scikit_learn_finds():
    model, block = problem()
    l1, l2, total = 0.02, 0.01, block.n_rows
    settings = {"solver": "saga", "tol": 1e-10, "max_iter": 20_000, "C": 1 / (total * (l1 + l2))}
    peer = LogisticRegression(l1_ratio=l1 / (l1 + l2), **settings)
    peer.fit(block.features, block.labels, sample_weight=block.weights)
    x, _, _ = play(model, shares(block, 3), l1, l2, tol=1e-10)
    np.testing.assert_array_equal(x[:-1] != 0, peer.coef_[0] != 0)
    np.testing.assert_allclose(x, np.append(peer.coef_[0], peer.intercept_), atol=1e-4)


def test_least_squares_is_ridge_regression():
    model, block = problem("linear")
    peer = Ridge(alpha=0.1 * block.n_rows, solver="cholesky")
    peer.fit(block.features.astype(np.float64), block.labels, sample_weight=block.weights)
    x, _, _ = play(model, shares(block, 3), l2=0.1, tol=1e-12)
    np.testing.assert_allclose(x, np.append(peer.coef_, peer.intercept_), atol=1e-5)


def test_without_an_intercept_it_stays_0_and_a_feature_that_never_occurs_does_no_harm():
    _, block = problem()
    features = block.features.copy()
    features[:, 3] = 0.0
    for full in (True, False):
        for l2 in (0.0, 0.01):
            parts = shares(DenseBlock(features, block.labels, block.weights), 3)
            x, records, _ = play(LogisticModel(WIDTH, False), parts, l2=l2, full=full, max_rounds=200)
            assert records[-1].converged and x[-1] == 0.0 and x[3] == 0.0


@pytest.mark.parametrize("full", [True, False])
def test_a_penalty_that_leaves_nothing_leaves_the_intercept(full):
    model, block = problem()
    x, records, _ = play(model, shares(block, 3), l1=50.0, full=full)
    weight = block.weights.astype(np.float64)
    rate = weight @ block.labels / weight.sum()
    assert records[-1].converged and not x[:-1].any()
    np.testing.assert_allclose(x[-1], np.log(rate / (1 - rate)), rtol=1e-3)


def test_more_precision_is_more_rounds_and_a_smaller_error():
    model, block = problem()
    best = minimum(model, block, 0.01)
    value, _ = objective(model, block, 0.0, 0.01)
    parts, lengths = shares(block, 4), []
    for tol in (1e-2, 1e-6, 1e-10):
        x, records, _ = play(model, parts, l2=0.01, tol=tol)
        assert value(x)[0] - best <= tol * best
        lengths.append(len(records))
    assert lengths == sorted(set(lengths))


def test_acceleration_and_relaxation_save_rounds():
    model, block = problem(n=600)
    parts = shares(block, 6)
    settings = {"l2": 1e-3, "full": False, "max_rounds": 150}
    plain = len(play(model, parts, depth=0, relaxation=1.0, **settings)[1])
    accelerated = len(play(model, parts, depth=10, **settings)[1])
    assert accelerated < 0.8 * plain


@pytest.mark.parametrize(("encoding", "full"), [(None, False), ("int16", True)])
def test_who_goes_on_from_state_and_traces_has_the_same_bits(full, encoding):
    model, block = problem()
    settings = {"l1": 0.005, "l2": 0.01, "tol": 1e-12, "full": full, "encoding": encoding, "depth": 4}
    curvature, traces = [], [{}, {}, {}]

    def succeed(number, workers):
        """Each round another is replaced, every other time when it has solved; traces are of before that."""
        for worker, own in zip(workers, traces, strict=True):
            own[number] = worker.trace(), worker.consensus.trace()
        if number in (0, 1, 3, 6):  # after which the metric is renewed
            measured = [(w._objective.gradient(w._reference), w._measured())[1] for w in workers]
            curvature.append(sum(c.astype(np.float32) if encoding and number else c for c in measured))
        at = number % 3
        if number % 2 == 0:
            workers[at].contribute()
        facts, arrays = workers[at].state()
        needed = Consensus.rounds(facts, arrays, 4)
        assert len(needed) <= 8
        common = {n: traces[0][n][1] for n in needed}
        own = {n: traces[at][n][0] for n in (facts["base"], *needed)}
        consensus = Consensus.restored(
            workers[at].consensus.settings, facts, arrays, common, curvature[-1].astype(np.float64)
        )
        workers[at] = Participant.restored(workers[at]._objective, consensus, own, common)

    plain, records, _ = play(model, shares(block, 3), max_rounds=100, **settings)
    x, again, _ = play(model, shares(block, 3), max_rounds=100, lose=succeed, **settings)
    assert len(records) > 14 and again == records
    np.testing.assert_array_equal(x, plain)


def test_even_a_dual_that_is_lost_corrupts_nothing():
    model, block = problem()
    best = minimum(model, block, 0.01)
    value, _ = objective(model, block, 0.0, 0.01)

    def lose(number, workers):
        if number in (3, 8):
            workers[1].u = np.zeros_like(workers[1].u)

    x, records, _ = play(model, shares(block, 4), l2=0.01, lose=lose)
    assert records[-1].converged
    assert value(x)[0] - best <= 1e-6 * best


def test_the_mixture_is_the_shortest_sum_of_residuals():
    residuals = np.random.default_rng(0).normal(size=(4, 9))
    theta = coefficients(residuals @ residuals.T)
    assert theta is not None
    np.testing.assert_allclose(theta.sum(), 1.0)
    around = np.random.default_rng(1).normal(size=(200, 4)) * 0.1
    around -= around.mean(axis=1, keepdims=True)
    least = np.linalg.norm(theta @ residuals)
    assert np.all(np.linalg.norm((theta + around) @ residuals, axis=1) >= least)
    assert coefficients(np.ones((1, 1))) is None
    assert coefficients(np.full((2, 2), np.nan)) is None


@pytest.mark.parametrize("l1", [0.0, 0.4, 100.0])
def test_the_common_step_of_a_matrix_is_that_of_its_diagonal_where_it_is_diagonal(l1):
    draw = np.random.default_rng(0)
    weights, v = draw.uniform(0.1, 3, 8), draw.normal(size=8)
    penalty, start = Penalty(l1, 0.7, 6), draw.normal(size=8)
    diagonal = DiagonalMetric(weights).prox(v, 3, penalty, start)
    np.testing.assert_allclose(
        MatrixMetric(np.diag(weights)).prox(v, 3, penalty, start), diagonal, atol=1e-10
    )
    np.testing.assert_array_equal(diagonal[6:], v[6:])


def test_the_common_step_is_exact_where_columns_depend_on_each_other():
    draw = np.random.default_rng(0)
    groups = [np.eye(20)[draw.integers(0, 20, 500)] for _ in range(3)]  # one-hot, as of three columns
    A = np.column_stack([*groups, np.ones(500)])
    matrix = A.T @ A / 500 + 1e-6 * np.eye(61)
    v, penalty = draw.normal(size=61), Penalty(0.01, 0.0, 60)
    z = MatrixMetric(matrix).prox(v, 2, penalty, np.zeros(61))
    slope = 2 * matrix @ (z - v)
    assert 0 < np.count_nonzero(z) < 61
    assert np.abs(slope + penalty.l1 * np.sign(z))[:60][z[:60] != 0].max() < 1e-9
    assert np.abs(slope[:60]).max() <= penalty.l1 * (1 + 1e-8) and abs(slope[60]) < 1e-9


ADULT = Path(__file__).parents[2] / "examples" / "data" / "adult.csv.gz"


@pytest.fixture(scope="module")
def adult():
    with gzip.open(ADULT, "rt") as lines:
        rows = list(csv.reader(lines))[1:]
    numbers = np.array([[float(row[j]) for j in (0, 2, 4, 10, 11, 12)] for row in rows])
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    parts = [(numbers - low) / (high - low)]
    for j in (1, 3, 5, 6, 7, 8, 9, 13):
        words, codes = np.unique([row[j] for row in rows], return_inverse=True)
        parts.append(np.eye(len(words))[codes])
    X = np.hstack(parts).astype(np.float32)
    return X, np.array([row[14].strip().startswith(">") for row in rows], np.float32)


def sparse(X, y):
    rows, columns = np.nonzero(X)
    indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=len(X)))).astype(np.int64)
    return CsrBlock(indptr, columns.astype(np.int32), X[rows, columns], y, None, X.shape[1])


@pytest.mark.slow
@pytest.mark.parametrize(("l1", "l2", "rounds"), [(0.0, 1e-4, 9), (1e-3, 0.0, 9), (1e-4, 0.0, 10)])
def test_adult_takes_as_many_rounds_as_it_should(adult, l1, l2, rounds):
    X, y = adult
    model, n = LogisticModel(X.shape[1]), len(y)
    whole = ShareObjective(model, [sparse(X, y)], n)
    penalty = Penalty(l1, l2, whole.n_regularized)

    def value(x):
        return whole.gradient(x)[0] + penalty.value(x)

    best = value(play(model, [sparse(X, y)], l1, l2, tol=1e-12)[0])
    for n_slots in (2, 8):
        cuts = np.linspace(0, n, n_slots + 1).astype(int)
        parts = [sparse(X[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)]
        reached = [value(play(model, parts, l1, l2, max_rounds=some)[0]) / best - 1 for some in (rounds, 100)]
        assert reached[0] <= 1e-6 and -1e-9 <= reached[1] <= 1e-6
