"""Reports of a job's workers as they come, on a connection and a thread of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from squall.driver.arrivals import Arrived, Happened, Pauses, Unheard
from squall.driver.events import StoreRestored
from squall.errors import LostUpdatesError, SquallError
from squall.protocols import Store
from squall.store import StoreAddress, connect
from squall.store.connection import Forgiveness, Patience

_POLL_S = 5.0

Emit = Callable[[Happened], None]


def listen_to(
    address: StoreAddress,
    job: str,
    emit: Emit,
    patience: Patience,
    resources: ExitStack,
    opened: Callable[[Store], None],
    close: Callable[[], None],
    *,
    resumed: bool,
) -> None:
    """Listen until ``resources`` are given back; ``close`` then closes the job in the store.

    ``opened`` is called, from the thread, with its connection.
    """
    closing = threading.Event()
    arguments = (address, job, closing, emit, opened, patience, -1 if resumed else 0)
    listener = threading.Thread(target=_listen, args=arguments, name="squall-reports")
    listener.start()
    # Given back in the reverse order; closing the job is what wakes the listener up.
    resources.callback(listener.join)
    resources.callback(close)
    resources.callback(closing.set)


def telling(emit: Emit) -> Forgiveness:
    """What a connection does when a shard has come back from a snapshot: go on, and say so."""

    def tell(error: LostUpdatesError) -> None:
        emit(StoreRestored(error.incarnation, f"{error.where}: {error.what}"))

    return tell


def _listen(
    address: StoreAddress,
    job: str,
    closing: threading.Event,
    emit: Emit,
    opened: Callable[[Store], None],
    patience: Patience,
    after: int,
) -> None:
    """Bring reports from number ``after`` on as they come."""
    pauses = Pauses()
    try:
        with connect(address.url, address.token, patience, telling(emit)) as store:
            opened(store)
            while not closing.is_set():
                reports = store.control.reports(job, after, _POLL_S)
                if reports:
                    emit(Arrived(reports))
                    after = max(0, after) + len(reports)
                    closing.wait(pauses.after(reports, time.monotonic()))
    except SquallError as error:
        if not closing.is_set():  # closing the job refuses its listener, as meant
            emit(Unheard(error))
