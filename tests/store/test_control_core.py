"""`ControlCore` against a model of a few lines, by random sequences of events; and `BlobCore`."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from squall.errors import StaleAttemptError, StoreError
from squall.records import Report
from squall.store import control as control_module
from squall.store.blobs import BlobCore
from squall.store.control import ControlCore
from squall.store.layout import Cells
from squall.testing.stores import report_of

N_SLOTS = 2
slots = st.integers(0, N_SLOTS - 1)
attempts = st.integers(0, 4)
pids = st.integers(1, 2)


class ControlMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.core = ControlCore()
        self.open()

    def open(self) -> None:
        self.core.open_job("job", Cells.private(N_SLOTS))
        self.owners: list[tuple[int, int] | None] = [None] * N_SLOTS  # (attempt, pid)
        self.states = [b""] * N_SLOTS
        self.progress = [0] * N_SLOTS
        self.sent: list[Report] = []
        self.read = 0

    def owns(self, slot: int, attempt: int) -> bool:
        owner = self.owners[slot]
        return owner is not None and owner[0] == attempt

    @rule(slot=slots, attempt=attempts, pid=pids)
    def register(self, slot: int, attempt: int, pid: int) -> None:
        owner = self.owners[slot]
        if owner is not None and (attempt < owner[0] or (attempt == owner[0] and pid != owner[1])):
            with pytest.raises(StaleAttemptError):
                self.core.register("job", slot, attempt, pid)
            return
        taken = self.core.register("job", slot, attempt, pid)
        assert (taken.minibatches, taken.state) == (self.progress[slot], self.states[slot])
        self.owners[slot] = (attempt, pid)

    @rule(slot=slots, attempt=attempts, state=st.binary(max_size=3))
    def save_state(self, slot: int, attempt: int, state: bytes) -> None:
        if self.owns(slot, attempt):
            self.core.save_state("job", slot, attempt, state)
            self.states[slot] = state
        else:
            with pytest.raises(StoreError):
                self.core.save_state("job", slot, attempt, state)

    @rule(slot=slots, attempt=attempts)
    def report(self, slot: int, attempt: int) -> None:
        report = report_of(slot, attempt, rows=len(self.sent))
        if self.owns(slot, attempt):
            self.core.report("job", report)
            self.sent.append(report)
        else:
            with pytest.raises(StoreError):
                self.core.report("job", report)

    @rule(slot=slots)
    def work(self, slot: int) -> None:
        self.core.cells("job").progress[slot] += 1
        self.progress[slot] += 1

    @rule(ahead=st.integers(0, 3))
    def read_reports(self, ahead: int) -> None:
        after = min(self.read + ahead, len(self.sent))
        assert self.core.reports("job", after) == self.sent[after:]
        self.read = after

    @precondition(lambda self: self.read > 0)
    @rule()
    def read_what_is_forgotten(self) -> None:
        with pytest.raises(StoreError):
            self.core.reports("job", self.read - 1)

    @rule()
    def close_and_open(self) -> None:
        left_over = self.core.cells("job")
        woken: list[None] = []
        self.core.watch("job", lambda: woken.append(None))
        self.core.close_job("job")
        assert woken == [None]
        assert left_over.stop[0] and left_over.gone[0]
        assert not self.core.is_open("job")
        self.open()

    @rule()
    def a_waiter_is_called_once_or_not_at_all(self) -> None:
        woken: list[str] = []
        cancel = self.core.watch("job", lambda: woken.append("cancelled"))
        cancel()
        self.core.watch("job", lambda: woken.append("kept"))
        self.core.register("job", 0, 9, 9) if self.owners[0] is None else None
        if self.owners[0] is None:
            self.owners[0] = (9, 9)
        attempt = self.owners[0][0]
        for _ in range(2):
            self.report(0, attempt)
        assert woken == ["kept"]
        cancel()

    @invariant()
    def memory_is_bounded(self) -> None:
        job = self.core._jobs["job"]
        assert len(job.reports) == len(self.sent) - self.read
        assert not job.waiters


TestControlMachine = ControlMachine.TestCase
TestControlMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_unread_reports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "MAX_REPORTS", 5)
    core = ControlCore()
    core.open_job("job", Cells.private(1))
    core.register("job", 0, 0, 1)
    for _ in range(5):
        core.report("job", report_of(0, 0))
    with pytest.raises(StoreError, match="unread"):
        core.report("job", report_of(0, 0))
    core.reports("job", 1)
    core.report("job", report_of(0, 0))


def test_attempts_have_a_range() -> None:
    core = ControlCore()
    core.open_job("job", Cells.private(1))
    for attempt in (-1, 1 << 62, 1 << 64):
        with pytest.raises(StoreError, match="cannot number"):
            core.register("job", 0, attempt, 1)


def test_blob_waiters_are_called_once() -> None:
    blobs, woken = BlobCore(), list[str]()
    cancel = blobs.watch("k", lambda: woken.append("cancelled"))
    cancel()
    cancel()
    blobs.watch("k", lambda: woken.append("waiter"))
    blobs.put("k", b"1")
    blobs.put("k", b"22")
    assert woken == ["waiter"]
    assert blobs.n_bytes == 2
    blobs.delete("k")
    assert blobs.n_bytes == 0
    assert not blobs._waiters


@pytest.mark.parametrize(("read", "expected"), [(1, [1, 2, 7]), (3, [7]), (5, [7])])
def test_after_a_restore_the_driver_goes_on_from_its_own_number(read: int, expected: list[int]) -> None:
    """The snapshot held reports 0 to 2; the driver may have read fewer, or more that came after it."""
    before, after = ControlCore(), ControlCore()
    for core in (before, after):
        core.open_job("job", Cells.private(N_SLOTS))
        core.register("job", 0, 0, 1)
    for rows in range(3):
        before.report("job", report_of(0, 0, rows=rows))
    after.restore("job", before.kept("job"))
    after.report("job", report_of(0, 0, rows=7))
    assert [report.rows for report in after.reports("job", read)] == expected
    assert [report.rows for report in after.reports("job", read)] == expected, "the reply may be lost"
    after.report("job", report_of(0, 0, rows=8))
    assert [report.rows for report in after.reports("job", read + len(expected))] == [8]
