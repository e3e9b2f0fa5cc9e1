"""Shared by all tests: storage of their own, and nothing left behind."""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import squall
from squall.testing.leaks import LeakCheck


@pytest.fixture(scope="session", autouse=True)
def leak_check(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeakCheck]:
    """Nothing at all is left when a test process ends what it has kept warm."""
    temporary = tmp_path_factory.mktemp("temp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))  # one that no other process of this machine uses
        patch.setattr(tempfile, "tempdir", None)
        check = LeakCheck(temporary)
        before = check.held()
        yield check
        squall.shutdown()
        left = check.leaks(before)
    del os.environ[check.MARK]
    assert left == []


_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test has failed: its traceback then keeps alive what it has opened."""
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def leaves_nothing(leak_check: LeakCheck, request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test: no process, descriptor, shared memory, temporary file, nor a job's object.

    Set up before all other fixtures of a test (its name comes first), so it looks after them.
    """
    before = leak_check.held()
    yield
    if request.node.stash.get(_failed, False):
        return
    storage = request.node.funcargs.get("own_storage")
    left = leak_check.leaks(before, storage)
    assert left == [], "the test leaves this behind"


@pytest.fixture(autouse=True)
def own_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test writes partitions below its own folder."""
    monkeypatch.setenv("SQUALL_STORAGE", str(tmp_path / "storage"))
    return tmp_path / "storage"


@pytest.fixture(scope="session")
def census() -> Path:
    """The UCI Adult census file."""
    return Path(__file__).parents[1] / "examples" / "data" / "adult.csv.gz"


@pytest.fixture(scope="session")
def lithops_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for Lithops's files; where they go is decided, for good, when it is imported."""
    folder = tmp_path_factory.mktemp("lithops")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        importlib.import_module("lithops.constants")
    return folder


@pytest.fixture
def lithops_home(lithops_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, which the processes that Lithops starts then find, too."""
    monkeypatch.setenv("HOME", str(lithops_folder))
    monkeypatch.setenv("TMPDIR", str(lithops_folder))
    return lithops_folder


def lithops_config(folder: Path, storage: str, **section: Any) -> Path:
    """A configuration of Lithops with that storage (JSON is YAML)."""
    general = {"storage": storage, "data_cleaner": False, "telemetry": False, "monitoring_interval": 0.2}
    path = folder / f"{storage}.yaml"
    path.write_text(json.dumps({"lithops": general, storage: section}))
    return path
