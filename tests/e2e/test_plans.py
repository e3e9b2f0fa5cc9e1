"""Jobs whose number and size of workers change between epochs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import squall
from squall.errors import SettingError, SquallError
from squall.records import Plan, Situation
from squall.testing import Chaos
from tests.e2e.resumed_script import data

PLANNER = squall.ScriptedPlanner({1: 3, 2: (1, "2048MB")})


def fit(storage: Path, consistency: str = "asp", **settings: object) -> squall.LogisticRegression:
    X, y = data()
    strategy = squall.ParameterServer(consistency)
    model = squall.LogisticRegression(epochs=4, batch_size=50, learning_rate=0.1, strategy=strategy)
    run = squall.Run(**{"workers": 2, "plan": PLANNER, "storage": storage, **settings})  # type: ignore[arg-type]
    return model.fit(X, y, validation=(X[:300], y[:300]), run=run)


@pytest.mark.parametrize("store", ["embedded", "tcp"])
@pytest.mark.parametrize("consistency", ["asp", "bsp", "ssp", "hsp"])
def test_the_plan_changes_and_every_row_is_visited(consistency: str, store: str, tmp_path: Path) -> None:
    X, y = data()
    fitted = fit(tmp_path, consistency, store=store)
    assert [(h.epoch, h.workers, h.rows) for h in fitted.history_] == [
        (1, 2, 3000),
        (2, 3, 3000),
        (3, 1, 3000),
        (4, 1, 3000),
    ]
    assert fitted.score(X, y) > 0.85
    losses = [h.validation_loss for h in fitted.history_]
    assert losses == sorted(losses, reverse=True), "each leg goes on from the model of the one before"
    assert not list((tmp_path / "jobs").glob("*"))


def test_what_changed_is_told_and_billed(tmp_path: Path) -> None:
    X, y = data()
    model = squall.LogisticRegression(epochs=3, batch_size=50, learning_rate=0.1)
    job = squall.submit(model, (X, y), run=squall.Run(workers=2, plan=PLANNER, storage=tmp_path))
    job.wait()
    status = job.status()
    assert [note.partition("s: ")[2] for note in status.notes] == [
        "from epoch 2 on 3 workers of 1,769 MB instead of 2 of 1,769 MB",
        "from epoch 3 on 1 worker of 2,048 MB instead of 3 of 1,769 MB",
    ]
    assert len(status.attempts) == 6
    assert job.bill is not None and job.bill.invocations == 6
    functions = sum(attempt.cost_usd for attempt in status.attempts)
    assert job.bill.compute_usd + job.bill.requests_usd == pytest.approx(functions)


def test_workers_that_are_killed_and_live_shortly_do_not_hinder_it(tmp_path: Path) -> None:
    backend = squall.LocalBackend(lifetime="2s", chaos=Chaos(kill=0.2, seed=3, max_faults=4))
    fitted = fit(tmp_path, "bsp", backend=backend)
    assert np.array_equal(fitted.coef_, fit(tmp_path, "bsp").coef_)


class Raises:
    def next_plan(self, situation: Situation) -> Plan:
        raise ZeroDivisionError("of the planner's own")


class Asked:
    """Leaves all as it is, and remembers what it was told."""

    def __init__(self) -> None:
        self.situations: list[Situation] = []

    def next_plan(self, situation: Situation) -> Plan:
        self.situations.append(situation)
        return situation.plan


def test_a_planner_is_told_how_things_stand(tmp_path: Path) -> None:
    planner = Asked()
    fitted = fit(tmp_path, plan=planner, deadline="1min")
    assert [s.epoch for s in planner.situations] == [1, 2, 3]
    last = planner.situations[-1]
    assert (last.plan, last.epochs, last.rows, last.deadline_s) == (Plan(2, 1769), 4, 3000, 60.0)
    assert [h.epoch for h in last.history] == [1, 2, 3] and 0 < last.cost_usd < fitted.cost_usd_
    assert [h.workers for h in fitted.history_] == [2] * 4


def test_a_planner_that_raises_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="own"):
        fit(tmp_path, plan=Raises())
    assert not list((tmp_path / "jobs").glob("*"))


class Wrong:
    def next_plan(self, situation: Situation) -> Plan:
        return Plan(0, 1769)


def test_what_is_no_plan_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="which is no plan"):
        fit(tmp_path, plan=Wrong())


def test_a_plan_that_the_platform_cannot_give_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(SquallError):
        fit(tmp_path, plan=squall.ScriptedPlanner({1: (2, "4000GB")}))
    assert not list((tmp_path / "jobs").glob("*"))
