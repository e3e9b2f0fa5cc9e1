"""Where workers wait between epochs while the driver's planner thinks."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable

from squall.protocols import Blobs
from squall.records import GO_ON, WorkerTask, epoch_key

_HOLD_S = 0.2


class Verdict(enum.Enum):
    """What a worker may do with an epoch."""

    GO_ON = "go on"
    LEAVE = "leave"  # other workers will do it and those after it
    BROKEN_OFF = "broken off"  # before the driver had said anything


class EpochGate:
    """Lets a worker into an epoch when the driver has said so.

    Parameters
    ----------
    task : WorkerTask
        Which epochs need that.
    blobs : Blobs
        Where the driver says it.
    interrupted : callable
        Whether this worker has to end; asked while it waits.

    Attributes
    ----------
    wait_s : float
        Seconds spent in the last wait that came to an end.
    """

    def __init__(self, task: WorkerTask, blobs: Blobs, interrupted: Callable[[], bool]) -> None:
        self._job, self._blobs, self._interrupted = task.job, blobs, interrupted
        self._held_from = task.held_from
        self.wait_s = 0.0

    def holds(self, epoch: int) -> bool:
        """Whether it is not known yet who does an epoch."""
        return self._held_from is not None and epoch >= self._held_from

    def await_epoch(self, epoch: int) -> Verdict:
        """Wait until it is known whether this worker goes on with ``epoch``."""
        started = time.perf_counter()
        while (said := self._blobs.wait(epoch_key(self._job, epoch), _HOLD_S)) is None:
            if self._interrupted():
                return Verdict.BROKEN_OFF
        self.wait_s = time.perf_counter() - started
        if said != GO_ON:
            return Verdict.LEAVE
        self._held_from = epoch + 1
        return Verdict.GO_ON
