"""The leak check after every test: it finds each kind of leak, and warm processes are none."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import squall
from squall.functions.local.connection import open_launchers
from squall.functions.local.platform import LocalPlatform
from squall.store.process import StoreProcess, open_stores
from squall.testing.leaks import LeakCheck
from squall.testing.platform import shape

ROOT = Path(__file__).parents[1]


@contextmanager
def a_child() -> Iterator[None]:
    child = subprocess.Popen(["sleep", "60"])
    yield
    child.kill()
    child.wait()


@contextmanager
def a_zombie() -> Iterator[None]:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    yield
    child.wait()


@contextmanager
def an_orphan() -> Iterator[None]:
    told = subprocess.run(["sh", "-c", "sleep 60 >&2 & echo $!"], stdout=subprocess.PIPE)
    yield
    os.kill(int(told.stdout), 9)


@contextmanager
def a_socket() -> Iterator[None]:
    with socket.socket():
        yield


@contextmanager
def a_pipe() -> Iterator[None]:
    ends = os.pipe()
    yield
    for end in ends:
        os.close(end)


@contextmanager
def a_memory_file() -> Iterator[None]:
    fd = os.memfd_create("table")
    with mmap.mmap(-1, 1):
        yield
    os.close(fd)


@contextmanager
def an_open_file() -> Iterator[None]:
    with Path(__file__).open():
        yield


@contextmanager
def shared_memory() -> Iterator[None]:
    path = Path("/dev/shm", f"squall-test-{os.getpid()}")
    path.write_bytes(b"x")
    yield
    path.unlink()


@contextmanager
def a_temporary_file() -> Iterator[None]:
    fd, path = tempfile.mkstemp()
    os.close(fd)
    yield
    Path(path).unlink()


@contextmanager
def a_temporary_folder() -> Iterator[None]:
    folder = tempfile.mkdtemp()
    yield
    Path(folder).rmdir()


LEAKS = [
    (a_child, "process"),
    (a_zombie, "process"),
    (an_orphan, "process"),
    (a_socket, "descriptor"),
    (a_pipe, "descriptor"),
    (a_memory_file, "descriptor"),
    (an_open_file, "descriptor"),
    (shared_memory, "shared memory"),
    (a_temporary_file, "temporary file"),
    (a_temporary_folder, "temporary file"),
]


@pytest.mark.parametrize(("leak", "kind"), LEAKS, ids=lambda p: getattr(p, "__name__", ""))
def test_each_kind_is_found_while_it_is_there(
    leak_check: LeakCheck, leak: Callable[[], contextmanager[None]], kind: str
) -> None:
    before = leak_check.held()
    with leak():
        found = leak_check.leaks(before, patience_s=0.2)
        assert found and {line.startswith(f"{kind} ") for line in found} == {True}
    assert leak_check.leaks(before) == []


@pytest.mark.parametrize("name", ["jobs/x/part-0.safetensors", "datasets/x/part-0.safetensors#1231"])
def test_what_a_job_leaves_in_its_storage_is_found(leak_check: LeakCheck, tmp_path: Path, name: str) -> None:
    storage = tmp_path / "elsewhere"
    leftover = storage / name
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"x")
    (storage / "datasets").mkdir(exist_ok=True)
    (storage / "datasets" / "part-0.safetensors").write_bytes(b"meant to stay")
    assert leak_check.leaks(leak_check.held(), storage, patience_s=0.0) == [f"object {leftover}"]


def test_what_is_warm_is_no_leak_until_shutdown(leak_check: LeakCheck) -> None:
    squall.shutdown()
    before = leak_check.held()
    X = np.arange(20.0).reshape(10, 2)
    squall.LogisticRegression().fit(X, X[:, 0] > 9)
    assert {p.pid for p in [*open_launchers(), *open_stores()]} - before.pids, "warm ones run"
    assert leak_check.leaks(before) == []
    squall.shutdown()
    assert leak_check.leaks(before) == []


@pytest.mark.parametrize("make", [lambda: LocalPlatform(), lambda: StoreProcess.start()])
def test_what_an_open_object_owns_is_no_leak_and_closing_it_leaves_nothing(
    leak_check: LeakCheck, make: Callable[[], LocalPlatform | StoreProcess]
) -> None:
    before = leak_check.held()
    owner = make()
    if isinstance(owner, LocalPlatform):
        owner.prepare(shape("echo")).invoke({}).outcome(30)
    assert leak_check.held() != before
    assert leak_check.leaks(before) == []
    owner.close()
    assert leak_check.leaks(before) == []


@pytest.mark.slow
def test_a_test_that_leaks_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent("""
            import os
            def test_clean(): pass
            def test_leaky(monkeypatch): monkeypatch.setattr(os, "kept", os.pipe(), raising=False)
        """)
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp=temp", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "2 passed, 1 error" in ended.stdout, ended.stdout
    assert "ERROR at teardown of test_leaky" in ended.stdout
    assert "descriptor" in ended.stdout and "pipe:" in ended.stdout
