"""These tests start real functions: each module ends with nothing left of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import squall


def children() -> dict[int, str]:
    """This process's children: process id → command line."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                found[int(stat.parent.name)] = (stat.parent / "cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return found


@pytest.fixture(scope="module", autouse=True)
def module_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The object store of one module, checked at its end together with processes and threads."""
    squall.shutdown()
    before = children()
    storage = tmp_path_factory.mktemp("storage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SQUALL_STORAGE", str(storage))
        yield storage
        squall.shutdown()
    assert {pid: line for pid, line in children().items() if pid not in before} == {}
    assert [str(path) for path in (storage / "jobs").rglob("*")] == []
    assert [t.name for t in threading.enumerate() if t.name.startswith(("squall-job", "squall-rep"))] == []


@pytest.fixture(autouse=True)
def own_storage(module_storage: Path) -> Path:
    """Instead of the storage that each test has elsewhere."""
    return module_storage
