"""Waiting before an epoch for the driver's word."""

from __future__ import annotations

from typing import Any

import pytest

from squall.records import GO_ON, LEAVE, OptimizerSpec, WorkerTask, epoch_key
from squall.worker.gate import EpochGate, Verdict


class Words:
    """Blobs as far as the gate needs them; a word comes at its third question."""

    def __init__(self, words: dict[str, bytes]) -> None:
        self.words, self.asked = words, 0

    def wait(self, key: str, timeout: float) -> bytes | None:
        self.asked += 1
        return self.words.get(key) if self.asked > 2 else None


def gate(
    words: dict[int, bytes], held_from: int | None, *, interrupted: bool = False
) -> tuple[EpochGate, Words]:
    task = WorkerTask(
        job="j",
        slot=0,
        attempt=1,
        n_slots=1,
        storage="",
        training="",
        store="",
        model={},
        table="",
        strategy={},
        batch_size=1,
        epochs=9,
        seed=0,
        optimizer=OptimizerSpec("sgd", 0.1),
        held_from=held_from,
    )
    blobs: Any = Words({epoch_key("j", epoch): word for epoch, word in words.items()})
    return EpochGate(task, blobs, lambda: interrupted), blobs


def test_where_nobody_plans_nobody_waits() -> None:
    at, words = gate({}, None)
    assert not at.holds(0) and not at.holds(8)
    assert words.asked == 0


def test_it_waits_for_each_epoch_once() -> None:
    at, words = gate({2: GO_ON, 3: LEAVE}, 2)
    assert not at.holds(1) and at.holds(2)
    assert at.await_epoch(2) is Verdict.GO_ON
    assert words.asked == 3 and at.wait_s > 0
    assert not at.holds(2) and at.holds(3)
    assert at.await_epoch(3) is Verdict.LEAVE


@pytest.mark.timeout(5)
def test_a_worker_that_has_to_end_waits_no_longer() -> None:
    at, _ = gate({}, 1, interrupted=True)
    assert at.await_epoch(1) is Verdict.BROKEN_OFF
