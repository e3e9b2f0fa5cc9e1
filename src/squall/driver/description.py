"""What a job is, as plain data in the object store: enough for another process to go on with it."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from squall.config import BACKEND_SETTINGS, Run
from squall.data.objects import ObjectStore
from squall.driver.checksums import checked, with_checksum
from squall.driver.record import read_record
from squall.driver.spec import JobSpec, Prepared
from squall.errors import CorruptError, JobError, SquallError
from squall.records import Bill, Chaos, OptimizerSpec
from squall.registry import PLANNERS

FORMAT = 1

DESCRIPTION = "job.json"
"""Name of a job's description in its folder."""


class PreparedData(msgspec.Struct, frozen=True):
    """A :class:`~squall.driver.spec.Prepared` as plain data."""

    training: str
    model: Any
    optimizer: OptimizerSpec
    batch_size: int
    rows: int
    initial: str | None = None


class JobDescription(msgspec.Struct, frozen=True):
    """A job whose data is prepared.

    ``run`` is a :class:`~squall.config.Run` as plain data, without secrets (a store's token comes from
    the environment); ``fitting`` is what the estimators' floor has to know to make the fitted model;
    ``gets``, ``puts`` and ``spent`` are what preparation has cost.
    """

    id: str
    run: dict[str, Any]
    n_workers: int
    epochs: int
    seed: int
    strategy: dict[str, Any]
    prepared: PreparedData
    evaluates: bool
    target_loss: float | None
    patience: int | None
    fitting: Any
    tags: dict[str, str]
    gets: int
    puts: int
    spent: tuple[Bill, ...] = ()
    format_version: int = FORMAT


def describe(objects: ObjectStore, job: str, spec: JobSpec, prepared: Prepared, gets: int, puts: int) -> None:
    """Write a job's description into its folder."""
    description = JobDescription(
        id=job,
        run=_plain_run(spec.run, objects.url),
        n_workers=spec.n_workers,
        epochs=spec.epochs,
        seed=spec.seed,
        strategy=spec.strategy,
        prepared=PreparedData(
            prepared.training,
            msgspec.to_builtins(prepared.model),
            prepared.optimizer,
            prepared.batch_size,
            prepared.rows,
            prepared.initial,
        ),
        evaluates=spec.evaluate is not None,
        target_loss=spec.target_loss,
        patience=spec.patience,
        fitting=prepared.fitting,
        tags=spec.tags,
        gets=gets,
        puts=puts,
        spent=prepared.spent,
    )
    objects.put(_key(job), with_checksum(msgspec.json.encode(description)))


def is_described(objects: ObjectStore, job: str) -> bool:
    """Whether a job has a description, and so can be gone on with."""
    return objects.exists(_key(job))


def read_description(objects: ObjectStore, job: str) -> JobDescription:
    """The description of a job.

    Raises
    ------
    JobError
        If there is none: it has ended, or it died before its data was prepared.
    CorruptError
        If it cannot be read.
    """
    where = f"{objects.url}/{_key(job)}"
    if not is_described(objects, job):
        raise _nothing_to_go_on_with(objects, job)
    data = checked(objects.get(_key(job)), where)
    try:
        found = msgspec.json.decode(data, type=JobDescription)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the job's description cannot be read: {error}", where=where) from error
    if found.format_version != FORMAT:
        raise CorruptError(f"it is of format {found.format_version}, not {FORMAT}", where=where)
    return found


def _nothing_to_go_on_with(objects: ObjectStore, job: str) -> JobError:
    where = f"job {job}"
    with contextlib.suppress(SquallError):  # not every job is on record
        record = read_record(objects, job)
        if record.items is not None and record.state == "running":
            return JobError(
                "it is a map, and nobody can go on with one but its own client: "
                "the key that signs what its functions return is stored nowhere",
                where=where,
                fix="start it again; `squall map … --out FILE`, typed again, calls only what FILE.part lacks",
            )
        if record.state in ("finished", "failed", "stopped"):
            return JobError(
                f"there is nothing to go on with: it has {record.state} ({record.reason})",
                where=where,
                fix="start it again, if that is not as it should be",
            )
    return JobError(
        "there is nothing to go on with: it has ended, or it died before its data was prepared",
        where=where,
        fix=f"`squall status {job}` tells which; in the second case start it again",
    )


def run_of(description: JobDescription) -> Run:
    """The run's settings."""
    settings = dict(description.run)
    backend = settings.pop("backend")
    if backend["chaos"] is not None:
        backend["chaos"] = msgspec.convert(backend["chaos"], Chaos)
    plan = settings.pop("plan", "fixed")
    if not isinstance(plan, str):
        plan = msgspec.convert(plan["settings"], PLANNERS.load(plan["name"]), strict=False)
    return Run(backend=BACKEND_SETTINGS[backend.pop("name", "local")](**backend), plan=plan, **settings)


def _plain_run(run: Run, storage: str) -> dict[str, Any]:
    backend = run.resolve_backend()
    whole = msgspec.to_builtins(
        run.replace(backend="local", prices=str(run.prices), storage=None, plan="fixed")
    )
    described = {"name": backend.name, **msgspec.to_builtins(backend)}
    return {**whole, "backend": described, "storage": storage, "plan": _plain_plan(run)}


def _plain_plan(run: Run) -> Any:
    """Planners that are not Squall's own cannot be made anew: whoever resumes is told which it was."""
    if run.planner is None:
        return run.plan
    ours = isinstance(run.planner, msgspec.Struct)
    return {
        "name": type(run.planner).__name__,
        "settings": msgspec.to_builtins(run.planner, str_keys=True) if ours else None,
    }


def _key(job: str) -> str:
    return f"jobs/{job}/{DESCRIPTION}"
