"""The object store: named, immutable pieces of bytes in a local folder or in S3.

One class over obstore, so that everything above speaks of keys and buffers only.  Local
objects are memory-mapped, not copied: the pages belong to the system's cache, not to the
worker's memory.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, from_url

from squall.errors import SettingError, StoreError
from squall.paths import user_path

_T = TypeVar("_T")
_PART = re.compile(r"[A-Za-z0-9._=+@,~-]+")
_MAX_KEY = 1024  # S3's limit
# What obstore lets through: its own classes, and Python's for missing objects, rights and paths.
_REFUSALS = (BaseError, OSError, ValueError)


class Entry(NamedTuple):
    """An object as a listing shows it; ``modified`` is seconds since 1970."""

    key: str
    size: int
    modified: float


def default_storage() -> str:
    """Where data goes unless told otherwise; the folder is made at the first write only.

    ``$SQUALL_STORAGE``, else ``$XDG_CACHE_HOME/squall``, else ``~/.cache/squall``.
    """
    if chosen := os.environ.get("SQUALL_STORAGE"):
        return chosen
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path must be ignored.
    folder = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return str(folder / "squall")


def checked_key(key: str) -> str:
    """``key`` itself if it is a safe name of an object; the only gate to the store.

    Parts joined by ``/``, each of ASCII letters, digits and ``._=+@,~-``, none of them empty,
    ``.`` or ``..``.  Percent signs are refused, so no decoding can bring a separator back.

    Raises
    ------
    StoreError
        If it is anything else.
    """
    parts = key.split("/")
    if len(key) > _MAX_KEY or any(not _PART.fullmatch(p) or set(p) == {"."} for p in parts):
        raise StoreError(
            f"{key[:200]!r} is not a valid object name",
            fix="use parts of ASCII letters, digits and ._=+@,~- joined by single slashes",
        )
    return key


class ObjectStore:
    """Objects below one folder or bucket prefix.  May be used from several threads.

    Parameters
    ----------
    url : str or path
        A folder (absolute, relative or with ``~``), ``file:///folder`` or
        ``s3://bucket/prefix``.  S3's options and credentials come from the usual ``AWS_*``
        environment variables and are never shown.

    Attributes
    ----------
    url : str
        The same place as an absolute URL, valid in every process.
    gets, puts : int
        Requests so far, as S3 bills them: reads (get, exists) and writes (put, create,
        list).  Deletes are free.

    Raises
    ------
    SettingError
        If the URL is of a kind that cannot be used.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url, self._folder = _parse(os.fspath(url))
        self.gets = 0
        self.puts = 0
        self._lock = threading.Lock()
        self._remote: Any = None

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    @property
    def folder(self) -> Path | None:
        """The local folder; None for a remote store."""
        return self._folder

    # ------------------------------------------------------------------------------- writing

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Store ``data`` under ``key``, replacing what was there; all or nothing.

        Raises
        ------
        StoreError
            If the disk is full, rights are missing or the store cannot be reached.
        """
        self._write(key, data, "overwrite")

    def create(self, key: str, data: bytes | memoryview) -> bool:
        """Store ``data`` unless ``key`` exists; True if this call stored it.

        Raises
        ------
        StoreError
            As for `put`.
        """
        try:
            self._write(key, data, "create")
        except AlreadyExistsError:
            return False
        return True

    def delete(self, key: str) -> None:
        """Remove an object; no error if it is not there."""
        checked_key(key)
        if self._is_empty():
            return
        try:
            self._request(key, lambda store: obstore.delete(store, key))
        except FileNotFoundError:
            return

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below the folder ``prefix``, and the folder."""
        checked_key(prefix)  # an empty name, which would mean the whole store, is refused
        if self._folder is not None:
            self._remove_folder(self._folder / prefix, prefix)
        elif keys := self.keys(prefix):
            self._request(prefix, lambda store: obstore.delete(store, keys))

    # ------------------------------------------------------------------------------- reading

    def get(self, key: str) -> memoryview:
        """The bytes of an object, read-only; mapped, not copied, in a local folder.

        Raises
        ------
        StoreError
            If there is no such object, or it cannot be read.
        """
        checked_key(key)
        self._count(gets=1)
        try:
            if self._folder is not None:
                return _map(self._folder / key)
            return memoryview(self._request(key, lambda store: obstore.get(store, key).bytes()))
        except FileNotFoundError as error:
            raise StoreError(
                "the object does not exist",
                where=self._name(key),
                fix="it may have been removed, or `storage` is not the one it was written to",
            ) from error
        except OSError as error:
            raise self._refused(key, error) from error

    def find(self, key: str) -> memoryview | None:
        """As `get`, but None if there is no such object."""
        try:
            return self.get(key)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def exists(self, key: str) -> bool:
        """Whether there is an object of this name."""
        checked_key(key)
        self._count(gets=1)
        try:
            if self._folder is not None:
                return (self._folder / key).is_file()
            self._request(key, lambda store: obstore.head(store, key))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._refused(key, error) from error
        return True

    def keys(self, prefix: str = "") -> list[str]:
        """Names of all objects below the folder ``prefix`` (all if empty), sorted."""
        folder = prefix.removesuffix("/")
        if folder:
            checked_key(folder)
        self._count(puts=1)
        if self._is_empty():
            return []
        found = self._request(
            folder,
            lambda store: [item["path"] for page in obstore.list(store, folder or None) for item in page],
        )
        return sorted(found)

    def entries(self, prefix: str) -> list[Entry]:
        """All that is stored below the folder ``prefix``; locally also what writers left unfinished."""
        checked_key(prefix)
        self._count(puts=1)
        if self._folder is not None:
            return list(_walk(self._folder, prefix))
        listed = self._request(
            prefix, lambda store: [item for page in obstore.list(store, prefix) for item in page]
        )
        return [Entry(i["path"], i["size"], i["last_modified"].timestamp()) for i in listed]

    def touch(self, key: str) -> None:
        """Note, in a local folder, that an object is used: its time of modification becomes now."""
        if self._folder is not None:
            with contextlib.suppress(OSError):  # another user's cache may be read only
                os.utime(self._folder / checked_key(key))

    # ------------------------------------------------------------------------------- private

    def _write(self, key: str, data: bytes | memoryview, mode: Literal["create", "overwrite"]) -> None:
        checked_key(key)
        self._count(puts=1)
        if self._folder is not None:
            try:
                written = _write_file(self._folder, key, data, replace=mode == "overwrite")
            except OSError as error:
                raise self._refused(key, error) from error
            if not written:
                raise AlreadyExistsError(self._name(key))
            return
        # Without multipart a put is one request: it is billed as one, and a crash leaves no parts.
        self._request(
            key, lambda store: obstore.put(store, key, data, mode=mode, use_multipart=False), writing=True
        )

    def _request(self, key: str, call: Callable[[Any], _T], *, writing: bool = False) -> _T:
        """``call`` on the obstore object; its refusals as StoreErrors.

        Missing and already existing objects are left as they are: they have answers here.
        """
        try:
            return call(self._connect(writing=writing))
        except (FileNotFoundError, AlreadyExistsError):
            raise
        except _REFUSALS as error:
            raise self._refused(key, error) from error

    def _connect(self, *, writing: bool) -> Any:
        # Late, because a process may not fork once obstore has been used in it.
        global _used_by
        if _used_by not in (None, os.getpid()):
            raise StoreError(
                "a forked process cannot use the object store that its parent has used: the calls would hang",
                where=self.url,
                fix='start processes by "spawn" or "forkserver", or read and train in the parent',
            )
        _used_by = os.getpid()
        with self._lock:
            if self._folder is not None and writing:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._remote is None:
                self._remote = (
                    from_url(self.url)
                    if self._folder is None
                    else LocalStore(self._folder, automatic_cleanup=True)
                )
            return self._remote

    def _remove_folder(self, folder: Path, prefix: str) -> None:
        # Also takes the unfinished files that a killed writer leaves and no listing shows.
        import shutil

        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused(prefix, error) from error

    def _is_empty(self) -> bool:
        """A local folder that nobody has written to yet."""
        return self._folder is not None and not self._folder.is_dir()

    def _count(self, gets: int = 0, puts: int = 0) -> None:
        with self._lock:
            self.gets += gets
            self.puts += puts

    def _name(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    def _refused(self, key: str, error: Exception) -> StoreError:
        text = str(error).split("\n", 1)[0]  # what follows in obstore's messages is for its authors
        fix = "check the `storage` setting and that the store can be reached"
        if "No space left" in text or "quota" in text.lower():
            fix = "free some space, or set `storage` (or SQUALL_STORAGE) to a larger disk"
        elif isinstance(error, PermissionError) or "ermission" in text or "nauth" in text or "403" in text:
            fix = "give this user the right to read and write there, or choose another `storage`"
        elif isinstance(error, (NotADirectoryError, FileExistsError)):
            fix = "a file is where a folder is needed: choose another `storage`"
        elif isinstance(error, FileNotFoundError):
            fix = "no folder can be made there: choose another `storage`"
        return StoreError(f"the object store refused: {text}", where=self._name(key), fix=fix)


def _parse(text: str) -> tuple[str, Path | None]:
    """(absolute URL, local folder or None) meant by a path or URL."""
    fix = "write a folder, file:///folder or s3://bucket/prefix"
    if not text or "\0" in text:
        raise SettingError(f"storage={text!r} is not a path or URL", fix=fix)
    if "://" not in text:
        return _local(Path(text))
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query or parts.fragment:
        # Not shown: it may hold a password.
        raise SettingError(
            f"the {parts.scheme}:// storage URL holds a user, password or query",
            fix="set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL in the environment",
        )
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return _local(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        path = parts.path.strip("/")
        if path:
            checked_key(path)
        return f"s3://{parts.netloc}" + (f"/{path}" if path else ""), None
    if parts.scheme == "memory":
        raise SettingError(
            f"storage={text!r}: memory is seen by one process only, and functions are other processes",
            fix=fix,
        )
    raise SettingError(f"storage={text!r} is not a kind of storage that Squall knows", fix=fix)


def _local(path: Path) -> tuple[str, Path]:
    folder = Path(os.path.abspath(user_path(path)))  # noqa: PTH100  (also removes "..")
    return folder.as_uri(), folder


def _walk(root: Path, prefix: str) -> Iterator[Entry]:
    for folder, _, names in os.walk(root / prefix):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):  # it has just been removed
                stat = path.stat()
                yield Entry(path.relative_to(root).as_posix(), stat.st_size, stat.st_mtime)


_partials = itertools.count()
_used_by: int | None = None  # the process whose threads obstore has started


def _write_file(folder: Path, key: str, data: bytes | memoryview, *, replace: bool) -> bool:
    """One file, all or nothing: written beside its place and then moved or linked there.

    False if it was not to be replaced and exists.

    A local folder needs nothing of obstore's, whose put takes five times as long.
    """
    target = folder / key
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    # With digits behind a "#", as obstore names its own: no listing shows it.
    partial = target.with_name(f"{target.name}#{os.getpid()}{next(_partials)}")
    try:
        with partial.open("xb", buffering=0) as file:
            rest = memoryview(data).cast("B")
            while len(rest):
                rest = rest[file.write(rest) :]
        if replace:
            partial.replace(target)
            return True
        try:
            os.link(partial, target)
        except FileExistsError:
            return False
        return True
    finally:
        partial.unlink(missing_ok=True)


def _map(path: Path) -> memoryview:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")  # an empty file cannot be mapped
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
