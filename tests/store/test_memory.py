"""How much memory is left is read from the machine and from every enclosing cgroup."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from squall.errors import StoreError
from squall.store import memory
from squall.store.memory import Segment, check_room

V2 = ("memory.max", "memory.current", "inactive_file")


def group(folder: Path, limit: str, used: int, cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\nfile 9\n")


def test_rooms_of_nested_groups(tmp_path: Path) -> None:
    group(tmp_path / "a" / "b", "1000", 700, 100)
    group(tmp_path / "a", "500", 300, 0)
    group(tmp_path, "max", 5000, 0)
    assert list(memory._rooms_upwards(tmp_path, "/a/b", V2)) == [400, 200]


def test_a_path_of_the_host_counts_as_the_root(tmp_path: Path) -> None:
    group(tmp_path, "1000", 10, 0)
    assert list(memory._rooms_upwards(tmp_path, "/docker/unknown", V2)) == [990]


def test_room_is_checked_against_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_machine_room", lambda: 10 << 30)
    monkeypatch.setattr(memory, "_cgroup_rooms", lambda: iter([1 << 30]))
    check_room(900 << 20, "table 'w'")
    with pytest.raises(StoreError, match=r"table 'w' needs 1000 MB, but only 960 MB of memory is left"):
        check_room(1000 << 20, "table 'w'")


def test_a_segment_cannot_be_shrunk_under_its_readers(tmp_path: Path) -> None:
    segment = Segment("name \u00fc" * 100, 8192, str(tmp_path))
    try:
        for _ in segment.fill():
            pass
        assert os.fstat(segment.fd).st_blocks * 512 >= 8192
        for size in (0, 1 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(segment.fd, size)
        assert not any(segment.map()[:])
    finally:
        segment.close()
        segment.close()


def test_systems_without_memory_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    segment = Segment("name", 8192, str(tmp_path))
    try:
        assert list(segment.fill()) == [None]
        mapped = segment.map()
        mapped[5] = 7
        assert segment.map()[5] == 7
        assert not list(tmp_path.iterdir()), "the file has lost its name"
    finally:
        segment.close()
    assert memory.available_memory() is None
