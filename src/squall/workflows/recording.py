"""A map as other terminals see it."""

from __future__ import annotations

import time

from squall.driver.logs import MAX_CHARACTERS
from squall.driver.record import ItemCounts, JobRecord
from squall.records import Bill
from squall.workflows.machine import MapStatus

_LOG_CHARACTERS = 2_000_000


def map_record(job: str, status: MapStatus, bill: Bill, tags: dict[str, str]) -> JobRecord:
    """A map at this moment."""
    return JobRecord(
        id=job,
        state="finished" if status.state == "ended" else status.state,
        reason=status.reason,
        time_s=status.time_s,
        written_at=time.time(),
        bill=bill,
        tags=tags,
        items=ItemCounts(status.items, status.done, status.failed),
    )


def newest_logs(logs: dict[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    """What the latest calls wrote, of which there may be thousands: as much as is written down every time."""
    kept: dict[tuple[int, int], str] = {}
    left = _LOG_CHARACTERS
    for key, text in reversed(logs.items()):
        left -= min(len(text), MAX_CHARACTERS)
        if left < 0:
            break
        kept[key] = text
    return kept
