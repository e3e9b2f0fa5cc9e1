"""What ends training early, and what is kept."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

import squall
from squall.errors import SettingError
from squall.estimators.preparation import Preparation
from squall.functions.local import pool
from squall.store.process import shared_store


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


# ----------------------------------------------------------------- a deadline that nothing holds up


def separable(n_rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n_rows, 5))
    return X, X[:, 0] > 0


def test_the_deadline_ends_a_long_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def for_ever(self: Preparation, weights: Any, check: Callable[[], None]) -> None:
        while True:
            check()
            threading.Event().wait(0.01)

    monkeypatch.setattr(Preparation, "evaluate", for_ever)
    X, y = separable()
    model = squall.LogisticRegression(epochs=3).fit(X, y, validation=(X, y), run=squall.Run(deadline="4s"))
    assert (model.stopped_, model.n_iter_) == ("deadline", 3), "trained to the end, but never measured"
    assert {record.validation_loss for record in model.history_} == {None}
    assert model.score(X, y) > 0.9
    assert model.bill_.total_usd > 0


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing any more."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def busy_job(run: squall.Run) -> squall.Job[Any]:
    """A job that has trained for an epoch and would go on for ever."""
    X, y = separable()
    job = squall.submit(squall.LogisticRegression(epochs=1_000_000), (X, y), run=run)
    while not job.history:
        assert not job.done(), job.wait()
        threading.Event().wait(0.01)
    return job


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is taken for death sooner."""
    monkeypatch.setattr("squall.driver.session.HEARTBEAT_S", 0.5)
    monkeypatch.setattr("squall.driver.loop.HEARTBEAT_S", 0.5)
    monkeypatch.setattr("squall.functions.local.connection._OBEY_S", 0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("ends", ["deadline", "stopped by the user"])
def test_a_store_that_hangs_does_not_hold_the_end_up(ends: str) -> None:
    job = busy_job(squall.Run(deadline="6s" if ends == "deadline" else None))
    with stopped(shared_store().pid):
        if ends != "deadline":
            job.stop()
        model = job.wait()
    assert model.stopped_ == ends
    assert model.score(*separable()) > 0.9, "its memory was mapped: the model is there"


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_launcher_that_hangs_does_not_hold_the_deadline_up() -> None:
    job = busy_job(squall.Run(deadline="6s"))
    (connection,) = pool.shared(None, 900.0)._held._connections
    with stopped(connection.pid):
        model = job.wait()
    assert model.stopped_ == "deadline"
    assert model.score(*separable()) > 0.9


def test_early_stopping_comes_to_the_same_epoch_each_time_however_short_epochs_are() -> None:
    (X, y), held_out = noisy(0), noisy(1)
    model = squall.LogisticRegression(epochs=500, early_stopping=2, random_state=0)
    first, second = (model.fit(X, y, validation=held_out).history_ for _ in range(2))
    losses = [[record.validation_loss for record in history] for history in (first, second)]
    assert losses[0] == losses[1] and None not in losses[0]
