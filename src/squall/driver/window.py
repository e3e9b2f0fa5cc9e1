"""A running job's window: other terminals see its record and logs in the object store, and ask it to stop.

Nothing that is only looked at may end a job: where the store refuses, that is logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from squall.data.objects import ObjectStore
from squall.driver.logs import write_logs
from squall.driver.record import JobRecord, Recorder
from squall.errors import StoreError
from squall.log import get_logger

LOOK_S = 2.0
"""Seconds between two looks for a stop flag; logs are written as often, if there is news."""

Logs = dict[tuple[int, int], str]

_log = get_logger(__name__)


class Window:
    """Shows one job; methods belong to the thread of the job's loop.

    Parameters
    ----------
    objects : ObjectStore
        Where.
    job : str
        The job's id.
    recorder : Recorder
        Writes its record, which is also its driver's sign of life.
    """

    def __init__(self, objects: ObjectStore, job: str, recorder: Recorder) -> None:
        self._objects, self._job, self._recorder = objects, job, recorder
        self._logs: Logs = {}
        self._looked = time.monotonic()

    def tick(self, record: Callable[[], JobRecord], logs: Callable[[], Logs]) -> bool:
        """Show what is due; True if somebody has asked the job to stop."""
        if self._recorder.due:
            self._recorder.write(record())
        if time.monotonic() - self._looked <= LOOK_S:
            return False
        self._looked = time.monotonic()
        self.show_logs(logs())
        return self._is_to_stop()

    def close(self, record: Callable[[], JobRecord], logs: Callable[[], Logs]) -> None:
        """Show how it ended, if it was ever shown: what is over at once leaves no record."""
        if self._recorder.wrote:
            self._recorder.write(record())
            self.show_logs(logs())
            self._recorder.forget_old()

    def show_logs(self, logs: Logs) -> None:
        """Write the logs, if there is news."""
        if logs == self._logs:
            return
        self._logs = logs
        try:
            write_logs(self._objects, self._job, logs)
        except StoreError as error:
            _log.warning("the logs of job %s were not written: %s", self._job, error)

    def _is_to_stop(self) -> bool:
        try:
            return self._objects.exists(stop_key(self._job))
        except StoreError as error:  # the job needs no answer; the next look may get one
            _log.warning("nobody could be asked whether job %s is to stop: %s", self._job, error)
            return False


def stop_key(job: str) -> str:
    """The object that asks a job to stop."""
    return f"jobs/{job}/stop"
