"""Where text is parsed: in this process, or if it is large by functions; a line shows how far it is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from squall.config import Run, available_cores, checked_run, current_run
from squall.data.byte_sources import Input, close_connections
from squall.data.dataset import Dataset
from squall.data.objects import ObjectStore, default_storage
from squall.data.pieces import grouped_pieces
from squall.data.tasks import Parsed, Task, TextFormat, run_task, stored_text
from squall.registry import CALLS
from squall.terminal import REFRESH_S, end_line, rewrite, someone_looks
from squall.units import format_size

LARGE_BYTES = 256_000_000
"""From here on functions parse."""

_SLOW_S = 1.0  # a reading of less time shows nothing


def storage_of(storage: str | os.PathLike[str] | ObjectStore | None, run: Run | None) -> ObjectStore:
    """Where a data set is kept: as asked for, else where the run keeps its objects."""
    if isinstance(storage, ObjectStore):
        return storage
    chosen = storage if storage is not None else (run or current_run()).storage
    return ObjectStore(default_storage() if chosen is None else chosen)


def read_text(
    form: TextFormat[Any, Any], inputs: list[Input], store: ObjectStore, run: Run | None
) -> Dataset:
    """The data set that these inputs make; functions parse them where they are large.

    Raises
    ------
    SettingError
        If ``run`` is no Run.
    DataError, StoreError
        If they cannot be read or stored.
    """
    run = checked_run(run, f"read_{form.name}")
    total = sum(source.size for source in inputs)
    call = CALLS.load("map")(run, inputs, store) if total >= LARGE_BYTES else None

    def each(fn: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return list((call or _in_threads)(fn, items))

    def parse(tasks: list[Task]) -> list[Parsed]:
        with Progress(form.name, total) as progress:
            if call is None:
                return list(_in_threads(lambda task: run_task(task, progress.add, store), tasks))
            parsed = []
            for task, result in zip(tasks, call(run_task, tasks), strict=True):
                progress.add(sum(piece.n_bytes for piece in task.pieces))
                parsed.append(result)
            return parsed

    try:
        return stored_text(form, inputs, store, lambda: grouped_pieces(inputs, form.split, each), parse)
    finally:
        close_connections()


def _in_threads(fn: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
    """Results in order, one thread for each core: parsers leave the interpreter to others."""
    if len(items) < 2:
        yield from map(fn, items)
        return
    with ThreadPoolExecutor(min(available_cores(), len(items)), "squall-reading") as threads:
        futures = [threads.submit(fn, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


class Progress:
    """``reading libsvm: 1.2 GB of 2.0 GB  310 MB/s``, rewritten where someone looks at it.

    Parameters
    ----------
    what : str
        Is read.
    total : int
        Bytes there are.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._start = self._shown = time.monotonic()
        self._looks, self._has_line = someone_looks(), False
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_line:
            rewrite(self._line())
            end_line()

    def add(self, n_bytes: int) -> None:
        """So many more were read."""
        if not self._looks:
            return
        with self._lock:
            self._done += n_bytes
            now = time.monotonic()
            if now - self._start > _SLOW_S and now - self._shown > REFRESH_S:
                self._shown, self._has_line = now, True
                rewrite(self._line())

    def _line(self) -> str:
        rate = self._done / max(time.monotonic() - self._start, 1e-9)
        return (
            f"reading {self._what}: {format_size(self._done)} of {format_size(self._total)}"
            f"  {format_size(rate)}/s"
        )
