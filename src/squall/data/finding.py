"""Finding what is to be read: files and objects by path, folder, pattern, URL, or a list of these."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from squall.data.inputs import Input, LocalFile, unreadable
from squall.data.remote import remote_file, remote_files
from squall.errors import DataError, SettingError
from squall.paths import user_path

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Found = list[tuple[str, Input]]  # with the name below the folder that was given; "" if it was no folder

_CHECK = "check the path; relative ones start from the working folder"
_SCHEMES = ("s3", "gs", "az", "abfss", "http", "https")
_WILD = re.compile(r"[*?[]")
_QUERY = re.compile(r"\?[\w-]+=")  # a question mark alone belongs to a pattern


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
        elif not os.fspath(one):
            yield "path='' names no file"
        else:
            yield from _url_problems(os.fspath(one))


def _url_problems(text: str) -> Iterable[str]:
    scheme, separator, rest = text.partition("://")
    if not separator or scheme == "file":
        return
    host, slash, key = rest.partition("/")
    is_web = scheme in ("http", "https")
    if scheme not in _SCHEMES:
        known = ", ".join(f"{s}://" for s in _SCHEMES)
        yield f"path={text!r}: {scheme}:// is not read; write a path, file://, {known}"
    elif "@" in urlsplit(text).netloc:  # not shown: it may hold a password
        yield f"the {scheme}:// URL holds a user or password; give it by the environment (AWS_…)"
    elif _QUERY.search(key) or (is_web and "?" in key):  # not shown, either
        yield f"the {scheme}:// URL holds a query, which is not sent; download the file first"
    elif not host or not slash or (is_web and not key):
        yield f"path={text!r} names no object; write {scheme}://bucket/name" + (
            "" if is_web else f", or {scheme}://bucket/ for all there are"
        )


def find_inputs(path: Paths, pattern: str = "*") -> list[Input]:
    """The files and objects that are meant.

    Parameters
    ----------
    path : str, path or sequence of these
        A folder (of a bucket, too) means all below it whose names match ``pattern``, but for those
        hidden by ``.`` or ``_``.  What a folder or a pattern gives comes in the order of the names.
    pattern : str
        Which files of a folder are meant.

    Raises
    ------
    DataError
        If there are none, or one is neither a file nor a folder.
    """
    return [found for _, found in find_below(path, pattern)]


def find_below(path: Paths, pattern: str = "*") -> Found:
    """As `find_inputs`; each with its name below the folder that was given, ``""`` if none was."""
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    return [found for one in paths for found in _found(os.fspath(one), pattern)]


def find_one(path: str | os.PathLike[str], setting: str) -> Input:
    """The one file or object that is meant.

    Raises
    ------
    SettingError, DataError
        If there is none, or more than one.
    """
    for problem in path_problems(path):
        raise SettingError(problem.replace("path=", f"{setting}="))
    found = find_inputs(path)
    if len(found) > 1:
        raise SettingError(f"{setting}={str(path)!r} means {len(found):,} files: name one")
    return found[0]


def _found(text: str, pattern: str) -> Found:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _local(user_path(text), pattern)
    if scheme == "file":
        return _local(Path(unquote(urlsplit(text).path)), pattern)
    host, _, key = rest.partition("/")
    return _remote(f"{scheme}://{host}", key, pattern)


# ------------------------------------------------------------------------------------ local


def _local(path: Path, pattern: str) -> Found:
    text = str(path)
    try:
        if path.is_dir():
            return _some(_below(path, pattern), _holds_no("file", pattern), text)
        if _WILD.search(text) and not path.exists():
            matches = sorted(p for p in map(Path, glob.glob(text, recursive=True)) if p.is_file())  # noqa: PTH207
            if "**" in text or not matches:  # what cannot be looked into may hold some
                _look_into(_fixed_part(path), recursive="**" in text)
            return _some([("", local_file(p)) for p in matches], "no file matches the pattern", text)
        return [("", local_file(path))]
    except OSError as error:
        raise unreadable(error, str(error.filename or text)) from error


def _below(folder: Path, pattern: str) -> Found:
    _look_into(folder, recursive=True)
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob(pattern) if p.is_file()}
    return [(name, local_file(files[name])) for name in sorted(files) if not _is_hidden(name)]


def _look_into(folder: Path, *, recursive: bool) -> None:
    """Raise `OSError` if one of the folders cannot be listed, of which `rglob` and `glob` say nothing."""

    def refuse(error: OSError) -> None:
        raise error

    for _ in os.walk(folder, onerror=refuse) if folder.exists() else ():
        if not recursive:
            break


def _fixed_part(pattern: Path) -> Path:
    """The folder before the first wildcard."""
    return next(p for p in pattern.parents if not _WILD.search(str(p)))


def _is_hidden(name: str) -> bool:
    return any(part[:1] in (".", "_") for part in name.split("/"))


def _holds_no(what: str, pattern: str) -> str:
    return f"the folder holds no {what}" + ("" if pattern == "*" else f" {pattern}")


def _some(found: Found, what: str, where: str) -> Found:
    if not found:
        raise DataError(what, where=where, fix=_CHECK)
    return found


def local_file(path: Path) -> LocalFile:
    """The file of that path.

    Raises
    ------
    DataError
        If it does not exist, cannot be looked at, or is a folder, a pipe or a device.
    """
    try:
        if not path.exists():
            raise _no_such_file(path)
        if not path.is_file():
            raise DataError(
                "this is a pipe or a device, which ends after one reading or never; a file is read twice",
                where=str(path),
                fix="write its contents to a file first",
            )
        stat = path.stat()
    except OSError as error:
        raise unreadable(error, str(path)) from error
    return LocalFile(path, stat.st_size, stat.st_mtime_ns)


def _no_such_file(path: Path) -> DataError:
    near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], n=1)
    fix = (
        f"did you mean {near[0]!r}?"
        if near
        else "check the path; relative ones start from the working folder"
    )
    return DataError("there is no such file", where=str(path), fix=fix)


# ----------------------------------------------------------------------------------- remote


def _remote(root: str, key: str, pattern: str) -> Found:
    where = f"{root}/{key}"
    if root.startswith("http"):
        return [("", remote_file(root, key))]
    if _WILD.search(key):
        return _some(_matching(root, key), "no object matches the pattern", where)
    if not key or key.endswith("/"):
        return _some(_in_folder(root, key, pattern), _holds_no("object", pattern), where)
    try:
        return [("", remote_file(root, key))]
    except DataError:
        if found := _in_folder(root, f"{key}/", pattern):
            return found
        raise


def _matching(root: str, key: str) -> Found:
    fixed = key[: _WILD.search(key).start()].rpartition("/")[0]  # type: ignore[union-attr]
    parts = key.split("/")
    return [("", file) for file in remote_files(root, fixed) if _matches(file.key.split("/"), parts)]


def _matches(names: list[str], patterns: list[str]) -> bool:
    """As in a shell, a star does not stand for a slash; ``**`` stands for any folders."""
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_matches(names[i:], patterns[1:]) for i in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], patterns[0]) and _matches(names[1:], patterns[1:])


def _in_folder(root: str, folder: str, pattern: str) -> Found:
    below = [(file.key.removeprefix(folder), file) for file in remote_files(root, folder.rstrip("/"))]
    return [
        (name, file)
        for name, file in below
        if name and not _is_hidden(name) and fnmatchcase(name.rpartition("/")[2], pattern)
    ]
