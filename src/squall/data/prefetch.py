"""Some steps ahead: an iterator that runs in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class _End:
    """What the thread sends last: the exception that ended it, or None."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Prefetcher(Generic[T]):
    """Iterates over ``source``, which a thread keeps ``depth`` items ahead.

    At most ``depth`` items wait, and one is being made.  An exception of ``source`` is raised
    here, after the items before it.  `close` ends the thread; so does the end of the items.
    """

    def __init__(self, source: Iterator[T], name: str, depth: int = 1) -> None:
        self._items: queue.Queue[T | _End] = queue.Queue(maxsize=depth)
        self._stop = threading.Event()
        # A daemon, so that a consumer that never closes it cannot hold up the interpreter's exit.
        self._thread = threading.Thread(
            target=_produce, args=(source, self._items, self._stop), name=name, daemon=True
        )
        self._thread.start()
        self._ended = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        if self._stop.is_set():
            raise RuntimeError("closed before its end: what follows would be missing in silence")
        item = self._items.get()
        if not isinstance(item, _End):
            return item
        self._ended = True
        self.close()
        if item.error is not None:
            raise item.error
        raise StopIteration

    def close(self) -> None:
        """End the thread, waiting for the item that it is making; idempotent."""
        self._stop.set()
        # One place free is enough: the thread puts one item at most, then sees the event.
        while not self._items.empty():
            self._items.get_nowait()
        self._thread.join()


def _produce(source: Iterator[T], items: queue.Queue[T | _End], stop: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for item in source:
            if stop.is_set():
                return
            items.put(item)
            if stop.is_set():
                return
            del item  # else one more item would live while the next is being made
    except BaseException as caught:  # noqa: BLE001  (raised again by the consumer)
        error = caught
    items.put(_End(error))
