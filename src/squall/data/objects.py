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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import FileIO
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
_PAGE_KEYS = 1000  # that S3 lists by one request
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
    gets, puts, deletes : int
        Requests so far, as S3 bills them: reads (get, find, stream, exists), writes (put, create,
        put_stream, list) and deletes, which are free.

    Raises
    ------
    SettingError
        If the URL is of a kind that cannot be used.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url, self._folder = _parse(os.fspath(url))
        self.gets = 0
        self.puts = 0
        self.deletes = 0
        self._lock = threading.Lock()
        self._remote: Any = None

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    @property
    def folder(self) -> Path | None:
        """The local folder; None for a remote store."""
        return self._folder

    def close(self) -> None:
        """Give idle connections back; whatever is asked next makes new ones."""
        with self._lock:
            self._remote = None

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

    def put_stream(self, key: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Store what comes in pieces, replacing what was there; nobody sees it before it is whole.

        Each piece is sent as it comes, as one part of the object: all but the last must be of one
        size, at least 5 MB on S3.

        Raises
        ------
        StoreError
            As for `put`.
        """
        checked_key(key)
        parts = iter(pieces)
        first, second = next(parts, b""), next(parts, None)
        if second is None:
            self.put(key, first)
            return
        rest = itertools.chain((first, second), parts)
        if self._folder is not None:
            self._count(puts=1)
            self._write_local(key, rest, replace=True)
        else:
            self._put_parts(key, rest, len(first))

    def delete(self, key: str) -> None:
        """Remove an object; no error if it is not there."""
        checked_key(key)
        self._count(deletes=1)
        if self._is_empty():
            return
        try:
            self._request(key, lambda store: obstore.delete(store, key))
        except FileNotFoundError:
            return

    def delete_prefix(self, prefix: str, last: str | None = None) -> None:
        """Remove every object below the folder ``prefix``, and the folder.

        Parameters
        ----------
        prefix : str
        last : str, optional
            Name, in the folder, of an object that stays until all others are gone.
        """
        checked_key(prefix)  # an empty name, which would mean the whole store, is refused
        self._count(deletes=1)
        if self._folder is not None:
            if last is not None:
                self._empty_folder(self._folder / prefix, prefix, last)
            self._remove_folder(self._folder / prefix, prefix)
        elif keys := self.keys(prefix):
            kept = f"{prefix}/{last}"
            self._delete(prefix, [key for key in keys if key != kept])
            self._delete(prefix, [key for key in keys if key == kept])

    # ------------------------------------------------------------------------------- reading

    def get(self, key: str) -> memoryview:
        """The bytes of an object, read-only; mapped, not copied, in a local folder.

        Raises
        ------
        StoreError
            If there is no such object, or it cannot be read.
        """
        found = self.find(key)
        if found is None:
            raise StoreError(
                "the object does not exist",
                where=self._name(key),
                fix="it may have been removed, or `storage` is not the one it was written to",
            )
        return found

    def find(self, key: str) -> memoryview | None:
        """As `get`, but None if there is no such object."""
        checked_key(key)
        self._count(gets=1)
        try:
            if self._folder is not None:
                return _map(self._folder / key)
            return memoryview(self._request(key, lambda store: obstore.get(store, key).bytes()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(key, error) from error

    def stream(self, key: str) -> Iterator[bytes | memoryview] | None:
        """The bytes of an object piece by piece, by one request; None if there is no such object."""
        if self._folder is not None:
            found = self.find(key)
            return None if found is None else iter((found,))
        checked_key(key)
        self._count(gets=1)
        try:
            return self._pieces(key, self._request(key, lambda store: obstore.get(store, key)))
        except FileNotFoundError:
            return None

    def _pieces(self, key: str, result: Any) -> Iterator[bytes]:
        try:
            for piece in result.stream():
                yield bytes(piece)
        except _REFUSALS as error:
            raise self._refused(key, error) from error

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
        self._count_pages(found)
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
        self._count_pages(listed)
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
            if not self._write_local(key, (data,), replace=mode == "overwrite"):
                raise AlreadyExistsError(self._name(key))
            return
        # Without multipart a put is one request: it is billed as one, and a crash leaves no parts.
        self._request(
            key, lambda store: obstore.put(store, key, data, mode=mode, use_multipart=False), writing=True
        )

    def _write_local(self, key: str, pieces: Iterable[bytes | memoryview], *, replace: bool) -> bool:
        assert self._folder is not None
        try:
            return _write_file(self._folder, key, pieces, replace=replace)
        except OSError as error:
            raise self._refused(key, error) from error

    def _put_parts(self, key: str, pieces: Iterable[bytes | memoryview], part_size: int) -> None:
        """One part for each piece, sent before the next is asked for: it may come from here too."""
        self._count(puts=2)  # that begin and end it
        writer = self._request(
            key, lambda store: obstore.open_writer(store, key, buffer_size=part_size), writing=True
        )
        for piece in pieces:
            self._count(puts=1)
            self._request(key, partial(_write_part, writer, piece))
        self._request(key, lambda _: writer.close())  # only now it is there

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
        refuse_after_fork(self.url)  # late: only those who use it may not fork
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

    def _delete(self, prefix: str, keys: list[str]) -> None:
        if keys:
            self._request(prefix, lambda store: obstore.delete(store, keys))

    def _remove_folder(self, folder: Path, prefix: str) -> None:
        # Also takes the unfinished files that a killed writer leaves and no listing shows.
        import shutil

        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused(prefix, error) from error

    def _empty_folder(self, folder: Path, prefix: str, but: str) -> None:
        try:
            for path in [path for path in folder.iterdir() if path.name != but]:
                if path.is_dir():
                    self._remove_folder(path, f"{prefix}/{path.name}")
                else:
                    path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused(prefix, error) from error

    def _is_empty(self) -> bool:
        """A local folder that nobody has written to yet."""
        return self._folder is not None and not self._folder.is_dir()

    def _count(self, gets: int = 0, puts: int = 0, deletes: int = 0) -> None:
        with self._lock:
            self.gets += gets
            self.puts += puts
            self.deletes += deletes

    def _count_pages(self, listed: list[Any]) -> None:
        """Further requests of a listing that did not fit into one."""
        self._count(puts=max(0, len(listed) - 1) // _PAGE_KEYS)

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


def _write_part(writer: Any, piece: bytes | memoryview, _: Any) -> None:
    writer.write(piece)


_TRIES = 100
_partials = itertools.count()
_used_by: int | None = None  # the process whose threads obstore has started


def refuse_after_fork(where: str) -> None:
    """Note that this process uses obstore; its calls would hang in a fork of one that has.

    Raises
    ------
    StoreError
        If this process is such a fork.
    """
    global _used_by
    if _used_by not in (None, os.getpid()):
        raise StoreError(
            "a forked process cannot use the object store that its parent has used: the calls would hang",
            where=where,
            fix='start processes by "spawn" or "forkserver", or read and train in the parent',
        )
    _used_by = os.getpid()


def _write_file(folder: Path, key: str, pieces: Iterable[bytes | memoryview], *, replace: bool) -> bool:
    """One file, all or nothing: written beside its place and then moved or linked there.

    False if it was not to be replaced and exists.

    A local folder needs nothing of obstore's, whose put takes five times as long.
    """
    target = folder / key
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # With digits behind a "#", as obstore names its own: no listing shows it.
    partial = target.with_name(f"{target.name}#{os.getpid()}{next(_partials)}")
    try:
        with _created(partial) as file:
            for piece in pieces:
                rest = memoryview(piece).cast("B")
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


def _created(path: Path) -> FileIO:
    """A new file, open for writing, in a folder that is made if it is not there."""
    left = _TRIES
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb", buffering=0)
        except (FileNotFoundError, FileExistsError):
            left -= 1  # whoever deleted the folder's last object may have removed it meanwhile
            if not left:
                raise


def _map(path: Path) -> memoryview:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")  # an empty file cannot be mapped
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
