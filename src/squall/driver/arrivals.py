"""What comes to a job's driver, in the order in which its machine must hear of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
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


_Key = tuple[int, int]  # slot, attempt

Happened = Arrived | Unheard | events.StoreRestored
"""What a job's connections to the store bring."""


_A_SECOND, _AT_ONCE = 10.0, 20.0


class Pauses:
    """Pauses between two looks for reports, so that the heartbeats of many workers come together.

    The first twenty looks follow on each other at once, as a short job wants it; then there are
    ten a second, but for looks that bring news on which something hangs.
    """

    def __init__(self) -> None:
        self._left, self._at = _AT_ONCE, 0.0

    def after(self, reports: Iterable[Report], now: float) -> float:
        """Seconds to wait when a look at ``now`` (in seconds) has brought these reports."""
        self._left = min(_AT_ONCE, self._left + (now - self._at) * _A_SECOND)
        self._at = now
        if any(report.epoch_done or report.ending for report in reports):
            return 0.0
        self._left -= 1.0
        return max(0.0, -self._left / _A_SECOND)


class Arrivals:
    """Holds a worker's end back until all that it reported has come in.

    Parameters
    ----------
    progress : callable
        Minibatches that a slot has applied.
    """

    def __init__(self, progress: Callable[[int], int]) -> None:
        self._progress = progress
        self._reports_from: Counter[_Key] = Counter()
        self._held: dict[_Key, list[events.Ended]] = {}
        self._reports_lost = False  # some may never come, so nothing waits for them

    def take(self, event: events.Event | Arrived) -> list[events.Event]:
        """What the machine may hear now that this has come."""
        match event:
            case Arrived(reports):
                senders = {(report.slot, report.attempt): None for report in reports}
                self._reports_from.update((report.slot, report.attempt) for report in reports)
                return [*map(events.Reported, reports), *self._due_ends(senders)]
            case events.Ended(slot, attempt):
                self._held.setdefault((slot, attempt), []).append(event)
                return self._due_ends([(slot, attempt)])
            case events.StoreRestored():
                self._reports_lost = True
                return [event, *self._due_ends(list(self._held))]
            case _:
                return [event]

    def _due_ends(self, keys: Iterable[_Key]) -> list[events.Event]:
        """Ends of these attempts that need not be held back any longer."""
        due = []
        for key in keys:
            ends = self._held.get(key, [])
            heard = [end for end in ends if self._is_heard(end)]
            if heard:
                self._held[key] = [end for end in ends if end not in heard]
                due += heard
        return [msgspec.structs.replace(end, minibatches=self._progress(end.slot)) for end in due]

    def _is_heard(self, end: events.Ended) -> bool:
        return self._reports_lost or self._reports_from[end.slot, end.attempt] >= end.reports_sent
