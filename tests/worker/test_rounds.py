"""Rounds: the sums are the same in whatever pieces, and nothing of a round that is forgotten is left."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from squall.protocols import Store
from squall.records import OptimizerSpec, WorkerTask
from squall.store import connect
from squall.worker.rounds import REQUEST_BYTES, Rounds, n_pieces

N = 3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with connect((tmp_path / "store").as_uri()) as store:
        yield store


def rounds(store: Store, job: str, slot: int, shards: int | None, *, ending: bool = False) -> Rounds:
    task = WorkerTask(
        job=job, slot=slot, attempt=1, n_slots=N, storage="", training="", store="", model={}, table="",
        strategy={}, batch_size=1, epochs=1, seed=0, optimizer=OptimizerSpec("sgd", 1.0),
    )  # fmt: skip
    return Rounds(task, store, lambda: ending, shards)


def arrays(slot: int) -> list[Any]:
    draw = np.random.default_rng(slot)
    small = draw.integers(-9, 9, 10).astype(np.int16)
    return [small, draw.normal(size=REQUEST_BYTES // 6 + 1), draw.normal(size=2)]


@pytest.mark.parametrize(
    ("shards", "pieces"), [(1, (1, 1, 1)), (None, (1, 2, 1)), (4, (4, 4, 2)), (12, (10, 12, 2))]
)
def test_sums_are_those_of_whole_arrays(
    store: Store, shards: int | None, pieces: tuple[int, ...], tmp_path: Path
) -> None:
    job, results = uuid.uuid4().hex, dict[int, Any]()
    slots = [rounds(store, job, slot, shards) for slot in range(N)]
    meeting = slots[0].meeting("1", arrays(0), N)
    assert meeting.pieces == pieces and all(s.meeting("1", arrays(0), N) == meeting for s in slots)

    def meet(slot: int) -> None:
        results[slot] = slots[slot].meet(meeting, arrays(slot), N)

    threads = [threading.Thread(target=meet, args=(slot,)) for slot in range(N)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    expected = [(a + b) + c for a, b, c in zip(*map(arrays, range(N)), strict=True)]
    for slot in range(N):
        for sums, whole in zip(results[slot], expected, strict=True):
            assert sums.dtype == whole.dtype and np.array_equal(sums, whole)
        assert slots[slot].bytes_in == slots[slot].bytes_out == sum(a.nbytes for a in expected)
    assert rounds(store, job, 1, shards).again(meeting, N) is not None, "a successor finds it"
    slots[0].show("1", np.zeros(3, np.float32))
    slots[0].forget(meeting)
    left = [p for p in (tmp_path / "store").rglob("*") if p.is_file() and job in str(p)]
    assert left == []


def test_pieces_that_a_worker_had_sent_before_it_died_count_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, brought = uuid.uuid4().hex, [np.arange(6.0)]
    first, sent = rounds(store, job, 1, 3), list[str]()
    meeting, reduce = first.meeting("1", brought, 2), store.blobs.reduce

    def dying(key: str, *rest: Any) -> None:
        if len(sent) == 2:
            raise KeyboardInterrupt
        reduce(key, *rest)
        sent.append(key)

    with monkeypatch.context() as patch:
        patch.setattr(store.blobs, "reduce", dying)
        with pytest.raises(KeyboardInterrupt):
            first.meet(meeting, brought, 2)
    assert [key[-3:] for key in sent] == ["0-1", "0-2"], "it begins with another piece than slot 0"
    assert rounds(store, job, 0, 3, ending=True).meet(meeting, brought, 2) is None
    sums = rounds(store, job, 1, 3).meet(meeting, brought, 2)
    assert sums is not None and sums[0].tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_who_has_to_end_while_pieces_are_missing_asks_again(store: Store) -> None:
    job = uuid.uuid4().hex
    first = rounds(store, job, 0, 2, ending=True)
    meeting = first.meeting("1", [np.ones(4)], 2)
    assert first.meet(meeting, [np.ones(4)], 2) is None
    assert rounds(store, job, 1, 2).meet(meeting, [np.ones(4)], 2) is not None
    again = first.meet(meeting, [np.ones(4)], 2)
    assert again is not None and again[0].tolist() == [2.0] * 4


def test_more_bytes_and_more_slots_are_more_pieces() -> None:
    assert [n_pieces(80_000, n) for n in (1, 2, 64, 256)] == [1, 1, 2, 4]
    assert [n_pieces(8_000_000, n) for n in (1, 2, 64, 256)] == [1, 2, 22, 44]
