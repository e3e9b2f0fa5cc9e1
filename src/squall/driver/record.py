"""What a job leaves on record: a small JSON object in the object store, for other terminals.

It is written at most once a second while the job runs, and once more at its end; it decides
nothing (a job's log for resuming is another thing).
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from squall.config import did_you_mean
from squall.data.objects import ObjectStore
from squall.driver.machine import JobMachine
from squall.errors import CorruptError, SquallError, StoreError
from squall.log import get_logger
from squall.records import AttemptRecord, Bill, HistoryRecord

INTERVAL_S = 1.0
FOLDER = "runs"
_KEPT, _SPARE = 100, 20
_NAME = re.compile(r"[0-9a-zA-Z_-]{1,64}")

_log = get_logger(__name__)


class ItemCounts(msgspec.Struct, frozen=True):
    """Items of a map, those that have ended (delivered, failed or cancelled), and those that failed."""

    total: int
    done: int
    failed: int


class JobRecord(msgspec.Struct, frozen=True):
    """A job as other processes may see it; ``written_at`` is seconds since 1970.

    Of a map ``items`` are its counts, and there are no epochs, rows and attempts.
    """

    id: str
    state: str
    reason: str
    time_s: float
    written_at: float
    bill: Bill
    epochs: int = 0
    rows: int = 0
    history: list[HistoryRecord] = []
    attempts: list[AttemptRecord] = []
    notes: list[str] = []
    tags: dict[str, str] = {}
    items: ItemCounts | None = None
    format_version: int = 1


def record_of(job: str, machine: JobMachine, now: float, tags: dict[str, str]) -> JobRecord:
    """A job at this moment, ``now`` seconds after it began."""
    status = machine.status(now)
    return JobRecord(
        id=job,
        state=status.state,
        reason=status.reason,
        epochs=status.epochs,
        rows=status.rows,
        time_s=now,
        written_at=time.time(),
        bill=machine.ledger.bill(now),
        history=list(machine.history),
        attempts=status.attempts,
        notes=status.notes,
        tags=tags,
    )


class Recorder:
    """Writes a job's record, now and then.

    Parameters
    ----------
    objects : ObjectStore
        Where.

    Attributes
    ----------
    wrote : bool
        Whether it has written one.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.wrote = False
        self._written = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time for the next."""
        return time.monotonic() - self._written > INTERVAL_S

    def write(self, record: JobRecord) -> None:
        """Write it; a failure is logged, for the job itself does not depend on it."""
        self._written, self.wrote = time.monotonic(), True
        try:
            self._objects.put(record_key(record.id), msgspec.json.encode(record))
        except StoreError as error:
            _log.warning("the record of job %s was not written: %s", record.id, error)

    def forget_old(self) -> None:
        """In a local folder, keep the records of the last 100 jobs, and some 20 more before they go."""
        folder = self._objects.folder
        if folder is None:
            return
        records = list((folder / FOLDER).glob("*.json"))
        if len(records) < _KEPT + _SPARE:  # looking at the age of each takes longer than a small fit's rest
            return
        records.sort(key=_age)
        for path in records[:-_KEPT]:
            path.with_suffix(".logs").unlink(missing_ok=True)
            path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process was quicker
        return 0.0


def record_key(job: str) -> str:
    """The object with a job's record."""
    return f"{FOLDER}/{job}.json"


def recorded_jobs(objects: ObjectStore) -> Iterator[JobRecord]:
    """The records of all jobs that can be read."""
    for key in objects.keys(FOLDER):
        if key.endswith(".json"):
            with contextlib.suppress(SquallError):  # it has just been removed, or is of another version
                yield read_record(objects, key.removeprefix(f"{FOLDER}/").removesuffix(".json"))


def read_record(objects: ObjectStore, job: str) -> JobRecord:
    """The newest record of a job.

    Raises
    ------
    SquallError
        If there is none, or it cannot be read.
    """
    key = record_key(job)
    if not _NAME.fullmatch(job) or not objects.exists(key):
        keys = (key for key in objects.keys(FOLDER) if key.endswith(".json"))
        known = [key.removeprefix(f"{FOLDER}/").removesuffix(".json") for key in keys]
        raise SquallError(
            f"there is no record of a job {job!r}{did_you_mean(job, known)}",
            where=objects.url,
            fix="check the name, or give the job's --storage",
        )
    try:
        return msgspec.json.decode(objects.get(key), type=JobRecord)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the record cannot be read: {error}", where=f"{objects.url}/{key}") from error
