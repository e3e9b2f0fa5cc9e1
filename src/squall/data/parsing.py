"""Where text is parsed: in this process, or if it is large by functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from squall.config import Run, available_cores, checked_run
from squall.data.dataset import Dataset
from squall.data.inputs import Input, Seen
from squall.data.objects import ObjectStore
from squall.data.pieces import grouped_pieces
from squall.data.reading import stored_dataset
from squall.data.tasks import Parsed, Task, TextFormat, run_task, write_all
from squall.records import Manifest
from squall.registry import CALLS

LARGE_BYTES = 256_000_000
"""From here on functions parse."""


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
    is_large = sum(source.size for source in inputs) >= LARGE_BYTES
    call = CALLS.load("map")(run, inputs, store) if is_large else None

    def each(fn: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return list((call or _in_threads)(fn, items))

    def write(prefix: str, seen: Seen) -> Manifest:
        def parse(tasks: list[Task]) -> list[Parsed]:
            if call is None:
                return list(_in_threads(lambda task: run_task(task, seen, store), tasks))
            parsed = []
            for task, result in zip(tasks, call(run_task, tasks), strict=True):
                seen(sum(piece.n_bytes for piece in task.pieces))
                parsed.append(result)
            return parsed

        groups = grouped_pieces(inputs, form.split, each)
        return write_all(form, inputs, store, prefix, groups, parse)

    spent = None if call is None else call.bill
    return stored_dataset(form.name, form.version, inputs, form, store, write, spent)


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
