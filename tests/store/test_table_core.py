"""`ParameterTable` against a dense NumPy oracle, by random sequences of updates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from squall.errors import StaleAttemptError, StoreError
from squall.records import Float32, Int64, OptimizerSpec, Stamp, TableSpec
from squall.store.table import ParameterTable
from squall.testing.stores import filled, rows_of

ROWS, N_SLOTS = 6, 2
rules = st.builds(
    OptimizerSpec,
    st.sampled_from(["sgd", "adagrad", "momentum"]),
    st.sampled_from([0.1, 0.5]),
    l1=st.sampled_from([0.0, 0.01]),
    l2=st.sampled_from([0.0, 0.1]),
    schedule=st.sampled_from(["constant", "inverse"]),
    decay=st.just(0.3),
    steps=st.just(10),
    clip_value=st.sampled_from([None, 0.5]),
)
some_rows = st.lists(st.integers(0, ROWS - 1), max_size=ROWS, unique=True)
stamps = st.builds(Stamp, st.integers(-1, N_SLOTS - 1), st.integers(0, 2), st.integers(0, 12))


class Oracle:
    """Every weight takes every step, in float64."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.weights = np.zeros((spec.rows, spec.dim))
        self.squares = np.zeros_like(self.weights)
        self.velocity = np.zeros_like(self.weights)
        self.steps = 0

    def push(self, rows: Int64, gradient: Float32) -> None:
        rule = self.spec.optimizer
        full = np.zeros_like(self.weights)
        full[rows] = gradient if rule.clip_value is None else np.clip(gradient, -0.5, 0.5)
        pace = 1.0 if rule.schedule == "constant" else 1.0 / (1.0 + 0.3 * min(self.steps, 9))
        self.steps += 1
        rate = np.full_like(full, rule.learning_rate * pace)
        if rule.name == "adagrad":
            self.squares += full**2
            rate = np.zeros_like(full)
            np.divide(rule.learning_rate * pace, np.sqrt(self.squares), out=rate, where=self.squares > 0)
        if rule.name == "momentum":
            self.velocity = 0.9 * self.velocity - rate * full
            self.weights += self.velocity
        else:
            self.weights -= rate * full
        rate[self.spec.regularized_rows :] = 0.0
        shrunk = np.maximum(np.abs(self.weights) - rate * rule.l1, 0.0) / (1.0 + rate * rule.l2)
        self.weights = np.copysign(shrunk, self.weights)


class TableMachine(RuleBasedStateMachine):
    @initialize(rule=rules, dim=st.sampled_from([1, 3]))
    def start(self, rule: OptimizerSpec, dim: int) -> None:
        self.spec = TableSpec("job/w", ROWS, dim, rule, ROWS - 1)
        self.table = ParameterTable.private(self.spec, N_SLOTS)
        self.oracle = Oracle(self.spec)
        self.newest: dict[int, int] = {}
        self.last: dict[int, int] = {}

    def applies(self, stamp: Stamp) -> bool | None:
        """Whether an update with this stamp is applied; None if it is refused."""
        if stamp.attempt < self.newest.get(stamp.slot, 0):
            return None
        self.newest[stamp.slot] = stamp.attempt
        if stamp.sequence <= self.last.get(stamp.slot, -1):
            return False
        self.last[stamp.slot] = stamp.sequence
        return True

    def values(self, rows: list[int], seed: int) -> tuple[Int64, Float32]:
        values = np.random.default_rng(seed).normal(size=(len(rows), self.spec.dim))
        return np.array(rows, dtype=np.int64), values.astype(np.float32)

    @rule(rows=some_rows, seed=st.integers(0, 99), stamp=stamps)
    def push(self, rows: list[int], seed: int, stamp: Stamp) -> None:
        index, gradient = self.values(rows, seed)
        expected = self.applies(stamp)
        if expected is None:
            with pytest.raises(StaleAttemptError):
                self.table.push(index, gradient, stamp)
            return
        assert self.table.push(index, gradient, stamp) == expected
        if expected:
            self.oracle.push(index, gradient)

    @rule(rows=some_rows, seed=st.integers(0, 99), stamp=stamps)
    def exchange(self, rows: list[int], seed: int, stamp: Stamp) -> None:
        index, gradient = self.values(rows, seed)
        expected = self.applies(stamp)
        if expected is None:
            with pytest.raises(StaleAttemptError):
                self.table.exchange((index, gradient), index, stamp)
            return
        got = self.table.exchange((index, gradient), index, stamp)
        if expected:
            self.oracle.push(index, gradient)
        assert np.allclose(got, self.oracle.weights[index], rtol=1e-4, atol=1e-6)

    @rule(rows=some_rows, seed=st.integers(0, 99), stamp=stamps)
    def add(self, rows: list[int], seed: int, stamp: Stamp) -> None:
        index, deltas = self.values(rows, seed)
        expected = self.applies(stamp)
        if expected is None:
            with pytest.raises(StaleAttemptError):
                self.table.add(index, deltas, stamp)
            return
        # Raw adds meet the weights as they are; so bring them up to date in both.
        self.table.pull()
        assert self.table.add(index, deltas, stamp) == expected
        if expected:
            self.oracle.weights[index] += deltas

    @rule(stamp=stamps, rows=st.sampled_from([[-1], [0, ROWS]]))
    def a_bad_push_leaves_no_trace(self, stamp: Stamp, rows: list[int]) -> None:
        if stamp.attempt < self.newest.get(stamp.slot, 0) or stamp.sequence <= self.last.get(stamp.slot, -1):
            return
        self.newest[stamp.slot] = stamp.attempt
        index, gradient = self.values(rows, 0)
        with pytest.raises(StoreError):
            self.table.push(index, gradient, stamp)

    @rule(rows=st.lists(st.integers(0, ROWS - 1)))
    def pull(self, rows: list[int]) -> None:
        got = self.table.pull(np.array(rows, dtype=np.int64))
        assert np.allclose(got, self.oracle.weights[rows], rtol=1e-4, atol=1e-6)

    @rule()
    def pull_all(self) -> None:
        assert np.allclose(self.table.pull(), self.oracle.weights, rtol=1e-4, atol=1e-6)


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize(
    ("rows", "dim", "regularized", "rate"),
    [(0, 1, 0, 1.0), (1, 0, 0, 1.0), (2, 1, 3, 1.0), (1 << 41, 1, 0, 1.0), (1, 1, 1, float("nan"))],
)
def test_bad_specs(rows: int, dim: int, regularized: int, rate: float) -> None:
    with pytest.raises(StoreError, match="fix: correct the table's spec"):
        ParameterTable.private(TableSpec("job/w", rows, dim, OptimizerSpec("sgd", rate), regularized), 1)


@pytest.mark.parametrize(
    ("optimizer", "problem"),
    [
        (OptimizerSpec("lbfgs", 0.1), "there is no optimiser 'lbfgs'"),  # type: ignore[arg-type]
        (OptimizerSpec("adam", 0.1, beta_2=1.0), "beta_2: is 1"),
        (OptimizerSpec("sgd", 0.1, schedule="cosine"), "steps: is 0"),
        (OptimizerSpec("sgd", 0.1, clip_norm=-1.0), "clip_norm: is -1"),
    ],
)
def test_bad_optimisers(optimizer: OptimizerSpec, problem: str) -> None:
    with pytest.raises(StoreError, match=problem):
        ParameterTable.private(TableSpec("job/w", 4, 1, optimizer, 4), 1)


def test_nothing_is_added_to_weights_that_follow_from_a_state() -> None:
    table = ParameterTable.private(TableSpec("job/w", 4, 1, OptimizerSpec("ftrl", 0.1), 4), 1)
    with pytest.raises(StoreError, match="FTRL derives"):
        table.add(rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))
    assert table.push(rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))


def test_arguments_of_other_types() -> None:
    table = ParameterTable.private(TableSpec("job/w", 4, 1, OptimizerSpec("sgd", 1.0), 4), 1)
    with pytest.raises(StoreError, match="int64"):
        table.pull(np.array([0], dtype=np.int32))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="float32"):
        table.push(rows_of(0), np.ones((1, 1)), Stamp(0, 0, 0))  # type: ignore[arg-type]
    assert table.push(rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))


def test_what_is_added_is_not_shrunk_by_steps_before_it() -> None:
    table = ParameterTable.private(TableSpec("job/w", 2, 1, OptimizerSpec("sgd", 0.1, l1=0.01), 2), 1)
    table.push(rows_of(1), filled((1, 1), 0.0), Stamp(0, 0, 0))
    table.add(rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 1))
    assert table.pull(rows_of(0))[0, 0] == 1.0
