"""Whole jobs by model averaging: no tables, any store, the same bits whatever happens."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import squall
from squall.errors import JobError, SettingError
from squall.records import OutcomeKind
from squall.testing import Chaos
from squall.testing.valkey import valkey_server
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


@pytest.mark.parametrize("kind", ["folder", "valkey"])
def test_any_store_will_do(
    census: Path,
    plain: dict[A, np.ndarray],
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with contextlib.ExitStack() as servers:
        store = (tmp_path / "store").as_uri()
        if kind == "valkey":
            server = servers.enter_context(valkey_server(tmp_path))
            monkeypatch.setenv("SQUALL_STORE_TOKEN", server.password)
            store = server.url
        job = submit(census, A(50), l2=1e-5, run={"store": store})
        assert np.array_equal(coef(job), plain[A(50)])
        assert job.bill is not None and (job.bill.store_usd > 0) == (kind == "valkey")
    if kind == "folder":
        assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()], "nothing is left"
        phases = job.wait().history_[-1].phases
        assert phases.gets > 10 and phases.puts > 10, "requests are on the bill"


@pytest.mark.slow
def test_an_object_store_alone_under_strict_isolation(
    census: Path, plain: dict[A, np.ndarray], s3: str
) -> None:
    backend = squall.LocalBackend(isolation="strict")
    job = submit(census, A(), backend, l2=1e-5, run={"store": f"{s3}/store"})
    assert np.array_equal(coef(job), plain[A()])


@pytest.mark.slow
@pytest.mark.parametrize("every", ["epoch", 100])
def test_short_lives(census: Path, every: int | str) -> None:
    settings: dict[str, Any] = {"epochs": 40, "l2": 1e-5, "run": {"store": "tcp"}}
    job = submit(census, A(every), squall.LocalBackend(lifetime="2s"), **settings)
    again = submit(census, A(every), **settings)
    assert np.array_equal(coef(job), coef(again))
    assert {a.outcome.kind for a in job.status().attempts} == {OutcomeKind.RETURNED}
    assert all(sum(a.slot == slot for a in job.status().attempts) > 1 for slot in (0, 1))


def test_a_stop_gives_what_came_of_the_last_meeting(census: Path) -> None:
    job = submit(census, A(50), epochs=10_000, run={"deadline": "4s"})
    model = job.wait(50)
    assert model.stopped_ == "deadline"
    assert 0.3 < model.history_[-1].loss < 0.35


def test_a_stop_before_the_first_meeting(census: Path) -> None:
    job = submit(census, A(10**9), batch_size=1, epochs=10**6)
    while not job.status().workers:
        assert not job.done()
    job.stop()
    with pytest.raises(JobError, match="stopped before workers had made a model"):
        job.wait(50)


def test_early_stopping_keeps_the_best_model(census: Path) -> None:
    _, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    model = submit(census, A(), epochs=200, learning_rate=3.0, early_stopping=2).wait(55)
    assert model.stopped_ == "early stopping"
    best = min(record.validation_loss for record in model.history_)
    truth, right = test.to_arrays()[1], model.predict_proba(test)
    losses = -np.log(np.where(truth == model.classes_[1], right[:, 1], right[:, 0]))
    assert losses.mean() == pytest.approx(best, rel=1e-3)


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
