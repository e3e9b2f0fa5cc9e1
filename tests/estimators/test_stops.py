"""What ends training early, and what is kept."""

from __future__ import annotations

import numpy as np
import pytest

import squall
from squall.errors import SettingError


def noisy(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Few rows, many features, random labels: nothing to learn but the training rows."""
    draw = np.random.default_rng(seed)
    return draw.normal(size=(200, 100)), draw.integers(0, 2, 200)


def test_early_stopping_keeps_the_best_epoch() -> None:
    (X, y), held_out = noisy(0), noisy(1)
    model = squall.LogisticRegression(epochs=500, early_stopping=3).fit(X, y, validation=held_out)
    measured = [r.validation_loss for r in model.history_ if r.validation_loss is not None]
    assert model.stopped_ == "early stopping"
    assert len(model.history_) < 500
    probabilities = model.predict_proba(held_out[0])[:, 1]
    kept = -np.mean(np.where(held_out[1] == 1, np.log(probabilities), np.log1p(-probabilities)))
    assert kept == pytest.approx(min(measured), rel=1e-4)


def test_a_target_loss_ends_training() -> None:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(2000, 5))
    y = X[:, 0] > 0
    model = squall.LogisticRegression(epochs=5000, target_loss=0.2).fit(X, y, validation=(X, y))
    assert model.stopped_ == "target loss"
    assert model.n_iter_ < 5000


@pytest.mark.parametrize("setting", [{"target_loss": 0.3}, {"early_stopping": 3}])
def test_both_need_held_out_rows(setting: dict[str, float]) -> None:
    X, y = noisy(0)
    with pytest.raises(SettingError, match="validation="):
        squall.LogisticRegression(**setting).fit(X, y)


@pytest.mark.parametrize("setting", [{"target_loss": -0.3}, {"early_stopping": 0}, {"early_stopping": 1.5}])
def test_wrong_values_are_told(setting: dict[str, float]) -> None:
    X, y = noisy(0)
    with pytest.raises(SettingError, match=next(iter(setting))):
        squall.LogisticRegression(**setting).fit(X, y, validation=(X, y))
