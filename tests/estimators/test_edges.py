"""Rows, labels and seeds at the edges of what models take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as Reference
from sklearn.linear_model import Ridge

import squall
from squall import FactorizationMachine, LatentDirichletAllocation, LogisticRegression, MatrixFactorization
from squall.records import InitialValues
from squall.store.initial import initial_values
from tests.estimators.problems import numbers

X, y = numbers()
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
AMOUNTS = 1_000.0 + 20.0 * X[:, 0] - 5.0 * X[:, 1]
COUNTS = np.random.default_rng(0).poisson(1.0, size=(40, 6))
PAIRS = np.array([(i % 7, i % 5) for i in range(40)])

DRAWING: dict[str, Callable[[], Any]] = {
    "fm": lambda: FactorizationMachine(epochs=1, learning_rate=0.01).fit(X, y).factors_,
    "mf": lambda: MatrixFactorization(2, epochs=1).fit(PAIRS, np.arange(40.0)).item_factors_,
    "choices": lambda: MatrixFactorization(2, epochs=1, implicit=True).fit(PAIRS).item_factors_,
    "topics": lambda: LatentDirichletAllocation(3, epochs=1).fit(COUNTS).components_,
}


@pytest.mark.parametrize("name", DRAWING)
def test_what_a_model_draws_follows_the_seed_of_the_run(name: str) -> None:
    fitted = []
    for seed in (1, 2, 1):
        with squall.Run(random_state=seed):
            fitted.append(DRAWING[name]())
    assert np.array_equal(fitted[0], fitted[2])
    assert np.abs(fitted[0] - fitted[1]).max() > 0.01 * np.abs(fitted[0]).max()


def test_elements_of_a_sparse_matrix_that_repeat_are_added_up() -> None:
    plain = sparse.csr_matrix(X)
    halves = np.repeat(plain.data, 2) / 2, np.repeat(plain.indices, 2), plain.indptr * 2
    repeated = sparse.csr_matrix(halves, shape=plain.shape)
    machine = FactorizationMachine("regression", epochs=1, learning_rate=0.05)
    expected = machine.fit(plain, AMOUNTS).predict(plain)
    np.testing.assert_array_equal(machine.predict(repeated), expected)
    np.testing.assert_array_equal(machine.fit(repeated, AMOUNTS).predict(plain), expected)
    assert repeated.nnz == 2 * plain.nnz, "what was given is untouched"


KINDS: dict[str, tuple[Any, Any, Any]] = {
    "two classes": (LogisticRegression(epochs=2, learning_rate=0.1), X, y),
    "three classes": (LogisticRegression(epochs=2, learning_rate=0.1), X, THREE),
    "numbers": (squall.LinearRegression(epochs=2, learning_rate=0.1), X, AMOUNTS),
    "machine": (FactorizationMachine(epochs=2, learning_rate=0.1), X, y),
    "averaging": (LogisticRegression(epochs=2, learning_rate=0.1, strategy=squall.ModelAveraging()), X, y),
    "ratings": (MatrixFactorization(2, epochs=2), PAIRS, np.arange(40.0)),
    "topics": (LatentDirichletAllocation(2, epochs=2), COUNTS, None),
}


@pytest.mark.parametrize("name", KINDS)
def test_workers_may_have_no_rows_and_rows_of_zeros_are_rows(name: str) -> None:
    """Four rows for five workers; the features of half of them are all 0."""
    model, rows, labels = KINDS[name]
    order = slice(0, 4) if labels is None else np.argsort(labels, kind="stable")[[0, 1, -2, -1]]
    few = rows[order] * (1 if name == "ratings" else np.array([[1], [0], [1], [0]]))
    with squall.Run(workers=5):
        fitted = clone(model).fit(few, None if labels is None else labels[order])
    said = fitted.transform(few) if labels is None else fitted.predict(few)
    assert len(said) == 4
    assert np.isfinite(said).all()
    assert all(record.rows == 4 for record in fitted.history_)


@pytest.mark.parametrize("name", ["two classes", "three classes", "machine", "averaging"])
def test_rows_sorted_by_class_are_learned_by_several_workers(name: str) -> None:
    model, rows, labels = KINDS[name]
    order = np.argsort(labels, kind="stable")
    with squall.Run(workers=2):
        fitted = clone(model).set_params(epochs=10).fit(rows[order], labels[order])
    assert fitted.score(rows, labels) > 0.75


# -------------------------------------------------------------------------------------- oracles


@pytest.mark.parametrize("labels", [y, THREE], ids=["two", "three"])
@pytest.mark.parametrize("class_weight", [{0: 4.0, 1: 0.5}, "balanced"])
def test_class_weights_mean_what_they_mean_to_scikit_learn(labels: NDArray[Any], class_weight: Any) -> None:
    l2 = 0.1
    theirs = Reference(C=1 / (len(y) * l2), class_weight=class_weight, tol=1e-8).fit(X, labels)
    ours = LogisticRegression(class_weight=class_weight, l2=l2, strategy=squall.ADMM(tol=1e-4))
    np.testing.assert_allclose(ours.fit(X, labels).predict_proba(X), theirs.predict_proba(X), atol=0.01)


def machine_of_numpy(rate: float, steps: int) -> NDArray[np.float64]:
    """Predictions of a factorisation machine after some steps of descent over all rows, in the labels' units.

    Gradients are finite differences of the half mean squared error of the formula (Rendle 2010, eq. 1).
    """
    initial = InitialValues("normal", 0.05, 7, zero_columns=1)
    table = initial_values(initial, np.arange(4), 3).astype(np.float64)
    table[-1] = 0.0
    target = (AMOUNTS - AMOUNTS.mean()) / AMOUNTS.std()

    def outputs(table: NDArray[np.float64]) -> NDArray[np.float64]:
        w, v = table[:-1, 0], table[:-1, 1:]
        pairs = [X[:, i] * X[:, j] * (v[i] @ v[j]) for i in range(3) for j in range(i)]
        return np.asarray(table[-1, 0] + X @ w + np.sum(pairs, axis=0))

    def loss(table: NDArray[np.float64]) -> float:
        return float(0.5 * np.mean((outputs(table) - target) ** 2))

    for _ in range(steps):
        gradient = np.zeros_like(table)
        for at in np.ndindex(table.shape):
            step = np.zeros_like(table)
            step[at] = 1e-5
            gradient[at] = (loss(table + step) - loss(table - step)) / 2e-5
        gradient[-1, 1:] = 0.0
        table -= rate * gradient
    return AMOUNTS.mean() + AMOUNTS.std() * outputs(table)


def test_a_machine_of_numbers_descends_as_its_formula_says() -> None:
    settings: dict[str, Any] = {"batch_size": 300, "learning_rate": 0.5, "epochs": 4, "random_state": 7}
    machine = FactorizationMachine("regression", n_factors=2, **settings).fit(X, AMOUNTS)
    np.testing.assert_allclose(machine.predict(X), machine_of_numpy(0.5, 4), rtol=1e-5)


def test_a_penalty_on_numbers_is_that_of_ridge() -> None:
    """Of standardised labels, so that λ does not depend on their size."""
    l2 = 0.5
    ours = squall.LinearRegression(l2=l2, epochs=60, batch_size=300, learning_rate=0.5, optimizer="sgd")
    theirs = Ridge(alpha=l2 * len(X)).fit(X, AMOUNTS)
    np.testing.assert_allclose(ours.fit(X, AMOUNTS).coef_, theirs.coef_, rtol=1e-3, atol=1e-3)
