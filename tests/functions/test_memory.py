"""Where cgroups are looked for, on machines other than this one; and what their files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.errors import PlatformError
from squall.functions.local import memory
from squall.functions.local.memory import V1, V2, Cgroup, CgroupLimiter


def machine(tmp_path: Path, mounts: str, own: str) -> Path:
    """A /proc/self of a machine whose cgroups are mounted below ``tmp_path``."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "mountinfo").write_text(mounts.format(root=tmp_path))
    (proc / "cgroup").write_text(own)
    return proc


def delegate(path: Path, controllers: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.subtree_control").write_text(controllers)


def test_version_1_is_looked_for_below_our_own_cgroup(tmp_path: Path) -> None:
    (tmp_path / "memory" / "jobs" / "7").mkdir(parents=True)
    proc = machine(
        tmp_path,
        "31 23 0:28 / {root} rw - tmpfs tmpfs rw\n35 31 0:32 / {root}/memory rw - cgroup cgroup rw,memory\n",
        "5:cpu,cpuacct:/else\n4:memory:/jobs/7\n0::/\n",
    )
    assert list(memory.parents(proc)) == [(V1, tmp_path / "memory/jobs/7")]


def test_version_1_in_a_container_sees_only_its_own_part(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    proc = machine(
        tmp_path,
        "35 31 0:32 /docker/ab {root}/memory rw - cgroup cgroup rw,memory\n",
        "4:memory:/docker/ab\n",
    )
    assert [path.resolve() for _, path in memory.parents(proc)] == [(tmp_path / "memory").resolve()]


def test_version_2_is_looked_for_where_memory_is_delegated(tmp_path: Path) -> None:
    """On a desktop: the session's own cgroup holds processes, so an ancestor has to do."""
    root = tmp_path / "unified"
    delegate(root, "cpu memory pids")
    delegate(root / "user.slice", "cpu memory pids")
    delegate(root / "user.slice/user-1.slice", "pids")
    delegate(root / "user.slice/user-1.slice/session-1.scope", "")
    proc = machine(
        tmp_path,
        "30 23 0:27 / {root}/unified rw - cgroup2 cgroup2 rw\n",
        "0::/user.slice/user-1.slice/session-1.scope\n",
    )
    assert list(memory.parents(proc)) == [(V2, root / "user.slice"), (V2, root)]


def test_no_proc_no_cgroups(tmp_path: Path) -> None:
    assert list(memory.parents(tmp_path)) == []


def test_settings_of_version_1(tmp_path: Path) -> None:
    group = CgroupLimiter(tmp_path, V1).group("a", 1 << 20)
    assert {file.name: file.read_text() for file in group.path.iterdir()} == {
        "memory.limit_in_bytes": "1048576"
    }


def test_settings_of_version_2() -> None:
    assert list(V2.settings(1 << 20)) == [
        ("memory.max", "1048576", True),
        ("memory.swap.max", "0", False),
        ("memory.oom.group", "1", False),
    ]


@pytest.mark.parametrize(
    ("version", "text", "kills"),
    [
        (V1, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2),
        (V1, "oom_kill_disable 0\nunder_oom 0\n", 0),  # kernels before 4.13 do not count
        (V2, "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 1\n", 1),
        (V2, "low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\n", 0),
    ],
)
def test_kills_are_counted_by_the_kernel(
    tmp_path: Path, version: memory.Version, text: str, kills: int
) -> None:
    (tmp_path / version.events).write_text(text)
    assert Cgroup(tmp_path, version).oom_kills() == kills


def test_demanding_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "parents", lambda proc, controller="memory": iter(()))
    assert memory.choose("auto", "squall-x").name == "watchdog"
    with pytest.raises(PlatformError, match="no cgroup"):
        memory.choose("cgroup", "squall-x")
