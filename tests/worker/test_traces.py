"""Traces: removed when no slot can need them any more, whoever removes them."""

from __future__ import annotations

import uuid

import numpy as np

from squall.protocols import Store
from squall.records import OptimizerSpec, WorkerTask
from squall.store import connect
from squall.store.process import shared_store
from squall.worker.traces import Traces


def traces(store: Store, job: str, slot: int, attempt: int = 1) -> Traces:
    task = WorkerTask(
        job=job, slot=slot, attempt=attempt, n_slots=2, storage="", training="", store="", model={}, table="",
        strategy={}, batch_size=1, epochs=1, seed=0, optimizer=OptimizerSpec("sgd", 1.0),
    )  # fmt: skip
    return Traces(task, store, lambda: True)


def test_a_slot_may_be_a_round_behind_also_when_slot_0_has_a_successor() -> None:
    job, number = uuid.uuid4().hex, {"number": np.ones(1)}
    with connect(shared_store().address) as store:
        speaker, behind = traces(store, job, 0), traces(store, job, 1)
        speaker.write(1, number, number)
        speaker.forget([1])
        successor = traces(store, job, 0, attempt=2)
        successor.take_over(speaker.left, [1])
        successor.write(2, number, number)
        successor.forget([2])
        assert behind.common([1]) is not None, "the other slot may be at the state before"
        successor.write(3, number, number)
        successor.forget([3])
        assert behind.common([1]) is None and behind.common([2, 3]) is not None
        for left in successor.left:
            store.blobs.delete(f"{job}/traces/0/{left}")
            store.blobs.delete(f"{job}/traces/common/{left}")
