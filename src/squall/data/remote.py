"""Objects of a store as inputs: whole by one request, or by ranges, always of one version."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import from_url

from squall.data.inputs import Seen, changed
from squall.data.objects import refuse_after_fork
from squall.errors import DataError

_STREAM_BYTES = 1 << 20
_METADATA = "169.254.169.254"  # by which a machine of AWS knows its rights
_REFUSALS = (BaseError, OSError, ValueError)


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
        return self.asked(lambda: obstore.get(_connected(self.root), self.key, options=options))

    def asked(self, request: Callable[[], Any]) -> Any:
        """The result of a request; obstore's refusals as `DataError`."""
        try:
            return request()
        except PreconditionError as error:
            raise changed(self.name) from error
        except _REFUSALS as error:
            raise _refused(error, self.name) from error


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
    _connected.cache_clear()


@lru_cache(maxsize=8)
def _connected(root: str) -> Any:
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
        found = obstore.head(_connected(root), key)
    except FileNotFoundError as error:
        raise DataError("there is no such object", where=where, fix="check the URL") from error
    except _REFUSALS as error:
        raise _refused(error, where) from error
    return _listed(root, found)


def remote_files(root: str, folder: str) -> list[RemoteFile]:
    """All objects below a folder (of the whole bucket, if it is empty), by name."""
    try:
        found = [item for page in obstore.list(_connected(root), folder or None) for item in page]
    except _REFUSALS as error:
        raise _refused(error, f"{root}/{folder}") from error
    return sorted((_listed(root, item) for item in found), key=lambda file: file.key)


def _listed(root: str, about: Any) -> RemoteFile:
    tag = about["e_tag"]
    return RemoteFile(root, about["path"], about["size"], tag or str(about["last_modified"]), tag)


def _refused(error: Exception, where: str) -> DataError:
    """The error for what a store does not give."""
    text = str(error).split("\n", 1)[0]
    fix = "check the URL, the rights, and the environment variables (AWS_…) by which the store is reached"
    if _METADATA in text:  # whom obstore asks for credentials that it was not given
        text = "there are no credentials"
        fix = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for a store of your own AWS_ENDPOINT_URL, too"
    return DataError(f"the object cannot be read: {text}", where=where, fix=fix)
