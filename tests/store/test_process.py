"""The server's life: it starts from anywhere, and never outlives its owner (faults 5, 24)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import squall
from squall.errors import StoreError
from squall.store import process as process_module
from squall.store.embedded import connect
from squall.store.process import StoreProcess, shared_store, shutdown

# Python 3.12 warns of any fork beside threads, such as the test runner's.
forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def exists(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def folder_of(address: str) -> Path:
    return Path(address.removeprefix("unix:")).parent


@pytest.fixture
def process() -> Iterator[StoreProcess]:
    with StoreProcess.start() as process:
        yield process


@pytest.fixture
def nothing_warm() -> Iterator[None]:
    shutdown()
    yield
    shutdown()


def test_start_and_close(process: StoreProcess) -> None:
    folder = folder_of(process.address)
    assert process.alive
    assert folder.stat().st_mode & 0o777 == 0o700
    with connect(process.address) as store:
        assert store.blobs.get("x") is None
        process.close()
        process.close()
        assert not process.alive
        assert not exists(process.pid)
        assert not folder.exists()
        with pytest.raises(StoreError, match="cannot be reached"):
            store.blobs.get("x")


def test_it_is_in_a_session_of_its_own(process: StoreProcess) -> None:
    assert os.getsid(process.pid) == process.pid
    assert Path(f"/proc/{process.pid}/fd/0").readlink() == Path(os.devnull)
    assert b"OPENBLAS_NUM_THREADS=1" in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")


def test_a_killed_server_is_noticed_and_cleaned_up(process: StoreProcess) -> None:
    folder = folder_of(process.address)
    with connect(process.address) as store:
        os.kill(process.pid, signal.SIGKILL)
        assert eventually(lambda: not process.alive)
        with pytest.raises(StoreError):
            store.blobs.get("x")
    process.close()
    assert not folder.exists()


def test_sigterm_removes_the_folder(process: StoreProcess) -> None:
    with connect(process.address):
        pass  # it has imported everything
    os.kill(process.pid, signal.SIGTERM)
    assert eventually(lambda: not process.alive)
    assert not folder_of(process.address).exists()


def test_an_object_that_nobody_holds_ends_its_server() -> None:
    process = StoreProcess.start()
    pid = process.pid
    del process
    assert not exists(pid)


def test_a_failed_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "squall").mkdir()
    (tmp_path / "squall" / "__init__.py").write_text("raise RuntimeError('broken on purpose')")
    monkeypatch.setattr(process_module, "_search_path", lambda: [str(tmp_path)])
    monkeypatch.setenv("SKBUILD_EDITABLE_SKIP", str(tmp_path))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such thing >&2\nexit 7\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(StoreError, match="exit code 7") as caught:
        StoreProcess.start()
    assert "no such thing" in str(caught.value)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(StoreError, match="cannot be started"):
        StoreProcess.start()
    del caught
    assert len(list(Path("/proc/self/fd").iterdir())) == before


SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from squall.store.process import shared_store
from squall.store.embedded import connect
with connect(shared_store().address) as store:
    store.control.open_job("job", 1)
    print(shared_store().pid, shared_store().address, flush=True)
{then}
"""


def script(then: str = "") -> str:
    """A script without a main guard, which finds Squall by its own `sys.path` only."""
    return SCRIPT.format(paths=[str(Path(squall.__file__).parent.parent)], then=then)


def test_an_unguarded_script_from_standard_input() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-"], input=script(), text=True, capture_output=True, timeout=30
    )
    assert run.returncode == 0, run.stderr
    assert not run.stderr
    pid, address = run.stdout.split()
    assert not exists(int(pid))
    assert not folder_of(address).exists()


def test_a_folder_of_traps_does_no_harm(tmp_path: Path) -> None:
    for name in ("socket", "tempfile", "asyncio", "msgspec", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the user')")
    code = script().replace("import sys\n", "import sys\nsys.path.remove('')\n", 1)
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, capture_output=True, timeout=30
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_is_killed_leaves_nothing(number: signal.Signals, job: str) -> None:
    then = """
    from squall.records import TableSpec, OptimizerSpec
    store.tables.create(TableSpec("job/killed-client", 1 << 20, 1, OptimizerSpec("sgd", 1.0), 0))
    store.tables.shared("job/killed-client")
    print("ready", flush=True)
    import time
    time.sleep(60)
"""
    client = subprocess.Popen(
        [sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with client:
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write(script(then).encode())
        client.stdin.close()
        pid, address = client.stdout.readline().split()
        assert client.stdout.readline() == b"ready\n"
        client.send_signal(number)
        client.wait(20)
    assert eventually(lambda: not exists(int(pid)), 2.0)
    assert eventually(lambda: not folder_of(address.decode()).exists(), 2.0)


def test_the_warm_store_is_kept_and_restarted(nothing_warm: None) -> None:
    first = shared_store()
    assert shared_store() is first
    os.kill(first.pid, signal.SIGKILL)
    second = shared_store()
    assert second.pid != first.pid
    assert not first.alive
    assert not folder_of(first.address).exists()
    shutdown()
    shutdown()
    assert not second.alive


def test_the_warm_store_ends_when_idle(nothing_warm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "IDLE_S", 0.5)
    store = shared_store()
    with connect(store.address) as client:
        client.control.open_job("job", 1)
        time.sleep(0.8)
        assert store.alive, "a job is open"
        client.control.close_job("job")
    assert eventually(lambda: not store.alive, 5.0)
    assert not folder_of(store.address).exists()
    assert shared_store().alive


@forks
def test_a_fork_neither_uses_nor_ends_the_store(nothing_warm: None) -> None:
    store = shared_store()
    with connect(store.address) as client:
        client.control.open_job("job", 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                refused = False
                try:
                    client.control.open_job("job", 1)
                except StoreError as error:
                    refused = "fork" in str(error)
                own = shared_store()
                if refused and not store.alive and own.pid != store.pid and own.alive:
                    code = 0
                store.close()
                shutdown()
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert store.alive
        client.control.open_job("job", 1)
    assert shared_store() is store


@forks
def test_a_fork_does_not_keep_the_store_alive() -> None:
    """The child inherits the pipe whose end ends the server, and must let go of it."""
    store = StoreProcess.start()
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        start = time.monotonic()
        store.close()
        assert time.monotonic() - start < process_module.END_TIMEOUT_S
        assert exists(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
