"""A job's state at the start of its driver, and taking it over from one that is no more."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from squall.config import is_objects
from squall.data.objects import ObjectStore
from squall.driver.claims import owner_is_dead, release
from squall.driver.description import DESCRIPTION, JobDescription, read_description
from squall.driver.joblog import Entry, JobLog, read_log
from squall.driver.ledger import Ledger, load_prices
from squall.driver.limits import Limits
from squall.driver.machine import JobMachine
from squall.driver.record import read_record, record_key
from squall.driver.spec import JobSpec
from squall.errors import JobError, SquallError, StoreLostError
from squall.records import Plan
from squall.worker.strategies import strategy_from_dict

SILENCE_S = 10.0
"""Seconds without a sign of life, by the watcher's own clock, after which a driver counts as dead."""

MAX_RESTARTS = 3
"""Deaths of a worker in a row, without progress in between, that a job survives."""

SILENCE_OF_WORKERS_S = 30.0
"""Seconds after which a worker that says nothing is given up."""

_POLL_S = 0.5


@dataclass(frozen=True)
class Resumption:
    """A job that this process drives from now on: what happened to it, until when, and its log."""

    description: JobDescription
    entries: list[Entry]
    elapsed_s: float
    log: JobLog

    @property
    def id(self) -> str:
        """The job's id."""
        return self.description.id


def take_over(objects: ObjectStore, job: str, silence_s: float = SILENCE_S) -> Resumption:
    """Become the driver of a job whose driver is dead.

    Its driver is dead if it was a process of this machine that has ended, or else if the job's record
    has not changed for ``silence_s``.

    Raises
    ------
    JobError
        If it has ended, was not prepared, or is alive.
    TakenOverError
        If another process was quicker.
    CorruptError
        If its log or description cannot be read.
    """
    description = read_description(objects, job)
    _await_silence(objects, job, silence_s)
    records = read_log(objects, job)
    log = JobLog(objects, job, 1 + max((r.term for r in records), default=0), len(records))
    log.append([])  # from now on the job is ours: an older driver finds this number taken
    entries = [entry for record in records for entry in record.entries]
    elapsed = max([entry.at for entry in entries], default=0.0)
    with contextlib.suppress(SquallError):  # it was never written, or has been cut off: the log will do
        elapsed = max(elapsed, read_record(objects, job).time_s)
    return Resumption(description, entries, elapsed, log)


@contextlib.contextmanager
def kept_if_lost(objects: ObjectStore, job: str, leave: Callable[[], None]) -> Iterator[None]:
    """Leave a resumed job as it is if its store does not answer: that may come back, and the job go on."""
    try:
        yield
    except StoreLostError as error:
        leave()
        release(objects, f"jobs/{job}")
        raise StoreLostError(
            f"the job's store does not answer, and the job is left as it is: {error.what}",
            where=error.where,
            fix="start the store again (`squall store restore`), then resume the job once more",
        ) from error


def machine_of(spec: JobSpec, resumption: Resumption | None) -> JobMachine:
    """A job's machine at its start, or as its log has left it."""
    machine = JobMachine(
        Plan(spec.n_workers, spec.run.memory_mb),
        spec.epochs,
        Ledger(
            load_prices(spec.run.prices), spec.run.memory_mb, 0.0, has_server=not is_objects(spec.run.store)
        ),
        evaluates=spec.evaluate is not None,
        limits=Limits(
            deadline_s=spec.run.deadline_s,
            budget_usd=spec.run.budget_usd,
            target_loss=spec.target_loss,
            patience=spec.patience,
            max_restarts=MAX_RESTARTS,
            silence_s=SILENCE_OF_WORKERS_S,
            replaces_stragglers=strategy_from_dict(spec.strategy).replaces_stragglers,
        ),
        planned=spec.run.planner is not None,
    )
    if resumption is not None:
        machine.ledger.objects(resumption.description.gets, resumption.description.puts)
        machine.ledger.add(*resumption.description.spent)
        for entry in resumption.entries:
            machine.handle(entry.event, entry.at)
    return machine


def find_interrupted(objects: ObjectStore, tags: dict[str, str]) -> list[str]:
    """Ids of jobs with these tags whose process is known to be dead, the oldest first."""
    found = []
    for entry in objects.entries("jobs"):
        job, _, name = entry.key.removeprefix("jobs/").partition("/")
        if name == DESCRIPTION and owner_is_dead(objects, f"jobs/{job}"):
            with contextlib.suppress(SquallError):  # of another version, or just removed
                if read_description(objects, job).tags == tags:
                    found.append((entry.modified, job))
    return [job for _, job in sorted(found)]


def _await_silence(objects: ObjectStore, job: str, silence_s: float) -> None:
    dead = owner_is_dead(objects, f"jobs/{job}")
    if dead:
        return
    seen, since = _beat(objects, job), time.monotonic()
    while dead is None and time.monotonic() - since < silence_s:
        time.sleep(_POLL_S)
        if _beat(objects, job) != seen:
            dead = False
    if dead is False:
        raise JobError(
            "another process drives it, and is alive",
            where=f"job {job}",
            fix=f"look on with `squall status {job}`, or end it with `squall stop {job}`",
        )


def _beat(objects: ObjectStore, job: str) -> bytes:
    key = record_key(job)
    return bytes(objects.get(key)) if objects.exists(key) else b""
