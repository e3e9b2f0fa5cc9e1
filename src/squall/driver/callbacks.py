"""Callbacks of a job: what its user wants called after each epoch."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from squall.errors import JobError
from squall.records import HistoryRecord

STOPPED = "callback"
"""Why a job ended that a callback has stopped."""

Callback = Callable[[HistoryRecord, Any], Any]
"""Called with an epoch's record and the :class:`squall.Job`; True stops the job."""


class Callbacks:
    """Calls them on a thread of its own, one record after the other, so that training does not wait.

    Parameters
    ----------
    calls : sequence of callable
        Called in this order, with a record and ``job``.
    job : Job
    fail : callable
        Told, from the thread, the error of a callback that raised one; none is called after that.
    """

    def __init__(self, calls: Sequence[Callback], job: Any, fail: Callable[[BaseException], None]) -> None:
        self._calls, self._job, self._fail = calls, job, fail
        self._records: queue.SimpleQueue[HistoryRecord | None] = queue.SimpleQueue()
        self._told = 0
        self._unwanted = False
        self._error: JobError | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_calling(self) -> bool:
        """Whether this is called by a callback."""
        return threading.current_thread() is self._thread

    def note(self, history: Sequence[HistoryRecord], n_settled: int) -> None:
        """So many of the records since the first epoch will not change any more."""
        if not self._calls or n_settled == self._told:
            return
        if self._thread is None:
            # A daemon: a callback that never returns does not keep a process whose job has failed.
            self._thread = threading.Thread(target=self._run, name="squall-callbacks", daemon=True)
            self._thread.start()
        for record in history[self._told : n_settled]:
            self._records.put(record)
        self._told = n_settled

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until all have been called; if the job has failed, neither call more nor wait.

        Raises
        ------
        JobError
            If one has raised an error, which is its cause.
        """
        self._unwanted = kind is not None
        self._records.put(None)
        if self._thread is not None and not self._unwanted:
            self._thread.join()
            if self._error is not None:
                raise self._error

    def _run(self) -> None:
        while (record := self._records.get()) is not None and not self._unwanted:
            for call in self._calls:
                try:
                    if call(record, self._job) is True:
                        self._job.stop(STOPPED)
                except BaseException as error:  # noqa: BLE001 (it ends the job, whatever it is)
                    self._error = _of_callback(call, record, error)
                    self._fail(self._error)
                    return


def _of_callback(call: Callback, record: HistoryRecord, error: BaseException) -> JobError:
    name = getattr(call, "__qualname__", type(call).__name__)
    failed = JobError(
        f"callback {name} raised {type(error).__name__} after epoch {record.epoch}: {error}",
        where="callbacks",
        fix="mend it, or have it catch what may go wrong",
    )
    failed.__cause__ = error
    return failed
