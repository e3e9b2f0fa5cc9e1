"""What jobs look like in a terminal: a table that grows by an epoch a line, and the bill."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from squall.driver.job import Job
from squall.errors import SquallError
from squall.estimators.progress import progress_line
from squall.records import Bill, HistoryRecord
from squall.units import format_count, format_duration, format_money

# Names and paths are the user's: "[x]" in them is not markup.
console = Console(highlight=False, markup=False)
errors = Console(stderr=True, highlight=False, markup=False)

_REFRESH_S = 0.1
_LOG_S = 10.0  # where nobody looks, a log file may be read later


def print_error(error: SquallError) -> None:
    """One message: what, where, and the fix."""
    errors.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)


def follow(job: Job[Any], heading: str) -> Any:
    """Wait for a job, showing each epoch as it ends; returns the fitted model."""
    if not console.is_terminal:
        model = _wait_logging(job)
        console.print(_epochs(heading, job), soft_wrap=True)
        return model
    with Live(console=console, refresh_per_second=10, transient=False) as live:
        while not job.done():
            try:
                with contextlib.suppress(TimeoutError):
                    job.wait(_REFRESH_S)
                status = job.status()
                notes = [Text(note, "yellow") for note in status.notes]
                live.update(Group(_epochs(heading, job), *notes, Text(progress_line(status), "dim")))
            except KeyboardInterrupt:
                live.update(Text("stopping, the model is kept; Ctrl-C again to end at once", "yellow"))
                job.stop("interrupted")
        model = job.wait()
        live.update(_epochs(heading, job))
    return model


def print_end(job: Job[Any], bill: Bill, saved: Path) -> None:
    """The bill, what there is to know, and where the model is; exits as interrupted if it was."""
    print_bill(bill, local=True)
    status = job.status()
    for note in status.notes:
        console.print(f"\n{note}", style="yellow", soft_wrap=True)
    if status.reason != "epochs":
        console.print(f"\ntraining ended early by: {status.reason}")
    console.print(f"\nsaved to {saved}")
    if status.reason == "interrupted":
        raise KeyboardInterrupt


def _wait_logging(job: Job[Any]) -> Any:
    """``job.wait()`` with a line on standard error now and then."""
    while True:
        try:
            return job.wait(_LOG_S)
        except TimeoutError:
            errors.print(progress_line(job.status()), soft_wrap=True)


def _plain_table() -> Table:
    return Table(box=None, show_header=False, pad_edge=False)


def _epochs(heading: str, job: Job[Any]) -> Group:
    history = job.history
    launched_s = min((a.started_s for a in job.status().attempts), default=0.0)
    table = Table(box=None, pad_edge=False)
    for name in ("epoch", "loss", "held-out loss", "rows/s", "workers", "time", "cost"):
        table.add_column(name, justify="right", header_style="dim")
    for number, record in enumerate(history):
        table.add_row(
            str(record.epoch),
            f"{record.loss:.4f}",
            "" if record.validation_loss is None else f"{record.validation_loss:.4f}",
            format_count(_rate(history, number, launched_s)),
            str(record.workers),
            format_duration(record.time_s),
            format_money(record.cost_usd),
        )
    return Group(Text(heading, "bold"), table)


def _rate(history: Sequence[HistoryRecord], number: int, launched_s: float) -> float:
    """Rows/s over the last few epochs: one epoch may be shorter than the news of it takes."""
    since = max(0, number - 4)
    if not number:
        return history[0].rows / max(history[0].time_s - launched_s, 1e-9)
    rows = sum(record.rows for record in history[since + 1 : number + 1])
    return rows / max(history[number].time_s - history[since].time_s, 1e-9)


def print_metrics(title: str, metrics: dict[str, str]) -> None:
    """Named values, one a line."""
    console.print(Text(title, "bold"), soft_wrap=True)
    table = _plain_table()
    for name, value in metrics.items():
        table.add_row(name, Text(value, "bold"))
    console.print(table)


def print_bill(bill: Bill, *, local: bool) -> None:
    """The bill by item."""
    verb = "would have cost" if local else "cost"
    title = f"The bill: what this run {verb} at {bill.price_list}"
    console.print(Text(title, "bold"), soft_wrap=True)
    table = _plain_table()
    table.add_column()
    table.add_column(justify="right")
    for name, usd in bill.items().items():
        table.add_row(name, format_money(usd))
    table.add_row(Text("total", "bold"), Text(format_money(bill.total_usd), "bold"))
    console.print(table)
