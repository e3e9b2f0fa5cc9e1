"""The deeds of a map job: storing items, invoking, reading what was stored, ending.

Where the object store is far away they are done on threads; what comes of them is emitted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from squall.log import get_logger
from squall.protocols import Endpoint, Invocation
from squall.records import CallsDone, CallTask, Outcome, OutcomeKind
from squall.workflows.events import Call
from squall.workflows.storage import CallStorage, Stored

_REMOTE_THREADS = 8  # requests at the same time to an object store that is far away
_END_S = 30.0
_REMEMBERED = 1000
_LOG_CALLS = 10_000  # as many calls keep what they wrote

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Returned:
    """An invocation has ended; what it has stored has not been read yet."""

    call: Call
    outcome: Outcome
    logs: str


@dataclass(frozen=True, slots=True)
class Collected:
    """A call has ended, and this is what it has stored, by item."""

    call: Call
    outcome: Outcome
    stored: dict[int, Stored]

    @property
    def done(self) -> CallsDone | None:
        """What the function said when it returned."""
        if self.outcome.kind is not OutcomeKind.RETURNED:
            return None
        return msgspec.convert(self.outcome.value, CallsDone)


class Invocations:
    """The invocations of one job.  Methods belong to the job's thread.

    Parameters
    ----------
    endpoint : Endpoint
    storage : CallStorage
    timeout_s : float or None
        Longest time for one item.
    emit : callable
        Takes `Returned`, `Collected` and errors that end the job; called from any thread.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        storage: CallStorage,
        timeout_s: float | None,
        emit: Callable[[Returned | Collected | BaseException], None],
    ) -> None:
        self._endpoint, self._storage = endpoint, storage
        self._timeout_s, self._emit = timeout_s, emit
        self._tasks: dict[tuple[int, int], CallTask] = {}
        self._running: dict[tuple[int, int], Invocation] = {}
        # Also those that have ended: of a call that was delivered twice one may still run.
        self._recent: deque[Invocation] = deque(maxlen=_REMEMBERED)
        self._unwanted: set[tuple[int, int]] = set()
        self._logs: dict[tuple[int, int], str] = {}
        self._leaving = threading.Event()
        remote = storage.objects.folder is None
        self._threads = ThreadPoolExecutor(_REMOTE_THREADS, "squall-objects") if remote else None

    def launch(self, call: Call, payloads: list[bytes], function: str) -> None:
        """Invoke a function; ``payloads`` are of its items, unless those have been stored before."""
        self._do(self._launch, call, payloads, function)

    def collect(self, returned: Returned) -> None:
        """Read what a call has stored, also if it has died."""
        self._running.pop(returned.call.key, None)
        if returned.logs and len(self._logs) < _LOG_CALLS:
            self._logs[returned.call.key] = returned.logs
        self._do(self._collect, returned)

    def cancel(self, call: Call) -> None:
        """Nobody waits for it any more."""
        self._unwanted.add(call.key)
        invocation = self._running.get(call.key)
        if invocation is not None:
            invocation.cancel()

    def give_up(self, call: Call) -> None:
        """Take it for lost."""
        self.cancel(call)
        self.collect(Returned(call, Outcome(OutcomeKind.LOST, error="not heard of in its time"), ""))

    def logs(self) -> dict[tuple[int, int], str]:
        """What each call has written so far.  From any thread."""
        return {**self._logs, **{key: running.logs() for key, running in list(self._running.items())}}

    def end(self, ended: Callable[[tuple[int, int], Outcome], None]) -> None:
        """Nothing goes on running; ``ended`` is told of each that did."""
        self._leaving.set()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
        for invocation in self._recent:
            invocation.cancel()
        give_up = time.monotonic() + _END_S
        for key, invocation in list(self._running.items()):
            invocation.cancel()
            try:
                ended(key, invocation.outcome(timeout=max(0.0, give_up - time.monotonic())))
            except TimeoutError:  # (a cloud's function may be beyond reach; its own time limit ends it)
                _log.warning("invocation %s has not ended yet", invocation.id)

    # ---------------------------------------------------------------- on threads, or here and now

    def _do(self, deed: Callable[..., None], *arguments: Any) -> None:
        if self._threads is None:
            deed(*arguments)
        else:
            self._threads.submit(self._told, deed, *arguments)

    def _told(self, deed: Callable[..., None], *arguments: Any) -> None:
        try:
            deed(*arguments)
        except BaseException as error:  # noqa: BLE001 (it ends the job: its thread raises it)
            self._emit(error)

    def _launch(self, call: Call, payloads: list[bytes], function: str) -> None:
        if payloads:
            self._storage.put_items(call.items, payloads)
        task = self._storage.task(call, function, self._timeout_s)
        if self._leaving.is_set():
            return
        invocation = self._endpoint.invoke(msgspec.to_builtins(task))
        self._tasks[call.key], self._running[call.key] = task, invocation
        self._recent.append(invocation)
        if call.key in self._unwanted or self._leaving.is_set():
            invocation.cancel()
        invocation.add_done_callback(lambda outcome: self._emit(Returned(call, outcome, invocation.logs())))

    def _collect(self, returned: Returned) -> None:
        call, outcome = returned.call, returned.outcome
        ended = Collected(call, outcome, {})
        task = self._tasks.pop(call.key, None)
        if task is not None and outcome.kind is not OutcomeKind.THROTTLED:
            by_position = self._storage.results(task, ended.done.parts if ended.done else None)
            positions = (p for start, stop in task.ranges for p in range(start, stop))
            items = dict(zip(positions, call.items, strict=True))
            ended.stored.update({items[p]: stored for p, stored in by_position.items()})
        self._emit(ended)
