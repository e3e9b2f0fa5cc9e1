"""Every family of models under the one contract."""

from __future__ import annotations

import numpy as np
import pytest

from squall.errors import SettingError
from squall.models import model_from_dict
from squall.models.factorization import FactorizationModel
from squall.models.linear import LinearModel
from squall.models.logistic import LogisticModel
from squall.models.softmax import SoftmaxModel
from squall.registry import MODELS
from squall.testing.models import ModelContract


class TestLogistic(ModelContract):
    def make(self, n_features: int) -> LogisticModel:
        return LogisticModel(n_features)

    def labels(self, draw: np.random.Generator, n: int) -> np.ndarray:
        return draw.integers(0, 2, n).astype(np.float32)


class TestLogisticWithoutIntercept(TestLogistic):
    def make(self, n_features: int) -> LogisticModel:
        return LogisticModel(n_features, fit_intercept=False)


class TestSoftmax(ModelContract):
    def make(self, n_features: int) -> SoftmaxModel:
        return SoftmaxModel(n_features, 3)

    def labels(self, draw: np.random.Generator, n: int) -> np.ndarray:
        return draw.integers(0, 3, n).astype(np.float32)


class TestSoftmaxOfManyClassesWithoutIntercept(ModelContract):
    """More than the widths that loops are made for."""

    def make(self, n_features: int) -> SoftmaxModel:
        return SoftmaxModel(n_features, 37, fit_intercept=False)

    def labels(self, draw: np.random.Generator, n: int) -> np.ndarray:
        return draw.integers(0, 37, n).astype(np.float32)


class TestLinear(ModelContract):
    def make(self, n_features: int) -> LinearModel:
        return LinearModel(n_features)

    def labels(self, draw: np.random.Generator, n: int) -> np.ndarray:
        return draw.normal(size=n).astype(np.float32)


class TestFactorizationOfClasses(TestLogistic):
    def make(self, n_features: int) -> FactorizationModel:
        return FactorizationModel(n_features, 4)


class TestFactorizationOfNumbersWithoutIntercept(TestLinear):
    def make(self, n_features: int) -> FactorizationModel:
        return FactorizationModel(n_features, 40, "squared", fit_intercept=False)


def suites(of: type[ModelContract] = ModelContract) -> set[type[ModelContract]]:
    return {suite for sub in of.__subclasses__() for suite in (sub, *suites(sub))}


ELSEWHERE = {"matrix_factorization"}
"""Families whose updates are no gradients of a mean: each has tests of its own beside these."""


def test_every_family_is_under_the_contract() -> None:
    tested = {suite().make(3).__struct_config__.tag for suite in suites()}
    assert tested == set(MODELS.names()) - ELSEWHERE


def test_an_unknown_family_is_told() -> None:
    with pytest.raises(SettingError, match=r"unknown model 'perceptron'(?s:.)*choose from .*logistic"):
        model_from_dict({"type": "perceptron"})
