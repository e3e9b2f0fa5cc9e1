"""Progress of a job where someone looks: one line that is rewritten, then the bill."""

from __future__ import annotations

from typing import TypeVar

from squall.driver.job import Job
from squall.records import JobStatus
from squall.terminal import REFRESH_S, end_line, rewrite, someone_looks
from squall.units import format_count, format_duration, format_money

T = TypeVar("T")


def progress_line(status: JobStatus) -> str:
    """``epoch 3/10  loss 0.342  held-out 0.339  1.2 M rows/s  2 workers  0.42 s  $0.000012``."""
    beginning = "preparing" if status.state == "preparing" else "starting"
    parts = [f"epoch {status.epoch}/{status.epochs}" if status.epoch else beginning]
    if status.loss is not None:
        parts.append(f"loss {status.loss:.4f}")
    if status.validation_loss is not None:
        parts.append(f"held-out {status.validation_loss:.4f}")
    if status.rows_per_s:
        parts.append(f"{format_count(status.rows_per_s)} rows/s")
    if status.workers:
        parts.append(f"{status.workers} worker{'s' if status.workers > 1 else ''}")
    parts += [format_duration(status.time_s), format_money(status.cost_usd)]
    if status.expected_s is not None and status.expected_usd is not None and not status.reason:
        parts.append(f"expected {format_duration(status.expected_s)}, {format_money(status.expected_usd)}")
    return "  ".join(parts)


def final_line(status: JobStatus) -> str:
    """The last line: what there is now, why it ended, and the bill."""
    return f"{progress_line(status)}  ended by: {status.reason}"


def wait_showing_progress(job: Job[T]) -> T:
    """``job.wait()`` with a line on the terminal, if standard error is one."""
    if not someone_looks():
        return job.wait()
    try:
        while True:
            try:
                return job.wait(REFRESH_S)
            except TimeoutError:
                rewrite(progress_line(job.status()))
    except KeyboardInterrupt:  # between two waits
        job.stop("interrupted")
        return job.wait()
    finally:
        if job.done():
            rewrite(final_line(job.status()))
        end_line()
