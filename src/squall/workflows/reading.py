"""Text parsed by functions: tasks over ranges of bytes, as calls of `squall.map`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from squall.config import Run, is_isolated
from squall.data.inputs import Input, LocalFile
from squall.data.objects import ObjectStore
from squall.records import Bill
from squall.worker import calls
from squall.workflows.job import MapJob
from squall.workflows.map import map as map_functions


class Calls:
    """Calls a function for each item on functions, and gives the results in their order."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._jobs: list[MapJob] = []

    def __call__(self, fn: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        """The results; all that still runs is cancelled if they are not wanted any more."""
        futures = map_functions(fn, items, run=self._run, chunksize=1)
        self._jobs.append(futures.job)
        try:
            for future in futures:
                yield future.result()
            futures.job.join()  # then its bill is complete
        finally:
            futures.cancel()

    def bill(self) -> Bill | None:
        """What all of it has cost (locally: would have cost); None if nothing was called."""
        bills = [job.bill() for job in self._jobs]
        return sum(bills[1:], start=bills[0]) if bills else None


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
    return Calls(run)
