"""Workers die and the job goes on."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import squall
from squall.errors import JobError
from squall.records import OutcomeKind
from squall.testing import Chaos
from tests.e2e.test_census import LABEL, pipeline

KILL = Chaos(slot=1, attempt=1, minibatch=700)  # in its fourth epoch


def train_with_a_kill(census: Path, store: str = "embedded") -> squall.Job[Any]:
    train, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    run = squall.Run(workers=2, store=store, backend=squall.LocalBackend(chaos=KILL))
    return squall.submit(pipeline(), train, validation=test, run=run)


def check_survival(job: squall.Job[Any]) -> None:
    model = job.wait(50)
    attempts = {(a.slot, a.attempt): a for a in job.status().attempts}
    assert sorted(attempts) == [(0, 1), (1, 1), (1, 2)]
    killed, successor = attempts[1, 1], attempts[1, 2]
    assert killed.outcome.kind is OutcomeKind.KILLED and killed.outcome.signal == signal.SIGKILL
    assert killed.minibatches == KILL.minibatch, "it died at the recorded minibatch"
    assert successor.first_minibatch == KILL.minibatch, "its successor went on from there"
    assert all(attempt.minibatches > 0 for attempt in attempts.values())
    assert model.history_[-1].validation_loss == pytest.approx(0.310, abs=0.006)
    assert {record.rows for record in model.history_} == {26049}, "each row once an epoch, for all that"
    assert model.history_[3].unreported_rows > 0, "what it trained on and could not report is known"
    assert sum(r.unreported_rows for r in model.history_) == model.history_[3].unreported_rows
    assert model.stopped_ == "epochs"
    assert model.bill_.invocations == 3, "the dead attempt is paid for, too"
    assert "attempt 2" in job.logs(worker=1)


@pytest.mark.parametrize("store", ["embedded", "tcp"])
def test_a_killed_worker_is_replaced_and_the_model_is_as_good(census: Path, store: str) -> None:
    check_survival(train_with_a_kill(census, store))


def test_the_same_job_fails_with_replacement_switched_off(
    census: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall.driver.resuming.MAX_RESTARTS", 0)
    with pytest.raises(JobError, match=r"worker 1: it was killed by signal 9"):
        check_survival(train_with_a_kill(census))


def test_a_worker_killed_from_outside_is_replaced(census: Path) -> None:
    data = squall.read_csv(census, label=LABEL)
    job = squall.submit(pipeline(epochs=10_000), data, run=squall.Run(workers=2))
    while len(told := [line for line in job.logs().splitlines() if "process" in line]) < 2:
        assert not job.done()
        threading.Event().wait(0.01)
    os.kill(int(told[0].rsplit(" ", 1)[1]), signal.SIGKILL)
    while len(job.status().attempts) < 3:
        assert not job.done()
        threading.Event().wait(0.01)
    job.stop()
    model = job.wait(50)
    assert model.stopped_ == "stopped by the user"
    assert model.score(data) > 0.8


def test_too_little_memory_is_told_apart_from_other_deaths(census: Path) -> None:
    # 2**25 weights of 8 bytes make a table far above what the function may hold, but a table
    # is shared memory and not the worker's own: the job goes through.
    data = squall.read_csv(census, label=LABEL)
    model = squall.make_pipeline(
        squall.MinMaxScaler(), squall.FeatureHasher(n_features=2**25), squall.LogisticRegression(epochs=1)
    )
    model.fit(data, run=squall.Run(memory="128MB"))
    assert model.score(data) > 0.8
    assert model.history_[0].phases.peak_rss < 128 << 20


@pytest.mark.slow
def test_short_lives_hand_over_and_lose_nothing(census: Path) -> None:
    train, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    backend = squall.LocalBackend(lifetime="2s")
    settings = {"epochs": 1200, "learning_rate": 0.1}
    job = squall.submit(
        pipeline(**settings), train, validation=test, run=squall.Run(workers=2, backend=backend)
    )
    model = job.wait(55)
    status = job.status()
    by_slot = [[a for a in status.attempts if a.slot == slot] for slot in (0, 1)]
    assert all(len(attempts) >= 4 for attempts in by_slot), "at least three hand-overs"
    assert {a.outcome.kind for a in status.attempts} == {OutcomeKind.RETURNED}
    assert [record.rows for record in model.history_] == [26049] * 1200, "each row once an epoch"
    for attempts in by_slot:
        for predecessor, successor in itertools.pairwise(attempts):
            assert successor.started_s < predecessor.ended_s, "launched before its predecessor stopped"
            assert successor.lost_s < 0.5
    assert "stands by" in job.logs()

    long = pipeline(**settings).fit(train, validation=test, run=squall.Run(workers=2))
    assert {a.attempt for a in job.status().attempts} > {1}
    assert model.history_[-1].validation_loss == pytest.approx(long.history_[-1].validation_loss, abs=0.003)
