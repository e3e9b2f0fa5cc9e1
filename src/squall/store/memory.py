"""Segments of shared memory: made and filled by the server, mapped by clients."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from squall.errors import StoreFullError
from squall.store.hugepages import HUGE_PAGE, huge_file
from squall.units import format_size

_CHUNK = 32 << 20  # bytes filled at a time: some 10 ms, so that others are served in between
_RESERVE = 64 << 20  # bytes left to the rest of the system


class Segment:
    """A piece of memory behind a file descriptor, zero at first.

    On Linux it is an anonymous memory file, sealed so that no client can shrink it under
    the others; elsewhere a file that has already lost its name.  From 2 MB on it is a file of
    huge pages where there are any, which has no seals.

    Parameters
    ----------
    name : str
        Shown by the system's tools; need not be unique.
    size : int
        Bytes.
    folder : str
        Where the file goes on systems without memory files.
    huge : int, optional
        What :func:`squall.store.hugepages.mount_huge` returned.
    """

    def __init__(self, name: str, size: int, folder: str, huge: int | None = None) -> None:
        self.name, self.size = name, size
        in_huge_pages = huge is not None and size >= HUGE_PAGE
        self._fd = huge_file(huge) if huge is not None and in_huge_pages else _memory_file(name, folder)
        try:
            os.ftruncate(self._fd, size)
            if not in_huge_pages:
                _seal(self._fd)
        except BaseException:
            self.close()
            raise

    @property
    def fd(self) -> int:
        """The descriptor, owned by the segment."""
        return self._fd

    def fill(self) -> Iterator[None]:
        """Take the memory now, a piece at each step, so that it is charged to this process.

        Raises
        ------
        StoreFullError
            If the system has not that much.
        """
        for start in range(0, self.size, _CHUNK):
            try:
                _take(self._fd, start, min(_CHUNK, self.size - start))
            except OSError as error:
                if error.errno not in (errno.ENOMEM, errno.ENOSPC):
                    raise
                raise no_room(self.size, start, self.name) from error
            yield

    def map(self, size: int | None = None) -> mmap.mmap:
        """Map the first ``size`` bytes (all if None) into this process."""
        return mmap.mmap(self._fd, self.size if size is None else size)

    def close(self) -> None:
        """Give the descriptor back; the memory follows with the last mapping."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _memory_file(name: str, folder: str) -> int:
    if sys.platform != "linux":
        fd, path = tempfile.mkstemp(dir=folder)
        Path(path).unlink()
        return fd
    shown = f"squall:{name}".encode("ascii", "replace")[:200].decode()  # the limit is 249 bytes
    return os.memfd_create(shown, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _seal(fd: int) -> None:
    if sys.platform == "linux":
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def _take(fd: int, start: int, size: int) -> None:
    if sys.platform == "linux":
        os.posix_fallocate(fd, start, size)
    else:
        os.pwrite(fd, bytes(size), start)


# ------------------------------------------------------------------------------ how much is left


def no_room(size: int, available: int, what: str) -> StoreFullError:
    """The error for something of ``size`` bytes that does not fit."""
    return StoreFullError(
        f"{what} needs {format_size(size)}, but only {format_size(max(0, available))} of memory is left",
        where="the parameter store",
        fix="use fewer features or hash them to fewer columns, close other jobs, or give it more memory",
    )


def check_room(size: int, what: str) -> None:
    """Raise `StoreFullError` unless ``size`` more bytes fit into this machine's memory."""
    available = available_memory()
    if available is not None and size > available - _RESERVE:
        raise no_room(size, available - _RESERVE, what)


def available_memory() -> int | None:
    """Bytes that this process may still take; None where the system does not tell.

    The least of the machine's available memory and what every enclosing cgroup (version 1
    or 2) leaves.
    """
    if sys.platform != "linux":
        return None
    rooms = [_machine_room(), *_cgroup_rooms()]
    return min(rooms)


def _machine_room() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return sys.maxsize


def _cgroup_rooms() -> Iterator[int]:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names = ("memory.max", "memory.current", "inactive_file")
            yield from _rooms_upwards(Path("/sys/fs/cgroup"), path, names)
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _rooms_upwards(Path("/sys/fs/cgroup/memory"), path, names)


def _rooms_upwards(root: Path, path: str, names: tuple[str, str, str]) -> Iterator[int]:
    """Room in the group ``path`` and in each group around it, as far as they can be seen.

    Inside a container the path may be one of the host and not exist here; the groups that
    do exist (at least the root, which is then the container's own) are what counts.
    """
    limit, usage, cache = names
    folder = root / path.lstrip("/")
    while True:
        if (folder / limit).exists() and (folder / usage).exists():
            text = (folder / limit).read_text().strip()
            if text != "max":
                used = int((folder / usage).read_text()) - _reclaimable(folder / "memory.stat", cache)
                yield int(text) - used
        if folder == root:
            return
        folder = folder.parent


def _reclaimable(stat: Path, key: str) -> int:
    """Bytes of file cache that the system would give up for us."""
    for line in stat.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0
