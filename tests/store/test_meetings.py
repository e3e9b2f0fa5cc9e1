"""What a stranger may put into a `Meet`: it is refused, and nobody else notices."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from squall.errors import StoreError
from squall.records import Float32, OptimizerSpec, Stamp, Sync, TableSpec, Update
from squall.store import wire
from squall.store.embedded import EmbeddedStore
from squall.testing.stores import filled, rows_of


@pytest.fixture
def name(store: EmbeddedStore, job: str) -> str:
    store.tables.create(TableSpec(f"{job}/t", 4, 2, OptimizerSpec("sgd", 1.0), 4))
    store.control.register(job, 0, 0, 1)
    return f"{job}/t"


def request(name: str, **changes: Any) -> wire.Meet:
    rows, values = np.array([1, 2, 3], "<u4").data, np.ones((2, 2), "<f4").data
    plain = wire.Meet(name, Stamp(0, 0, 0, 1), Sync(), 0.0, 2, True, rows, "float32", 1.0, 2, values)
    return msgspec.structs.replace(plain, **changes)


def read(store: EmbeddedStore, name: str) -> Float32:
    return store.tables.pull(name)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rows": memoryview(b"12345")}, "are no rows"),
        ({"encoding": "float8"}, "no encoding 'float8'"),
        ({"encoding": "int8"}, "bytes are not 2 rows of 2 int8"),
        ({"dim": 0}, "are not 2 rows of 0"),
        ({"dim": 1 << 62}, "are not 2 rows"),
        ({"n_pushed": 3}, "are not 3 rows"),
        ({"n_pushed": 4}, "4 of 3 rows cannot be pushed"),
        ({"n_pushed": -1}, "-1 of 3 rows cannot be pushed"),
        ({"stamp": Stamp(0, 0, 1 << 62, 1)}, "cannot stamp"),
        ({"stamp": Stamp(99, 0, 0, 1)}, "no slot 99"),
        ({"stamp": Stamp(-1, 0, 0, 1)}, "the driver has no clock"),
        ({"name": "nobody/t"}, "no such job"),
    ],
)
def test_what_does_not_fit_is_refused(
    store: EmbeddedStore, name: str, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(StoreError, match=says):
        store._connection.request(request(**{"name": name} | changes), wire.Met)
    assert not read(store, name).any()
    good = store._connection.request(request(name), wire.Met)
    assert good.ready
    assert read(store, name)[1:3].tolist() == [[-1.0, -1.0]] * 2


@pytest.mark.parametrize("staleness", [-1, 1 << 40, 0.5, "1"])
def test_a_staleness_that_cannot_be_closes_the_connection(
    store: EmbeddedStore, second: EmbeddedStore, name: str, staleness: Any
) -> None:
    with pytest.raises(StoreError):
        store._connection.request(request(name, sync=Sync(staleness)), wire.Met)
    assert not read(second, name).any()


@pytest.mark.parametrize("timeout", [float("nan"), float("-inf"), -1.0])
def test_odd_times_do_not_wait(store: EmbeddedStore, name: str, timeout: float) -> None:
    reply = store._connection.request(request(name, sync=Sync(0), timeout=timeout), wire.Met)
    assert not reply.ready


def test_a_reply_that_would_not_fit_is_refused(store: EmbeddedStore, job: str) -> None:
    store.tables.create(TableSpec(f"{job}/wide", 2, 1 << 20, OptimizerSpec("sgd", 1.0), 2))
    store.control.register(job, 0, 0, 1)
    pull = np.zeros(100, dtype=np.int64)
    with pytest.raises(StoreError, match="pull at most 15 rows"):
        store.tables.meet(f"{job}/wide", None, pull, Stamp(0, 0, 0), Sync(), 0.0)


def test_a_table_that_is_made_again_is_a_new_one(store: EmbeddedStore, name: str) -> None:
    update = Update(rows_of(0), filled((1, 2), 1.0))
    store.tables.meet(name, update, rows_of(), Stamp(0, 0, 0, 1), Sync(), 0.0)
    spec = store.tables.describe(name)
    store.tables.drop(name)
    with pytest.raises(StoreError, match="no such table"):
        store.tables.meet(name, None, rows_of(0), Stamp(0, 0, 1), Sync(), 0.0)
    store.tables.create(spec)
    weights = store.tables.meet(name, update, rows_of(0), Stamp(0, 0, 0, 1), Sync(), 0.0).weights
    assert weights is not None and weights.tolist() == [[-1.0, -1.0]]


@pytest.mark.parametrize("values", [np.ones((1, 2)), np.ones(2, np.float32), np.ones((2, 2), np.float32)])
def test_a_client_refuses_what_cannot_travel(store: EmbeddedStore, name: str, values: Any) -> None:
    with pytest.raises(StoreError, match="give float32, float16, int8"):
        store.tables.meet(name, Update(rows_of(0), values), rows_of(), Stamp(0, 0, 0), Sync(), 0.0)
    with pytest.raises(StoreError, match="int64 vector"):
        store.tables.meet(name, None, np.zeros(1, np.int32), Stamp(0, 0, 0), Sync(), 0.0)  # type: ignore[arg-type]
