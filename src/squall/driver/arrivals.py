"""What comes to a job's driver, in the order in which its machine must hear of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from squall.driver import events
from squall.errors import SquallError
from squall.records import Report


@dataclass(frozen=True)
class Arrived:
    """Reports, in order, as the listener brought them."""

    reports: list[Report]


@dataclass(frozen=True)
class Unheard:
    """Reports can no longer be had."""

    error: SquallError


Happened = Arrived | Unheard | events.StoreRestored
"""What a job's connections to the store bring."""


class Arrivals:
    """Holds a worker's end back until all that it reported has come in.

    Parameters
    ----------
    progress : callable
        Minibatches that a slot has applied.
    """

    def __init__(self, progress: Callable[[int], int]) -> None:
        self._progress = progress
        self._reports_from: Counter[tuple[int, int]] = Counter()
        self._ends: list[events.Ended] = []
        self._reports_lost = False  # some may never come, so nothing waits for them

    def take(self, event: events.Event | Arrived) -> list[events.Event]:
        """What the machine may hear now that this has come."""
        taken: list[events.Event] = []
        if isinstance(event, Arrived):
            for report in event.reports:
                self._reports_from[report.slot, report.attempt] += 1
            taken += map(events.Reported, event.reports)
        elif isinstance(event, events.Ended):
            self._ends.append(event)
        else:
            self._reports_lost |= isinstance(event, events.StoreRestored)
            taken.append(event)
        return [*taken, *self._due_ends()]

    def _due_ends(self) -> list[events.Event]:
        due = [end for end in self._ends if self._is_heard(end)]
        self._ends = [end for end in self._ends if end not in due]
        return [msgspec.structs.replace(end, minibatches=self._progress(end.slot)) for end in due]

    def _is_heard(self, end: events.Ended) -> bool:
        return self._reports_lost or self._reports_from[end.slot, end.attempt] >= end.reports_sent
