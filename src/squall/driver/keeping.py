"""What makes a running job survive its driver: its log and its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from squall.data.objects import ObjectStore
from squall.driver.events import (
    Cancel,
    CancelAll,
    Command,
    EndLeg,
    Event,
    Launch,
    Proceed,
    RequestStop,
    Switch,
    Tick,
)
from squall.driver.joblog import Entry, JobLog
from squall.driver.record import JobRecord, Recorder
from squall.driver.window import Logs, Window
from squall.errors import StoreError
from squall.log import get_logger

FLUSH_S = 1.0
"""Seconds after which what has happened is written down, also if nothing hangs on it."""

REACHING_OUT = Launch | RequestStop | Proceed | EndLeg | Switch | Cancel | CancelAll
"""Commands by which others act: what led to them is written down before."""

_log = get_logger(__name__)


class Keeper:
    """Keeps one job; its methods belong to the thread of the job's loop.

    Parameters
    ----------
    objects : ObjectStore
        Where.
    job : str
        The job's id.
    log : JobLog
        Its log.
    recorder : Recorder
        Of what others may see of it, which is also its driver's sign of life.
    checkpoint : callable, optional
        Writes a checkpoint of that number; it is called from a thread.  None where the store keeps
        itself.
    every_s : float, optional
        Seconds between two checkpoints; none are taken if None.
    """

    def __init__(
        self,
        objects: ObjectStore,
        job: str,
        log: JobLog,
        recorder: Recorder,
        checkpoint: Callable[[int], None] | None,
        every_s: float | None,
    ) -> None:
        self._job, self._log = job, log
        self._window = Window(objects, job, recorder)
        self._checkpoint, self._every_s = checkpoint, every_s
        self._unwritten: list[Entry] = []
        self._flushed = self._kept = time.monotonic()
        self._thread = ThreadPoolExecutor(1, "squall-checkpoint")
        self._taking: Future[None] | None = None

    def note(self, at: float, event: Event, commands: list[Command]) -> None:
        """Remember an event; write it down before its commands are obeyed, if they reach out.

        Raises
        ------
        TakenOverError
            If another process drives this job now.
        StoreError
            If the log cannot be written.
        """
        if belongs_in_log(event, commands):
            self._unwritten.append(Entry(at, event))
        if reaches_out(commands):
            self._flush()

    def tick(self, record: Callable[[], JobRecord], logs: Callable[[], Logs]) -> bool:
        """Do what is due; True if somebody has asked the job to stop."""
        now = time.monotonic()
        if self._unwritten and now - self._flushed > FLUSH_S:
            self._flush()
        if self._checkpoint is not None and self._every_s is not None and now - self._kept > self._every_s:
            self._kept = now
            self._take(self._checkpoint)
        return self._window.tick(record, logs)

    def close(self, logs: Callable[[], Logs]) -> None:
        """Wait for a checkpoint that is being written; write the last logs."""
        self._thread.shutdown()
        self._window.show_logs(logs())

    def _flush(self) -> None:
        entries, self._unwritten = self._unwritten, []
        self._flushed = time.monotonic()
        self._log.append(entries)

    def _take(self, checkpoint: Callable[[int], None]) -> None:
        if self._taking is None or self._taking.done():
            self._taking = self._thread.submit(self._take_now, checkpoint)

    def _take_now(self, checkpoint: Callable[[int], None]) -> None:
        try:
            checkpoint(int(1000 * time.time()))
        except StoreError as error:
            _log.warning("no checkpoint of job %s was taken: %s", self._job, error)


def belongs_in_log(event: Event, commands: list[Command]) -> bool:
    """Whether a machine cannot be rebuilt without this event."""
    return bool(commands) or not isinstance(event, Tick)


def reaches_out(commands: list[Command]) -> bool:
    """Whether others will act by these commands, so that what led to them is written down before."""
    return any(isinstance(command, REACHING_OUT) for command in commands)


def checkpoints_of(objects: ObjectStore, job: str) -> str:
    """The URL below which a job's checkpoints are."""
    return f"{objects.url}/jobs/{job}/checkpoints"
