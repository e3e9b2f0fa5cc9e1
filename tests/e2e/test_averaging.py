"""Whole jobs by model averaging: no tables, any store, the same bits whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import squall
from squall.errors import SettingError
from squall.records import OutcomeKind
from squall.testing import Chaos
from tests.e2e.test_census import LABEL, pipeline

A = squall.ModelAveraging


def submit(
    census: Path, strategy: A, backend: squall.LocalBackend | None = None, **settings: Any
) -> squall.Job[Any]:
    data, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    run = {"store": "embedded", "workers": 2} | settings.pop("run", {})
    model = pipeline(**{"epochs": 4, "strategy": strategy} | settings)
    where = squall.Run(backend=backend or squall.LocalBackend(), **run)
    return squall.submit(model, data, validation=test, run=where)


def coef(job: squall.Job[Any], timeout: float = 55) -> np.ndarray:
    model = job.wait(timeout)
    assert model.stopped_ == "epochs"
    assert {record.rows for record in model.history_} == {26049}, "each row once an epoch"
    return np.append(model.steps[-1][1].coef_, model.steps[-1][1].intercept_)


@pytest.fixture(scope="module")
def plain(census: Path) -> dict[A, np.ndarray]:
    """Models of jobs that nothing happened to."""
    return {strategy: coef(submit(census, strategy, l2=1e-5)) for strategy in (A(), A(50))}


@pytest.mark.parametrize("strategy", [A(), A(50)], ids=repr)
@pytest.mark.parametrize(("slot", "minibatch"), [(0, 150), (1, 333)])
def test_the_bits_are_the_same_after_a_kill(
    census: Path, plain: dict[A, np.ndarray], strategy: A, slot: int, minibatch: int
) -> None:
    chaos = Chaos(slot=slot, attempt=1, minibatch=minibatch)
    job = submit(census, strategy, squall.LocalBackend(chaos=chaos), l2=1e-5, run={"store": "tcp"})
    assert np.array_equal(coef(job), plain[strategy])
    killed = [a for a in job.status().attempts if a.outcome.kind is OutcomeKind.KILLED]
    assert [a.slot for a in killed] == [slot]


def test_it_learns(census: Path) -> None:
    model = submit(census, A(), epochs=8).wait(55)
    assert model.history_[-1].validation_loss == pytest.approx(0.315, abs=0.004)
    assert model.history_[-1].phases.bytes_out > 0


def test_a_slow_strategy_of_the_store_is_refused_at_once(census: Path) -> None:
    data = squall.read_csv(census, label=LABEL)
    run = squall.Run(store="redis://cache", workers=2, backend=squall.LocalBackend(concurrency=1))
    with pytest.raises(SettingError, match=r"2 settings are wrong(.|\n)*no(.|\n)*ModelAveraging\(\)") as told:
        pipeline(strategy=squall.ParameterServer("bsp")).fit(data, run=run)
    assert "all 2 workers run at the same time" in str(told.value)
