"""The contract suites of `Tables`, `Control`, and of consistency across these.

An implementation subclasses these in its tests (with a name that pytest collects) and
overrides the fixtures that raise :class:`NotImplementedError`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from squall.errors import StaleAttemptError, StoreError
from squall.protocols import Control, Tables
from squall.records import (
    Float32,
    InitialValues,
    Int64,
    OptimizerSpec,
    Phases,
    Registration,
    Report,
    Stamp,
    Sync,
    TableSpec,
    Update,
)
from squall.store.initial import initial_values

N_SLOTS = 3
"""Slots of the job that the fixtures open."""


def rows_of(*numbers: int) -> Int64:
    """Row numbers as the tables take them."""
    return np.array(numbers, dtype=np.int64)


def filled(shape: tuple[int, int], value: float) -> Float32:
    """A matrix of one value."""
    return np.full(shape, value, dtype=np.float32)


def soon(ask: Callable[[], bool]) -> bool:
    """Whether what may be known a little late is so within some seconds."""
    give_up = time.monotonic() + 10.0
    while not (result := ask()) and time.monotonic() < give_up:
        time.sleep(0.05)
    return result


class OfTables:
    """What a contract about tables is given."""

    @pytest.fixture
    def job(self) -> str:
        """Name of an open job with :data:`N_SLOTS` slots."""
        raise NotImplementedError

    @pytest.fixture
    def larger_job(self) -> str:
        """Name of another open job, with more slots."""
        raise NotImplementedError

    @pytest.fixture
    def tables(self) -> Tables:
        """The implementation."""
        raise NotImplementedError


class OfControl:
    """What a contract about control is given."""

    @pytest.fixture
    def control(self) -> Control:
        """The implementation."""
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> Control:
        """Another client of the same store, for another thread."""
        raise NotImplementedError


class TablesContract(OfTables):
    """What every implementation of `Tables` must do."""

    @pytest.fixture
    def register(self) -> Callable[[int, int], None]:
        """Registers (slot, attempt) of the job."""
        raise NotImplementedError

    @pytest.fixture
    def progress(self) -> Callable[[int], int]:
        """The progress of a slot of the job."""
        raise NotImplementedError

    @pytest.fixture
    def sharding(self) -> Literal["hash", "range"]:
        """Which shards hold which rows; of no account where there is one."""
        return "hash"

    @pytest.fixture
    def spec(self, job: str, sharding: Literal["hash", "range"]) -> TableSpec:
        """A table of 10 × 2 without penalty; gradient steps have length 1/2."""
        return TableSpec(f"{job}/weights", 10, 2, OptimizerSpec("sgd", 0.5), 9, sharding=sharding)

    @pytest.fixture
    def name(self, tables: Tables, spec: TableSpec) -> str:
        """Name of that table, which exists."""
        tables.create(spec)
        return spec.name

    def test_new_table_is_zero(self, tables: Tables, name: str, spec: TableSpec) -> None:
        weights = tables.pull(name)
        assert weights.shape == (10, 2)
        assert weights.dtype == np.float32
        assert not weights.any()
        assert tables.describe(name) == spec

    def test_create_again_keeps_it(self, tables: Tables, name: str, spec: TableSpec) -> None:
        tables.add(name, rows_of(1), filled((1, 2), 3.0), Stamp(0, 0, 0))
        tables.create(spec)
        assert tables.pull(name, rows_of(1)).tolist() == [[3.0, 3.0]]

    def test_create_with_another_spec_is_refused(self, tables: Tables, name: str) -> None:
        with pytest.raises(StoreError, match="another spec"):
            tables.create(TableSpec(name, 11, 2, OptimizerSpec("sgd", 0.5), 9))

    def test_a_copy_goes_on_like_its_source(self, tables: Tables, job: str, larger_job: str) -> None:
        source = TableSpec(f"{job}/source", 10, 2, OptimizerSpec("adam", 0.5), 9)
        copy = TableSpec(f"{larger_job}/copy", 10, 2, OptimizerSpec("adam", 0.5), 9)
        tables.create(source)
        tables.push(source.name, rows_of(0, 9), filled((2, 2), 1.0), Stamp(0, 0, 0))
        tables.create(copy, source.name)
        assert np.array_equal(tables.pull(copy.name), tables.pull(source.name))
        pushes = (
            (rows_of(0, 3), filled((2, 2), value), Stamp(0, 0, n)) for n, value in [(1, -1.0), (2, 3.0)]
        )
        for rows, gradient, stamp in pushes:
            assert tables.push(source.name, rows, gradient, stamp)
            assert tables.push(copy.name, rows, gradient, stamp)
        assert np.array_equal(tables.pull(copy.name), tables.pull(source.name))
        tables.create(copy, source.name)
        tables.drop(source.name)
        tables.create(copy, source.name)
        assert tables.pull(copy.name)[3].all()

    def test_a_copy_has_repeats_and_slots_of_its_own(
        self, tables: Tables, name: str, larger_job: str
    ) -> None:
        tables.add(name, rows_of(1), filled((1, 2), 3.0), Stamp(0, 0, 5))
        copy = f"{larger_job}/copy"
        tables.create(msgspec.structs.replace(tables.describe(name), name=copy), name)
        assert tables.add(copy, rows_of(1), filled((1, 2), 1.0), Stamp(0, 0, 0))
        assert tables.add(copy, rows_of(1), filled((1, 2), 1.0), Stamp(N_SLOTS, 0, 0))
        assert tables.pull(copy, rows_of(1)).tolist() == [[5.0, 5.0]]
        assert tables.pull(name, rows_of(1)).tolist() == [[3.0, 3.0]]

    def test_a_copy_of_what_cannot_be_one_is_refused(self, tables: Tables, name: str, job: str) -> None:
        spec = TableSpec(f"{job}/copy", 10, 2, OptimizerSpec("adam", 0.5), 9)
        with pytest.raises(StoreError, match="another spec"):
            tables.create(spec, name)
        with pytest.raises(StoreError, match="no such table"):
            tables.create(spec, f"{job}/nothing")
        with pytest.raises(StoreError, match="no such table"):
            tables.pull(spec.name)

    @pytest.mark.parametrize(("rows", "dim"), [(0, 1), (1, 0), (-1, 1)])
    def test_create_without_rows_is_refused(self, tables: Tables, job: str, rows: int, dim: int) -> None:
        with pytest.raises(StoreError):
            tables.create(TableSpec(f"{job}/bad", rows, dim, OptimizerSpec("sgd", 0.5), 0))

    def test_drop_forgets(self, tables: Tables, name: str, spec: TableSpec) -> None:
        tables.add(name, rows_of(1), filled((1, 2), 3.0), Stamp(0, 0, 0))
        tables.drop(name)
        tables.drop(name)
        with pytest.raises(StoreError):
            tables.pull(name)
        tables.create(spec)
        assert not tables.pull(name).any()
        assert tables.add(name, rows_of(1), filled((1, 2), 3.0), Stamp(0, 0, 0))

    def test_unknown_table(self, tables: Tables, job: str) -> None:
        name, rows, values, stamp = f"{job}/none", rows_of(0), filled((1, 2), 1.0), Stamp(0, 0, 0)
        calls: list[Callable[[], object]] = [
            lambda: tables.describe(name),
            lambda: tables.pull(name),
            lambda: tables.pull(name, rows),
            lambda: tables.push(name, rows, values, stamp),
            lambda: tables.add(name, rows, values, stamp),
            lambda: tables.exchange(name, None, rows, stamp),
        ]
        for call in calls:
            with pytest.raises(StoreError, match="none"):
                call()

    def test_pull_takes_rows_in_any_order(self, tables: Tables, name: str) -> None:
        deltas = np.arange(20, dtype=np.float32).reshape(10, 2)
        tables.add(name, np.arange(10), deltas, Stamp(0, 0, 0))
        assert np.array_equal(tables.pull(name, rows_of(7, 0, 7)), deltas[[7, 0, 7]])
        assert tables.pull(name, rows_of()).shape == (0, 2)

    def test_pull_is_a_copy(self, tables: Tables, name: str) -> None:
        tables.pull(name)[:] = 1.0
        tables.pull(name, rows_of(1))[:] = 1.0
        assert not tables.pull(name).any()

    def test_push_is_a_step_of_the_optimizer(self, tables: Tables, name: str) -> None:
        assert tables.push(name, rows_of(2, 5), np.array([[1, 2], [3, 4]], np.float32), Stamp(0, 0, 0))
        assert tables.pull(name, rows_of(2, 5, 6)).tolist() == [[-0.5, -1.0], [-1.5, -2.0], [0.0, 0.0]]

    def test_push_of_nothing(self, tables: Tables, name: str) -> None:
        assert tables.push(name, rows_of(), filled((0, 2), 0.0), Stamp(0, 0, 0))
        assert not tables.pull(name).any()

    def test_repeats_are_dropped(self, tables: Tables, name: str) -> None:
        rows, ones = rows_of(0), filled((1, 2), 1.0)
        assert tables.push(name, rows, ones, Stamp(0, 0, 4))
        assert not tables.push(name, rows, ones, Stamp(0, 0, 4))
        assert not tables.add(name, rows, ones, Stamp(0, 0, 3))
        assert tables.push(name, rows, ones, Stamp(1, 0, 4)), "sequences are the slot's own"
        assert tables.pull(name, rows).tolist() == [[-1.0, -1.0]]

    def test_a_successor_repeats_nothing(
        self, tables: Tables, name: str, register: Callable[[int, int], None]
    ) -> None:
        rows, ones = rows_of(0), filled((1, 2), 1.0)
        register(0, 0)
        assert tables.push(name, rows, ones, Stamp(0, 0, 7))
        register(0, 1)
        assert not tables.push(name, rows, ones, Stamp(0, 1, 7))
        assert tables.push(name, rows, ones, Stamp(0, 1, 8))

    def test_stale_attempts_are_refused(
        self, tables: Tables, name: str, register: Callable[[int, int], None]
    ) -> None:
        rows, ones, stamp = rows_of(0), filled((1, 2), 1.0), Stamp(0, 0, 5)
        register(0, 0)
        register(0, 1)
        with pytest.raises(StaleAttemptError):
            tables.push(name, rows, ones, stamp)
        with pytest.raises(StaleAttemptError):
            tables.add(name, rows, ones, stamp)
        with pytest.raises(StaleAttemptError):
            tables.exchange(name, None, rows, stamp)
        assert not tables.pull(name).any()
        assert tables.push(name, rows, ones, Stamp(1, 0, 5)), "other slots are not concerned"

    def test_exchange_reads_its_own_writes(self, tables: Tables, name: str) -> None:
        push = (rows_of(3), filled((1, 2), 1.0))
        assert tables.exchange(name, push, rows_of(3, 4), Stamp(0, 0, 0)).tolist() == [[-0.5, -0.5], [0, 0]]
        assert tables.exchange(name, push, rows_of(3), Stamp(0, 0, 0)).tolist() == [[-0.5, -0.5]]
        assert tables.exchange(name, None, rows_of(3), Stamp(0, 0, 1)).tolist() == [[-0.5, -0.5]]

    def test_updates_count_the_minibatches_they_complete(
        self, tables: Tables, name: str, progress: Callable[[int], int]
    ) -> None:
        rows, ones = rows_of(0), filled((1, 2), 1.0)
        assert progress(1) == 0
        tables.push(name, rows, ones, Stamp(1, 0, 0, 1))
        assert progress(1) == 1
        tables.exchange(name, (rows, ones), rows, Stamp(1, 0, 1, 5))
        assert progress(1) == 5
        tables.add(name, rows, ones, Stamp(1, 0, 2))
        assert progress(1) == 5, "this one says nothing of minibatches"
        tables.push(name, rows, ones, Stamp(1, 0, 2, 6))
        assert progress(1) == 6, "the repeat shows that it has been applied"
        tables.push(name, rows, ones, Stamp(1, 0, 3, 4))
        assert progress(1) == 6, "never back"
        with pytest.raises(StoreError):
            tables.push(name, rows_of(99), ones, Stamp(1, 0, 4, 7))
        tables.exchange(name, None, rows, Stamp(1, 0, 4, 7))
        assert (progress(0), progress(1)) == (0, 6), "nothing was applied"

    @pytest.mark.parametrize("optimizer", ["adagrad", "adam", "ftrl", "momentum", "sgd"])
    def test_loaded_contents_go_on_as_the_table_they_are_of(
        self, tables: Tables, job: str, sharding: Literal["hash", "range"], optimizer: str
    ) -> None:
        rule = msgspec.convert({"name": optimizer, "learning_rate": 0.1, "l1": 1e-3}, OptimizerSpec)
        spec = TableSpec(f"{job}/first", 7, 3, rule, 6, sharding=sharding)
        again = msgspec.structs.replace(spec, name=f"{job}/second")
        tables.create(spec)
        tables.create(again)
        draw = np.random.default_rng(0)
        for sequence in range(4):
            tables.push(
                spec.name, rows_of(1, 4), draw.normal(size=(2, 3)).astype(np.float32), Stamp(0, 0, sequence)
            )
        contents = tables.dump(spec.name)
        assert contents.step == 4
        assert np.array_equal(contents.array[:, :3], tables.pull(spec.name))
        tables.load(again.name, contents)
        gradient = draw.normal(size=(7, 3)).astype(np.float32)
        for name, sequence in ((spec.name, 4), (again.name, 0)):
            tables.push(name, np.arange(7), gradient, Stamp(0, 0, sequence))
        assert np.array_equal(tables.pull(again.name), tables.pull(spec.name))
        assert tables.dump(again.name).step == 5

    def test_contents_of_another_table_change_nothing(self, tables: Tables, name: str) -> None:
        contents = tables.dump(name)
        ones = np.ones_like(contents.array)
        wrong: list[Any] = [ones[:-1], ones[:, :-1], ones.astype(np.float64)]
        for array in wrong:
            with pytest.raises(StoreError, match="contents"):
                tables.load(name, contents._replace(array=array))
        with pytest.raises(StoreError, match="contents"):
            tables.load(name, contents._replace(array=ones, step=-1))
        assert not tables.pull(name).any()

    def test_the_driver_has_a_slot(self, tables: Tables, name: str) -> None:
        assert tables.add(name, rows_of(0), filled((1, 2), 1.0), Stamp(-1, 0, 0))
        assert not tables.add(name, rows_of(0), filled((1, 2), 1.0), Stamp(-1, 0, 0))
        assert tables.push(name, rows_of(0), filled((1, 2), 2.0), Stamp(0, 0, 0))
        assert not tables.pull(name).any()

    @pytest.mark.parametrize("slot", [-2, N_SLOTS])
    def test_unknown_slot(self, tables: Tables, name: str, slot: int) -> None:
        with pytest.raises(StoreError, match="slot"):
            tables.push(name, rows_of(0), filled((1, 2), 1.0), Stamp(slot, 0, 0))

    @pytest.mark.parametrize("row", [-1, 10, 2**62])
    def test_rows_outside_change_nothing(self, tables: Tables, name: str, row: int) -> None:
        rows, values, stamp = rows_of(0, row), filled((2, 2), 1.0), Stamp(0, 0, 0)
        with pytest.raises(StoreError):
            tables.pull(name, rows)
        with pytest.raises(StoreError):
            tables.push(name, rows, values, stamp)
        with pytest.raises(StoreError):
            tables.add(name, rows, values, stamp)
        assert not tables.pull(name).any()
        assert tables.push(name, rows_of(0), filled((1, 2), 1.0), stamp), "the stamp was not used up"

    @pytest.mark.parametrize("shape", [(1, 2), (2, 1), (2, 3)])
    def test_values_of_another_shape(self, tables: Tables, name: str, shape: tuple[int, int]) -> None:
        with pytest.raises(StoreError):
            tables.push(name, rows_of(0, 1), filled(shape, 1.0), Stamp(0, 0, 0))
        with pytest.raises(StoreError):
            tables.add(name, rows_of(0, 1), filled(shape, 1.0), Stamp(0, 0, 0))
        assert not tables.pull(name).any()

    @pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
    def test_penalties_reach_rows_that_no_push_touches(
        self, tables: Tables, job: str, optimizer: str
    ) -> None:
        rule = OptimizerSpec("sgd" if optimizer == "sgd" else "adagrad", 0.1, l1=0.01, l2=0.1)
        spec = TableSpec(f"{job}/penalised", 4, 1, rule, 3)
        tables.create(spec)
        tables.push(spec.name, np.arange(4), filled((4, 1), -1.0), Stamp(0, 0, 0))
        before = tables.pull(spec.name)
        for sequence in range(1, 6):
            tables.push(spec.name, rows_of(0), filled((1, 1), 0.0), Stamp(0, 0, sequence))
        some = tables.pull(spec.name, rows_of(1, 3))
        assert 0 < some[0, 0] < before[1, 0]
        assert some[1, 0] == before[3, 0], "the intercept is not penalised"
        assert np.array_equal(tables.pull(spec.name)[[1, 3]], some)

    @pytest.mark.parametrize("half", [False, True])
    def test_half_precision_loses_no_more_than_it_says(self, tables: Tables, name: str, half: bool) -> None:
        rows = np.arange(10)
        values = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
        tables.add(name, rows, values, Stamp(0, 0, 0), half=half)
        got = tables.pull(name, rows, half=half)
        assert got == pytest.approx(values, rel=2.0**-10 if half else 0.0)
        again = tables.exchange(name, (rows, values), rows, Stamp(0, 0, 1), half=half)
        assert again == pytest.approx(values / 2, rel=2.0**-8 if half else 1e-6)

    @pytest.mark.parametrize("kind", ["uniform", "normal"])
    def test_initial_values_follow_from_seed_and_place(
        self, tables: Tables, job: str, sharding: Literal["hash", "range"], kind: Literal["uniform", "normal"]
    ) -> None:
        def made(name: str, seed: int) -> Float32:
            initial = InitialValues(kind, 0.5, seed)
            spec = TableSpec(f"{job}/{name}", 1001, 3, OptimizerSpec("adagrad", 0.1), 0, initial, sharding)
            tables.create(spec)
            return tables.pull(spec.name)

        first = made("first", 7)
        assert np.array_equal(first, made("again", 7))
        assert not np.any(first == made("other", 8))
        expected = initial_values(InitialValues(kind, 0.5, 7), np.arange(1001), 3)
        assert np.array_equal(first, expected)
        assert abs(first.mean()) < 0.05
        assert first.std() == pytest.approx(0.5 if kind == "normal" else 0.5 / 3**0.5, rel=0.05)
        assert np.array_equal(tables.pull(f"{job}/first", rows_of(1000, 0, 77)), first[[1000, 0, 77]])

    @pytest.mark.parametrize("initial", [InitialValues("normal", -1.0), InitialValues("uniform", np.inf)])
    def test_impossible_initial_values_are_refused(
        self, tables: Tables, job: str, initial: InitialValues
    ) -> None:
        with pytest.raises(StoreError, match="initial values"):
            tables.create(TableSpec(f"{job}/bad", 3, 1, OptimizerSpec("sgd", 0.1), 0, initial))

    def test_a_clipped_gradient_is_clipped_as_a_whole(
        self, tables: Tables, job: str, sharding: Literal["hash", "range"]
    ) -> None:
        rule = OptimizerSpec("sgd", 1.0, clip_norm=1.0)
        tables.create(TableSpec(f"{job}/clipped", 4, 1, rule, 4, sharding=sharding))
        gradient = np.array([[3.0], [0.0], [4.0]], dtype=np.float32)
        tables.push(f"{job}/clipped", rows_of(0, 1, 3), gradient, Stamp(0, 0, 0))
        assert tables.pull(f"{job}/clipped").ravel() == pytest.approx([-0.6, 0.0, 0.0, -0.8], rel=1e-6)


def report_of(slot: int, attempt: int, epoch: int = 0, rows: int = 1) -> Report:
    """A report with some numbers in it."""
    return Report(slot, attempt, epoch, rows, 0.5, 1.0, False, 0.25, 0.125, Phases(compute=1.25, bytes_in=7))


class OfJobs(OfControl):
    """What a contract about control alone is given."""

    @pytest.fixture
    def new_job(self) -> str:
        """Name of a job that is not open."""
        raise NotImplementedError

    @pytest.fixture
    def job(self, control: Control, new_job: str) -> Iterator[str]:
        """Name of a job with :data:`N_SLOTS` slots."""
        control.open_job(new_job, N_SLOTS)
        yield new_job
        control.close_job(new_job)


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


class ConsistencyContract(OfTables, OfControl):
    """What every implementation of `Tables.meet`, `Control.barrier` and `Control.finish` must do."""

    @pytest.fixture
    def name(self, job: str, tables: Tables, control: Control) -> str:
        """A table of 10 × 2, gradient steps of length 1, whose job's slots have registered."""
        spec = TableSpec(f"{job}/weights", 10, 2, OptimizerSpec("sgd", 1.0), 9)
        tables.create(spec)
        for slot in range(N_SLOTS):
            control.register(job, slot, 0, slot)
        return spec.name

    def send(
        self, tables: Tables, name: str, slot: int, n: int, sync: Sync, value: float = 1.0, attempt: int = 0
    ) -> Float32 | None:
        """Slot ``slot`` hands in its update number ``n`` for row 0, and reads that without waiting."""
        update = Update(rows_of(0), filled((1, 2), value))
        return tables.meet(name, update, rows_of(0), Stamp(slot, attempt, n, n + 1), sync, 0.0).weights

    def test_without_a_bound_updates_are_applied_at_once(self, tables: Tables, name: str) -> None:
        for n in range(5):
            weights = self.send(tables, name, 1, n, Sync())
            assert weights is not None and weights.tolist() == [[-n - 1.0, -n - 1.0]]

    def test_a_round_takes_one_update_of_every_slot(
        self, tables: Tables, control: Control, job: str, name: str
    ) -> None:
        values = (3.0, 5.0, 1.0)
        for slot in (2, 0):
            assert self.send(tables, name, slot, 0, Sync(0), values[slot]) is None
            assert control.progress(job, slot).tolist() == [0]
        assert not tables.pull(name).any(), "nothing is applied before all are there"
        weights = self.send(tables, name, 1, 0, Sync(0), values[1])
        assert weights is not None and weights.tolist() == [[-3.0, -3.0]], "their mean, in one step"
        for slot in range(N_SLOTS):
            assert control.progress(job, slot).tolist() == [1]
            stamp = Stamp(slot, 0, 0, 1)
            again = tables.meet(name, None, rows_of(0, 1), stamp, Sync(0), 0.0).weights
            assert again is not None and again.tolist() == [[-3.0, -3.0], [0.0, 0.0]]

    def test_the_order_of_arrival_leaves_no_trace(self, tables: Tables, job: str, name: str) -> None:
        draw = np.random.default_rng(0)
        values = [draw.normal(size=(6, 2)).astype(np.float32) for _ in range(N_SLOTS)]
        rows = [np.sort(draw.permutation(10)[:6]) for _ in range(N_SLOTS)]
        results = []
        for number, order in enumerate(((0, 1, 2), (2, 1, 0), (1, 2, 0))):
            table = f"{job}/t{number}"
            tables.create(TableSpec(table, 10, 2, OptimizerSpec("adagrad", 0.1), 9))
            for slot in order:
                update = Update(rows[slot], values[slot])
                tables.meet(table, update, rows_of(), Stamp(slot, 0, 0, 1), Sync(0), 0.0)
            results.append(tables.pull(table).tobytes())
        assert results[0] == results[1] == results[2] != bytes(80)

    def test_repeats_change_no_round(self, tables: Tables, name: str) -> None:
        for slot in (0, 0, 1, 1, 0):
            assert self.send(tables, name, slot, 0, Sync(0), 3.0) is None
        assert self.send(tables, name, 2, 0, Sync(0), 3.0) is not None
        for slot in range(N_SLOTS):
            weights = self.send(tables, name, slot, 0, Sync(0), 3.0)
            assert weights is not None and weights.tolist() == [[-3.0, -3.0]], "dropped, and read at once"

    def test_what_a_replaced_attempt_handed_in_is_forgotten(
        self, tables: Tables, control: Control, job: str, name: str
    ) -> None:
        assert self.send(tables, name, 0, 0, Sync(0), 300.0) is None
        control.register(job, 0, 1, 7)
        with pytest.raises(StaleAttemptError):
            self.send(tables, name, 0, 0, Sync(0), 300.0)
        assert self.send(tables, name, 1, 0, Sync(0), 3.0) is None
        assert self.send(tables, name, 2, 0, Sync(0), 3.0) is None, "slot 0 has nothing that counts"
        weights = self.send(tables, name, 0, 0, Sync(0), 3.0, attempt=1)
        assert weights is not None and weights.tolist() == [[-3.0, -3.0]]

    def test_a_successor_reads_before_it_hands_in(
        self, tables: Tables, control: Control, job: str, name: str
    ) -> None:
        control.register(job, 2, 1, 7)
        meeting = tables.meet(name, None, rows_of(0), Stamp(2, 1, 0), Sync(0), 0.0)
        assert meeting.weights is not None and not meeting.weights.any()

    def test_slots_at_a_barrier_are_not_waited_for(
        self, tables: Tables, control: Control, job: str, name: str
    ) -> None:
        assert self.send(tables, name, 0, 0, Sync(0), 6.0) is None
        assert self.send(tables, name, 1, 0, Sync(0), 3.0) is None
        assert not control.barrier(job, 2, 0, 1, 0.0)
        weights = tables.meet(name, None, rows_of(0), Stamp(0, 0, 0, 1), Sync(0), 0.0).weights
        assert weights is not None and weights.tolist() == [[-3.0, -3.0]], "it adds nothing to the mean"
        assert not control.barrier(job, 1, 0, 1, 0.0)
        assert control.barrier(job, 0, 0, 1, 0.0)
        assert control.barrier(job, 2, 0, 1, 0.0)
        assert self.send(tables, name, 2, 0, Sync(0)) is None, "now all are waited for again"

    def test_a_finished_slot_is_not_waited_for(
        self, tables: Tables, control: Control, job: str, name: str
    ) -> None:
        control.finish(job, 0, 0)
        control.finish(job, 1, 0)
        assert control.barrier(job, 2, 0, 9, 0.0)
        weights = self.send(tables, name, 2, 0, Sync(0), 3.0)
        assert weights is not None and weights.tolist() == [[-1.0, -1.0]]

    def test_bounded_staleness(self, tables: Tables, control: Control, job: str, name: str) -> None:
        for n in range(2):
            assert self.send(tables, name, 0, n, Sync(2)) is not None
        assert self.send(tables, name, 0, 2, Sync(2)) is None, "applied, but it may not read"
        assert control.progress(job, 0).tolist() == [3]
        assert self.send(tables, name, 1, 0, Sync(2)) is not None
        stamp = Stamp(0, 0, 2, 3)
        assert tables.meet(name, None, rows_of(0), stamp, Sync(2), 0.0).weights is None, "slot 2 is behind"
        assert self.send(tables, name, 2, 0, Sync(2)) is not None
        weights = tables.meet(name, None, rows_of(0), stamp, Sync(2), 0.0).weights
        assert weights is not None and weights.tolist() == [[-5.0, -5.0]]

    def test_a_successor_takes_the_minimum_clock(
        self, tables: Tables, control: Control, job: str, name: str
    ) -> None:
        for n in range(4):
            for slot in (1, 2):
                self.send(tables, name, slot, n, Sync(9))
        for slot in (1, 2):
            assert self.send(tables, name, slot, 4, Sync(3)) is None
        control.finish(job, 0, 0)  # 5 minibatches behind
        assert self.send(tables, name, 1, 5, Sync(3)) is not None
        control.register(job, 2, 1, 7)
        assert self.send(tables, name, 2, 5, Sync(1), attempt=1) is not None
        assert control.progress(job, 2).tolist() == [6], "its position is its own"

    def test_a_dead_slot_is_not_waited_for_long(self, tables: Tables, job: str, name: str) -> None:
        for n in range(3):
            self.send(tables, name, 0, n, Sync(9))
        stamp = Stamp(0, 0, 2, 3)
        while tables.meet(name, None, rows_of(0), stamp, Sync(1), 0.5).weights is None:
            pass  # slots 1 and 2 are never heard of: the test's time limit is the judge

    def test_waiting_ends_when_another_slot_moves_on(
        self, tables: Tables, control: Control, other: Control, job: str, name: str
    ) -> None:

        def finish() -> None:
            for slot in (1, 2):
                other.finish(job, slot, 0)

        timer = threading.Timer(0.1, finish)
        timer.start()
        try:
            update = Update(rows_of(0), filled((1, 2), 3.0))
            meeting = tables.meet(name, update, rows_of(0), Stamp(0, 0, 0, 1), Sync(0), 9.0)
        finally:
            timer.join()
        assert meeting.weights is not None and meeting.weights.tolist() == [[-1.0, -1.0]]
        assert meeting.held_s > 0.0
        timer = threading.Timer(0.1, other.register, (job, 0, 1, 7))
        timer.start()
        try:
            assert control.barrier(job, 0, 0, 4, 9.0), "the others are finished"
        finally:
            timer.join()
        with pytest.raises(StaleAttemptError):
            control.barrier(job, 0, 0, 5, 0.0)

    def test_barrier_waits(self, control: Control, other: Control, job: str, name: str) -> None:
        timer = threading.Timer(0.1, lambda: [other.barrier(job, slot, 0, 1, 0.0) for slot in (1, 2)])
        timer.start()
        try:
            assert not control.barrier(job, 0, 0, 2, 0.0)
            assert control.barrier(job, 0, 0, 1, 9.0)
        finally:
            timer.join()

    def test_stale_updates_weigh_less(self, tables: Tables, name: str) -> None:
        weighted = Sync(None, True)
        tables.meet(name, None, rows_of(0), Stamp(0, 0, 0), weighted, 0.0)
        for n in range(8):
            self.send(tables, name, 1, n, weighted, 0.0)
        weights = self.send(tables, name, 0, 0, weighted, 1.0)
        assert weights is not None and weights.tolist() == [[-0.5, -0.5]], "8 ** (-1 / 3)"
        weights = self.send(tables, name, 0, 1, weighted, 1.0)
        assert weights is not None and weights.tolist() == [[-1.5, -1.5]], "nobody came between"

    @pytest.mark.parametrize("encoding", ["float32", "float16", "int8"])
    def test_encodings(self, tables: Tables, name: str, encoding: str) -> None:
        values = np.array([[1, -2], [3, 4]]).astype(encoding)
        scale = 0.5 if encoding == "int8" else 1.0
        update = Update(rows_of(7, 2), values, scale)
        weights = tables.meet(name, update, rows_of(2, 7), Stamp(0, 0, 0, 1), Sync(), 0.0).weights
        assert weights is not None
        assert weights.tolist() == [[-3 * scale, -4 * scale], [-scale, 2 * scale]]

    def test_an_empty_update(self, tables: Tables, control: Control, job: str, name: str) -> None:
        empty = Update(rows_of(), filled((0, 2), 0.0))
        for slot in range(N_SLOTS):
            tables.meet(name, empty, rows_of(), Stamp(slot, 0, 0, 1), Sync(0), 0.0)
        assert control.progress(job, 0).tolist() == [1]
        assert not tables.pull(name).any()

    @pytest.mark.parametrize("staleness", [None, 0, 3])
    def test_what_does_not_fit_changes_nothing(
        self, tables: Tables, control: Control, job: str, name: str, staleness: int | None
    ) -> None:
        sync, stamp = Sync(staleness), Stamp(0, 0, 0, 1)
        updates = [
            Update(rows_of(0, 10), filled((2, 2), 1.0)),
            Update(rows_of(-1), filled((1, 2), 1.0)),
            Update(rows_of(0), filled((1, 3), 1.0)),
            Update(rows_of(0), np.zeros((1, 2))),
            Update(rows_of(0, 1), filled((1, 2), 1.0)),
        ]
        for update in updates:
            with pytest.raises(StoreError):
                tables.meet(name, update, rows_of(0), stamp, sync, 0.0)
        with pytest.raises(StoreError):
            tables.meet(name, None, rows_of(10), stamp, sync, 0.0)
        for slot in (-1, N_SLOTS):
            with pytest.raises(StoreError):
                tables.meet(name, None, rows_of(0), Stamp(slot, 0, 0, 1), sync, 0.0)
        assert not tables.pull(name).any()
        assert control.progress(job, 0).tolist() == [0]

    def test_unknown_slots_and_jobs(self, control: Control, job: str, name: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: control.barrier(job, N_SLOTS, 0, 1, 0.0),
            lambda: control.barrier(job, 0, 0, -1, 0.0),
            lambda: control.finish(job, -1, 0),
            lambda: control.barrier(f"{job}-none", 0, 0, 1, 0.0),
            lambda: control.finish(f"{job}-none", 0, 0),
        ]
        for call in calls:
            with pytest.raises(StoreError):
                call()
