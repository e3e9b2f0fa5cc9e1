"""A Valkey server as the store: the contracts, and what only it has."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from valkey import Valkey
from valkey.exceptions import ConnectionError

from squall.errors import MissingExtraError, StoreError, StoreFullError, StoreLostError
from squall.protocols import AtomicBlobs, Control
from squall.store import Store, connect
from squall.store.valkey import ValkeyConnection, ValkeyStore
from squall.store.valkey_blobs import ValkeyBlobs
from squall.testing.blobs import LARGE, AtomicBlobsContract, numbered
from squall.testing.control import BarriersContract, ControlContract
from squall.testing.stores import report_of
from squall.testing.valkey import ValkeyServer, valkey_server
from tests.store.proxy import TlsDoor


@pytest.fixture
def store(valkey: ValkeyServer) -> Iterator[Store]:
    with connect(valkey.url, valkey.password) as store:
        yield store


@pytest.fixture
def second(valkey: ValkeyServer) -> Iterator[Store]:
    with connect(valkey.url, valkey.password) as store:
        yield store


@pytest.fixture
def raw(valkey: ValkeyServer) -> Iterator[Valkey]:
    """The server's data."""
    with Valkey(port=valkey.port, db=3, password=valkey.password) as client:
        yield client


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


class OfStore:
    @pytest.fixture
    def control(self, store: Store) -> Control:
        return store.control

    @pytest.fixture
    def other(self, second: Store) -> Control:
        return second.control

    @pytest.fixture
    def new_job(self, new_job: str) -> str:
        return new_job


class TestControl(OfStore, ControlContract):
    """Its fixtures are the store's."""


class TestBarriers(OfStore, BarriersContract):
    """Its fixtures are the store's."""


def test_it_has_no_tables(store: Store) -> None:
    with pytest.raises(StoreError, match="no tables") as caught:
        store.tables
    assert "squall store serve" in str(caught.value)


def test_a_closed_job_leaves_nothing(store: Store, raw: Valkey, new_job: str) -> None:
    before = {key for key in raw.scan_iter() if b":once:" not in key}
    store.control.open_job(new_job, 3)
    store.control.register(new_job, 0, 0, 1)
    store.control.report(new_job, report_of(0, 0))
    store.control.save_state(new_job, 0, 0, b"state")
    store.blobs.put(f"{new_job}/a", b"1")
    store.blobs.put(f"{new_job}/large", bytes(LARGE))
    store.blobs.add(f"{new_job}/count")
    for contributor in range(3):
        store.blobs.reduce(f"{new_job}/sum", np.ones(3), "sum", contributor)
    assert store.blobs.reduced(f"{new_job}/sum", 3, 0.0) is not None
    store.control.close_job(new_job)
    left = {key for key in raw.scan_iter() if b":once:" not in key} - before
    assert all(0 < raw.ttl(key) <= 60 for key in left), "bells, which are soon silent"
    assert all(0 < raw.ttl(key) <= 120 for key in raw.keys(b"squall:once:*"))


def test_half_a_value_expires(store: Store, raw: Valkey, new_job: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield bytes(LARGE)
        raise ValueError

    with pytest.raises(ValueError):
        store.blobs.put_stream(f"{new_job}/a", pieces())
    left = raw.keys(b"squall:upload:*")
    assert left and all(0 < raw.ttl(name) <= 60 for name in left)


class Flaky(ValkeyConnection):
    """Loses the connection before or after the next commands that change something."""

    before = after = False

    def _run(self, script: str, keys: Any, arguments: Any) -> Any:
        if self.before:
            self.before = False
            raise ConnectionError("lost before")
        reply = super()._run(script, keys, arguments)
        if self.after:
            self.after = False
            raise ConnectionError("lost after")
        return reply


UPDATES: dict[str, Callable[[AtomicBlobs, str], object]] = {
    "put if absent": lambda blobs, key: blobs.put_if_absent(key, b"1"),
    "compare and set": lambda blobs, key: blobs.compare_and_set(key, None, b"1"),
    "add": lambda blobs, key: blobs.add(key) == 1,
    "large": lambda blobs, key: blobs.put_if_absent(key, numbered(LARGE)),
}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("kind", UPDATES)
def test_what_is_sent_again_is_done_once(
    valkey: ValkeyServer, store: Store, new_job: str, kind: str, place: str
) -> None:
    connection = Flaky(valkey.url, valkey.password)
    with ValkeyStore(connection) as flaky:
        setattr(connection, place, True)
        assert UPDATES[kind](flaky.blobs, f"{new_job}/a")
        assert not getattr(connection, place), "it has been lost"
    assert not UPDATES[kind](store.blobs, f"{new_job}/a")


def test_a_report_sent_again_arrives_once(valkey: ValkeyServer, store: Store, job: str) -> None:
    connection = Flaky(valkey.url, valkey.password)
    with ValkeyStore(connection) as flaky:
        flaky.control.register(job, 0, 0, 1)
        connection.after = True
        flaky.control.report(job, report_of(0, 0))
        assert not connection.after
    assert len(store.control.reports(job, 0, 0.0)) == 1


@pytest.fixture
def job(store: Store, new_job: str) -> Iterator[str]:
    store.control.open_job(new_job, 3)
    yield new_job
    store.control.close_job(new_job)


def test_one_of_many_readers_folds(
    valkey: ValkeyServer, store: Store, new_job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[str] = []
    fold = ValkeyBlobs._fold
    monkeypatch.setattr(ValkeyBlobs, "_fold", lambda *given: folded.append("") or fold(*given))
    key, results = f"{new_job}/sum", list[Any]()

    def read() -> None:
        with connect(valkey.url, valkey.password) as own:
            results.append(own.blobs.reduced(key, 4, 20.0))

    threads = [threading.Thread(target=read) for _ in range(5)]
    for thread in threads:
        thread.start()
    for contributor in range(4):
        store.blobs.reduce(key, np.full(100_000, 1.0), "sum", contributor)
    for thread in threads:
        thread.join(50.0)
    assert [result.max() for result in results] == [4.0] * 5
    assert len(folded) == 1


def test_who_dies_while_it_folds_is_succeeded(
    store: Store, second: Store, new_job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall.store.valkey_blobs.LEASE_S", 0.2)
    key = f"{new_job}/sum"
    store.blobs.reduce(key, np.ones(2), "sum", 0)

    def die(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(ValkeyBlobs, "_fold", die)
        with pytest.raises(KeyboardInterrupt):
            store.blobs.reduced(key, 1, 0.0)
    result = second.blobs.reduced(key, 1, 20.0)
    assert result is not None and result.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "url",
    ["redis://", "redis://:6379", "redis://h:x", "redis://h:1/x", "redis://u:hidden@h:1?x=1", "rediss:h"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(StoreError, match="not the address") as caught:
        connect(url)
    assert "hidden" not in str(caught.value)


def test_secrets_are_not_shown(valkey: ValkeyServer) -> None:
    place = f"127.0.0.1:{valkey.port}/3"
    with pytest.raises(StoreError, match="refuses this user or password") as caught:
        connect(f"redis://:wrong-one@{place}")
    assert caught.value.where == f"redis://***@{place}"
    assert "wrong-one" not in f"{caught.value!r} {caught.value.__cause__!r}"
    with pytest.raises(StoreError, match="refuses this user or password"):
        connect(f"redis://{place}")
    with connect(f"redis://:{quote(valkey.password)}@{place}") as store:
        assert isinstance(store, ValkeyStore)
        assert store.address == f"redis://***@{place}"


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall.store.valkey.RETRIES", 1)
    with pytest.raises(StoreLostError, match="cannot be reached"):
        connect("redis://127.0.0.1:1")


def test_a_server_that_is_full(tmp_path: Path) -> None:
    with valkey_server(tmp_path, maxmemory="6mb") as server, connect(server.url, server.password) as store:
        with pytest.raises(StoreFullError):
            store.blobs.put_stream("a", (bytes(1 << 20) for _ in range(20)))
        assert store.blobs.get("a") is None


def test_tls(valkey: ValkeyServer, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with TlsDoor(valkey.port, *certificate) as door:
        url = f"rediss://127.0.0.1:{door.port}/3"
        monkeypatch.setattr("squall.store.valkey.RETRIES", 1)
        with pytest.raises(StoreLostError, match="self-signed"):
            connect(url, valkey.password)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        with connect(url, valkey.password) as store:
            store.blobs.put("tls", numbered(LARGE))
            assert store.blobs.get("tls") == numbered(LARGE)
            store.blobs.delete("tls")


def test_not_in_a_fork(store: Store) -> None:
    store._connection._pid = os.getppid()  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="is a fork"):
        store.blobs.get("a")


def test_closed(valkey: ValkeyServer) -> None:
    store = connect(valkey.url, valkey.password)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.blobs.get("a")


def test_the_extra_is_named_where_it_is_missing() -> None:
    code = "import sys; sys.modules['valkey'] = None\nfrom squall.store import connect\nconnect('redis://h')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert MissingExtraError.__name__ in done.stderr
    assert "pip install 'squall[redis]'" in done.stderr
