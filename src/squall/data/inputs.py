"""What is read: files, as bytes from any place on; those of a store are in :mod:`squall.data.remote`."""

from __future__ import annotations

import errno
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from squall._kernels import checksum
from squall.errors import DataError

Seen = Callable[[int], None]  # is told how many bytes were read

_DIGEST_BYTES = 1 << 18
_BUFFER_BYTES = 1 << 20


def unseen(n_bytes: int) -> None:
    """Nobody counts."""


class Input(Protocol):
    """Bytes that can be read from any place on; plain data, so that functions can be given it."""

    @property
    def name(self) -> str:
        """Path or URL, for messages."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def has_ranges(self) -> bool:
        """Whether it can be opened at any place."""

    def identity(self) -> list[Any]:
        """Plain data that is equal for equal content."""

    def check_unchanged(self) -> None:
        """Raise `DataError` if it is not what it was when it was found."""

    def open(self, start: int, seen: Seen) -> io.RawIOBase:
        """Its bytes from ``start`` on; ``seen`` is told how many were read."""

    def seekable(self, seen: Seen) -> io.RawIOBase:
        """Its bytes as a file that can seek; only where it has ranges."""


@contextmanager
def seekable(source: Input, seen: Seen = unseen) -> Iterator[IO[bytes]]:
    """An input as a buffered file that can seek; a temporary copy of one that has no ranges."""
    if source.has_ranges:
        with io.BufferedReader(source.seekable(seen), _BUFFER_BYTES) as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy, source.open(0, seen) as raw:
        shutil.copyfileobj(raw, copy, _BUFFER_BYTES)
        copy.seek(0)
        yield copy


def changed(name: str) -> DataError:
    """The error for a file that is being written to."""
    return DataError("the file changed while it was read", where=name, fix="read it once it is complete")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine."""

    path: Path
    size: int
    modified_ns: int

    @property
    def name(self) -> str:
        """Its path."""
        return str(self.path)

    @property
    def has_ranges(self) -> bool:
        """It can be opened at any place."""
        return True

    def identity(self) -> list[Any]:
        """Checksums of its bytes, so that a copy is as good."""
        sums, buffer = [], bytearray(_DIGEST_BYTES)
        with self.open(0, unseen) as file:
            while n := file.readinto(buffer) or 0:
                sums.append(checksum(memoryview(buffer)[:n]))
        self.check_unchanged()
        return [self.size, sums]

    def check_unchanged(self) -> None:
        """Compare its size and time of modification."""
        try:
            stat = self.path.stat()
        except OSError as error:
            raise unreadable(error, self.name) from error
        if (stat.st_size, stat.st_mtime_ns) != (self.size, self.modified_ns):
            raise changed(self.name)

    def open(self, start: int, seen: Seen) -> io.RawIOBase:
        """Its bytes."""
        return _LocalBytes(self.path, start, seen)

    def seekable(self, seen: Seen) -> io.RawIOBase:
        """The same: files can seek."""
        return self.open(0, seen)


class _LocalBytes(io.FileIO):
    def __init__(self, path: Path, start: int, seen: Seen) -> None:
        try:
            super().__init__(path, "rb")
        except OSError as error:
            raise unreadable(error, str(path)) from error
        self.seek(start)
        self._seen = seen

    def readinto(self, buffer: Any) -> int | None:
        n = super().readinto(buffer)
        self._seen(n or 0)
        return n

    def readall(self) -> bytes:
        found = super().readall()
        self._seen(len(found))
        return found

    def read(self, size: int | None = -1) -> bytes | Any:
        return io.RawIOBase.read(self, -1 if size is None else size)  # by the two above


def unreadable(error: OSError, where: str) -> DataError:
    """The error for a file or folder that the system does not let read."""
    fixes = {
        errno.EACCES: "give this user the right to read it",
        errno.ENOENT: "it was removed or renamed a moment ago: leave it in place until it is read",
    }
    return DataError(
        f"it cannot be read: {error.strerror}", where=where[:200], fix=fixes.get(error.errno or 0)
    )
