"""``squall jobs | resume | stop | logs | cost``: jobs from any terminal, also after their process is gone."""

from __future__ import annotations

import time
from pathlib import Path

from rich.table import Table

import squall
from squall.cli.show import console, follow, print_bill, print_end
from squall.data.objects import ObjectStore, default_storage
from squall.driver.claims import NAME, owner_is_dead
from squall.driver.description import is_described, read_description
from squall.driver.logs import read_logs
from squall.driver.record import JobRecord, read_record, recorded_jobs
from squall.driver.resuming import SILENCE_S
from squall.driver.window import stop_key
from squall.errors import JobError, SquallError
from squall.estimators.persistence import check_target
from squall.units import format_duration, format_money

RESUMABLE = "interrupted"
"""State of a job whose process has ended before the job."""

OUT, COMMAND = "out", "command"
"""Tags of `squall train`: where it saves, and what tells the same command from others."""

_OVER = ("finished", "failed", "stopped")
_FOLLOW_S = 0.5


def _objects(storage: str | None) -> ObjectStore:
    return ObjectStore(default_storage() if storage is None else storage)


def state_of(objects: ObjectStore, record: JobRecord) -> str:
    """The state on record, unless the job's process was killed before it could write a last one."""
    if record.state in _OVER:
        return record.state
    if not objects.exists(f"jobs/{record.id}/{NAME}"):
        # `squall clean` has removed it; or it is just ending, and its last record is on the way.
        return "died" if time.time() - record.written_at > SILENCE_S else record.state
    if not owner_is_dead(objects, f"jobs/{record.id}"):
        return record.state
    if record.items is not None:
        return "died"
    return RESUMABLE if is_described(objects, record.id) else "died while preparing"


def run_jobs(storage: str | None, n_shown: int) -> None:
    """List the newest jobs."""
    objects = _objects(storage)
    records = sorted(recorded_jobs(objects), key=lambda r: r.written_at)[-n_shown:]
    if not records:
        console.print(f"no jobs in {objects.url}", soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False)
    for name in ("job", "state", "done", "loss", "cost", "ago"):
        table.add_column(name, header_style="dim", no_wrap=True)
    table.add_column("tags", header_style="dim", overflow="ellipsis")
    for record in records:
        table.add_row(
            record.id,
            state_of(objects, record),
            _done(record),
            _loss(record),
            format_money(record.bill.total_usd),
            format_duration(max(0.0, time.time() - record.written_at)),
            _words(record.tags),
        )
    console.print(table)


def _done(record: JobRecord) -> str:
    if record.items is not None:
        return f"{record.items.done:,}/{record.items.total:,} items"
    return f"{len(record.history)}/{record.epochs} epochs"


def _loss(record: JobRecord) -> str:
    """The newest held-out loss, or else that of training."""
    held_out = [h.validation_loss for h in record.history if h.validation_loss is not None]
    losses = held_out or [h.loss for h in record.history]
    return f"{losses[-1]:.4f}" if losses else ""


def _words(tags: dict[str, str]) -> str:
    """Tags for people; of the file that `squall train` will write, its name."""
    shown = {name: word for name, word in tags.items() if name != COMMAND}
    if OUT in shown:
        shown[OUT] = Path(shown[OUT]).name
    return " ".join(f"{name}={word}" for name, word in shown.items())


def run_resume(job: str, storage: str | None, out: Path | None) -> None:
    """Go on with an interrupted job, and save its model where it was to be saved."""
    objects = _objects(storage)
    read_record(objects, job)  # which says what was probably meant
    tags = read_description(objects, job).tags
    target = out or (Path(tags[OUT]) if OUT in tags else None)
    if target is None:
        raise SquallError(
            "the job does not say where its model is to be saved",
            where=f"job {job}",
            fix="give --out FILE",
        )
    check_target(target)
    resumed = squall.Job.open(f"{objects.url}/jobs/{job}")
    fitted = follow(resumed, f"job {job}, resumed")
    saved = squall.save(fitted, target)
    console.print()
    print_end(resumed, fitted.bill_, saved)


def run_stop(job: str, storage: str | None) -> None:
    """Ask a job to stop and keep its model."""
    objects = _objects(storage)
    record = read_record(objects, job)
    state = state_of(objects, record)
    if state in _OVER:
        raise JobError(f"it is {state} already", where=f"job {job}")
    if state != record.state:
        resume = f"`squall resume {job}` goes on with it; " if state == RESUMABLE else ""
        raise JobError(
            "its process has ended, so nothing of it runs",
            where=f"job {job}",
            fix=f"{resume}`squall clean` removes what it left",
        )
    objects.put(stop_key(job), b"")
    kept = "its model" if record.items is None else "the results it has"
    console.print(f"job {job} will stop within some seconds and keep {kept}", soft_wrap=True)


def run_cost(job: str, storage: str | None) -> None:
    """Show the bill so far."""
    objects = _objects(storage)
    record = read_record(objects, job)
    ago = format_duration(max(0.0, time.time() - record.written_at))
    console.print(f"job {record.id}, {state_of(objects, record)}, as of {ago} ago\n", soft_wrap=True)
    print_bill(record.bill, local=True)


def run_logs(job: str, storage: str | None, worker: int | None, keep_on: bool) -> None:
    """Print what a job's functions wrote, and go on until it ends if that is wanted."""
    objects = _objects(storage)
    shown: dict[tuple[int, int], int] = {}
    while True:
        record = read_record(objects, job)
        over = state_of(objects, record) not in ("preparing", "running", "stopping")
        caller = "worker" if record.items is None else "item"
        for (slot, attempt), text in sorted(read_logs(objects, job).items()):
            if worker is not None and worker != slot:
                continue
            lines = text.splitlines()
            for line in lines[shown.get((slot, attempt), 0) :]:
                console.print(f"[{caller} {slot}, attempt {attempt}] {line}", soft_wrap=True)
            shown[slot, attempt] = len(lines)
        if over or not keep_on:
            return
        time.sleep(_FOLLOW_S)
