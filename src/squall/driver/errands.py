"""What takes too long for the loop of a job: it is run beside it, and comes back as an event."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from squall.driver.events import Event
from squall.store.connection import Patience


class Errands:
    """One thread, which does one thing after the other.

    Parameters
    ----------
    emit : callable
        Called, from the thread, with what came of it, or with the error that prevented it.
    patience : callable
        How long to wait in the end for what is still being done.
    """

    def __init__(self, emit: Callable[[Event | BaseException], None], patience: Patience) -> None:
        self._emit, self._patience = emit, patience
        self._thread = ThreadPoolExecutor(1, "squall-errands")
        self._last: Future[None] | None = None

    def run(self, errand: Callable[[], Event]) -> None:
        """Do it soon; its event comes by ``emit``."""
        self._last = self._thread.submit(self._run, errand)

    def close(self) -> None:
        """What has not begun is left; what has is waited for."""
        if self._last is not None:
            wait([self._last], self._patience())
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self, errand: Callable[[], Event]) -> None:
        try:
            self._emit(errand())
        except Exception as error:  # noqa: BLE001 (it ends the job: the loop raises it)
            self._emit(error)
