"""Virtual time: what happens later, in order, without waiting for it."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class VirtualClock:
    """Seconds that pass as soon as nothing is left to do in them.

    Attributes
    ----------
    now : float
        Seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0  # of two actions for one moment, the one that was asked for first comes first

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something that much later."""
        self._count += 1
        heapq.heappush(self._due, (self.now + max(0.0, seconds), self._count, action))

    def step(self) -> bool:
        """Go to the next action and do it; False if there is none."""
        if not self._due:
            return False
        self.now, _, action = heapq.heappop(self._due)
        action()
        return True
