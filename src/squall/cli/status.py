"""``squall status JOB``: a job as it last put itself on record."""

from __future__ import annotations

import time

from rich.table import Table
from rich.text import Text

from squall.cli.jobs import state_of
from squall.cli.show import console, print_bill
from squall.data.objects import ObjectStore, default_storage
from squall.driver.record import JobRecord, read_record
from squall.records import AttemptRecord, Phases
from squall.units import format_count, format_duration, format_money, format_size

_SECONDS = ("cold_start", "fetch", "pull", "compute", "push", "wait", "cpu")


def run_status(job: str, storage: str | None) -> None:
    """Print state, phases by epoch and worker, attempts, and the bill."""
    objects = ObjectStore(default_storage() if storage is None else storage)
    record = read_record(objects, job)
    ago = format_duration(max(0.0, time.time() - record.written_at))
    why = f", ended by: {record.reason}" if record.reason else ""
    console.print(Text(f"job {record.id}: {state_of(objects, record)}{why}", "bold"), soft_wrap=True)
    console.print(f"{_done(record)} in {format_duration(record.time_s)}; written {ago} ago\n", soft_wrap=True)
    if record.history:
        console.print(_phases(record))
        console.print()
    if record.items is None:
        console.print(_attempts(record.attempts))
        console.print()
    for note in record.notes:
        console.print(Text(note, "yellow"), soft_wrap=True)
    print_bill(record.bill, local=True)


def _done(record: JobRecord) -> str:
    if record.items is None:
        epochs = f"{len(record.history)} of {record.epochs} epochs"
        return f"{epochs}, {format_count(record.rows)} rows trained on"
    failed = f", {record.items.failed:,} of them failed," if record.items.failed else ""
    return f"{record.items.done:,} of {record.items.total:,} items done{failed}"


def _phases(record: JobRecord) -> Table:
    """Seconds by what a worker did: the last epochs, worker by worker."""
    table = Table(
        box=None, pad_edge=False, padding=(0, 1, 0, 0), title="Where the time went (s)", title_justify="left"
    )
    for name in ("epoch", "worker", *_SECONDS, "peak memory", "bytes in"):
        table.add_column(name.replace("_", " "), justify="right", header_style="dim")
    for epoch in record.history[-5:]:
        for worker, phases in sorted(epoch.by_worker.items()):
            table.add_row(str(epoch.epoch), str(worker), *_cells(phases))
    return table


def _cells(phases: Phases) -> list[str]:
    seconds = [f"{getattr(phases, name):.3f}" for name in _SECONDS]
    return [*seconds, format_size(phases.peak_rss), format_size(phases.bytes_in)]


def _attempts(attempts: list[AttemptRecord]) -> Table:
    table = Table(box=None, pad_edge=False, title="Attempts", title_justify="left")
    for name in ("worker", "attempt", "started", "ended", "minibatches", "outcome", "lost", "cost"):
        table.add_column(name, justify="right", header_style="dim")
    for a in attempts[-20:]:
        table.add_row(
            str(a.slot),
            str(a.attempt),
            f"{a.started_s:.2f} s",
            "" if a.ended_s is None else f"{a.ended_s:.2f} s",
            f"{a.first_minibatch:,}-{a.first_minibatch + a.minibatches:,}",
            "running" if a.outcome is None else str(a.outcome.kind),
            f"{a.lost_s:.3f} s",
            format_money(a.cost_usd),
        )
    return table
