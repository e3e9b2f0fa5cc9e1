"""Models of every kind on functions that share nothing and live for two seconds, whoever waits for whom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import squall
from squall.records import OutcomeKind
from tests.estimators.problems import numbers

X, y = numbers()
AMOUNTS = 1_000.0 + 20.0 * X[:, 0] - 5.0 * X[:, 1]
MODELS = {
    "softmax": (squall.LogisticRegression, {}, np.digitize(X[:, 0], [-0.5, 0.5]), 0.9),
    "linear": (squall.LinearRegression, {}, AMOUNTS, 0.95),
    "machine": (squall.FactorizationMachine, {"n_factors": 2, "learning_rate": 0.05}, y, 0.8),
}


@pytest.mark.slow
@pytest.mark.parametrize("consistency", ["asp", "bsp", "ssp", "hsp"])
@pytest.mark.parametrize("name", MODELS)
def test_short_lives_under_strict_isolation(s3: str, name: str, consistency: str) -> None:
    kind, settings, labels, quality = MODELS[name]
    strategy = squall.ParameterServer(consistency)
    model: Any = kind(epochs=200, batch_size=10, strategy=strategy, random_state=0, **settings)
    backend = squall.LocalBackend(isolation="strict", lifetime="2s")
    job = squall.submit(model, (X, labels), run=squall.Run(workers=2, store="tcp", backend=backend))
    fitted = job.wait(55)
    assert fitted.score(X, labels) > quality
    assert {record.rows for record in fitted.history_} == {len(X)}
    attempts = job.status().attempts
    assert len(attempts) > 2
    assert {attempt.outcome.kind for attempt in attempts} == {OutcomeKind.RETURNED}
