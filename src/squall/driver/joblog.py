"""A job's log: what happened to it, in numbered objects that are only ever created.

The log is what a job's machine is rebuilt from, and it is the lock: whoever creates the next
record drives the job.  A driver that finds the next number taken has been replaced, and leaves.
Every record is written before what it says is acted upon.
"""

from __future__ import annotations

import secrets

import msgspec

from squall.data.objects import ObjectStore
from squall.driver.checksums import checked, with_checksum
from squall.driver.events import Event
from squall.errors import CorruptError, JobError, StoreError

FOLDER = "log"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One event; ``at`` is in seconds since the job began."""

    at: float
    event: Event


class LogRecord(msgspec.Struct, frozen=True):
    """A batch of events.

    ``term`` counts the drivers that the job has had; ``nonce`` is the writing driver's own, by which
    it recognises its record after a write of which it does not know how it ended.
    """

    term: int
    nonce: str
    entries: list[Entry]


class TakenOverError(JobError):
    """Another process drives this job now; this one must leave everything as it is."""


class JobLog:
    """The log of one job as its driver writes it.

    Parameters
    ----------
    objects : ObjectStore
        Where.
    job : str
        The job's id.
    term : int
        This driver's; records of a lower one may come before, of a higher one never.
    number : int
        Of the next record.
    """

    def __init__(self, objects: ObjectStore, job: str, term: int = 1, number: int = 0) -> None:
        self._objects, self._job, self._number = objects, job, number
        self._term, self._nonce = term, secrets.token_hex(8)

    def append(self, entries: list[Entry]) -> None:
        """Write the next record.

        Raises
        ------
        TakenOverError
            If another driver has: this one drives the job no more.
        StoreError
            If the object store refuses.
        """
        key = _key(self._job, self._number)
        record = LogRecord(self._term, self._nonce, entries)
        try:
            created = self._objects.create(key, with_checksum(msgspec.msgpack.encode(record)))
        except StoreError:
            created = False  # it may have been stored all the same: the look below tells
            if not self._objects.exists(key):
                raise
        if not created and _read(self._objects, key).nonce != self._nonce:
            raise TakenOverError(
                "another process has taken this job over",
                where=f"job {self._job}",
                fix=f"leave it to that one; `squall status {self._job}` shows how it is",
            )
        self._number += 1


def read_log(objects: ObjectStore, job: str) -> list[LogRecord]:
    """All records, the oldest first.

    Raises
    ------
    CorruptError
        If one cannot be read, or is missing between others.
    """
    keys = objects.keys(f"jobs/{job}/{FOLDER}")
    for number, key in enumerate(keys):
        if key != _key(job, number):
            raise CorruptError("a record of the log is missing", where=f"{objects.url}/{_key(job, number)}")
    return [_read(objects, key) for key in keys]


def _read(objects: ObjectStore, key: str) -> LogRecord:
    where = f"{objects.url}/{key}"
    data = checked(objects.get(key), where)
    try:
        return msgspec.msgpack.decode(data, type=LogRecord)
    except msgspec.MsgspecError as error:
        raise CorruptError(
            f"it is not a record of a job's log: {error}", where=where, fix="start the job again"
        ) from error


def _key(job: str, number: int) -> str:
    return f"jobs/{job}/{FOLDER}/{number:08d}"
