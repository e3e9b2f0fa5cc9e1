"""What Linux tells of a process.  Elsewhere these give what little is known without it."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_PAGE = os.sysconf("SC_PAGESIZE")
PRESENT = Path("/proc/self/statm").exists()
"""Whether there is a /proc as Linux has it."""


def anonymous_bytes(statm: bytes) -> int:
    """Private memory (RssAnon) from the contents of a ``statm`` file.

    Resident pages less shared ones, where "shared" is mapped files and shared memory: the
    parameter store's tables and memory-mapped partitions are not the function's own.
    """
    fields = statm.split()
    return (int(fields[1]) - int(fields[2])) * _PAGE


def private_bytes(pid: int) -> int:
    """Private memory of a process now; 0 if it is gone (or there is no /proc)."""
    try:
        return anonymous_bytes(Path(f"/proc/{pid}/statm").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return 0


def own_peak_bytes() -> int:
    """The highest resident memory of this process: the stand-in where there is no /proc."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def stat_fields(pid: int) -> list[str] | None:
    """Fields of ``/proc/<pid>/stat`` from the third (the state) on; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()  # the name before it may hold anything


def n_runnable() -> int:
    """Threads of this machine that run or wait for a core, the caller's among them; 0 if unknown."""
    try:
        return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0])
    except FileNotFoundError:
        return 0


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    if not PRESENT:
        return _exists(pid)
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 if unknown.

    With the process id this names a process for good: ids are used again, pairs are not.
    """
    fields = stat_fields(pid) if PRESENT else None
    return int(fields[19]) if fields else 0


def pid_namespace() -> int:
    """A number that differs between containers whose process ids mean different things."""
    return Path("/proc/self/ns/pid").stat().st_ino if PRESENT else 0


def children(pid: int) -> list[int]:
    """Children of a process's main thread; empty where the kernel does not tell."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in text.split()]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
