"""How many launches may be under way at once: few at first, twice as many each round, half when refused.

As TCP probes a network whose capacity nobody tells (slow start, Jacobson 1988), a job probes its
platform's quota, so that thousands of workers meet it with some refusals, not with thousands.
"""

from __future__ import annotations

import math

LARGEST = 1000
"""Launches under way that a ramp may grow to: what AWS Lambda adds to a function in ten seconds (2024)."""

STARTS_WITHIN_S = 10.0
"""Seconds after which a launch that has said nothing is taken for one that has started: it may stand by."""

FIRST_HOLD_S, LONGEST_HOLD_S = 0.1, 5.0

Key = tuple[int, int]  # slot, attempt


class Ramp:
    """Says when another worker may be launched; no I/O, no clock of its own.

    Parameters
    ----------
    first : int
        Launches that may be under way at the beginning.

    Attributes
    ----------
    width : int
        Launches that may be under way now.
    refusals : int
        Times in a row that launches were held back, without one that started in between.
    """

    def __init__(self, first: int) -> None:
        self.width, self.refusals = first, 0
        self._largest = max(first, LARGEST)
        self._under_way: dict[Key, float] = {}  # by the time of their launch
        self._held_until = self._held_at = -math.inf

    def allows(self, now: float) -> bool:
        """Whether one more may be launched now."""
        while self._under_way:
            oldest = next(iter(self._under_way))
            if now < self._under_way[oldest] + STARTS_WITHIN_S:
                break
            del self._under_way[oldest]
        return now >= self._held_until and len(self._under_way) < self.width

    def launched(self, key: Key, now: float) -> None:
        """One has been."""
        self._under_way[key] = now

    def started(self, key: Key) -> None:
        """It has reported: there was room for it, so there may be for one more."""
        if self._under_way.pop(key, None) is not None:
            self.width = min(self._largest, self.width + 1)
            self.refusals = 0

    def ended(self, key: Key) -> None:
        """It has ended, whether it started or not."""
        self._under_way.pop(key, None)

    def refused(self, key: Key, now: float) -> None:
        """It was throttled: nobody is launched for a while, and fewer at once after that.

        Refusals of launches that were sent before the last one was heard of are the same news.
        """
        if self._under_way.pop(key, now) <= self._held_at:
            return
        self.refusals += 1
        self.width = max(1, self.width // 2)
        # (the exponent is bounded: a job may be refused for a long time)
        hold_s = min(LONGEST_HOLD_S, FIRST_HOLD_S * 2.0 ** min(self.refusals - 1, 10))
        self._held_at, self._held_until = now, now + hold_s

    def forget(self) -> None:
        """What was under way is out of reach."""
        self._under_way.clear()
