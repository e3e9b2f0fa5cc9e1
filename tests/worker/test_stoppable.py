"""A subproblem is left when the job is over, and only then."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from squall.data.iterator import Deal
from squall.data.objects import ObjectStore
from squall.data.training import load_training
from squall.data.whole import WholeShare
from squall.records import WorkerTask
from squall.worker import stoppable
from squall.worker.admm import ADMM
from squall.worker.strategies import strategy_from_dict
from tests.worker.conftest import ROWS, Job


def test_a_round_is_left_in_its_middle_and_can_be_done_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stoppable, "ASKED_EVERY_S", 0.0)
    task: WorkerTask = msgspec.structs.replace(job.task, strategy=msgspec.to_builtins(ADMM()), epochs=9)
    strategy = strategy_from_dict(task.strategy).bind(
        task, job.model, job.store, lambda: True, lambda epoch: [1]
    )
    assert strategy.resume(job.store.control.register(task.job, 0, 1, 1)) == 0
    objects = ObjectStore(task.storage)
    deal = Deal.of(load_training(objects, task.training), 1, task.batch_size, task.seed)
    [visit, *_] = WholeShare(objects, deal, 0, 0, 2, 256 << 20)
    asked: list[int] = []

    def stops_at(at: int) -> None:
        asked.clear()
        monkeypatch.setattr(
            job.store.control, "stop_requested", lambda name: bool(asked.append(1)) or len(asked) == at
        )

    def step() -> int:
        return strategy.step(visit.block, visit.order, 1, 0, 1).minibatches

    for at in (1, 4):  # in what comes before the first round, and in that
        stops_at(at)
        assert step() == 0 and len(asked) == at
    stops_at(-1)
    assert step() == 1 and len(asked) >= 2, "it goes on from where it was"
    taken = strategy.step(visit.block, visit.order, 1, 0, 1)
    assert taken.rows == ROWS and taken.solver is not None and taken.solver.objective < np.log(2)
