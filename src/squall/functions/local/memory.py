"""Memory limits that kill: cgroups of either version where permitted, else a watchdog.

An address-space limit (``ulimit -v``) will not do: importing numpy reserves far more address
space than it uses.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from squall import procfs
from squall.errors import PlatformError
from squall.functions.local.leftovers import end_process, orphans_in
from squall.log import get_logger

_DYING_S = 2.0  # killed processes are given this long to disappear
_log = get_logger("squall.functions.local")


class MemoryGroup(Protocol):
    """The memory of one environment and of all processes that it starts."""

    def add(self, pid: int) -> None:
        """Count process ``pid``, and what it will start, from now on."""

    def over_limit(self, pid: int, private: int) -> bool:
        """Whether the launcher has to end process ``pid``, which uses ``private`` bytes."""

    def oom_kills(self) -> int:
        """Processes that the kernel has killed for this group's limit so far."""

    def remove(self) -> bool:
        """Kill what is left and give the group up; False if it has to be tried again."""


class MemoryLimiter(Protocol):
    """A way to limit memory."""

    @property
    def name(self) -> str:
        """``"cgroup v1"``, ``"cgroup v2"`` or ``"watchdog"``."""

    def group(self, name: str, limit: int) -> MemoryGroup:
        """A group that may use ``limit`` bytes; OSError if it cannot be made."""

    def close(self) -> None:
        """Give everything up; the groups have been removed before."""


# ------------------------------------------------------------------------------- watchdog


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """Memory that the launcher looks at now and then."""

    limit: int

    def add(self, pid: int) -> None:
        """Nothing to do: children are found when the group is looked at."""

    def over_limit(self, pid: int, private: int) -> bool:
        """Sum over the process and its descendants (those of their main threads)."""
        return private > self.limit or private + self._descendants(pid) > self.limit

    def oom_kills(self) -> int:
        """Always 0: the kernel does not know of this limit."""
        return 0

    def remove(self) -> bool:
        """Nothing to give up."""
        return True

    def _descendants(self, pid: int) -> int:
        return sum(procfs.private_bytes(c) + self._descendants(c) for c in procfs.children(pid))


@dataclass(frozen=True, slots=True)
class Watchdog:
    """Needs no rights, but sees memory only every few milliseconds (`supervisor.TICK_S`).

    A function that allocates fast overshoots by what it can touch in that time, some tens of
    megabytes.  Needs Linux's /proc: on macOS memory is *not* limited (untested there).
    """

    name: str = "watchdog"

    def group(self, name: str, limit: int) -> WatchedGroup:
        """A group that may use ``limit`` bytes."""
        return WatchedGroup(limit)

    def close(self) -> None:
        """Nothing to give up."""


# -------------------------------------------------------------------------------- cgroups


@dataclass(frozen=True, slots=True)
class Version:
    """Names of the control files in one version of cgroups."""

    name: str
    limit: str
    swap: str
    events: str
    group_kill: str = ""

    def settings(self, limit: int) -> Iterator[tuple[str, str, bool]]:
        """(file, value, whether the kernel must have it), in the order to be written."""
        yield self.limit, str(limit), True
        # Without swap the limit is what the function may use altogether.  Version 1 limits
        # the sum of both, version 2 the swap alone.
        yield self.swap, "0" if self.group_kill else str(limit), False
        if self.group_kill:
            yield self.group_kill, "1", False


V1 = Version("cgroup v1", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control")
V2 = Version("cgroup v2", "memory.max", "memory.swap.max", "memory.events", "memory.oom.group")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One environment's cgroup."""

    path: Path
    version: Version

    def add(self, pid: int) -> None:
        """Move a process in; what it has allocated before stays charged where it was."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def over_limit(self, pid: int, private: int) -> bool:
        """Never: the kernel ends it by itself."""
        return False

    def oom_kills(self) -> int:
        """The kernel's own counter."""
        try:
            found = re.search(r"^oom_kill (\d+)$", (self.path / self.version.events).read_text(), re.M)
        except FileNotFoundError:
            return 0
        return int(found[1]) if found else 0

    def remove(self) -> bool:
        """Also ends processes that have left the environment's process group."""
        try:
            for line in (self.path / "cgroup.procs").read_text().split():
                if int(line) > 0:  # 0 is a process of another container
                    end_process(int(line))
            self.path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:  # a killed process is still on its way out
            return False
        return True


@dataclass(frozen=True, slots=True)
class CgroupLimiter:
    """Cgroups below ``path``, which this launcher has made for itself."""

    path: Path
    version: Version

    @property
    def name(self) -> str:
        """The version of cgroups."""
        return self.version.name

    def group(self, name: str, limit: int) -> Cgroup:
        """A new cgroup."""
        path = self.path / name
        path.mkdir()
        for file, value, needed in self.version.settings(limit):
            if needed or (path / file).exists():
                (path / file).write_text(value)
        return Cgroup(path, self.version)

    def close(self) -> None:
        """Remove the parent."""
        _remove_parent(self.path, self.version)


def choose(mechanism: str, name: str) -> MemoryLimiter:
    """The best mechanism that works here; cgroups get a parent called ``name``.

    Parameters
    ----------
    mechanism : {"auto", "cgroup", "watchdog"}
        What is wanted; ``"auto"`` takes the watchdog where cgroups are not permitted.

    Raises
    ------
    PlatformError
        If cgroups are demanded and not permitted.
    """
    if mechanism != "watchdog":
        for version, parent in parents(Path("/proc/self")):
            limiter = _try(version, parent, name)
            if limiter is not None:
                return limiter
    if mechanism == "cgroup":
        raise PlatformError(
            "no cgroup can be made here to limit memory", fix="run with the rights to make one"
        )
    return Watchdog()


def remove_orphans() -> None:
    """Remove what launchers that were killed have left, with the processes in it."""
    for controller in ("memory", "cpu"):
        for version, parent in parents(Path("/proc/self"), controller):
            for orphan in orphans_in(parent):
                _remove_parent(orphan, version)


def parents(proc: Path, controller: str = "memory") -> Iterator[tuple[Version, Path]]:
    """Where a cgroup might be made that limits that, best first."""
    try:
        mounts = (proc / "mountinfo").read_text().splitlines()
        own = (proc / "cgroup").read_text().splitlines()
    except FileNotFoundError:  # not Linux
        return
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in own)}
    for line in mounts:
        fields, _, filesystem = line.partition(" - ")
        root, mount = fields.split()[3:5]
        kind, _, options = filesystem.split(" ", 2)
        if kind == "cgroup" and controller in options.split(","):
            own_path = next((p for c, p in paths.items() if controller in c.split(",")), "/")
            yield V1, _inside(Path(mount), root, own_path)
        elif kind == "cgroup2":
            yield from ((V2, path) for path in _delegating(Path(mount), root, paths.get("", "/"), controller))


def _inside(mount: Path, root: str, own_path: str) -> Path:
    """Our own cgroup below a mount point (the mount point where the two don't match)."""
    path = mount / os.path.relpath(own_path, root)
    return path if own_path.startswith(root) and path.is_dir() else mount


def _delegating(mount: Path, root: str, own_path: str, controller: str) -> Iterator[Path]:
    """Ancestors of our own cgroup that give their children such limits, nearest first.

    In version 2 a cgroup that does so may hold no processes itself, so it is never our own.
    """
    path = _inside(mount, root, own_path)
    while True:
        control = path / "cgroup.subtree_control"
        if control.exists() and controller in control.read_text().split():
            yield path
        if path == mount:
            return
        path = path.parent


def _try(version: Version, parent: Path, name: str) -> CgroupLimiter | None:
    """A limiter below ``parent`` that was seen to work, or None."""
    limiter = CgroupLimiter(parent / name, version)
    try:
        limiter.path.mkdir()
        if version is V2:
            (limiter.path / "cgroup.subtree_control").write_text("+memory")
        _probe(limiter)
    except OSError as error:
        _log.info("no %s below %s: %s", version.name, parent, error)
        if limiter.path.is_dir():
            limiter.close()
        return None
    return limiter


def _probe(limiter: CgroupLimiter) -> None:
    """Put a process into a group: making one may be permitted and this not."""
    group = limiter.group("probe", 64 << 20)
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        group.add(pid)
    finally:
        end_process(pid)
        os.waitpid(pid, 0)
        group.remove()


def _remove_parent(path: Path, version: Version) -> None:
    """End all that runs in the cgroups of a launcher, and remove them."""
    give_up = time.monotonic() + _DYING_S
    try:
        groups = [Cgroup(child, version) for child in path.iterdir() if child.is_dir()]
        while (groups := [group for group in groups if not group.remove()]) and time.monotonic() < give_up:
            time.sleep(0.001)
        path.rmdir()
    except FileNotFoundError:  # another launcher was quicker
        pass
    except OSError as error:  # the next launcher to start tries again
        _log.info("cannot remove %s yet: %s", path, error)
