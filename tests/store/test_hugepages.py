"""Tables in huge pages, where the system permits them; ordinary memory files elsewhere."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from squall.store.hugepages import HUGE_PAGE, huge_file, mount_huge
from squall.store.memory import Segment

_permitted = mount_huge()
needs_huge = pytest.mark.skipif(_permitted is None, reason="this user may not mount a tmpfs")
if _permitted is not None:
    os.close(_permitted)


def mapped_huge_kb() -> int:
    return sum(int(kb) for kb in re.findall(r"ShmemPmdMapped: +(\d+)", Path("/proc/self/smaps").read_text()))


@needs_huge
def test_a_large_segment_is_mapped_in_huge_pages(tmp_path: Path) -> None:
    root = mount_huge()
    assert root is not None
    segment = Segment("table", 4 * HUGE_PAGE, str(tmp_path), root)
    os.close(root)  # the mount lives as long as its files
    try:
        for _ in segment.fill():
            pass
        before = mapped_huge_kb()
        with segment.map() as memory:
            memory[0] = memory[HUGE_PAGE] = 1
            assert mapped_huge_kb() - before >= 2 * HUGE_PAGE // 1024
    finally:
        segment.close()


@needs_huge
def test_files_are_shared_and_have_no_name() -> None:
    root = mount_huge()
    assert root is not None
    try:
        fd = huge_file(root)
        os.ftruncate(fd, HUGE_PAGE)
        with mmap.mmap(fd, HUGE_PAGE) as one, mmap.mmap(fd, HUGE_PAGE) as other:
            one[7] = 42
            assert other[7] == 42
        os.close(fd)
        assert not os.get_inheritable(root)
        mounts = Path("/proc/self/mounts").read_text()
        assert "huge=always" not in mounts
    finally:
        os.close(root)


def test_small_segments_waste_no_huge_page(tmp_path: Path) -> None:
    segment = Segment("small", 4096, str(tmp_path), huge=-1)  # a descriptor that would fail
    segment.close()


@needs_huge
@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user")
def test_an_ordinary_user_gets_them_through_a_user_namespace() -> None:
    script = (
        "import ctypes, os; from squall.store import hugepages\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable again: /proc/self is this user's\n"
        "root = hugepages.mount_huge()\n"
        "print(root is not None and os.fstat(hugepages.huge_file(root)).st_uid)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("65534", "False")  # some systems forbid user namespaces
    assert done.stderr == ""
