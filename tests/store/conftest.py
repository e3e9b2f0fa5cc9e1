from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from squall.store.embedded import EmbeddedStore, connect
from squall.store.process import StoreProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[StoreProcess]:
    with StoreProcess.start() as process:
        yield process


@pytest.fixture
def store(server: StoreProcess) -> Iterator[EmbeddedStore]:
    with connect(server.address) as store:
        yield store


@pytest.fixture
def second(server: StoreProcess) -> Iterator[EmbeddedStore]:
    with connect(server.address) as store:
        yield store


@pytest.fixture
def new_job() -> str:
    return f"job-{next(_numbers)}"


@pytest.fixture
def job(store: EmbeddedStore, new_job: str) -> Iterator[str]:
    store.control.open_job(new_job, 3)
    yield new_job
    store.control.close_job(new_job)
