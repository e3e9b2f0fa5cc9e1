"""Map jobs that are still open at the program's end are ended in order, before the platform's own end."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall.workflows.job import MapJob

_END_S = 60.0
_open: weakref.WeakSet[MapJob] = weakref.WeakSet()
_registered = threading.Lock()


def opened(job: MapJob) -> None:
    """It is to be ended at the program's end."""
    _open.add(job)


def closed(job: MapJob) -> None:
    """It has ended."""
    _open.discard(job)


def register() -> None:
    """Do so; called once the platform's module is loaded, for what is registered last runs first."""
    if _registered.acquire(blocking=False):  # never released: once is enough
        atexit.register(_end_all)


def _end_all() -> None:
    jobs = list(_open)
    for job in jobs:
        job.stop("the program has ended")
    for job in jobs:
        job.join(_END_S)
