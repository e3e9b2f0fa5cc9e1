"""Projections of real jobs: probed, shown, warned of, refused."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import squall
from squall.driver.spec import StoppedError
from squall.planning.foresight import foresight
from squall.planning.projection import Work


def separable(n_rows: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n_rows, 10))
    return X, X[:, 0] > 0


def model(epochs: int, strategy: squall.ParameterServer | None = None) -> squall.LogisticRegression:
    return squall.LogisticRegression(epochs=epochs, batch_size=64, learning_rate=0.1, strategy=strategy)


def test_nothing_is_probed_without_a_limit() -> None:
    assert foresight(squall.Run(), 1, 5, squall.ParameterServer()) is None


@pytest.mark.parametrize(("store", "consistency"), [("embedded", "asp"), ("embedded", "bsp"), ("tcp", "ssp")])
def test_a_job_with_a_limit_says_what_it_expects(store: str, consistency: str) -> None:
    run = squall.Run(workers=2, store=store, deadline="1h", budget="$1")
    job = squall.submit(model(3, squall.ParameterServer(consistency)), separable(), run=run)
    fitted, status = job.wait(), job.status()
    assert fitted.stopped_ == "epochs"
    assert status.expected_s is not None and 0 < status.expected_s < 600
    assert status.expected_usd is not None and 0 < status.expected_usd < 0.1


def test_a_plan_that_will_not_hold_is_warned_of_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "squall.planning"):
        job = squall.submit(model(10**6), separable(), run=squall.Run(deadline="3s"))
        assert job.wait().stopped_ == "deadline"
    (told,) = [r.getMessage() for r in caplog.records if r.name.startswith("squall.planning")]
    assert "1,000,000 epochs on 1 worker" in told and "the deadline is 3.00 s" in told
    assert "epochs=" in told and 'deadline="' in told
    assert job.status().notes == [told]


def test_what_is_hopeless_is_refused_before_anything_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Work(rows=20_000, epochs=3, batch_size=64, partitions=1, row_s=0.01)
    monkeypatch.setattr("squall.planning.foresight.measure", lambda *_, **__: slow)
    job = squall.submit(model(3), separable(), run=squall.Run(workers=2, budget="$0.001"))
    with pytest.raises(StoppedError, match="not even one epoch") as caught:
        job.wait()
    assert caught.value.reason == "budget"
    assert 'budget="$0.' in str(caught.value.fix)
    assert job.status().attempts == []
