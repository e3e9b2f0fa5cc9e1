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


def poll(ask: Callable[[], _Result | None], timeout: float) -> _Result | None:
    """What ``ask`` gives, asked until that is something or ``timeout`` seconds have passed.

    Pauses are drawn at random, so that many who wait for one thing do not ask at once.
    """
    deadline, pause = time.monotonic() + timeout, FIRST_PAUSE_S
    while True:
        result = ask()
        if result is not None or (rest := deadline - time.monotonic()) <= 0:
            return result
        time.sleep(min(rest, pause * random.uniform(0.5, 1.0)))
        pause = min(LONGEST_PAUSE_S, _GROWTH * pause)
