"""Slow, plain versions of the kernels, in float64 and eager: every row takes every step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def dense(indptr, indices, values, n_features) -> Array:
    X = np.zeros((len(indptr) - 1, n_features))
    for i in range(len(X)):
        for k in range(indptr[i], indptr[i + 1]):
            X[i, indices[k]] += 1.0 if values is None else float(values[k])
    return X


def loss(z: Array, y: Array) -> Array:
    return np.logaddexp(0, np.where(y == 1, -z, z))


def sigmoid(z: Array) -> Array:
    return np.exp(-np.logaddexp(0, -z))


class Eager:
    """Proximal SGD or AdaGrad on a whole weight vector; the last weight is the intercept."""

    def __init__(self, n_features, adagrad, learning_rate, l1, l2, weights=None):
        self.w = np.zeros(n_features + 1) if weights is None else np.array(weights, np.float64)
        self.G = np.zeros(n_features + 1)
        self.adagrad, self.learning_rate, self.l1, self.l2 = adagrad, learning_rate, l1, l2

    def step(self, g: Array) -> None:
        self.G += g * g
        rate = np.full_like(self.w, self.learning_rate)
        if self.adagrad:
            rate = np.where(self.G > 0, self.learning_rate / (np.sqrt(self.G) + 1e-10), 0)
        u = self.w - rate * g
        rate[-1] = 0  # the intercept is not regularised
        self.w = np.sign(u) * np.maximum(np.abs(u) - rate * self.l1, 0) / (1 + rate * self.l2)

    def minibatch(self, X: Array, y: Array, s: Array, fit_intercept: bool, batch_size: int) -> float:
        z = X @ self.w[:-1] + (self.w[-1] if fit_intercept else 0)
        factor = s * (sigmoid(z) - y) / batch_size
        self.step(np.append(X.T @ factor, factor.sum() if fit_intercept else 0.0))
        return float(s @ loss(z, y))
