"""An object store as the store: the contracts on a folder and on S3, what it costs, and what can go wrong."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from squall.data.objects import ObjectStore
from squall.errors import SettingError, StaleAttemptError, StoreError
from squall.protocols import Control
from squall.store import connect, object_blobs
from squall.store.object_blobs import ObjectBlobs
from squall.store.object_control import _records
from squall.store.object_names import escaped, folder
from squall.store.objects import ObjectsStore
from squall.store.polling import FIRST_PAUSE_S, LONGEST_PAUSE_S, poll
from squall.testing.blobs import BlobsContract, ReductionsContract
from squall.testing.control import BarriersContract, ControlContract
from squall.testing.s3 import S3Server, seaweedfs, weed
from squall.testing.stores import report_of


@pytest.fixture(scope="module", params=["folder", "s3"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server | None]:
    """A server for all tests on S3; None for a folder."""
    if request.param == "folder":
        yield None
        return
    if weed() is None:
        pytest.skip("SeaweedFS is not installed")
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as running:
        yield running


@pytest.fixture
def url(server: S3Server | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if server is None:
        return tmp_path.as_uri()
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    return f"{server.url}/{uuid.uuid4().hex[:12]}"


@pytest.fixture
def store(url: str) -> Iterator[ObjectsStore]:
    with connect(url) as store:
        assert isinstance(store, ObjectsStore)
        yield store


@pytest.fixture
def second(url: str) -> Iterator[ObjectsStore]:
    with connect(url) as store:
        assert isinstance(store, ObjectsStore)
        yield store


@pytest.fixture
def new_job() -> str:
    return "job-1"


class OfBlobs:
    @pytest.fixture
    def blobs(self, store: ObjectsStore) -> ObjectBlobs:
        return store.blobs

    @pytest.fixture
    def other(self, second: ObjectsStore) -> ObjectBlobs:
        return second.blobs

    @pytest.fixture
    def key(self, new_job: str) -> str:
        return f"{new_job}/blob"


class TestBlobs(OfBlobs, BlobsContract):
    """Its fixtures are the store's."""


class TestReductions(OfBlobs, ReductionsContract):
    """Its fixtures are the store's."""


class OfStore:
    @pytest.fixture
    def control(self, store: ObjectsStore) -> Control:
        return store.control

    @pytest.fixture
    def other(self, second: ObjectsStore) -> Control:
        return second.control

    @pytest.fixture
    def new_job(self, new_job: str) -> str:
        return new_job


class TestControl(OfStore, ControlContract):
    """Its fixtures are the store's."""


class TestBarriers(OfStore, BarriersContract):
    """Its fixtures are the store's."""


# ------------------------------------------------------------------------------------- a folder


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path)


@pytest.fixture
def local(objects: ObjectStore) -> ObjectsStore:
    return ObjectsStore(objects)


@pytest.fixture
def job(local: ObjectsStore) -> str:
    local.control.open_job("job", 3)
    return "job"


def cost(objects: ObjectStore, call: Callable[[], object]) -> tuple[int, int]:
    """(reads, writes and listings) that a call makes."""
    before = objects.gets, objects.puts
    call()
    return objects.gets - before[0], objects.puts - before[1]


def logged(objects: ObjectStore) -> list[str]:
    """Names of the records of slots' states."""
    return [name for name in objects.keys("jobs/job/store") if "/log/" in name]


def test_what_calls_cost(objects: ObjectStore, local: ObjectsStore, job: str) -> None:
    blobs, control, ones = local.blobs, local.control, np.ones(3)
    control.register(job, 0, 0, 1)
    calls: list[tuple[tuple[int, int], Callable[[], object]]] = [
        ((0, 1), lambda: blobs.put("job/a", b"1")),
        ((1, 0), lambda: blobs.get("job/a")),
        ((3, 0), lambda: blobs.mget(["job/a", "job/b", "job/a"])),
        ((0, 1), lambda: blobs.put_if_absent("job/b", b"1")),
        ((1, 1), lambda: blobs.put_if_absent("job/b", b"1")),
        ((0, 2), lambda: blobs.add("job/c")),
        ((1, 2), lambda: blobs.add("job/c")),
        ((2, 2), lambda: blobs.reduce("job/r", ones, "sum", 0)),
        ((1, 1), lambda: blobs.reduce("job/r", ones, "sum", 1)),
        ((4, 3), lambda: blobs.reduced("job/r", 2, 0.0)),
        ((2, 1), lambda: blobs.reduced("job/r", 2, 0.0)),
        ((2, 1), lambda: control.advance(job, 0, 0, 1)),
        ((2, 0), lambda: control.progress(job, 0)),
        ((2, 1), lambda: control.report(job, report_of(0, 0))),
        ((2, 1), lambda: control.reports(job, 0, 0.0)),
        ((1, 0), lambda: control.stop_requested(job)),
        ((0, 0), lambda: control.stop_requested(job)),
        ((3, 2), lambda: control.barrier(job, 0, 0, 1, 0.0)),
        ((3, 1), lambda: control.barrier(job, 0, 0, 1, 0.0)),
    ]
    assert [cost(objects, call) for _, call in calls] == [expected for expected, _ in calls]


def test_a_closed_job_leaves_nothing(objects: ObjectStore, local: ObjectsStore, job: str) -> None:
    local.control.register(job, 0, 0, 1)
    local.control.save_state(job, 0, 0, b"state")
    local.control.report(job, report_of(0, 0))
    local.control.barrier(job, 0, 0, 1, 0.0)
    local.blobs.put("job/a", b"1")
    local.blobs.add("job/count")
    local.blobs.reduce("job/sum", np.ones(2), "sum", 0)
    local.blobs.reduced("job/sum", 1, 0.0)
    local.blobs.put("of-no-job", b"1")
    local.control.close_job(job)
    assert objects.keys() == ["store/blobs/of-no-job"]


def test_it_has_no_tables(local: ObjectsStore) -> None:
    with pytest.raises(StoreError, match="no tables"):
        local.tables


def test_what_is_no_address() -> None:
    with pytest.raises(SettingError, match="user, password or query"):
        connect("s3://user:hidden@bucket")


@pytest.mark.parametrize(
    "key", ["a/b/c", "a/..", "..", "a/", "/", "a/=2F", "ä/ß %", "a/\0", "a/b\\c", "x/\udcff"]
)
def test_any_key(local: ObjectsStore, key: str) -> None:
    local.blobs.put(key, key.encode("utf-8", "surrogatepass"))
    local.blobs.put(f"{key}x", b"another")
    assert local.blobs.get(key) == key.encode("utf-8", "surrogatepass")
    local.blobs.delete(key)
    assert local.blobs.get(key) is None


def test_names_are_distinct() -> None:
    keys = ["a/b", "a/b/", "a=/b", "a", "a/=2F", "a//", "A/b", "a/=", "store", "a/"]
    assert len({folder("blobs", key) for key in keys}) == len(keys)
    assert escaped("a=2F/ä") == "a=3D2F=2F=C3=A4"


# ----------------------------------------------------------------------------- what can go wrong


class Unsure:
    """An object store whose next creation succeeds, but is said not to have."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.lie = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def create(self, key: str, data: bytes) -> bool:
        created = self._objects.create(key, data)
        lie, self.lie = self.lie, False
        return created and not lie


def test_who_has_created_an_object_knows_it(objects: ObjectStore, local: ObjectsStore, job: str) -> None:
    """A client of S3 sends a request again by itself, and then hears of its own object that it exists."""
    unsure = Unsure(objects)
    store = ObjectsStore(unsure)
    calls: list[Callable[[], object]] = [
        lambda: store.blobs.put_if_absent("job/a", b"1"),
        lambda: store.blobs.add("job/count") == 1,
        lambda: store.control.register(job, 0, 0, 1),
        lambda: store.control.advance(job, 0, 0, 1) is None,
    ]
    for call in calls:
        unsure.lie = True
        assert call()
        assert not unsure.lie
    assert local.blobs.add("job/count", 0) == 1
    assert local.control.progress(job, 0).tolist() == [1]


@pytest.mark.parametrize("stored", [False, True])
def test_a_creation_that_fails_leaves_no_gap(
    objects: ObjectStore, local: ObjectsStore, job: str, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ObjectsStore(objects).control
    control.register(job, 0, 0, 1)

    def fail(self: ObjectStore, key: str, data: bytes) -> bool:
        if stored:
            self.put(key, data)
        raise StoreError("it cannot be reached")

    with monkeypatch.context() as failing:
        failing.setattr(ObjectStore, "create", fail)
        with pytest.raises(StoreError, match="cannot be reached"):
            control.advance(job, 0, 0, 1)
    assert local.control.progress(job, 0).item() == int(stored)
    control.advance(job, 0, 0, 2)
    assert local.control.progress(job, 0).item() == 2
    assert [int(name[-9:]) for name in objects.keys("jobs/job/store") if "/log/" in name] == list(
        range(1, 3 + stored)
    )


def test_only_the_latest_state_is_kept(objects: ObjectStore, local: ObjectsStore, job: str) -> None:
    local.control.register(job, 0, 0, 1)
    for number in range(3):
        local.control.save_state(job, 0, 0, b"state %d" % number)
    assert ObjectsStore(objects).control.register(job, 0, 1, 2).state == b"state 2"
    with pytest.raises(StaleAttemptError):
        local.control.save_state(job, 0, 0, b"late")
    assert len([name for name in objects.keys("jobs/job/store") if "/state/" in name]) == 1


def test_a_long_log_is_not_read_as_a_whole(objects: ObjectStore, local: ObjectsStore, job: str) -> None:
    local.control.register(job, 0, 0, 1)
    for minibatch in range(20):
        local.control.advance(job, 0, 0, minibatch + 1)
    local.control.save_state(job, 0, 0, b"state")
    successor = ObjectsStore(objects).control
    assert cost(objects, lambda: successor.progress(job, 0)) == (3, 1)
    registration = successor.register(job, 0, 1, 2)
    assert (registration.minibatches, registration.state) == (20, b"state")
    writes = objects.puts
    with pytest.raises(StaleAttemptError):
        local.control.advance(job, 0, 0, 21)
    assert objects.puts == writes + 1, "a listing: who is refused writes nothing"


def test_of_many_attempts_the_newest_wins(objects: ObjectStore, local: ObjectsStore, job: str) -> None:
    """Registrations and progress race; whoever is refused has changed nothing."""
    done: list[int] = []

    def work(attempt: int) -> None:
        control = ObjectsStore(objects).control
        try:
            start = control.register(job, 0, attempt, attempt).minibatches
            for minibatch in range(start, start + 5):
                control.advance(job, 0, attempt, minibatch + 1)
        except StaleAttemptError:
            return
        done.append(attempt)

    threads = [threading.Thread(target=work, args=(attempt,)) for attempt in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50.0)
    assert 3 in done
    log = [
        _records.decode(objects.get(name)).slot for name in objects.keys("jobs/job/store") if "/log/" in name
    ]
    assert [slot.attempt for slot in log] == sorted(slot.attempt for slot in log), "no one came after"
    assert [slot.minibatches for slot in log] == sorted(slot.minibatches for slot in log)
    assert 5 <= local.control.progress(job, 0).item() <= 20
    with pytest.raises(StaleAttemptError, match="replaced by attempt 3"):
        local.control.advance(job, 0, 2, 99)


def test_one_of_many_readers_folds(
    objects: ObjectStore, local: ObjectsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[str] = []
    fold = ObjectBlobs._folded
    monkeypatch.setattr(ObjectBlobs, "_folded", lambda *given: folded.append("") or fold(*given))
    results: list[Any] = []

    def read() -> None:
        results.append(ObjectsStore(objects).blobs.reduced("job/sum", 4, 20.0))

    threads = [threading.Thread(target=read) for _ in range(5)]
    for thread in threads:
        thread.start()
    for contributor in range(4):
        local.blobs.reduce("job/sum", np.full(100_000, 1.0), "sum", contributor)
    for thread in threads:
        thread.join(50.0)
    assert [result.max() for result in results] == [4.0] * 5
    assert len(folded) == 1


def test_who_dies_while_it_folds_is_succeeded(
    objects: ObjectStore, local: ObjectsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_blobs, "LEASE_S", 0.2)
    local.blobs.reduce("job/sum", np.ones(2), "sum", 0)

    def die(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(ObjectBlobs, "_folded", die)
        with pytest.raises(KeyboardInterrupt):
            local.blobs.reduced("job/sum", 1, 0.0)
    result = ObjectsStore(objects).blobs.reduced("job/sum", 1, 20.0)
    assert result is not None and result.tolist() == [1.0, 1.0]


def test_a_result_of_a_deleted_reduction_is_not_taken(objects: ObjectStore, local: ObjectsStore) -> None:
    local.blobs.reduce("job/sum", np.ones(2), "sum", 0)
    local.blobs.reduced("job/sum", 1, 0.0)
    (name,) = (name for name in objects.keys("jobs/job/store/results") if "lease" not in name)
    old = bytes(objects.get(name))
    local.blobs.delete("job/sum")
    objects.put(name, old)  # by one who was slow
    local.blobs.reduce("job/sum", np.zeros(2), "sum", 0)
    result = local.blobs.reduced("job/sum", 1, 0.0)
    assert result is not None and result.tolist() == [0.0, 0.0]


def test_pauses_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    asked = iter([None] * 30 + [7])
    assert poll(lambda: next(asked), 1e6) == 7
    assert pauses[0] <= FIRST_PAUSE_S < pauses[8]
    assert all(LONGEST_PAUSE_S / 2 <= pause <= LONGEST_PAUSE_S for pause in pauses[15:])
    assert len(pauses) == 30
