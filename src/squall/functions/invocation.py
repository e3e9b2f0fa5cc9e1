"""The part of an invocation that all platforms share: its end, waited for or called back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from squall.errors import PlatformError
from squall.log import get_logger
from squall.records import Outcome

_log = get_logger(__name__)


class Ending:
    """Waits and callbacks of one invocation.  Usable from any thread.

    Parameters
    ----------
    call_id : str
        Unique name of the invocation.
    """

    def __init__(self, call_id: str) -> None:
        self._id = call_id
        self._outcome: Outcome | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Outcome], None]] = []
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id}: {self._outcome.kind if self._outcome else 'running'}>"

    @property
    def id(self) -> str:
        """Unique name, the same inside the function."""
        return self._id

    def outcome(self, timeout: float | None = None) -> Outcome:
        """Wait for the end.

        Raises
        ------
        TimeoutError
            If it has not ended within ``timeout`` seconds.
        PlatformError
            In a forked child of the process that started it, which will never hear of it.
        """
        if self._outcome is None and os.getpid() != self._pid:
            raise PlatformError(
                f"invocation {self._id} belongs to the process that started it",
                fix="wait for it there, or start it after the fork",
            )
        if not self._ended.wait(timeout) or self._outcome is None:
            raise TimeoutError(f"invocation {self._id} has not ended after {timeout:g} s")
        return self._outcome

    def add_done_callback(self, callback: Callable[[Outcome], None]) -> None:
        """Call ``callback`` once when it ends (at once if it has).

        It is called from a thread of the platform, so it must not wait for another
        invocation; what it raises is logged.
        """
        with self._lock:
            if self._outcome is None:
                self._callbacks.append(callback)
                return
        self._notify(callback, self._outcome)

    def finish(self, outcome: Outcome) -> None:
        """(for the platform) Tell everyone who waits; only the first outcome counts."""
        with self._lock:
            if self._outcome is not None:
                return
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
        self._ended.set()
        for callback in callbacks:
            self._notify(callback, outcome)

    def _notify(self, callback: Callable[[Outcome], None], outcome: Outcome) -> None:
        try:
            callback(outcome)
        except Exception:  # noqa: BLE001 - the platform's thread has to go on
            _log.exception("a callback of invocation %s raised", self._id)
