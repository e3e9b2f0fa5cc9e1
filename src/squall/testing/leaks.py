"""What something leaves behind: processes, descriptors, shared memory, files, a job's objects.

Used around every test of Squall, so it costs a millisecond; Linux only.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from squall import procfs
from squall.functions.local.connection import open_launchers
from squall.store.cluster import open_clusters
from squall.store.process import open_stores

_SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class Held:
    """What there was at one moment."""

    pids: frozenset[int]  # of the whole machine: whose a new one is shows only later
    descriptors: dict[int, str]
    shared_memory: frozenset[str]
    temporary: frozenset[str]


class LeakCheck:
    """Compares what this process and its descendants hold with what they held before.

    No leaks are the launchers and stores that open objects of this process own (the warm ones
    among them), with all that belongs to them; after `squall.shutdown` there are none.

    Parameters
    ----------
    temporary : Path
        Folder for temporary files that nobody else uses.
    """

    MARK = "SQUALL_LEAK_CHECK"
    """Environment variable by which this process's descendants are known."""

    def __init__(self, temporary: Path) -> None:
        self._temporary = temporary
        self._runtime: dict[int, str] = {}
        self._others: dict[int, str] = {}
        # Whoever starts a process hands this on: orphans, whose parent is gone, are known by it.
        self._mark = f"{os.getpid()}-{procfs.start_time(os.getpid())}"
        os.environ[self.MARK] = self._mark

    def adopt_runtime(self, start: Callable[[], object]) -> None:
        """Let another library make the event loop that it keeps for the life of the process."""
        before = _descriptors()
        start()
        new = _descriptors().items() - before.items()
        self._others |= {fd: what for fd, what in new if "event" in what}

    def held(self) -> Held:
        """What there is now."""
        return Held(_pids(), _descriptors(), _names(_SHARED), _names(self._temporary))

    def leaks(self, before: Held, storage: Path | None = None, patience_s: float = 5.0) -> list[str]:
        """One line for each thing that was not there before and stays.

        Parameters
        ----------
        before : Held
            To compare with.
        storage : Path, optional
            A local object store, in which no job may leave anything.
        patience_s : float
            Time for what is ending to be gone, and for garbage to be collected.
        """
        give_up = time.monotonic() + patience_s
        while True:
            found = [
                *self._processes(before),
                *self._open(before),
                *self._shared(before),
                *self._files(before),
                *(_unfinished(storage) if storage is not None else ()),
            ]
            if not found or time.monotonic() > give_up:
                return found
            gc.collect()
            time.sleep(0.01)

    def _processes(self, before: Held) -> Iterator[str]:
        owned = {c.pid for c in open_launchers()} | {s.pid for s in open_stores()}
        owned |= {pid for c in open_clusters() for pid in c.pids}
        for pid in _pids() - before.pids:
            if self._is_ours(pid, owned):
                yield f"process {pid}: {_command(pid)}"

    def _is_ours(self, pid: int, owned: set[int]) -> bool:
        ancestor = pid
        while ancestor > 1:
            if ancestor in owned:
                return False
            if ancestor == os.getpid():
                return True
            fields = procfs.stat_fields(ancestor)
            ancestor = int(fields[1]) if fields else 0
        return f"{self.MARK}={self._mark}".encode() in _environment(pid)

    def _open(self, before: Held) -> Iterator[str]:
        owned = {fd for c in open_launchers() for fd in c.descriptors()}
        owned |= {fd for s in open_stores() for fd in s.descriptors()}
        owned |= {fd for c in open_clusters() for fd in c.descriptors()}
        known = before.descriptors.items() | self._runtime.items() | self._others.items()
        new = {fd: what for fd, what in _descriptors().items() - known if fd not in owned}
        if not self._runtime:
            # obstore's event loop: made at its first use, once for the life of the process.
            self._runtime = {fd: what for fd, what in new.items() if "event" in what}
        yield from (f"descriptor {fd}: {what}" for fd, what in new.items() - self._runtime.items())

    def _shared(self, before: Held) -> Iterator[str]:
        for name in _names(_SHARED) - before.shared_memory:
            if not _is_anothers(_SHARED / name):
                yield f"shared memory {_SHARED / name}"

    def _files(self, before: Held) -> Iterator[str]:
        owned = {c.home for c in open_launchers()} | {s.folder for s in open_stores()}
        owned |= {c.folder for c in open_clusters()}
        for name in _names(self._temporary) - before.temporary:
            if self._temporary / name not in owned:
                yield f"temporary file {self._temporary / name}"


def _unfinished(storage: Path) -> Iterator[str]:
    """What jobs and broken-off writes have left in an object store."""
    for folder, _, names in os.walk(storage):
        in_job = Path(folder).relative_to(storage).parts[:1] == ("jobs",)
        yield from (f"object {Path(folder) / name}" for name in names if in_job or "#" in name)


def _pids() -> frozenset[int]:
    return frozenset(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 (fast)


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (fast)
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 (fast)
        except FileNotFoundError:  # that of the listing itself, or one that another thread has closed
            continue
    return found


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 (fast)
    except FileNotFoundError:
        return frozenset()


def _command(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "(gone)"
    return text.strip() or "(has ended, and nobody waited for it)"


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's
        return b""


def _is_anothers(path: Path) -> bool:
    """Whether this memory is the affair of a process that is none of ours, which uses it.

    Of a folder, as joblib makes them, only the name can tell.
    """
    if path.is_dir():
        return str(os.getpid()) not in path.name
    ours = {os.getpid(), *procfs.children(os.getpid())}
    return any(str(path).encode() in _maps(pid) for pid in _pids() - ours)


def _maps(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""
