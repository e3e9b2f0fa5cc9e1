"""Whole jobs on the census data: every consistency, filter and compression, and what may go wrong."""

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

P = squall.ParameterServer
MODES = ["asp", "bsp", "ssp", "hsp"]


def submit(
    census: Path, strategy: P | None, backend: squall.LocalBackend | None = None, **settings: Any
) -> squall.Job[Any]:
    data, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    run = {"store": "embedded", "workers": 2} | settings.pop("run", {})
    model = pipeline(**{"epochs": 8, "strategy": strategy} | settings)
    where = squall.Run(backend=backend or squall.LocalBackend(), **run)
    return squall.submit(model, data, validation=test, run=where)


def loss_of(job: squall.Job[Any]) -> float:
    model = job.wait(55)
    assert model.stopped_ == "epochs"
    assert {record.rows for record in model.history_} == {26049}, "each row once an epoch"
    return float(model.history_[-1].validation_loss)


def coef(job: squall.Job[Any], timeout: float = 55) -> np.ndarray:
    model = job.wait(timeout).steps[-1][1]
    return np.append(model.coef_, model.intercept_)


@pytest.mark.parametrize("store", [pytest.param("embedded", marks=pytest.mark.slow), "tcp"])
@pytest.mark.parametrize("consistency", MODES)
def test_every_mode_learns_the_census(census: Path, consistency: str, store: str) -> None:
    job = submit(census, P(consistency), run={"store": store})
    assert loss_of(job) == pytest.approx(0.312, abs=0.004)


@pytest.mark.parametrize(
    "consistency", [pytest.param(mode, marks=() if mode == "bsp" else pytest.mark.slow) for mode in MODES]
)
def test_every_mode_learns_under_strict_isolation(census: Path, s3: str, consistency: str) -> None:
    backend = squall.LocalBackend(isolation="strict")
    job = submit(census, P(consistency), backend, run={"store": "tcp"})
    assert loss_of(job) == pytest.approx(0.312, abs=0.004)


def test_bsp_gives_the_same_bits_whatever_happens(census: Path) -> None:
    # With a penalty, so that also the time at which rows are caught up would show.
    settings: dict[str, Any] = {"l2": 1e-5, "epochs": 5}
    plain = coef(submit(census, P("bsp"), **settings))
    again = coef(submit(census, P("bsp"), run={"store": "tcp"}, **settings))
    assert np.array_equal(plain, again), "another store, another timing"
    chaos = Chaos(slot=1, attempt=1, minibatch=333)
    job = submit(census, P("bsp"), squall.LocalBackend(chaos=chaos), **settings)
    assert np.array_equal(plain, coef(job)), "a worker was killed"
    killed = [a for a in job.status().attempts if a.outcome.kind is OutcomeKind.KILLED]
    assert [(a.slot, a.minibatches) for a in killed] == [(1, 333)]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("store", ["embedded", "tcp"])
def test_bsp_gives_the_same_bits_through_hand_overs(census: Path, store: str) -> None:
    settings: dict[str, Any] = {"epochs": 40, "batch_size": 128, "l2": 1e-5, "run": {"store": store}}
    expected = coef(submit(census, P("bsp"), **settings), timeout=110)
    job = submit(census, P("bsp"), squall.LocalBackend(lifetime="2s"), **settings)
    assert np.array_equal(coef(job, timeout=110), expected)
    assert all(sum(a.slot == slot for a in job.status().attempts) > 1 for slot in (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("consistency", ["ssp", "hsp"])
def test_short_lives_under_waiting(census: Path, consistency: str) -> None:
    job = submit(census, P(consistency), squall.LocalBackend(lifetime="2s"), epochs=30)
    assert loss_of(job) == pytest.approx(0.310, abs=0.006)
    assert {a.outcome.kind for a in job.status().attempts} == {OutcomeKind.RETURNED}


@pytest.mark.parametrize("consistency", ["bsp", "ssp", "hsp"])
def test_a_stopped_job_ends_though_its_workers_wait(census: Path, consistency: str) -> None:
    job = submit(census, P(consistency), epochs=10_000)
    while not job.status().rows:
        assert not job.done()
    job.stop()
    assert job.wait(50).stopped_ == "stopped by the user"


@pytest.mark.parametrize(
    ("strategy", "abs_loss", "share"),
    [
        pytest.param(
            *case, marks=() if case[0].filter == "significance" else pytest.mark.slow, id=repr(case[0])
        )
        for case in (
            (P(filter="threshold"), 0.004, 0.95),
            (P(filter="significance"), 0.02, 0.7),
            (P(filter="top-k", keep=0.25), 0.01, 0.7),
            (P(compression="float16"), 0.004, 0.85),
            (P("bsp", compression="int8"), 0.004, 0.8),
            (P("ssp", filter="top-k", keep=0.25, compression="int8"), 0.01, 0.6),
            (P("asp", staleness_weighting=True), 0.004, None),
        )
    ],
)
def test_filters_and_compression_save_bytes_and_keep_the_loss(
    census: Path, strategy: P, abs_loss: float, share: float | None
) -> None:
    job = submit(census, strategy, epochs=10)
    assert loss_of(job) == pytest.approx(0.311, abs=abs_loss)
    if share is not None:
        sent = sum(record.phases.bytes_out for record in job.wait().history_)
        assert 0 < sent < share * full_bytes(census)


def full_bytes(census: Path) -> int:
    """Bytes that the same job sends when nothing is filtered or rounded."""
    history = submit(census, P(staleness_weighting=True), epochs=1).wait(55).history_
    return 10 * sum(record.phases.bytes_out for record in history)


def test_workers_that_wait_for_all_must_all_have_room(census: Path) -> None:
    backend = squall.LocalBackend(concurrency=1)
    with pytest.raises(SettingError, match=r"all 2 workers run at the same time, and the backend runs 1"):
        submit(census, P("bsp"), backend)
    assert loss_of(submit(census, P("ssp"), backend, epochs=1)) < 0.4
