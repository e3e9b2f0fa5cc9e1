"""CPU time in proportion to memory, as on AWS Lambda, so that plans can be tried on this machine.

A function of 1,769 MB gets the time of one CPU, one of half the memory half of it, and so on: the
kernel's quota for the cgroup of its environment, counted over a fiftieth of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from squall.errors import PlatformError
from squall.functions.local.memory import V1, V2, Cgroup, CgroupLimiter, MemoryGroup, MemoryLimiter, parents
from squall.log import get_logger

ONE_CPU_MB = 1769
"""Memory with which a function gets one CPU."""

_PERIOD_US, _LEAST_US = 20_000, 1_000  # (the kernel takes no quota below a millisecond)
_log = get_logger("squall.functions.local")


def quota_us(limit: int) -> int:
    """Microseconds of CPU time in each period for a function of ``limit`` bytes."""
    return max(_LEAST_US, round(_PERIOD_US * limit / (ONE_CPU_MB << 20)))


@dataclass(frozen=True, slots=True)
class ProportionalGroup:
    """An environment whose memory is limited by one group and its CPU time by another, or the same."""

    memory: MemoryGroup
    cpu: Cgroup | None

    def add(self, pid: int) -> None:
        """Count process ``pid`` in both."""
        self.memory.add(pid)
        if self.cpu is not None:
            self.cpu.add(pid)

    def over_limit(self, pid: int, private: int) -> bool:
        """As the memory group has it."""
        return self.memory.over_limit(pid, private)

    def oom_kills(self) -> int:
        """As the memory group has it."""
        return self.memory.oom_kills()

    def remove(self) -> bool:
        """Give both up; False if it has to be tried again."""
        cpu_gone = self.cpu is None or self.cpu.remove()
        return self.memory.remove() and cpu_gone


@dataclass(frozen=True, slots=True)
class ProportionalCpu:
    """A memory limiter that also shares out CPU time.

    ``path`` is a cgroup of version 1's cpu controller; None where version 2's groups limit both.
    """

    memory: MemoryLimiter
    path: Path | None

    @property
    def name(self) -> str:
        """That of the memory limiter."""
        return self.memory.name

    def group(self, name: str, limit: int) -> ProportionalGroup:
        """A group that may use ``limit`` bytes, and CPU time in proportion."""
        memory = self.memory.group(name, limit)
        if self.path is None:
            assert isinstance(memory, Cgroup)
            (memory.path / "cpu.max").write_text(f"{quota_us(limit)} {_PERIOD_US}")
            return ProportionalGroup(memory, None)
        try:
            return ProportionalGroup(memory, _cpu_group(self.path / name, limit))
        except OSError:
            memory.remove()
            raise

    def close(self) -> None:
        """Remove the parents."""
        self.memory.close()
        if self.path is not None:
            CgroupLimiter(self.path, V1).close()


def proportional(memory: MemoryLimiter, name: str) -> ProportionalCpu:
    """Share out CPU time beside ``memory``; a cgroup of its own is called ``name``.

    Raises
    ------
    PlatformError
        If no cgroup can be made here that limits CPU time.
    """
    if isinstance(memory, CgroupLimiter) and memory.version is V2:
        try:
            (memory.path / "cgroup.subtree_control").write_text("+cpu")
            return ProportionalCpu(memory, None)
        except OSError as error:
            _log.info("no cpu controller in %s: %s", memory.path, error)
    for path in _version_1(name):
        return ProportionalCpu(memory, path)
    raise PlatformError(
        "no cgroup can be made here to limit CPU time, which emulate_cpu=True needs",
        fix="run with the rights to make one (as root, or in a delegated cgroup), or leave emulate_cpu off",
    )


def _version_1(name: str) -> Iterator[Path]:
    """A new cgroup of that name, where its quota was seen to work."""
    for version, parent in parents(Path("/proc/self"), "cpu"):
        path = parent / name
        if version is not V1:
            continue
        try:
            path.mkdir()
            _cpu_group(path / "probe", ONE_CPU_MB << 20).remove()
            yield path
        except OSError as error:
            _log.info("no cpu cgroup below %s: %s", parent, error)
            if path.is_dir():
                CgroupLimiter(path, V1).close()


def _cpu_group(path: Path, limit: int) -> Cgroup:
    path.mkdir()
    (path / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
    (path / "cpu.cfs_quota_us").write_text(str(quota_us(limit)))
    return Cgroup(path, V1)
