"""One attempt's life: what it visits, what it says, and why it ends."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import numpy as np
import pytest

from squall.errors import DivergenceError
from squall.records import Chaos, OptimizerSpec, Report
from squall.worker.main import handle
from tests.worker.conftest import ROWS, Context, Job, rows


def reports(job: Job) -> list[Report]:
    return job.store.control.reports(job.task.job, 0, 0.0)


def test_every_row_is_visited_once_an_epoch(job: Job) -> None:
    assert handle(job.event(), Context()) == {"end": "finished", "reports": len(reports(job))}
    by_epoch = {epoch: sum(r.rows for r in reports(job) if r.epoch == epoch) for epoch in (0, 1)}
    assert by_epoch == {0: ROWS, 1: ROWS}
    assert [r.epoch for r in reports(job) if r.epoch_done] == [0, 1]


def test_it_learns(job: Job) -> None:
    handle(job.event(epochs=10), Context())
    loss, weight, right = job.model.loss(rows(), job.weights())
    assert loss / weight < 0.3
    assert right / weight > 0.9


def test_reports_say_where_the_time_went(job: Job) -> None:
    handle(job.event(), Context())
    first, *rest = reports(job)
    assert first.phases.cold_start == 0.125, "the start counts once"
    assert all(r.phases.cold_start == 0.0 for r in rest)
    assert first.phases.compute > 0 and first.phases.fetch > 0
    assert sum(r.phases.bytes_in for r in reports(job)) > 0
    assert sum(r.phases.gets for r in reports(job)) >= 2
    assert first.phases.peak_rss > 1_000_000


def test_two_slots_share_the_rows(job: Job) -> None:
    for slot in (0, 1):
        handle(job.event(n_slots=2, slot=slot, epochs=1), Context())
    by_slot = [sum(r.rows for r in reports(job) if r.slot == slot) for slot in (0, 1)]
    assert sum(by_slot) == ROWS
    assert min(by_slot) > 0.3 * ROWS


def test_the_same_seed_gives_the_same_bits(job: Job) -> None:
    handle(job.event(), Context())
    first = job.weights()
    job.store.tables.drop(job.task.table)
    job.store.tables.create(job.model.table(job.task.table, OptimizerSpec("adagrad", 0.5)))
    job.store.control.close_job(job.task.job)
    job.store.control.open_job(job.task.job, 2)
    job.store.tables.create(job.model.table(job.task.table, OptimizerSpec("adagrad", 0.5)))
    handle(job.event(), Context())
    assert np.array_equal(first, job.weights())


def test_a_successor_goes_on_where_the_predecessor_handed_over(job: Job) -> None:
    # Time runs out after the third block; the successor has all the time it needs.
    assert handle(job.event(), Context([900.0] * 5 + [0.4, 0.1]))["end"] == "handover"
    stands_at = int(job.store.control.progress(job.task.job, 0)[0])
    assert stands_at > 0
    assert handle(job.event(attempt=2), Context())["end"] == "finished"
    assert sum(r.rows for r in reports(job)) == 2 * ROWS, "no row twice, none lost"
    handed_over = job.weights()

    job.store.control.close_job(job.task.job)
    job.store.control.open_job(job.task.job, 2)
    job.store.tables.create(job.model.table(job.task.table, OptimizerSpec("adagrad", 0.5)))
    handle(job.event(), Context())
    assert np.array_equal(handed_over, job.weights()), "the hand-over leaves no trace in the model"


def test_the_stop_flag_ends_it_within_a_block(job: Job) -> None:
    job.store.control.request_stop(job.task.job)
    assert handle(job.event(epochs=1000), Context())["end"] == "stopped"
    assert 0 < sum(r.rows for r in reports(job)) < ROWS


def test_a_replaced_attempt_is_refused(job: Job) -> None:
    job.store.control.register(job.task.job, 0, 2, 1)
    assert handle(job.event(attempt=1), Context())["end"] == "superseded"


def test_an_attempt_replaced_while_it_works_stops_at_its_next_report(job: Job) -> None:
    class Replaced(Context):
        def remaining_s(self) -> float:
            job.store.control.register(job.task.job, 0, 9, 1)
            return 900.0

    assert handle(job.event(), Replaced())["end"] == "superseded"


def test_divergence_names_the_epoch_and_the_rate(job: Job) -> None:
    name = f"{job.task.job}/wild"
    wild = OptimizerSpec("sgd", 3e38)
    job.store.tables.create(job.model.table(name, wild))
    with pytest.raises(DivergenceError, match=r"epoch \d+ with sgd at learning_rate=3e\+38"):
        handle(job.event(table=name, epochs=50, optimizer=wild), Context())


def test_chaos_kills_at_the_recorded_minibatch(job: Job) -> None:
    event = job.event(chaos=Chaos(slot=0, attempt=1, minibatch=29))
    code = (
        "import sys, msgspec\n"
        "from tests.worker.conftest import Context\n"
        "from squall.worker.main import handle\n"
        "handle(msgspec.json.decode(sys.stdin.buffer.read()), Context())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], input=msgspec.json.encode(event), check=False, timeout=30
    )
    assert ended.returncode == -9
    assert int(job.store.control.progress(job.task.job, 0)[0]) == 29
    assert handle(job.event(attempt=2), Context())["end"] == "finished"
