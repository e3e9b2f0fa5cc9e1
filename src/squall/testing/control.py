"""The contract suites of `Control`.

An implementation subclasses them in its tests (with a name that pytest collects) and
overrides the fixtures that raise :class:`NotImplementedError`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from squall.errors import StaleAttemptError, StoreError
from squall.protocols import Control
from squall.records import (
    Registration,
)
from squall.testing.stores import N_SLOTS, OfJobs, report_of, soon


class BarriersContract(OfJobs):
    """What every implementation of `Control.barrier` and `Control.finish` must do."""

    @pytest.fixture
    def registered(self, control: Control, job: str) -> str:
        """Name of a job whose slots have registered with `control`."""
        for slot in range(N_SLOTS):
            control.register(job, slot, 0, 1)
        return job

    def test_all_meet(self, control: Control, other: Control, registered: str) -> None:
        job = registered
        for slot in (2, 0):
            assert not control.barrier(job, slot, 0, 1, 0.0)
        assert other.barrier(job, 1, 0, 1, 0.0)
        for slot in (2, 0):
            assert control.barrier(job, slot, 0, 1, 0.0)
            assert not control.barrier(job, slot, 0, 2, 0.0)

    def test_who_comes_to_one_has_come_to_those_before(self, control: Control, registered: str) -> None:
        for slot, number in enumerate((3, 7, 2)):
            control.barrier(registered, slot, 0, number, 0.0)
        assert control.barrier(registered, 0, 0, 1, 0.0)
        assert control.barrier(registered, 0, 0, 2, 0.0)
        assert not control.barrier(registered, 0, 0, 3, 0.0)
        assert control.barrier(registered, 2, 0, 3, 0.0), "that slot 0 asked for 1 has not set it back"
        assert not control.barrier(registered, 1, 0, 4, 0.0)

    def test_slots_that_have_not_registered_are_waited_for(self, control: Control, job: str) -> None:
        for slot in range(N_SLOTS - 1):
            control.register(job, slot, 0, 1)
            assert not control.barrier(job, slot, 0, 1, 0.0)

    def test_a_finished_slot_is_not_waited_for(self, control: Control, registered: str) -> None:
        control.finish(registered, 0, 0)
        control.finish(registered, 0, 0)
        assert not control.barrier(registered, 1, 0, 5, 0.0)
        control.finish(registered, 2, 0)
        assert control.barrier(registered, 1, 0, 5, 0.0)

    def test_a_successor_stands_where_its_predecessor_did(
        self, control: Control, other: Control, registered: str
    ) -> None:
        job = registered
        for slot in range(N_SLOTS):
            control.barrier(job, slot, 0, 4, 0.0)
        other.register(job, 1, 1, 2)
        assert other.barrier(job, 1, 1, 4, 0.0)
        calls: list[Callable[[], object]] = [
            lambda: control.barrier(job, 1, 0, 5, 0.0),
            lambda: control.finish(job, 1, 0),
        ]
        for call in calls:
            with pytest.raises(StaleAttemptError):
                call()
        assert not other.barrier(job, 1, 1, 5, 0.0)

    def test_barriers_wait(self, control: Control, other: Control, registered: str) -> None:
        start = time.monotonic()
        assert not control.barrier(registered, 0, 0, 1, 0.1)
        assert 0.09 <= time.monotonic() - start < 5.0
        for slot in range(1, N_SLOTS):
            other.register(registered, slot, 1, 2)

        def come() -> None:
            for slot in range(1, N_SLOTS):
                other.barrier(registered, slot, 1, 1, 0.0)

        timer = threading.Timer(0.1, come)
        timer.start()
        try:
            assert control.barrier(registered, 0, 0, 1, 20.0)
        finally:
            timer.join()

    def test_what_is_no_barrier(self, control: Control, registered: str) -> None:
        job = registered
        calls: list[Callable[[], object]] = [
            lambda: control.barrier(job, N_SLOTS, 0, 1, 0.0),
            lambda: control.barrier(job, 0, 0, -1, 0.0),
            lambda: control.barrier(job, 0, 0, 2**62 + 1, 0.0),
            lambda: control.barrier(job, 0, 1, 1, 0.0),
            lambda: control.finish(job, -1, 0),
            lambda: control.barrier(f"{job}-none", 0, 0, 1, 0.0),
            lambda: control.finish(f"{job}-none", 0, 0),
        ]
        for call in calls:
            with pytest.raises(StoreError):
                call()


class ControlContract(OfJobs):
    """What every implementation of `Control` must do, but for barriers."""

    def test_open_twice(self, control: Control, job: str) -> None:
        control.register(job, 0, 4, 1)
        control.open_job(job, N_SLOTS)
        with pytest.raises(StaleAttemptError):
            control.register(job, 0, 3, 1)
        with pytest.raises(StoreError, match="open"):
            control.open_job(job, N_SLOTS + 1)

    @pytest.mark.parametrize("name", ["", "a/b", "a\n", "x" * 201])
    def test_bad_names(self, control: Control, name: str) -> None:
        with pytest.raises(StoreError, match="cannot name"):
            control.open_job(name, 1)

    @pytest.mark.parametrize("n_slots", [0, -1, 2**40])
    def test_bad_number_of_slots(self, control: Control, new_job: str, n_slots: int) -> None:
        with pytest.raises(StoreError, match="slots"):
            control.open_job(new_job, n_slots)

    def test_unknown_job(self, control: Control, new_job: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: control.register(new_job, 0, 0, 1),
            lambda: control.progress(new_job, 0),
            lambda: control.look(new_job, 0),
            lambda: control.advance(new_job, 0, 0, 1),
            lambda: control.save_state(new_job, 0, 0, b""),
            lambda: control.report(new_job, report_of(0, 0)),
            lambda: control.reports(new_job, 0, 0.0),
            lambda: control.request_stop(new_job),
            lambda: control.stop_requested(new_job),
        ]
        for call in calls:
            with pytest.raises(StoreError, match="no such job"):
                call()

    @pytest.mark.parametrize("slot", [-1, N_SLOTS])
    def test_unknown_slot(self, control: Control, job: str, slot: int) -> None:
        with pytest.raises(StoreError, match="slot"):
            control.register(job, slot, 0, 1)
        with pytest.raises(StoreError, match="slot"):
            control.progress(job, slot)
        with pytest.raises(StoreError, match="slot"):
            control.look(job, slot)
        with pytest.raises(StoreError, match="slot"):
            control.advance(job, slot, 0, 1)

    def test_a_successor_takes_over(self, control: Control, other: Control, job: str) -> None:
        first = control.register(job, 1, 0, 1)
        assert (first.minibatches, first.state) == (0, b"")
        control.advance(job, 1, 0, 41)
        control.advance(job, 1, 0, 42)
        control.advance(job, 1, 0, 7)
        assert other.look(job, 1) == Registration(42, b"")
        control.save_state(job, 1, 0, b"velocity")
        control.save_state(job, 1, 0, b"momentum")
        assert other.look(job, 1) == control.look(job, 1) == Registration(42, b"momentum")
        second = other.register(job, 1, 1, 2)
        assert (second.minibatches, second.state) == (42, b"momentum")
        assert other.progress(job, 1).tolist() == [42]
        assert other.progress(job, 0).tolist() == [0]

    def test_stale_attempts_are_refused(self, control: Control, other: Control, job: str) -> None:
        control.register(job, 0, 0, 1)
        other.register(job, 0, 2, 2)
        calls: list[Callable[[], object]] = [
            lambda: control.register(job, 0, 1, 1),
            lambda: control.save_state(job, 0, 0, b"old"),
            lambda: control.advance(job, 0, 0, 5),
            lambda: control.report(job, report_of(0, 0)),
        ]
        for call in calls:
            with pytest.raises(StaleAttemptError, match="replaced by attempt 2"):
                call()
        assert control.reports(job, 0, 0.0) == []
        assert other.register(job, 0, 3, 3) == Registration(0, b"")

    def test_register_again(self, control: Control, other: Control, job: str) -> None:
        control.register(job, 0, 0, 1)
        control.register(job, 0, 0, 1)
        with pytest.raises(StaleAttemptError, match="already runs"):
            other.register(job, 0, 0, 2)

    def test_reports_are_numbered(self, control: Control, other: Control, job: str) -> None:
        sent = [report_of(slot, 0, rows=slot) for slot in range(N_SLOTS)]
        for report in sent:
            other.register(job, report.slot, 0, 1)
            other.report(job, report)
        assert control.reports(job, 0, 0.0) == sent
        assert control.reports(job, 0, 0.0) == sent
        assert control.reports(job, 2, 0.0) == sent[2:]
        assert control.reports(job, 3, 0.0) == []
        for after in (1, 4):
            with pytest.raises(StoreError, match="were asked for"):
                control.reports(job, after, 0.0)

    def test_a_new_reader_gets_what_is_kept(self, control: Control, other: Control, job: str) -> None:
        sent = [report_of(0, 0, rows=rows) for rows in range(5)]
        other.register(job, 0, 0, 1)
        for report in sent[:3]:
            other.report(job, report)
        assert control.reports(job, -1, 0.0) == sent[:3]
        assert control.reports(job, 2, 0.0) == sent[2:3]
        assert other.reports(job, -1, 0.0) == sent[2:3]
        for report in sent[3:]:
            other.report(job, report)
        assert other.reports(job, 1, 0.0) == sent[3:]

    def test_reports_wait(self, control: Control, other: Control, job: str) -> None:
        other.register(job, 0, 0, 1)
        start = time.monotonic()
        assert control.reports(job, 0, 0.1) == []
        assert 0.09 <= time.monotonic() - start < 5.0
        timer = threading.Timer(0.1, other.report, (job, report_of(0, 0)))
        timer.start()
        try:
            assert control.reports(job, 0, 20.0) == [report_of(0, 0)]
        finally:
            timer.join()

    def test_stop_flag(self, control: Control, other: Control, job: str) -> None:
        assert not other.stop_requested(job)
        control.request_stop(job)
        assert soon(lambda: other.stop_requested(job))
        assert soon(lambda: control.stop_requested(job))

    def test_close_forgets(self, control: Control, other: Control, job: str) -> None:
        other.register(job, 0, 5, 1)
        other.report(job, report_of(0, 5))
        assert not other.stop_requested(job)
        control.close_job(job)
        control.close_job(job)
        assert soon(lambda: other.stop_requested(job)), "a worker that is left over stops"
        with pytest.raises(StoreError, match="no such job"):
            other.report(job, report_of(0, 5))
        control.open_job(job, N_SLOTS)
        assert control.reports(job, 0, 0.0) == []
        assert control.register(job, 0, 0, 2).minibatches == 0

    def test_close_wakes_who_waits(self, control: Control, other: Control, job: str) -> None:
        timer = threading.Timer(0.1, other.close_job, (job,))
        timer.start()
        try:
            with pytest.raises(StoreError, match="no such job"):
                control.reports(job, 0, 20.0)
        finally:
            timer.join()
