"""Slow, plain versions of the kernels, in float64 and eager: every row takes every step."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from squall import _kernels as kernels

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
    """An optimiser on a whole weight vector; the last weight is the intercept.

    Settings are those of `kernels.Rule`.  State arrays have a table's columns, in their order.
    """

    def __init__(self, n_features, rule, weights=None, state=None):
        self.w = np.zeros(n_features + 1) if weights is None else np.array(weights, np.float64)
        n_state = kernels.table_stride(rule["optimizer"], 1, False) - 1
        self.state = np.zeros((n_state, len(self.w))) if state is None else np.array(state, np.float64)
        defaults = {"l1": 0, "l2": 0, "momentum": 0.9, "beta_1": 0.9, "beta_2": 0.999, "beta": 1.0,
                    "levels": None, "steps_per_level": 1, "clip_value": 0, "clip_norm": 0}  # fmt: skip
        self.rule = SimpleNamespace(**defaults | rule)
        self.t = 0

    def clipped(self, g: Array) -> Array:
        value, norm = self.rule.clip_value, self.rule.clip_norm
        g = np.clip(g, -value, value) if value else g
        return g * min(1, norm / max(np.linalg.norm(g), 1e-300)) if norm else g

    def step(self, g: Array, touched: Array | slice = slice(None)) -> None:
        """``touched`` matters where untouched weights stand still (Adam) or have no rate yet."""
        rule, w, state = self.rule, self.w, self.state
        g = self.clipped(g)
        pace = 1.0
        if rule.levels is not None:
            pace = rule.levels[min(self.t // rule.steps_per_level, len(rule.levels) - 1)]
        eta = np.full_like(w, rule.learning_rate * pace)
        self.t += 1
        match rule.optimizer:
            case kernels.SGD:
                rate, move = eta, eta * g
            case kernels.MOMENTUM:
                state[0] = rule.momentum * state[0] - eta * g
                rate, move = eta, -state[0]
            case kernels.NESTEROV:
                state[0] = rule.momentum * state[0] - eta * g
                rate, move = eta, eta * g - rule.momentum * state[0]
            case kernels.ADAGRAD:
                state[0] += g * g
                rate = np.where(state[0] > 0, eta / (np.sqrt(state[0]) + 1e-10), 0)
                move = rate * g
            case kernels.ADAM:
                m, q, n = state
                m[touched] = (rule.beta_1 * m + (1 - rule.beta_1) * g)[touched]
                q[touched] = (rule.beta_2 * q + (1 - rule.beta_2) * g * g)[touched]
                n[touched] += 1
                count = np.maximum(n, 1)
                rate = np.where(q > 0, eta / (np.sqrt(q / (1 - rule.beta_2**count)) + 1e-8), 0)
                move = np.zeros_like(w)
                move[touched] = (rate * m / (1 - rule.beta_1**count))[touched]
            case kernels.FTRL:
                self.ftrl(g)
                return
        u = w - move
        rate = rate.copy()
        rate[-1] = 0  # the intercept is not regularised
        self.w = np.sign(u) * np.maximum(np.abs(u) - rate * rule.l1, 0) / (1 + rate * rule.l2)

    def ftrl(self, g: Array) -> None:
        (z, N), alpha, beta = self.state, self.rule.learning_rate, self.rule.beta
        root = np.sqrt(N + g * g)
        sigma = (root - np.where(N > 0, np.sqrt(N), -beta)) / alpha
        seen = N + g * g > 0
        z[:] = np.where(seen, z + g - sigma * self.w, 0)
        N += g * g
        l1, l2 = np.full_like(z, self.t * self.rule.l1), np.full_like(z, self.t * self.rule.l2)
        l1[-1] = l2[-1] = 0
        follows = -np.sign(z) * np.maximum(np.abs(z) - l1, 0) / ((beta + root) / alpha + l2)
        self.w = np.where(seen, follows, self.w)

    def minibatch(self, X, y, s, fit_intercept, batch_size, touched=slice(None)) -> float:
        z = X @ self.w[:-1] + (self.w[-1] if fit_intercept else 0)
        factor = s * (sigmoid(z) - y) / batch_size
        self.step(np.append(X.T @ factor, factor.sum() if fit_intercept else 0.0), touched)
        return float(s @ loss(z, y))
