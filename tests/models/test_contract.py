"""Every family of models under the one contract."""

from __future__ import annotations

import numpy as np
import pytest

from squall.errors import SettingError
from squall.models import model_from_dict
from squall.models.logistic import LogisticModel
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


def test_every_family_is_under_the_contract() -> None:
    tested = {suite().make(3).__struct_config__.tag for suite in ModelContract.__subclasses__()}
    assert tested == set(MODELS.names())


def test_an_unknown_family_is_told() -> None:
    with pytest.raises(SettingError, match=r"unknown model 'perceptron'(?s:.)*choose from .*logistic"):
        model_from_dict({"type": "perceptron"})
