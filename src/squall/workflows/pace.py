"""How many items one call takes: enough that calling costs little, few enough that all end together."""

from __future__ import annotations

from dataclasses import dataclass

MAX_ITEMS = 10_000
"""Most items of a call whose size Squall chooses."""

_LEAST_S, _MOST_S = 0.1, 5.0  # a call's time in the user's code
_TIMES_OVERHEAD = 20.0  # it lasts so many times what calling takes
_NEWEST = 0.5  # weight of the newest measurement


@dataclass(slots=True)
class Pace:
    """What was measured of a group of items, in seconds.

    ``item_s`` is the time of an item in the user's code, ``overhead_s`` that of a call around it.
    """

    item_s: float | None = None
    overhead_s: float = 0.0

    def measured(self, items: int, busy_s: float, call_s: float) -> None:
        """A call of ``items`` items was ``busy_s`` in the user's code, and took ``call_s`` in all."""
        item_s, overhead_s = busy_s / items, max(0.0, call_s - busy_s)
        if self.item_s is None:
            self.item_s, self.overhead_s = item_s, overhead_s
            return
        self.item_s += _NEWEST * (item_s - self.item_s)
        # A cold start says nothing of the calls to come.
        self.overhead_s = min(overhead_s, self.overhead_s + _NEWEST * (overhead_s - self.overhead_s))

    def items(self, left: int, workers: int) -> int:
        """Items for the next call, of ``left`` that are shared by ``workers``."""
        if self.item_s is None:
            return 1
        call_s = min(_MOST_S, max(_LEAST_S, _TIMES_OVERHEAD * self.overhead_s))
        fair = -(-left // (2 * workers))  # the last calls are short, so none is waited for long
        return max(1, min(fair, MAX_ITEMS, int(call_s / max(self.item_s, 1e-9))))
