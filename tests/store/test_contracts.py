"""Every way to the store passes the contract suites."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from squall.protocols import Blobs, Control, Tables
from squall.store import Store, StoreAddress, connect
from squall.store.process import StoreProcess
from squall.testing.store import BlobsContract, ConsistencyContract, ControlContract, TablesContract


@pytest.fixture(params=["embedded", "tcp"])
def address(request: pytest.FixtureRequest, server: StoreProcess) -> StoreAddress:
    return StoreAddress(server.address) if request.param == "embedded" else server.listen_tcp()


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
    def job(self, job: str) -> str:
        return job

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


class TestBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, store: Store) -> Blobs:
        return store.blobs

    @pytest.fixture
    def other(self, second: Store) -> Blobs:
        return second.blobs

    @pytest.fixture
    def key(self, job: str) -> str:
        return f"{job}/blob"


class TestControl(StoresControl, ControlContract):
    @pytest.fixture
    def new_job(self, new_job: str) -> str:
        return new_job


class TestConsistency(StoresTables, StoresControl, ConsistencyContract):
    """Each of the fixtures is the store's."""
