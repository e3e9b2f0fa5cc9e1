"""A store that is served apart: its shards die and come back, and clients learn what is lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from squall.errors import CorruptError, LostUpdatesError, SettingError, StoreError, StoreFullError
from squall.records import OptimizerSpec, Stamp, TableSpec
from squall.store import Store, connect
from squall.store.admin import StoreAdmin
from squall.store.cluster import ServeSettings, StoreCluster
from squall.store.serving import Rationed
from squall.store.snapshots import Archive
from squall.store.uploads import PART_BYTES
from squall.testing.stores import filled, report_of
from tests.store.conftest import Served

ROWS = np.arange(100)


def spec_of(job: str = "job", rows: int = 100, dim: int = 2) -> TableSpec:
    return TableSpec(f"{job}/w", rows, dim, OptimizerSpec("adagrad", 0.5), rows)


def fill(store: Store, job: str = "job") -> None:
    store.control.open_job(job, 2)
    store.tables.create(spec_of(job))
    store.control.register(job, 0, 3, 1)
    gradient = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    for sequence in range(3):
        store.tables.push(f"{job}/w", ROWS, gradient, Stamp(0, 3, sequence, sequence + 1))
    store.control.save_state(job, 0, 3, b"state")
    store.control.report(job, report_of(0, 3))
    store.blobs.put(f"{job}/blob", b"blob")


def kill(cluster: StoreCluster, shard: int) -> None:
    pid = cluster.pids[shard]
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    cluster.restart_dead()
    assert cluster.pids[shard] != pid


@pytest.fixture(params=[1, 2])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreCluster]:
    settings = ServeSettings(shards=request.param, snapshot=str(tmp_path / "snapshots"), keep=2)
    with StoreCluster(settings) as cluster:
        yield cluster


def test_a_dead_shard_comes_back_from_its_snapshot(kept: StoreCluster) -> None:
    last = len(kept.pids) - 1
    with connect(kept.address) as store, StoreAdmin(kept.address) as admin:
        fill(store)
        expected = store.tables.pull("job/w")
        admin.snapshot()
        store.tables.push("job/w", ROWS, filled((100, 2), 1.0), Stamp(0, 3, 3, 4))
        lost = store.tables.pull("job/w")
        kill(kept, last)
        with pytest.raises(LostUpdatesError, match=rf"shard {last}[\s\S]*came back from snapshot"):
            store.tables.pull("job/w", ROWS)
        again = store.tables.pull("job/w", ROWS)
        back = slice(last, None, len(kept.pids))
        assert np.array_equal(again[back], expected[back])
        if last:
            assert np.array_equal(again[::2], lost[::2]), "the other shard has lost nothing"
        # Sequence numbers came back too: what is lost is applied when it is sent again, the rest is not.
        assert store.control.progress("job", 0).item() == 3
        assert not store.tables.push("job/w", ROWS, filled((100, 2), 1.0), Stamp(0, 3, 2, 3))
        assert store.tables.push("job/w", ROWS, filled((100, 2), 1.0), Stamp(0, 3, 3, 4))
        assert np.array_equal(store.tables.pull("job/w"), lost)
        assert store.control.register("job", 0, 4, 1).state == b"state"


def test_a_dead_shard_without_snapshots_comes_back_empty() -> None:
    with StoreCluster(ServeSettings()) as cluster, connect(cluster.address) as store:
        fill(store)
        kill(cluster, 0)
        with pytest.raises(LostUpdatesError, match="came back empty"):
            store.tables.pull("job/w")
        with pytest.raises(StoreError, match="no such job"):
            store.tables.pull("job/w")


def test_a_whole_store_is_restored(kept: StoreCluster, tmp_path: Path) -> None:
    n_shards = len(kept.pids)
    with connect(kept.address) as store:
        fill(store)
        expected = store.tables.pull("job/w")
        store.blobs.add("job/count", 7)
        for contributor in (5, 0, 1):
            store.blobs.reduce("job/sum", np.full(3, 1.0 + contributor), "sum", contributor)
    kept.close()  # it writes a last snapshot
    settings = ServeSettings(shards=n_shards, snapshot=str(tmp_path / "snapshots"), restore=0)
    with StoreCluster(settings) as again, connect(again.address) as store:
        assert np.array_equal(store.tables.pull("job/w"), expected)
        assert store.tables.describe("job/w") == spec_of()
        assert store.blobs.get("job/blob") == b"blob"
        assert store.blobs.add("job/count") == 8
        store.blobs.reduce("job/sum", np.ones(3), "sum", 5)
        store.blobs.reduce("job/sum", np.ones(3), "sum", 2)
        assert store.blobs.reduced("job/sum", 5, 0.0) is None, "one of these is a repeat"
        sums = store.blobs.reduced("job/sum", 4, 0.0)
        assert sums is not None and sums.tolist() == [10.0, 10.0, 10.0]
        assert store.control.reports("job", 0, 0.0) == [report_of(0, 3)]
        registered = store.control.register("job", 0, 4, 1)
        assert (registered.minibatches, registered.state) == (3, b"state")
        with pytest.raises(StoreError, match="replaced by attempt 4"):
            store.tables.push("job/w", ROWS, filled((100, 2), 1.0), Stamp(0, 2, 9))


def test_only_the_newest_are_kept_and_damage_is_seen(kept: StoreCluster, tmp_path: Path) -> None:
    n_shards, url = len(kept.pids), str(tmp_path / "snapshots")
    with connect(kept.address) as store, StoreAdmin(kept.address) as admin:
        fill(store)
        numbers = [admin.snapshot() for _ in range(3)]
        store.control.close_job("job")
    assert Archive(url, 0, n_shards).common_numbers() == numbers[1:]
    with pytest.raises(StoreError, match="no snapshot is complete for 3 shards"):
        Archive(url, 0, 3).common_numbers()
    rows = next(tmp_path.glob(f"snapshots/{numbers[2]}/shard-0-*.safetensors"))
    data = bytearray(rows.read_bytes())
    data[-1] ^= 1
    rows.write_bytes(data)
    archive = Archive(url, 0, n_shards)
    with pytest.raises(CorruptError, match="damaged"):
        list(archive.pieces(numbers[2], archive.head(numbers[2])))
    head = next(tmp_path.glob(f"snapshots/{numbers[1]}/shard-0-*.json"))
    head.write_bytes(head.read_bytes().replace(b"adagrad", b"adagrab"))
    with pytest.raises(CorruptError, match="damaged"):
        archive.head(numbers[1])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_the_snapshot_before_intact(small_disk: Path) -> None:
    settings = ServeSettings(snapshot=str(small_disk / "snapshots"), keep=1)
    with StoreCluster(settings) as cluster:
        with connect(cluster.address) as store, StoreAdmin(cluster.address) as admin:
            fill(store)
            expected = store.tables.pull("job/w")
            first = admin.snapshot()
            (small_disk / "filler").write_bytes(b"x" * (900 << 10))
            with contextlib.suppress(OSError), (small_disk / "filler2").open("wb") as rest:
                while True:
                    rest.write(b"x" * 4096)
            store.tables.push("job/w", ROWS, filled((100, 2), 1.0), Stamp(0, 3, 3, 4))
            for _ in range(3):
                with pytest.raises(StoreError, match="No space left"):
                    admin.snapshot()
            (stat,) = admin.stat()
            assert stat.snapshot == first and "No space left" in (stat.snapshot_error or "")
            assert Archive(settings.snapshot or "", 0, 1).common_numbers() == [first]
        kill(cluster, 0)
        with connect(cluster.address) as store, StoreAdmin(cluster.address) as admin:
            assert np.array_equal(store.tables.pull("job/w"), expected)
            (small_disk / "filler").unlink()
            second = admin.snapshot()
            assert Archive(settings.snapshot or "", 0, 1).common_numbers() == [second]
            assert not [p for p in small_disk.rglob("*") if "#" in p.name], "nothing half-written is left"


def test_a_large_table_goes_in_pieces(tmp_path: Path) -> None:
    settings = ServeSettings(snapshot=str(tmp_path / "snapshots"))
    with StoreCluster(settings) as cluster, connect(cluster.address) as store:
        store.control.open_job("job", 1)
        spec = spec_of(rows=1_500_001, dim=2)  # 24 MB: not copied at once
        store.tables.create(spec)
        some = np.array([0, 700_000, 1_500_000])
        store.tables.add("job/w", some, filled((3, 2), 2.5), Stamp(-1, 0, 0))
        with StoreAdmin(cluster.address) as admin:
            admin.snapshot()
        kill(cluster, 0)
    with StoreCluster(ServeSettings(snapshot=str(tmp_path / "snapshots"), restore=0)) as again:
        with connect(again.address) as store:
            whole = store.tables.pull("job/w")
            assert np.array_equal(np.flatnonzero(whole[:, 0]), some)
            assert not store.tables.add("job/w", some, filled((3, 2), 2.5), Stamp(-1, 0, 0))


def test_memory_is_capped() -> None:
    with StoreCluster(ServeSettings(memory="1MB")) as cluster, connect(cluster.address) as store:
        store.control.open_job("job", 1)
        store.tables.create(spec_of(rows=1000))
        with pytest.raises(StoreFullError, match="only"):
            store.tables.create(TableSpec("job/more", 200_000, 2, OptimizerSpec("sgd", 0.1), 0))
        with pytest.raises(StoreFullError):
            store.blobs.put("job/blob", bytes(1 << 20))
        with pytest.raises(StoreFullError):
            store.blobs.reduce("job/sum", np.zeros(1 << 17), "sum", 0)
        assert store.tables.pull("job/w").shape == (1000, 2)


def test_what_comes_in_parts_counts_in_the_cap() -> None:
    with StoreCluster(ServeSettings(memory="18MB")) as cluster, connect(cluster.address) as store:
        store.control.open_job("job", 1)
        for _ in range(3):  # what was sent of a value that did not fit is not kept
            with pytest.raises(StoreFullError):
                store.blobs.put_stream("job/blob", itertools.repeat(bytes(PART_BYTES)))
        store.blobs.put("job/blob", bytes(4 * PART_BYTES))
        with pytest.raises(StoreFullError):
            store.blobs.put("job/other", bytes(PART_BYTES))
        store.control.close_job("job")
        store.blobs.put("other", bytes(4 * PART_BYTES))
        store.blobs.delete("other")


def test_resident_memory_is_that_of_the_tables() -> None:
    with StoreCluster(ServeSettings()) as cluster, connect(cluster.address) as store:
        store.control.open_job("job", 1)
        store.tables.create(spec_of(rows=1 << 20, dim=8))
        store.tables.pull("job/w")
        with StoreAdmin(cluster.address) as admin:
            (stat,) = admin.stat()
    assert stat.held >= (1 << 20) * 8 * 2 * 4
    assert stat.resident <= stat.held + (60 << 20)


def test_stat(two_shards: Served) -> None:
    url = two_shards.address.url
    with connect(url) as store, StoreAdmin(url) as admin:
        before = admin.stat()
        fill(store, "stat")
        after = admin.stat()
        store.control.close_job("stat")
    assert [s.shard for s in after] == [0, 1]
    for b, a in zip(before, after, strict=True):
        (table,) = [t for t in a.tables if t.name == "stat/w"]
        assert (table.rows, table.dim, table.steps) == (50, 2, 3)
        (job,) = [j for j in a.jobs if j.name == "stat"]
        assert (job.attempts, job.progress) == ([3, -1], [3, 0])
        pushed = {r.kind: r for r in a.requests}["push"].since({r.kind: r for r in b.requests}["push"])
        assert pushed.count == 3
        assert 0 < pushed.percentile(0.5) <= pushed.percentile(0.99)


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        ({"listen": "tcp://0.0.0.0:0"}, ["needs a token"]),
        ({"listen": "tcp://0.0.0.0:0", "token": "deadbeef"}, ["can be guessed"]),
        ({"listen": "tcp://0.0.0.0:0", "token": "0" * 64}, ["can be guessed"]),
        ({"listen": "http://x", "shards": 0, "memory": "x"}, ["listen", "shards", "memory"]),
        ({"listen": "unix:/tmp/x", "shards": 2}, ["one shard"]),
        ({"listen": "tcp://127.0.0.1:65534", "shards": 3}, ["65535 is the last one"]),
        ({"snapshot_every": "0.1s", "keep": 0}, ["below 1s", "needs snapshot", "keep"]),
        ({"tls_cert": Path("/nowhere")}, ["belong together", "not a file", "needs a token"]),
    ],
)
def test_all_wrong_settings_are_told_at_once(settings: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(SettingError) as caught:
        ServeSettings(**settings)
    assert not [problem for problem in problems if problem not in str(caught.value)]


def test_a_taken_port_is_told() -> None:
    with StoreCluster(ServeSettings()) as cluster:
        with pytest.raises(StoreError, match="cannot listen"):
            StoreCluster(ServeSettings(listen=cluster.address))


@pytest.mark.parametrize(
    ("listen", "fix"),
    [
        ("tcp://192.0.2.1:0", "an address that this machine has"),
        ("tcp://no-such-host.invalid:0", "check the name"),
        ("unix:/nowhere/at/all", "a folder that exists"),
        ("unix:/tmp/" + "x" * 200, "at most 100 characters"),
        ("unix:{tmp_path}/file", "remove the file"),
    ],
)
def test_each_way_not_to_listen_has_a_fix_of_its_own(listen: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    token, shards = "0123456789abcdefghij", 2 if listen.startswith("tcp") else 1
    with pytest.raises(StoreError, match="cannot listen") as caught:
        StoreCluster(ServeSettings(listen=listen.format(tmp_path=tmp_path), shards=shards, token=token))
    assert fix in str(caught.value)


def test_a_store_on_all_addresses_is_known_by_its_machines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """(It listens on the loopback interface only here.)"""
    monkeypatch.setattr(ServeSettings, "is_everywhere", property(lambda self: self.host == "127.0.0.1"))
    with StoreCluster(ServeSettings()) as cluster:
        assert cluster.address.startswith(f"tcp://{socket.gethostname()}:")
    monkeypatch.undo()
    token = "0123456789abcdefghij"
    told = {
        host: ServeSettings(listen=f"tcp://{host}:0", token=token).is_everywhere
        for host in ("0.0.0.0", "[::]", "127.0.0.1", "myhost")
    }
    assert told == {"0.0.0.0": True, "[::]": True, "127.0.0.1": False, "myhost": False}


@pytest.mark.parametrize("place", ["nosuch://x", "file"])
def test_a_bad_place_for_snapshots_is_told_once(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="the snapshot store refused") as caught:
        StoreCluster(ServeSettings(shards=2, snapshot=place))
    assert "check the URL" in str(caught.value) and "Debug source" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_flood_of_refusals_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def flood() -> None:
        rationed = Rationed(logging.getLogger("squall.flood"), quiet_s=0.05)
        for number in range(1000):
            rationed.warn(f"it claims {number} bytes")
            rationed.warn("it is " + "x" * number)
        while len(caplog.messages) < 11:
            await asyncio.sleep(0.01)
        rationed.warn("it claims 7 bytes")

    asyncio.run(flood())
    assert caplog.messages[:2] == ["it claims 0 bytes", "it is "]
    assert caplog.messages[9] == "it is " + "x" * 8
    assert caplog.messages[10:] == ["and 1990 more like these in the last 0.05 s", "it claims 7 bytes"]


def half_a_handshake() -> bytes:
    """What a client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def crowd(tls: Served, count: int) -> list[socket.socket]:
    """Connections that say nothing, half of a greeting, a whole one and no more, or nonsense."""
    host, port = tls.address.url.removeprefix("tls://").split(":")
    hello, source = half_a_handshake(), random.Random(0)
    connections = []
    for number in range(count):
        connections.append(socket.create_connection((host, int(port))))
        connections[-1].settimeout(30)
        with contextlib.suppress(ConnectionError):
            connections[-1].sendall((b"", hello[:60], hello, source.randbytes(300))[number % 4])
    return connections


def test_noise_and_handshakes_that_never_end_keep_no_client_out(tls: Served) -> None:
    (pid,) = tls.cluster.pids

    def files() -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    before = files()
    connections = crowd(tls, 600)
    while files() < before + 300:  # those of which more could come
        time.sleep(0.01)
    with connect(tls.address.url, tls.address.token) as store:
        store.control.open_job("crowded", 1)
        store.blobs.put("crowded/a", b"1")
        assert store.blobs.get("crowded/a") == b"1"
        store.control.close_job("crowded")
    for connection in connections:
        connection.close()
    while files() > before:
        time.sleep(0.01)


@pytest.mark.slow
def test_handshakes_that_never_end_are_given_up(tls: Served) -> None:
    connections = crowd(tls, 8)
    for connection in connections:
        with contextlib.suppress(ConnectionResetError), connection:
            while connection.recv(65536):
                pass


def test_tls_asks_for_the_token_and_hides_it(tls: Served) -> None:
    with pytest.raises(StoreError, match="does not know this store's token"):
        connect(tls.address.url, "another")
    with pytest.raises(StoreError, match=r"cannot be reached|protocol|closed"):
        connect(tls.address.url.replace("tls:", "tcp:"), tls.address.token)
    assert tls.address.token not in repr(tls)
