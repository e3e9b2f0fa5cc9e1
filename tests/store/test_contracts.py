"""Every way to the store passes the contract suites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from squall.protocols import AtomicBlobs, Control, Tables
from squall.store import Store, StoreAddress, connect
from squall.store.process import StoreProcess
from squall.testing.blobs import AtomicBlobsContract
from squall.testing.consistency import ConsistencyContract
from squall.testing.control import BarriersContract, ControlContract
from squall.testing.stores import N_SLOTS
from squall.testing.tables import TablesContract
from tests.store.conftest import Served


@pytest.fixture(params=["embedded", "tcp", "unix", "2 shards by range", "2 shards by hash", "tls"])
def address(request: pytest.FixtureRequest, server: StoreProcess) -> StoreAddress:
    if request.param == "embedded":
        return StoreAddress(server.address)
    if request.param == "tcp":
        return server.listen_tcp()
    cluster: Served = request.getfixturevalue({"unix": "unix", "tls": "tls"}.get(request.param, "two_shards"))
    return cluster.address


@pytest.fixture
def store(address: StoreAddress) -> Iterator[Store]:
    with connect(address.url, address.token) as store:
        yield store


@pytest.fixture
def second(address: StoreAddress) -> Iterator[Store]:
    with connect(address.url, address.token) as store:
        yield store


class StoresTables:
    @pytest.fixture
    def job(self, store: Store, new_job: str) -> Iterator[str]:
        store.control.open_job(new_job, N_SLOTS)
        yield new_job
        store.control.close_job(new_job)

    @pytest.fixture
    def larger_job(self, store: Store, new_job: str) -> Iterator[str]:
        larger = f"{new_job}-larger"
        store.control.open_job(larger, 2 * N_SLOTS)
        yield larger
        store.control.close_job(larger)

    @pytest.fixture
    def sharding(self, request: pytest.FixtureRequest) -> Literal["hash", "range"]:
        return "range" if "by range" in request.node.callspec.params["address"] else "hash"

    @pytest.fixture
    def tables(self, store: Store) -> Tables:
        return store.tables


class StoresControl:
    @pytest.fixture
    def control(self, store: Store) -> Control:
        return store.control

    @pytest.fixture
    def other(self, second: Store) -> Control:
        return second.control


class TestTables(StoresTables, TablesContract):
    @pytest.fixture
    def register(self, second: Store, job: str) -> Callable[[int, int], None]:
        return lambda slot, attempt: second.control.register(job, slot, attempt, attempt) and None

    @pytest.fixture
    def progress(self, second: Store, job: str) -> Callable[[int], int]:
        return lambda slot: int(second.control.progress(job, slot)[0])


class TestBlobs(AtomicBlobsContract):
    @pytest.fixture
    def blobs(self, store: Store) -> AtomicBlobs:
        return store.blobs

    @pytest.fixture
    def other(self, second: Store) -> AtomicBlobs:
        return second.blobs

    @pytest.fixture
    def key(self, new_job: str) -> str:
        return f"{new_job}/blob"


class TestControl(StoresControl, ControlContract):
    @pytest.fixture
    def new_job(self, new_job: str) -> str:
        return new_job


class TestBarriers(StoresControl, BarriersContract):
    @pytest.fixture
    def new_job(self, new_job: str) -> str:
        return new_job


class TestConsistency(StoresTables, StoresControl, ConsistencyContract):
    """Each of the fixtures is the store's."""
