"""What is read: local files and objects of a store, as bytes from any place on."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import from_url

from squall._kernels import checksum
from squall.data.objects import refuse_after_fork
from squall.errors import DataError

Seen = Callable[[int], None]  # is told how many bytes were read

_DIGEST_BYTES = 1 << 18
_STREAM_BYTES = 1 << 20
_REFUSALS = (BaseError, OSError, ValueError)


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
        with io.BufferedReader(source.seekable(seen), _STREAM_BYTES) as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy, source.open(0, seen) as raw:
        shutil.copyfileobj(raw, copy, _STREAM_BYTES)
        copy.seek(0)
        yield copy


def changed(name: str) -> DataError:
    """The error for a file that is being written to."""
    return DataError("the file changed while it was read", where=name, fix="read it once it is complete")


# ------------------------------------------------------------------------------------ local


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
            raise changed(self.name) from error
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
    """The error for a file that the system does not let read."""
    return DataError(f"the file cannot be read: {error.strerror}", where=where[:200])


# ----------------------------------------------------------------------------------- remote


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """An object of a store that obstore reaches."""

    root: str  # URL of the bucket or host
    key: str
    size: int
    version: str  # its tag there, or its time of modification
    tag: str | None = field(repr=False)

    @property
    def name(self) -> str:
        """Its URL."""
        return f"{self.root}/{self.key}"

    @property
    def has_ranges(self) -> bool:
        """Whether it is in a store: not all web servers know ranges."""
        return not self.root.startswith("http")

    def identity(self) -> list[Any]:
        """Its name and version: reading it to see whether it must be read would be dear."""
        return [self.root, self.key, self.size, self.version]

    def check_unchanged(self) -> None:
        """Compare its version, unless every request asks for that one only."""
        if self.tag is None and remote_file(self.root, self.key) != self:
            raise changed(self.name)

    def open(self, start: int, seen: Seen) -> io.RawIOBase:
        """Its bytes, by one request."""
        return _RemoteBytes(self, start, seen)

    def seekable(self, seen: Seen) -> io.RawIOBase:
        """Its bytes, by one request for each range that is read."""
        return _RemoteRanges(self, seen)

    def get(self, start: int, stop: int) -> Any:
        """What obstore answers to a request for that range of this version."""
        options: Any = {"range": (start, stop)} if (start, stop) != (0, self.size) else {}
        if self.tag is not None:
            options["if_match"] = self.tag  # another version is refused
        return self.asked(lambda: obstore.get(connected(self.root), self.key, options=options))

    def asked(self, request: Callable[[], Any]) -> Any:
        """The result of a request; obstore's refusals as `DataError`."""
        try:
            return request()
        except PreconditionError as error:
            raise changed(self.name) from error
        except _REFUSALS as error:
            raise refused(error, self.name) from error


class _RemoteBytes(io.RawIOBase):
    def __init__(self, file: RemoteFile, start: int, seen: Seen) -> None:
        super().__init__()
        self._file, self._seen, self._rest = file, seen, memoryview(b"")
        self._pieces = iter(())
        if start < file.size:
            result = file.get(start, file.size)
            self._pieces = iter(result.stream(min_chunk_size=_STREAM_BYTES))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(self._file.asked(lambda: next(self._pieces, b"")))
        out = memoryview(buffer).cast("B")
        n = min(len(out), len(self._rest))
        out[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        self._seen(n)
        return n


class _RemoteRanges(io.RawIOBase):
    def __init__(self, file: RemoteFile, seen: Seen) -> None:
        super().__init__()
        self._file, self._seen, self._at = file, seen, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._file.size)
        if stop <= self._at:
            return 0
        result = self._file.get(self._at, stop)
        found = memoryview(self._file.asked(result.bytes))
        buffer[: len(found)] = found
        self._at += len(found)
        self._seen(len(found))
        return len(found)


def close_connections() -> None:
    """Give idle connections back; whatever is asked next makes new ones."""
    connected.cache_clear()


@lru_cache(maxsize=8)
def connected(root: str) -> Any:
    """obstore's connection to a bucket or host."""
    refuse_after_fork(root)
    if urlsplit(root).scheme == "http":
        return from_url(root, client_options={"allow_http": True})
    return from_url(root)


def remote_file(root: str, key: str) -> RemoteFile:
    """The object of that name.

    Raises
    ------
    DataError
        If it does not exist, or the store refuses.
    """
    where = f"{root}/{key}"
    try:
        found = obstore.head(connected(root), key)
    except FileNotFoundError as error:
        raise DataError("there is no such object", where=where, fix="check the URL") from error
    except _REFUSALS as error:
        raise refused(error, where) from error
    return _listed(root, found)


def remote_files(root: str, folder: str) -> list[RemoteFile]:
    """All objects below a folder (of the whole bucket, if it is empty), by name."""
    try:
        found = [item for page in obstore.list(connected(root), folder or None) for item in page]
    except _REFUSALS as error:
        raise refused(error, f"{root}/{folder}") from error
    return sorted((_listed(root, item) for item in found), key=lambda file: file.key)


def _listed(root: str, about: Any) -> RemoteFile:
    tag = about["e_tag"]
    return RemoteFile(root, about["path"], about["size"], tag or str(about["last_modified"]), tag)


def refused(error: Exception, where: str) -> DataError:
    """The error for what a store does not give."""
    text = str(error).split("\n", 1)[0]
    return DataError(
        f"the object cannot be read: {text}",
        where=where,
        fix="check the URL, the rights, and the environment variables (AWS_…) by which the store is reached",
    )
