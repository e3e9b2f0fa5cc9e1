"""`squall.Executor`: the interface of `concurrent.futures`, on functions."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from squall.config import Problems, Run
from squall.records import Bill
from squall.worker.calls import Star
from squall.workflows.futures import CallFuture
from squall.workflows.job import MapJob
from squall.workflows.machine import MapStatus
from squall.workflows.map import pickled, whole_call
from squall.workflows.settings import map_settings

T = TypeVar("T")


class Executor(concurrent.futures.Executor):
    """Calls functions on functions; stands in for ``concurrent.futures.ProcessPoolExecutor``.

    Parameters
    ----------
    run : Run, optional
        Default: the ``with squall.Run(…)`` around the call.  Deadline and budget hold for all calls
        together, from now on.
    max_workers : int, optional
        Calls at the same time; default: the run's ``workers``.
    timeout, retries
        For each call, as for :func:`squall.map`.

    Raises
    ------
    SettingError
        Naming everything that is wrong.
    """

    def __init__(
        self,
        run: Run | None = None,
        *,
        max_workers: int | None = None,
        timeout: str | float | None = None,
        retries: int = 0,
    ) -> None:
        settings = map_settings("Executor", run, timeout=timeout, retries=retries, max_workers=max_workers)
        self._job = MapJob(settings, "Executor")
        self._lock = threading.Lock()
        self._shut = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> CallFuture[T]:
        """Have ``fn(*args, **kwargs)`` called.

        Raises
        ------
        SerializationError
            If the function or an argument cannot be pickled.
        RuntimeError
            After `shutdown`.
        """
        return self._submit([whole_call("submit", fn, args, kwargs)], None, 1)[0]

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Results of ``fn(*arguments)`` in order, for arguments taken from each iterable.

        ``timeout`` is how long to wait for them, in seconds, as in `concurrent.futures`.
        """
        problems = Problems("Executor.map")
        problems.integer("chunksize", chunksize, 1)
        problems.raise_if_any()
        until = None if timeout is None else time.monotonic() + timeout
        function, payloads = pickled("Executor.map", Star(fn), zip(*iterables, strict=False))
        return _in_order(self._submit(payloads, function, int(chunksize)), until)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the rest goes on to its end unless it is cancelled."""
        with self._lock:
            first, self._shut = not self._shut, True
        if cancel_futures:
            self._job.cancel_all()
        if first:
            self._job.close()
        if wait:
            with self._job.ended_by_interrupt():
                self._job.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all calls; but if the block was interrupted, end them."""
        if kind is not None and not issubclass(kind, Exception):
            self._job.stop("interrupted")
        self.shutdown(wait=True)

    def _submit(self, payloads: list[bytes], function: bytes | None, chunksize: int) -> list[CallFuture[Any]]:
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")  # as the standard's says
            return self._job.submit(payloads, function, chunksize)

    def status(self) -> MapStatus:
        """Items done and failed, functions that run, time and dollars at this moment."""
        return self._job.status()

    @property
    def bill(self) -> Bill:
        """What it costs (locally: would cost) so far, by item."""
        return self._job.bill()

    def logs(self) -> str:
        """What the functions wrote, call by call."""
        return self._job.logs()


def _in_order(futures: list[CallFuture[T]], until: float | None) -> Iterator[T]:
    try:
        for future in futures:
            yield future.result(None if until is None else until - time.monotonic())
    finally:  # as the standard's: those that nobody will look at are not wanted
        for future in futures:
            future.cancel()
