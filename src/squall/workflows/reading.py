"""Text parsed by functions: tasks over ranges of bytes, as calls of `squall.map`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from squall.config import Run, is_isolated
from squall.data.inputs import Input, LocalFile
from squall.data.objects import ObjectStore
from squall.worker import calls
from squall.workflows.map import map as map_functions

Calls = Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]]


def calls_of(run: Run, inputs: list[Input], store: ObjectStore) -> Calls | None:
    """What calls a function for each item on functions, and gives the results in their order.

    None where functions cannot do it: they share no files with this process and an input, or the
    place where the data set is kept, is one; or this already is a function.
    """
    if calls.inside:
        return None
    local = store.folder is not None or any(isinstance(source, LocalFile) for source in inputs)
    if local and is_isolated(run.resolve_backend()):
        return None

    def call(fn: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        futures = map_functions(fn, items, run=run, chunksize=1)
        try:
            for future in futures:
                yield future.result()
        finally:
            futures.cancel()

    return call
