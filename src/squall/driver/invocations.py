"""The functions that a job has called: starting, logs, and the end of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from squall.driver.events import Ended
from squall.log import get_logger
from squall.protocols import Endpoint, Invocation
from squall.records import Outcome, WorkerTask

END_S = 30.0
"""Seconds to wait at the end for functions that were told to end."""

LAST_WORDS = 2000
"""Characters of its output that go with an end, which the job's log keeps."""

_log = get_logger(__name__)

Key = tuple[int, int]  # slot, attempt


class Invocations:
    """All attempts of one job's workers.

    Parameters
    ----------
    emit : callable
        Called with the end of each, from a thread of the platform's.
    """

    def __init__(self, emit: Callable[[Ended], None]) -> None:
        self._emit = emit
        self._running: dict[Key, Invocation] = {}
        self._logs: dict[Key, str] = {}  # of those that have ended

    def launch(self, endpoint: Endpoint, task: WorkerTask) -> None:
        """Invoke a worker; returns at once."""
        key = (task.slot, task.attempt)
        invocation = endpoint.invoke(msgspec.to_builtins(task))
        self._running[key] = invocation

        def ended(outcome: Outcome) -> None:
            self._logs[key] = invocation.logs()
            self._emit(Ended(*key, outcome, 0, self._logs[key][-LAST_WORDS:]))

        invocation.add_done_callback(ended)

    def logs(self) -> dict[Key, str]:
        """What each attempt has written so far; from any thread."""
        running = {key: invocation.logs() for key, invocation in list(self._running.items())}
        return {**running, **self._logs}

    def cancel(self, only: Key | None = None) -> None:
        """Try to end all that still run, or one of them."""
        for key, invocation in self._running.items():
            if key not in self._logs and only in (None, key):
                invocation.cancel()

    def end(self) -> None:
        """Nothing goes on running, whatever ended the job."""
        self.cancel()
        give_up = time.monotonic() + END_S
        for invocation in self._running.values():
            try:
                invocation.outcome(timeout=max(0.0, give_up - time.monotonic()))
            except TimeoutError:  # (a cloud's function may be beyond reach; its own time limit ends it)
                _log.warning("invocation %s has not ended yet", invocation.id)
