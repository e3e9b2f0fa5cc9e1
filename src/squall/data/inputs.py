"""What a reader is to read: files and objects, by path, folder, pattern, list or URL."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import unquote, urlsplit

from squall.data.files import checked_file, file_digest
from squall.data.objects import ObjectStore
from squall.errors import DataError, SettingError
from squall.paths import user_path

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Input(Protocol):
    """One file or object."""

    @property
    def name(self) -> str:
        """How people know it."""

    def version(self) -> str:
        """A name for its content."""

    def stamp(self) -> tuple[Any, ...]:
        """What differs once it has been written to; cheap."""

    def open(self) -> IO[bytes]:
        """Its bytes, as a file that can seek."""


class FileInput:
    """A local file."""

    def __init__(self, path: Path) -> None:
        self.path = checked_file(path)
        self.name = str(path)

    def version(self) -> str:
        """Its digest."""
        return file_digest(self.path)

    def stamp(self) -> tuple[Any, ...]:
        """Size and time of modification."""
        stat = checked_file(self.path).stat()
        return stat.st_size, stat.st_mtime_ns

    def open(self) -> IO[bytes]:
        """The file itself."""
        try:
            return self.path.open("rb")
        except OSError as error:
            raise DataError(f"the file cannot be read: {error.strerror}", where=self.name) from error


class ObjectInput:
    """An object of an S3 store."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key
        self.name = f"{store.url}/{key}"

    def version(self) -> str:
        """What the store says of it: reading it all to find out would cost as much as reading it."""
        return repr([self.name, *self.stamp()])

    def stamp(self) -> tuple[Any, ...]:
        """Size and entity tag."""
        about = self._store.head(self._key)
        if about is None:
            raise DataError("there is no such object", where=self.name, fix="check the URL")
        return about.size, about.tag

    def open(self) -> IO[bytes]:
        """A view that asks the store for the ranges that are read."""
        return self._store.open(self._key)


def find_inputs(paths: Paths, pattern: str = "*") -> list[Input]:
    """The files and objects meant by a path, a pattern, a URL, or a list of them.

    Parameters
    ----------
    paths : str, path or sequence of them
        A folder (or a URL that ends in ``/``) means all below it that match ``pattern``; so do names
        with ``*``, ``?`` or ``[``.  What a folder or pattern gives is sorted; names that begin with
        ``.`` or ``_`` are left out of folders.
    pattern : str
        Which files of a folder are meant.

    Raises
    ------
    SettingError
        If it is neither, or a list is empty.
    DataError
        If there is no such file.
    """
    single = isinstance(paths, str | os.PathLike)
    listed: list[Any] = [paths] if single else list(paths) if isinstance(paths, Sequence) else []
    odd = [path for path in listed if not isinstance(path, str | os.PathLike)]
    if not listed or odd:
        shown = odd[0] if odd else paths
        raise SettingError(f"path={shown!r} is neither a path nor a list of paths", fix="name a file")
    return [found for path in listed for found in _find(path, pattern)]


def _find(path: str | os.PathLike[str], pattern: str) -> list[Input]:
    text = os.fspath(path)
    if "://" in text:
        parts = urlsplit(text)
        if parts.scheme != "file":
            return _find_objects(text, pattern)
        text = unquote(parts.path)
    local = user_path(text)
    if local.is_dir():
        return _none_missing([FileInput(p) for p in files_below(local, pattern)], text, pattern)
    if any(c in text for c in "*?[") and not local.exists():
        matches = sorted(glob.glob(str(local), recursive=True))  # noqa: PTH207  (any path, absolute or not)
        return _none_missing([FileInput(Path(p)) for p in matches if Path(p).is_file()], text, "")
    return [FileInput(local)]


def files_below(folder: Path, pattern: str) -> list[Path]:
    """Files below a folder whose names match, sorted; those hidden by ``.`` or ``_`` are left out."""
    return sorted(
        p
        for p in folder.rglob(pattern)
        if p.is_file() and not any(part[0] in "._" for part in p.relative_to(folder).parts)
    )


def _find_objects(url: str, pattern: str) -> list[Input]:
    parts = urlsplit(url)
    try:
        store = ObjectStore(f"{parts.scheme}://{parts.netloc}")  # refuses what holds a password
    except SettingError as error:
        raise SettingError(f"path: {error.what.replace('storage=', '')}", fix=error.fix) from error
    if parts.query or parts.fragment:
        raise SettingError("path: the URL holds a query", fix="write s3://bucket/key")
    key = parts.path.lstrip("/")
    if not (key.endswith("/") or key == "" or any(c in key for c in "*?[")):
        return [ObjectInput(store, key)]
    folder = key.rpartition("/")[0] if key.endswith("/") else _fixed_part(key)
    match = key if any(c in key for c in "*?[") else f"{key}*"
    keys = [k for k in store.keys(folder) if fnmatch.fnmatchcase(k, match)]
    if key.endswith("/") or not key:
        hidden = len(key)
        keys = [
            k for k in keys if k[hidden] not in "._" and fnmatch.fnmatchcase(k.rpartition("/")[2], pattern)
        ]
    return _none_missing([ObjectInput(store, k) for k in keys], url, "")


def _fixed_part(key: str) -> str:
    """The folders of a pattern before the first one that is a pattern itself."""
    parts = key.split("/")
    fixed = next(i for i, part in enumerate(parts) if any(c in part for c in "*?["))
    return "/".join(parts[:fixed])


def _none_missing(found: Sequence[Input], text: str, pattern: str) -> list[Input]:
    if not found:
        what = f"the folder holds no file {pattern}" if pattern else "nothing matches"
        raise DataError(what, where=text, fix="check the path; relative ones start from the working folder")
    return list(found)


def local_paths(inputs: Sequence[Input]) -> list[Path]:
    """The paths of inputs that all have to be local.

    Raises
    ------
    SettingError
        If one is an object of a remote store.
    """
    for found in inputs:
        if not isinstance(found, FileInput):
            raise SettingError(f"path: {found.name} is a URL: download the file first")
    return [found.path for found in inputs if isinstance(found, FileInput)]
