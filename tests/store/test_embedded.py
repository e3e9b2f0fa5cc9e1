"""What only the embedded store promises, beyond the contracts (see test_contracts)."""

from __future__ import annotations

import gc
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from squall.errors import StoreError
from squall.protocols import SharedTables
from squall.records import OptimizerSpec, Stamp, TableSpec
from squall.store import wire
from squall.store.embedded import EmbeddedStore, connect
from squall.store.memory import available_memory
from squall.store.process import StoreProcess
from squall.testing.blobs import numbered
from squall.testing.stores import filled, rows_of


def spec_of(job: str, rows: int = 10, name: str = "w") -> TableSpec:
    return TableSpec(f"{job}/{name}", rows, 1, OptimizerSpec("sgd", 1.0), rows)


def test_memory_is_shared(store: EmbeddedStore, second: EmbeddedStore, job: str) -> None:
    assert isinstance(store.tables, SharedTables)
    spec = spec_of(job)
    store.tables.create(spec)
    mine, theirs = store.tables.shared(spec.name), second.tables.shared(spec.name)
    mine.array[4, 0] = 2.5
    mine.step[0] += 3
    assert theirs.array[4, 0] == 2.5
    assert theirs.step[0] == 3
    assert second.tables.pull(spec.name, rows_of(4)).item() == 2.5
    assert theirs.array.ctypes.data % 64 == 0
    assert store.tables.shared(spec.name).array.base is mine.array.base


def test_progress_cells_lie_on_their_own_lines(store: EmbeddedStore, job: str) -> None:
    addresses = [store.control.progress(job, slot).ctypes.data for slot in range(3)]
    assert all(address % 64 == 0 for address in addresses)
    assert len({address // 64 for address in addresses}) == 3


def test_a_push_counts_a_step(store: EmbeddedStore, job: str) -> None:
    spec = spec_of(job)
    store.tables.create(spec)
    shared = store.tables.shared(spec.name)
    store.tables.push(spec.name, rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))
    store.tables.push(spec.name, rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))
    store.tables.add(spec.name, rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 1))
    assert shared.step.tolist() == [1]


def test_repeats_are_known_across_clients(store: EmbeddedStore, second: EmbeddedStore, job: str) -> None:
    spec = spec_of(job)
    store.tables.create(spec)
    assert store.tables.push(spec.name, rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))
    assert not second.tables.push(spec.name, rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))


def test_a_table_dropped_by_another_client(store: EmbeddedStore, second: EmbeddedStore, job: str) -> None:
    spec = spec_of(job)
    store.tables.create(spec)
    store.tables.add(spec.name, rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))
    second.tables.drop(spec.name)
    with pytest.raises(StoreError, match="no such table"):
        store.tables.pull(spec.name)
    second.tables.create(spec)
    assert not store.tables.pull(spec.name).any()


def test_close_job_takes_tables_and_blobs(store: EmbeddedStore, second: EmbeddedStore, job: str) -> None:
    spec = spec_of(job)
    store.tables.create(spec)
    second.tables.shared(spec.name)
    store.blobs.put(f"{job}/a", b"1")
    store.blobs.put(f"{job}x/a", b"2")
    store.control.close_job(job)
    with pytest.raises(StoreError, match="no such"):
        second.tables.shared(spec.name)
    assert store.blobs.mget([f"{job}/a", f"{job}x/a"]) == [None, b"2"]
    store.blobs.delete(f"{job}x/a")


def test_a_table_needs_a_job(store: EmbeddedStore, new_job: str) -> None:
    with pytest.raises(StoreError, match="no such job"):
        store.tables.create(spec_of(new_job))
    for name in ("plain", "/x", "x/", "job/\0"):
        with pytest.raises(StoreError, match="cannot name a table"):
            store.tables.create(TableSpec(name, 1, 1, OptimizerSpec("sgd", 1.0), 1))


def test_a_table_larger_than_memory(store: EmbeddedStore, job: str, server: StoreProcess) -> None:
    for rows in (1 << 38, 1 << 40):
        with pytest.raises(StoreError, match=r"needs \d+ GB, but only .* is left") as caught:
            store.tables.create(spec_of(job, rows))
        assert "fix:" in str(caught.value)
    store.tables.create(spec_of(job, 10))
    assert server.alive
    available = available_memory()
    assert available is not None
    assert 0 < available < 1 << 46


def test_values_larger_than_a_frame(store: EmbeddedStore, job: str) -> None:
    value = numbered(wire.MAX_FRAME + 5)
    store.blobs.put(f"{job}/a", value)
    for part in "bc":
        store.blobs.put(f"{job}/{part}", value[: 30 << 20])
    assert store.blobs.mget([f"{job}/{part}" for part in "abc"]) == [value, *[value[: 30 << 20]] * 2]


def server_memory(pid: int) -> tuple[int, int]:
    """(private, shared) resident bytes and of files without a name that it holds open."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    held = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if any(mark in str(entry.readlink()) for mark in ("memfd:squall", "(deleted)")):
            held += entry.stat().st_blocks * 512
    return int(fields["RssAnon"].split()[0]) * 1024, held


def test_closing_a_job_gives_its_memory_back(
    server: StoreProcess, store: EmbeddedStore, new_job: str
) -> None:
    _, before = server_memory(server.pid)
    store.control.open_job(new_job, 2)
    store.tables.create(spec_of(new_job, 16 << 20))
    assert server_memory(server.pid)[1] - before >= 64 << 20, "the server has taken the memory already"
    store.tables.shared(f"{new_job}/w")
    store.control.close_job(new_job)
    assert server_memory(server.pid)[1] == before
    assert f"{new_job}/w" not in Path("/proc/self/maps").read_text()


def test_close_unmaps(server: StoreProcess, store: EmbeddedStore, job: str) -> None:
    store.tables.create(spec_of(job))
    client = connect(server.address)
    held = client.tables.shared(f"{job}/w").array
    client.control.progress(job, 0)
    client.close()
    client.close()
    with pytest.raises(StoreError, match="closed"):
        client.tables.shared(f"{job}/w")
    held[0] = 1.0  # still mapped, since it is still held
    del held
    gc.collect()
    assert f"{job}" not in Path("/proc/self/maps").read_text()


@pytest.mark.slow
def test_thousands_of_jobs_leak_nothing(server: StoreProcess, store: EmbeddedStore, new_job: str) -> None:
    def run(n: int) -> None:
        for number in range(n):
            job = f"{new_job}-{number}"
            store.control.open_job(job, 2)
            store.tables.create(spec_of(job, 2000))
            store.control.register(job, 0, 0, 1)
            store.control.save_state(job, 0, 0, bytes(1000))
            store.blobs.put(f"{job}/x", bytes(1000))
            store.tables.add(f"{job}/w", rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))
            store.control.close_job(job)

    def used() -> tuple[int, int, int]:
        return (
            len(list(Path(f"/proc/{server.pid}/fd").iterdir())),
            len(list(Path("/proc/self/fd").iterdir())),
            server_memory(server.pid)[0],
        )

    run(50)
    files, mine, memory = used()
    run(1000)
    files_after, mine_after, memory_after = used()
    assert files_after <= files
    assert mine_after <= mine
    assert memory_after - memory < 1 << 20


@pytest.mark.parametrize("address", ["", "tcp://127.0.0.1:1", "unix:", "/tmp/x"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(StoreError, match="not the address"):
        connect(address)


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be reached"):
        connect(f"unix:{tmp_path}/none")


def test_order_of_pushes_is_kept(store: EmbeddedStore, job: str) -> None:
    # AdaGrad's steps shrink, so the sum would differ in another order.
    spec = TableSpec(f"{job}/w", 1, 1, OptimizerSpec("adagrad", 1.0), 1)
    store.tables.create(spec)
    weight, total = 0.0, 0.0
    for sequence, gradient in enumerate([1.0, -3.0, 0.25, 10.0]):
        store.tables.push(spec.name, rows_of(0), filled((1, 1), gradient), Stamp(0, 0, sequence))
        total += gradient**2
        weight -= gradient / total**0.5
    assert np.allclose(store.tables.pull(spec.name), weight, rtol=1e-5)


def test_ctrl_c_leaves_the_connection_usable(store: EmbeddedStore, job: str) -> None:
    store.blobs.put(f"{job}/a", b"1")
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            store.blobs.wait(f"{job}/never", 20.0)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert store.blobs.get(f"{job}/a") == b"1"


def test_two_threads_on_one_connection_are_refused(store: EmbeddedStore, job: str) -> None:
    thread = threading.Thread(target=store.blobs.wait, args=(f"{job}/late", 20.0))
    thread.start()
    time.sleep(0.1)
    try:
        with pytest.raises(StoreError, match="connect in each thread"):
            store.blobs.get(f"{job}/late")
    finally:
        with connect(store.address) as other:
            other.blobs.put(f"{job}/late", b"1")
        thread.join(20.0)


def test_another_version_is_refused(server: StoreProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "VERSION", 99)
    with pytest.raises(StoreError, match="fix: use the same Squall version"):
        connect(server.address)
