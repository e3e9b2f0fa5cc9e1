"""Shared by all tests: storage of their own, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import squall


@pytest.fixture(autouse=True)
def own_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test writes partitions below its own folder."""
    monkeypatch.setenv("SQUALL_STORAGE", str(tmp_path / "storage"))
    return tmp_path / "storage"


@pytest.fixture(scope="session", autouse=True)
def nothing_stays_warm() -> Iterator[None]:
    """End warm functions and stores when a test process ends."""
    yield
    squall.shutdown()


@pytest.fixture(scope="session")
def census() -> Path:
    """The UCI Adult census file."""
    return Path(__file__).parents[1] / "examples" / "data" / "adult.csv.gz"
