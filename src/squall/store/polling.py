"""Waiting for what a store does not tell of itself: asking again, with growing pauses."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

FIRST_PAUSE_S = 0.02
"""Before the first time that is asked again."""

LONGEST_PAUSE_S = 1.0
"""Between two times at most: how late something may be noticed, and what an hour of waiting costs."""

_GROWTH = 1.5
_Result = TypeVar("_Result")


class Asked:
    """How often a thing has been asked for by one who waits for it in several calls of `poll`."""

    def __init__(self) -> None:
        self._due, self._pause = 0.0, FIRST_PAUSE_S

    def note(self) -> None:
        """It has been asked for now."""
        self._due = time.monotonic() + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(LONGEST_PAUSE_S, _GROWTH * self._pause)

    @property
    def pause_s(self) -> float:
        """Seconds until it should be asked for again."""
        return max(0.0, self._due - time.monotonic())


def poll(ask: Callable[[], _Result | None], timeout: float, asked: Asked | None = None) -> _Result | None:
    """What ``ask`` gives, asked until that is something or ``timeout`` seconds have passed.

    Pauses are drawn at random, so that many who wait for one thing do not ask at once.  With ``asked``
    they go on growing from call to call, and a call in which it is not time yet does not ask at all,
    unless its ``timeout`` is 0.
    """
    deadline, patient = time.monotonic() + timeout, asked is not None and timeout > 0
    asked = Asked() if asked is None else asked
    while True:
        rest = deadline - time.monotonic()
        if not patient or asked.pause_s == 0.0:
            result = ask()
            asked.note()
            if result is not None or rest <= 0:
                return result
        elif rest <= 0:
            return None
        time.sleep(max(0.0, min(deadline - time.monotonic(), asked.pause_s)))
