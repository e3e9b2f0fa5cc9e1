"""When a worker reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from squall.data.objects import ObjectStore
from squall.protocols import Control, FunctionContext
from squall.records import OptimizerSpec, Report, WorkerTask
from squall.store.objects import ObjectsStore
from squall.worker import reporter
from squall.worker.reporter import BEAT_S, INTERVAL_S, Reporter, interval_s

TASK = WorkerTask("j", 1, 1, 2, "", "", "", {}, "", {}, 64, 1, 0, OptimizerSpec("sgd", 0.1))


class Sent:
    """A control that keeps what is reported."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def report(self, job: str, report: Report) -> None:
        self.reports.append(report)


class Context:
    cold_start_s = 0.25


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test sets."""
    clock = [100.0]
    monkeypatch.setattr(reporter.time, "monotonic", lambda: clock[0])
    return clock


def reporting(tmp_path: Path, **task: Any) -> tuple[Reporter, Sent]:
    sent = Sent()
    task_ = msgspec.structs.replace(TASK, **task)
    objects, context = ObjectStore(tmp_path), cast(FunctionContext, Context())
    store = ObjectsStore(ObjectStore(tmp_path / "store"))
    return Reporter(task_, cast(Control, sent), context, objects, store, started=99.0), sent


def test_a_worker_that_waits_says_at_once_that_it_has_started_and_then_now_and_then(
    tmp_path: Path, now: list[float]
) -> None:
    waiting, sent = reporting(tmp_path)
    waiting.beat()
    assert [(r.rows, r.number, r.billed_s) for r in sent.reports] == [(0, 1, 1.25)]
    now[0] += BEAT_S / 2
    waiting.beat()
    assert len(sent.reports) == 1
    now[0] += BEAT_S
    waiting.beat()
    assert len(sent.reports) == 2


@pytest.mark.parametrize("n_slots", [1, 20, 64, 100])
def test_up_to_so_many_workers_send_at_most_a_hundred_reports_a_second(n_slots: int) -> None:
    assert n_slots / interval_s(n_slots) <= 100
    assert INTERVAL_S <= interval_s(n_slots) <= BEAT_S


def test_thousands_still_report_often_enough_to_be_known_alive() -> None:
    assert interval_s(5_000) == BEAT_S
