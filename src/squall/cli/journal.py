"""What ``squall map --out FILE`` has got so far: FILE.part, from which the same command goes on.

The first line says what the results are of, each further one is a result: ``[item, line]``.  All of
them are JSON, and each is handed to the system as it comes; what a killed client has written of its
last one is cut off.  FILE itself appears when it is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall.errors import CorruptError, SettingError, SquallError
from squall.paths import user_path


class Journal:
    """Results of one map, by item.  Use it as a context manager.

    Parameters
    ----------
    out : Path
        The file that is to have the results in the end.
    about : dict
        What they are results of; plain data.  Those of anything else are refused.
    fresh : bool
        Whether to forget what there is.

    Attributes
    ----------
    path : Path
        Where they are until then.
    lines : dict
        The results that there are: by item, each one line.

    Raises
    ------
    SettingError
        If what there is are results of something else.
    CorruptError
        If it cannot be read.
    SquallError
        If it cannot be written, or another process is writing it.
    """

    def __init__(self, out: Path, about: dict[str, Any], *, fresh: bool = False) -> None:
        self._out = user_path(out)
        self.path = self._out.with_name(f"{self._out.name}.part")
        self.lines: dict[int, str] = {}
        with self._told():
            self._file = self._opened()
            try:
                self._begin(about, fresh)
            except BaseException:
                self._file.close()
                raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.lines:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def add(self, item: int, line: str) -> None:
        """Keep a result."""
        with self._told():
            self._write([item, line])
        self.lines[item] = line

    def complete(self, items: int) -> None:
        """All has been called: write the file, with empty lines for items that have no result."""
        partial = self._out.with_name(f"{self._out.name}.{os.getpid()}.new")
        with self._told():
            try:
                # (surrogates that nothing can encode are no reason to lose all the rest)
                with partial.open("w", encoding="utf-8", errors="backslashreplace") as file:
                    file.writelines(self.lines.get(item, "") + "\n" for item in range(items))
                partial.replace(self._out)
            finally:
                partial.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SquallError(
                f"the results cannot be written: {error.strerror or error}", where=str(self._out)
            ) from error

    def _opened(self) -> io.FileIO:
        """The file, locked: whoever dies lets go of it."""
        while True:
            # Unbuffered: what has been added survives this process.
            file = io.FileIO(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666), "r+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.path.exists() and self.path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                    return file
            except BlockingIOError as error:
                file.close()
                raise SquallError(
                    "another process is writing it",
                    where=str(self.path),
                    fix="wait for that, or write to another file",
                ) from error
            except BaseException:
                file.close()
                raise
            file.close()  # whoever had it has just completed it

    def _begin(self, about: dict[str, Any], fresh: bool) -> None:
        if fresh:
            self._file.truncate(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        self._file.truncate(whole)
        header, *lines = self._parsed(data[:whole])
        if header is None:
            self._write(about)
        elif header != about:
            raise SettingError(
                f"it holds {len(lines):,} results of another command: "
                "the function, its modules, the items or --json have changed since",
                where=str(self.path),
                fix="give --fresh to call all items anew, or write to another file",
            )
        self.lines = {int(item): str(line) for item, line in lines}

    def _parsed(self, data: bytes) -> list[Any]:
        try:
            header, *results = [json.loads(line) for line in data.splitlines()] or [None]
            if not all(isinstance(result, list) and len(result) == 2 for result in results):
                raise ValueError("not a result")
            return [header, *results]
        except ValueError as error:
            raise CorruptError(
                f"it is damaged: {error}", where=str(self.path), fix="give --fresh to call all items anew"
            ) from error

    def _write(self, value: Any) -> None:
        data = memoryview(json.dumps(value).encode() + b"\n")
        while data:
            data = data[self._file.write(data) :]
