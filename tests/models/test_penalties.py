"""Where descent with penalties ends: where the penalised loss of weighted rows has no descent, by NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from squall.models.factorization import FactorizationModel
from squall.models.linear import LinearModel
from squall.models.logistic import LogisticModel
from squall.models.softmax import SoftmaxModel
from squall.protocols import Model
from squall.records import OptimizerSpec
from squall.store.table import ParameterTable
from squall.testing.models import block_of

N, WIDTH, STEPS = 60, 5, 6000


def slopes_of_classes(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    chances = np.exp(z - z.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return chances - np.eye(z.shape[1])[y.astype(int)]


def linear_gradient(slopes: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    """Of the weighted mean loss of models that have one table row of weights a feature."""

    def gradient(X: np.ndarray, y: np.ndarray, s: np.ndarray, w: np.ndarray) -> np.ndarray:
        return X.T @ (s[:, None] * slopes(X @ w, y)) / N

    return gradient


def machine_gradient(X: np.ndarray, y: np.ndarray, s: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Rendle 2010, equation 4; X ends with a column of ones, whose factors do not exist."""
    x, v = X[:, :-1], w[:-1, 1:]
    total = x @ v
    scores = X @ w[:, 0] + 0.5 * (total**2 - (x**2) @ v**2).sum(axis=1)
    slope = s * (1 / (1 + np.exp(-scores)) - y) / N
    result = np.zeros_like(w)
    result[:, 0] = X.T @ slope
    result[:-1, 1:] = (x * slope[:, None]).T @ total - ((x**2).T @ slope)[:, None] * v
    return result


MODELS: dict[str, tuple[Model, int, Callable[..., np.ndarray]]] = {
    "logistic": (LogisticModel(WIDTH), 2, linear_gradient(lambda z, y: 1 / (1 + np.exp(-z)) - y[:, None])),
    "softmax": (SoftmaxModel(WIDTH, 3), 3, linear_gradient(slopes_of_classes)),
    "linear": (LinearModel(WIDTH), 0, linear_gradient(lambda z, y: z - y[:, None])),
    "machine": (FactorizationModel(WIDTH, 2), 2, machine_gradient),
}


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("penalties", [(0.03, 0.0), (0.0, 0.1), (0.03, 0.1)], ids=["l1", "l2", "elastic"])
@pytest.mark.parametrize("name", MODELS)
def test_it_ends_where_the_penalised_loss_has_no_descent(
    name: str, penalties: tuple[float, float], kind: str
) -> None:
    model, n_classes, gradient = MODELS[name]
    draw = np.random.default_rng(0)
    X = draw.normal(size=(N, WIDTH)) * (draw.random((N, WIDTH)) < 0.7)
    X[:, -1] = 0.01 * draw.normal(size=N)  # matters so little that l1 leaves it out
    y = draw.integers(0, n_classes, N) if n_classes else X[:, 0] - X[:, 1] + 0.1 * draw.normal(size=N)
    s = draw.choice([0.0, 0.5, 1.0, 2.0], N).astype(np.float32)
    block = block_of(kind, X, y.astype(np.float32), s)
    l1, l2 = penalties
    parameters = ParameterTable.private(model.table("t", OptimizerSpec("sgd", 0.2, l1, l2)), 1)
    order = np.tile(np.arange(N, dtype=np.int32), STEPS // 10)
    for _ in range(10):
        model.train_shared(block, order, N, 0, STEPS // 10, parameters.shared, np.zeros(1, np.int64))
    w = parameters.pull()
    slope = gradient(np.column_stack([X, np.ones(N)]), y, s, w.astype(float))
    np.testing.assert_allclose(slope[-1], 0, atol=1e-4)
    own, slope = w[:-1], slope[:-1]
    moved = own != 0
    np.testing.assert_allclose((slope + l2 * own + l1 * np.sign(own))[moved], 0, atol=1e-4)
    assert np.all(np.abs(slope[~moved]) <= l1 + 1e-4)
    assert np.any(moved)
    assert np.any(~moved) or not l1
