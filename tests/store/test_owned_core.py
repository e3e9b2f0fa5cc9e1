"""`OwnedTable` and `Clocks` against a model of a few lines of plain Python, by random events."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from squall.errors import StaleAttemptError
from squall.records import OptimizerSpec, Stamp, Sync, TableSpec
from squall.store.clocks import FINISHED, LEASE_S, Clocks
from squall.store.layout import Cells, TableMemory
from squall.store.owned import OwnedTable
from squall.store.table import ParameterTable, table_stride

N_SLOTS, ROWS = 4, 3
slots = st.integers(0, N_SLOTS - 1)
values = st.integers(-8, 8).map(lambda n: n * N_SLOTS)  # whose means are exact


class OwnedMachine(RuleBasedStateMachine):
    """A job of one consistency whose slots work, repeat themselves, die and are succeeded.

    Gradient steps have length 1 and gradients are small integers, so the model counts exactly.
    """

    @initialize(staleness=st.sampled_from([None, 0, 1, 2]))
    def start(self, staleness: int | None) -> None:
        spec = TableSpec("job/t", ROWS, 1, OptimizerSpec("sgd", 1.0), ROWS)
        self.cells = Cells.private(N_SLOTS)
        self.memory = TableMemory.private(ROWS, table_stride(spec), N_SLOTS)
        self.clocks = Clocks(N_SLOTS)
        self.owned = OwnedTable(ParameterTable(spec, self.memory, self.cells), self.clocks)
        self.sync, self.now = Sync(staleness), 0.0
        # The model: what each slot has done, and what is waiting.
        self.weights = [Fraction(0)] * ROWS
        self.attempt, self.done = [0] * N_SLOTS, [0] * N_SLOTS
        self.clock, self.heard = [0] * N_SLOTS, [-2 * LEASE_S] * N_SLOTS
        self.barrier = [0] * N_SLOTS
        self.staged: dict[int, tuple[int, int]] = {}
        self.steps = 0
        for slot in range(N_SLOTS):
            self.register(slot)

    # ------------------------------------------------------------------------------ the model

    def live(self) -> list[int]:
        return [
            slot
            for slot in range(N_SLOTS)
            if self.heard[slot] + LEASE_S > self.now and self.barrier[slot] < FINISHED
        ]

    def hear(self, slot: int) -> None:
        if self.heard[slot] + LEASE_S <= self.now and self.live():
            self.clock[slot] = min(self.clock[other] for other in self.live())
        self.heard[slot] = self.now

    def may_read(self, slot: int) -> bool:
        staleness = self.sync.staleness
        if staleness is None:
            return True
        if staleness == 0:
            return slot not in self.staged
        return all(self.clock[other] >= self.clock[slot] - staleness for other in self.live())

    def apply(self, row: int, value: Fraction) -> None:
        self.weights[row] -= value
        self.steps += 1

    def end_round(self) -> None:
        lowest = min(self.barrier)
        due = [slot for slot in range(N_SLOTS) if self.barrier[slot] == lowest < FINISHED]
        if not due or not all(slot in self.staged for slot in due):
            return
        for slot in due:
            row, value = self.staged.pop(slot)
            self.weights[row] -= Fraction(value, N_SLOTS)
            self.done[slot] += 1
        self.steps += 1

    # ----------------------------------------------------------------------------- the events

    @rule(slot=slots)
    def register(self, slot: int) -> None:
        self.attempt[slot] += 1
        self.staged.pop(slot, None)
        if self.live():
            self.clock[slot] = min(self.clock[other] for other in self.live())
        self.heard[slot] = self.now
        self.cells.attempts[slot] = self.attempt[slot]
        self.clocks.join(slot, self.now)

    @rule(slot=slots, row=st.integers(0, ROWS - 1), value=values, times=st.integers(1, 2))
    def update(self, slot: int, row: int, value: int, times: int) -> None:
        """A minibatch, sent once or, because its reply was lost, twice."""
        if self.barrier[slot] > min(self.barrier) and self.sync.staged:
            return  # its worker waits at a barrier
        self.hear(slot)
        if self.sync.staged and slot in self.staged:
            return  # its worker waits for the round
        stamp = Stamp(slot, self.attempt[slot], self.done[slot], self.done[slot] + 1)
        if self.sync.staged:
            self.staged[slot] = (row, value)
            self.end_round()
        else:
            self.apply(row, Fraction(value))
            self.done[slot] += 1
            self.clock[slot] += 1
        for _ in range(times):
            rows, gradient = np.array([row], np.int64), np.full((1, 1), value, np.float32)
            self.owned.offer(rows, gradient, stamp, self.sync, self.now)
        assert self.owned.ready(stamp, self.sync, self.now) == self.may_read(slot)

    @rule(slot=slots, row=st.integers(0, ROWS - 1))
    def read(self, slot: int, row: int) -> None:
        if not self.may_read(slot) or slot in self.staged:
            return
        self.hear(slot)
        stamp = Stamp(slot, self.attempt[slot], self.done[slot], self.done[slot])
        assert self.owned.ready(stamp, self.sync, self.now) == self.may_read(slot)
        assert self.owned.read(np.array([row], np.int64), stamp)[0, 0] == self.weights[row]

    @rule(slot=slots, back=st.integers(1, 3))
    def zombie(self, slot: int, back: int) -> None:
        if self.attempt[slot] - back < 0:
            return
        stamp = Stamp(slot, self.attempt[slot] - back, self.done[slot], self.done[slot] + 1)
        rows, gradient = np.zeros(1, np.int64), np.ones((1, 1), np.float32)
        with pytest.raises(StaleAttemptError):
            self.owned.offer(rows, gradient, stamp, self.sync, self.now)
        with pytest.raises(StaleAttemptError):
            self.owned.ready(stamp, self.sync, self.now)

    @rule(slot=slots, behind=st.integers(1, 5))
    def late_repeat(self, slot: int, behind: int) -> None:
        """An update from long ago arrives once more."""
        if self.done[slot] < behind:
            return
        self.hear(slot)
        number = self.done[slot] - behind
        stamp = Stamp(slot, self.attempt[slot], number, number + 1)
        rows, gradient = np.zeros(1, np.int64), np.ones((1, 1), np.float32)
        assert not self.owned.offer(rows, gradient, stamp, self.sync, self.now)

    @rule(slot=slots, ahead=st.integers(0, 2))
    def come_to_a_barrier(self, slot: int, ahead: int) -> None:
        if slot in self.staged:
            return
        number = min(self.barrier) + ahead
        self.barrier[slot] = max(self.barrier[slot], number)
        self.end_round()
        self.clocks.arrive(slot, number)
        self.owned.end_round()
        assert self.clocks.passed(number) == (min(self.barrier) >= number)

    @precondition(lambda self: sum(at < FINISHED for at in self.barrier) > 1)
    @rule(slot=slots)
    def finish(self, slot: int) -> None:
        if slot in self.staged:
            return
        self.barrier[slot] = FINISHED
        self.end_round()
        self.clocks.arrive(slot, FINISHED)
        self.owned.end_round()

    @rule(seconds=st.sampled_from([0.1, LEASE_S / 2, LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # -------------------------------------------------------------------------- what must hold

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        assert self.memory.array[:, 0].tolist() == [float(weight) for weight in self.weights]
        assert self.memory.step.item() == self.steps

    @invariant()
    def every_minibatch_counts_once(self) -> None:
        assert self.cells.progress[:N_SLOTS].tolist() == self.done

    @invariant()
    def clocks_agree(self) -> None:
        assert [self.clocks.clock(slot) for slot in range(N_SLOTS)] == self.clock or self.sync.staged
        least = min((self.clock[slot] for slot in self.live()), default=None)
        assert self.clocks.least(self.now) == least or self.sync.staged

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.owned._staged) <= N_SLOTS
        assert len(self.owned._read_at) <= N_SLOTS


TestOwned = OwnedMachine.TestCase
TestOwned.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


def owned(n_slots: int, rows: int = 100, optimizer: str = "adagrad", *, summed: bool = False) -> OwnedTable:
    rule = OptimizerSpec(optimizer, 0.1, l2=0.01)  # type: ignore[arg-type]
    spec = TableSpec("job/t", rows, 1, rule, rows, summed=summed)
    return OwnedTable(ParameterTable.private(spec, n_slots), Clocks(n_slots))


@pytest.mark.parametrize("n_slots", [1, 2, 5, 8])
def test_sums_do_not_depend_on_the_order_of_arrival(n_slots: int) -> None:
    draw = np.random.default_rng(n_slots)
    updates = [
        (np.unique(draw.integers(0, 100, 30)), draw.normal(size=(100, 1)).astype(np.float32))
        for _ in range(n_slots)
    ]
    seen = set()
    for _ in range(5):
        table = owned(n_slots)
        for slot in draw.permutation(n_slots).tolist():
            rows, values = updates[slot]
            table.offer(rows, values[: len(rows)], Stamp(slot, 0, 0, 1), Sync(0), 0.0)
        seen.add(table.read(np.arange(100), Stamp(0, 0, 0)).tobytes())
    assert len(seen) == 1
    assert seen != {bytes(400)}


def test_a_round_is_the_step_of_the_mean_gradient() -> None:
    together, alone = owned(2), owned(1)
    rows = [np.array([3, 50, 7]), np.array([7, 3])]
    values = [np.array([[1], [2], [3]], np.float32), np.array([[5], [-4]], np.float32)]
    for slot in (1, 0):
        together.offer(rows[slot], values[slot], Stamp(slot, 0, 0, 1), Sync(0), 0.0)
    mean = np.array([[-1.5], [4.0], [1.0]], np.float32)
    alone.offer(np.array([3, 7, 50]), mean, Stamp(0, 0, 0, 1), Sync(0), 0.0)
    everything, stamp = np.arange(100), Stamp(0, 0, 0)
    assert np.array_equal(together.read(everything, stamp), alone.read(everything, stamp))


def test_a_round_of_a_table_that_says_so_is_the_step_of_the_sum() -> None:
    together, alone = owned(2, summed=True), owned(1)
    for slot, value in ((1, 5.0), (0, -2.0)):
        together.offer(np.array([3]), np.array([[value]], np.float32), Stamp(slot, 0, 0, 1), Sync(0), 0.0)
    alone.offer(np.array([3]), np.array([[3.0]], np.float32), Stamp(0, 0, 0, 1), Sync(0), 0.0)
    everything, stamp = np.arange(100), Stamp(0, 0, 0)
    assert np.array_equal(together.read(everything, stamp), alone.read(everything, stamp))


def test_rows_beyond_32_bits_are_told_apart() -> None:
    from squall.store.owned import _add

    rows, total = _add(
        np.array([1 << 32, 1]),
        np.ones((2, 1), np.float32),
        np.array([0, 1 << 32]),
        np.ones((2, 1), np.float32),
    )
    assert dict(zip(rows.tolist(), total[:, 0].tolist(), strict=True)) == {0: 1.0, 1: 1.0, 1 << 32: 2.0}


def test_looking_on_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are brought up to date for a reader at any time, and the bits stay the same."""
    monkeypatch.setattr("squall.store.table._READ_ROWS", 4)
    results = []
    for looks in (0, 3):
        spec = TableSpec("job/t", 10, 1, OptimizerSpec("sgd", 0.1, l1=1e-4, l2=0.05), 9)
        table = ParameterTable.private(spec, 1)
        for n in range(20):
            table.push(np.array([n % 3]), np.full((1, 1), 0.37, np.float32), Stamp(0, 0, n))
            for _ in range(looks):
                seen = table.pull()
        last = table.pull()
        assert not looks or np.array_equal(seen, last)
        results.append((table.shared.array.tobytes(), last.tobytes()))
        assert np.array_equal(table.read(4, 6), last[4:])
        assert np.array_equal(table.pull(np.arange(10)), last)
    assert results[0] == results[1]
