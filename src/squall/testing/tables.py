"""The contract suite of `Tables`.

An implementation subclasses it in its tests (with a name that pytest collects) and
overrides the fixtures that raise :class:`NotImplementedError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from squall.errors import StaleAttemptError, StoreError
from squall.protocols import Tables
from squall.records import (
    Float32,
    InitialValues,
    OptimizerSpec,
    Stamp,
    TableSpec,
)
from squall.store.initial import initial_values
from squall.testing.stores import N_SLOTS, OfTables, filled, rows_of


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
