"""Averaging for every model that is trained by minibatches, and for every optimiser it goes with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import squall
from squall.optim import CODES

RUN = squall.Run(workers=2)
AVERAGING = squall.ModelAveraging(every=5)


def rows(n: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    X = draw.uniform(-1, 1, size=(n, 6)).astype(np.float32)
    return X, X @ np.array([[1.0, -2.0, 0.5, 0.0, 1.5, -1.0], [0.5, 1.0, -1.0, 2.0, 0.0, 1.0]]).T


def test_softmax() -> None:
    X, scores = rows()
    y = np.where(np.abs(scores).max(axis=1) < 0.5, "neither", np.where(scores[:, 0] > scores[:, 1], "a", "b"))
    model = squall.LogisticRegression(epochs=10, strategy=AVERAGING).fit(X, y, run=RUN)
    assert model.coef_.shape == (3, 6)
    assert model.score(X, y) > 0.8


def test_numbers() -> None:
    X, scores = rows()
    model = squall.LinearRegression(epochs=10, strategy=AVERAGING).fit(X, scores[:, 0], run=RUN)
    assert model.score(X, scores[:, 0]) > 0.98
    assert model.coef_ == pytest.approx([1.0, -2.0, 0.5, 0.0, 1.5, -1.0], abs=0.15)


def test_factors_begin_alike_on_all_workers_and_learn_what_no_line_shows() -> None:
    X, _ = rows()
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    settings: dict[str, Any] = {"epochs": 30, "n_factors": 4, "learning_rate": 0.3, "batch_size": 16}
    model = squall.FactorizationMachine(strategy=AVERAGING, **settings).fit(X, y, run=RUN)
    assert model.score(X, y) > 0.85


@pytest.mark.parametrize("optimizer", sorted(set(CODES) - {"ftrl"}))
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_optimizers(optimizer: str, schedule: str) -> None:
    X, scores = rows()
    y = scores[:, 0] > 0
    model = squall.LogisticRegression(
        optimizer=optimizer, epochs=8, l2=1e-4, learning_rate_schedule=schedule, strategy=AVERAGING
    )
    assert model.fit(X, y, run=RUN).score(X, y) > 0.95


def test_one_worker_learns_what_it_learns_alone() -> None:
    X, scores = rows()
    alone = squall.LogisticRegression(epochs=3, l2=1e-3, learning_rate=0.3)
    averaging = squall.LogisticRegression(
        epochs=3, l2=1e-3, learning_rate=0.3, strategy=squall.ModelAveraging(every=7)
    )
    one = squall.Run(workers=1)
    expected = alone.fit(X, scores[:, 0] > 0, run=one).coef_
    np.testing.assert_allclose(averaging.fit(X, scores[:, 0] > 0, run=one).coef_, expected, rtol=1e-4)
