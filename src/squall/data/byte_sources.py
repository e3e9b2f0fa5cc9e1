"""What is to be read: local files and objects of a store, by path, pattern, list or URL."""

from __future__ import annotations

import contextlib
import fnmatch
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from squall._kernels import checksum
from squall.data.files import checked_file
from squall.data.objects import refuse_after_fork
from squall.errors import DataError, SettingError
from squall.paths import user_path

Seen = Callable[[int], None]  # is told how many bytes were read

_SCHEMES = ("s3", "gs", "az", "abfss", "http", "https")
_DIGEST_BYTES = 1 << 18
_STREAM_BYTES = 1 << 20
_REFUSALS = (BaseError, OSError, ValueError)


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
        with self.open(0, lambda _: None) as file:
            while n := file.readinto(buffer) or 0:
                sums.append(checksum(memoryview(buffer)[:n]))
        self.check_unchanged()
        return [self.size, sums]

    def check_unchanged(self) -> None:
        """Compare its size and time of modification."""
        if local_file(self.path) != self:
            raise changed(self.name)

    def open(self, start: int, seen: Seen) -> io.RawIOBase:
        """Its bytes."""
        return _LocalBytes(self.path, start, seen)


class _LocalBytes(io.FileIO):
    def __init__(self, path: Path, start: int, seen: Seen) -> None:
        try:
            super().__init__(path, "rb")
        except OSError as error:
            raise _unreadable(error, str(path)) from error
        self.seek(start)
        self._seen = seen

    def readinto(self, buffer: Any) -> int | None:
        n = super().readinto(buffer)
        self._seen(n or 0)
        return n

    def read(self, size: int | None = -1) -> bytes | Any:
        return io.RawIOBase.read(self, -1 if size is None else size)  # by readinto, too


def local_file(path: Path) -> LocalFile:
    """The file of that path.

    Raises
    ------
    DataError
        If it does not exist, cannot be looked at, or is a folder, a pipe or a device.
    """
    try:
        stat = checked_file(path).stat()
    except OSError as error:
        raise _unreadable(error, str(path)[:200]) from error
    return LocalFile(path, stat.st_size, stat.st_mtime_ns)


def _unreadable(error: OSError, where: str) -> DataError:
    return DataError(f"the file cannot be read: {error.strerror}", where=where)


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
        """Compare its version."""
        if _remote_file(self.root, self.key) != self:
            raise changed(self.name)

    def open(self, start: int, seen: Seen) -> io.RawIOBase:
        """Its bytes, by one request."""
        return _RemoteBytes(self, start, seen)


class _RemoteBytes(io.RawIOBase):
    def __init__(self, file: RemoteFile, start: int, seen: Seen) -> None:
        super().__init__()
        self._file, self._seen, self._rest = file, seen, memoryview(b"")
        self._pieces = iter(())
        if start < file.size:
            options: Any = {"range": (start, file.size)} if start else {}
            if file.tag is not None:
                options["if_match"] = file.tag  # another version is refused
            result = self._asked(lambda: obstore.get(_connected(file.root), file.key, options=options))
            self._pieces = iter(result.stream(min_chunk_size=_STREAM_BYTES))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(self._asked(lambda: next(self._pieces, b"")))
        out = memoryview(buffer).cast("B")
        n = min(len(out), len(self._rest))
        out[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        self._seen(n)
        return n

    def _asked(self, request: Callable[[], Any]) -> Any:
        try:
            return request()
        except obstore.exceptions.PreconditionError as error:
            raise changed(self._file.name) from error
        except _REFUSALS as error:
            raise _refused(error, self._file.name) from error


def close_connections() -> None:
    """Give idle connections back; whatever is asked next makes new ones."""
    _connected.cache_clear()


@lru_cache(maxsize=8)
def _connected(root: str) -> Any:
    refuse_after_fork(root)
    scheme = urlsplit(root).scheme
    if scheme == "http":
        return from_url(root, client_options={"allow_http": True})
    return from_url(root)


def _remote_file(root: str, key: str) -> RemoteFile:
    where = f"{root}/{key}"
    try:
        found = obstore.head(_connected(root), key)
    except FileNotFoundError as error:
        raise DataError("there is no such object", where=where, fix="check the URL") from error
    except _REFUSALS as error:
        raise _refused(error, where) from error
    tag = found["e_tag"]
    return RemoteFile(root, key, found["size"], tag or str(found["last_modified"]), tag)


def _refused(error: Exception, where: str) -> DataError:
    text = str(error).split("\n", 1)[0]
    return DataError(
        f"the object cannot be read: {text}",
        where=where,
        fix="check the URL, the rights, and the environment variables (AWS_…) by which the store is reached",
    )


def _matching(root: str, pattern: str) -> list[str]:
    fixed = pattern[: min(pattern.find(c) for c in "*?[" if c in pattern)]
    folder = fixed.rpartition("/")[0]
    try:
        pages = obstore.list(_connected(root), folder or None)
        keys = sorted(item["path"] for page in pages for item in page)
    except _REFUSALS as error:
        raise _refused(error, f"{root}/{pattern}") from error
    # As in a shell, a star does not stand for a slash.
    depth = pattern.count("/")
    return [k for k in keys if k.count("/") == depth and fnmatch.fnmatchcase(k, pattern)]


# ---------------------------------------------------------------------------------- finding


def find_inputs(path: Any) -> list[Input]:
    """The files that a path, a pattern, a URL, or a list of these means.

    Raises
    ------
    DataError
        If there are none.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    return [found for one in paths for found in _found(os.fspath(one))]


def path_problems(path: Any) -> Iterable[str]:
    """What is wrong with ``path``, without looking for it."""
    if isinstance(path, str | os.PathLike):
        paths: Sequence[Any] = [path]
    elif isinstance(path, Sequence) and not isinstance(path, bytes):
        paths = path
        if not paths:
            yield "path=[] names no file"
    else:
        yield f"path={path!r} is not a path, a URL or a list of these"
        return
    for one in paths:
        if not isinstance(one, str | os.PathLike):
            yield f"path={one!r} is not a path or a URL"
            continue
        text = os.fspath(one)
        scheme, separator, _ = text.partition("://")
        if separator and scheme not in (*_SCHEMES, "file"):
            yield f"path={text!r}: {scheme}:// is not read; write a path, file://, " + ", ".join(
                f"{s}://" for s in _SCHEMES
            )
        elif separator and "@" in urlsplit(text).netloc:  # not shown: it may hold a password
            yield f"the {scheme}:// URL holds a user or password; give it by the environment (AWS_…)"


def _found(text: str) -> list[Input]:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return list(_local(user_path(text)))
    if scheme == "file":
        return list(_local(Path(unquote(urlsplit(text).path))))
    host, _, key = rest.partition("/")
    root = f"{scheme}://{host}"
    if not host or not key:
        raise SettingError(f"path={text!r} names no object", fix=f"write {scheme}://bucket/name")
    if not any(c in key for c in "*?[") or scheme in ("http", "https"):
        return [_remote_file(root, key)]
    keys = _matching(root, key)
    if not keys:
        raise DataError("no object matches the pattern", where=text)
    return [_remote_file(root, k) for k in keys]


def _local(path: Path) -> list[LocalFile]:
    pattern = str(path)
    with contextlib.suppress(OSError):
        if any(c in pattern for c in "*?[") and not path.exists():
            import glob

            found = sorted(p for p in map(Path, glob.glob(pattern)) if p.is_file())  # noqa: PTH207
            if not found:
                raise DataError("no file matches the pattern", where=pattern)
            return [local_file(p) for p in found]
    return [local_file(path)]


def changed(name: str) -> DataError:
    """The error for a file that is being written to."""
    return DataError("the file changed while it was read", where=name, fix="read it once it is complete")
