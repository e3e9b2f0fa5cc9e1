from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from squall.store import StoreAddress
from squall.store.cluster import ServeSettings, StoreCluster
from squall.store.embedded import EmbeddedStore, connect
from squall.store.process import StoreProcess
from squall.testing.valkey import ValkeyServer, valkey_server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[StoreProcess]:
    with StoreProcess.start() as process:
        yield process


@dataclass(frozen=True)
class Served:
    """A store as `squall store serve` runs it."""

    cluster: StoreCluster
    address: StoreAddress


def serve(**settings: Any) -> Iterator[Served]:
    with StoreCluster(ServeSettings(**settings)) as cluster:
        yield Served(cluster, StoreAddress(cluster.address, settings.get("token") or ""))


@pytest.fixture(scope="session")
def two_shards() -> Iterator[Served]:
    yield from serve(shards=2)


@pytest.fixture(scope="session")
def unix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    yield from serve(listen=f"unix:{tmp_path_factory.mktemp('unix') / 'store'}")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that nobody has signed, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


def make_certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=store"
        " -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(
        [*command.split(), "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True
    )
    return cert, key


@pytest.fixture(scope="session")
def tls(certificate: tuple[Path, Path]) -> Iterator[Served]:
    yield from serve(tls_cert=certificate[0], tls_key=certificate[1], token="between us")


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with valkey_server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


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
