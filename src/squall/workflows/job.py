"""A map job's thread: what happens becomes events, the machine's commands become deeds.

One call of `MapJob._run` is the whole life of a job: open platform and storage, make calls, give
everything back, whatever happened.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import queue
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from squall.driver.claims import claim, remove
from squall.driver.ledger import Ledger, load_prices
from squall.driver.record import JobRecord, Recorder
from squall.driver.window import LOOK_S, Logs, Window
from squall.errors import SettingError, SquallError
from squall.protocols import Endpoint
from squall.records import Bill, Outcome, Shape
from squall.registry import BACKENDS
from squall.workflows import at_exit, causes, events
from squall.workflows.futures import CallFuture
from squall.workflows.invocations import Collected, Invocations, Returned
from squall.workflows.machine import MapMachine, MapStatus
from squall.workflows.recording import map_record, newest_logs
from squall.workflows.settings import MapSettings
from squall.workflows.storage import CallStorage, Stored

HANDLER = "squall.worker.calls:handle"

TICK_S = 0.05
_END_S = 60.0
_TOGETHER_BYTES = 64 << 10  # items that are smaller altogether are one object, which every call reads


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """Items that were submitted together: pickled arguments of a pickled function, or whole calls."""

    first: int
    payloads: list[bytes]
    function: bytes | None
    chunksize: int | None


_Message = events.Event | _Group | Returned | Collected | BaseException


class MapJob:
    """Calls of functions on one run's backend, in the background.  Usable from any thread.

    Parameters
    ----------
    settings : MapSettings
    name : str
        What the user called, for messages.
    function : str
        Name of the user's function, for the job's record.
    """

    def __init__(self, settings: MapSettings, name: str, function: str = "") -> None:
        self.id = uuid.uuid4().hex[:12]
        self._settings = settings
        self._objects = settings.objects(name)
        self._storage = CallStorage(self._objects, f"jobs/{self.id}")
        # No parameter store is used, so none is paid for.
        prices = msgspec.structs.replace(load_prices(settings.run.prices), store_hour=0.0)
        self._machine = MapMachine(Ledger(prices, settings.run.memory_mb, 0.0), settings.limits())
        self._lock = threading.Lock()  # the machine is read by other threads
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._tags = {name: function} if function else {}
        self._window = Window(self._objects, self.id, Recorder(self._objects))
        self._began = time.monotonic()
        self._ended_s: float | None = None
        self._error: BaseException | None = None  # what ended the job as a whole
        self._numbers = itertools.count()
        self._submitting = threading.Lock()  # guards the two below
        self._refusal: BaseException | None = None  # why nothing more can be submitted
        self._futures: dict[int, CallFuture[Any]] = {}  # of open items
        self._payloads: dict[int, bytes] = {}  # of items that have not been stored
        self._functions: list[bytes | str] = []  # of groups: pickled, or the key where it is stored
        self._stored: dict[int, Stored] = {}  # of items whose end has not been delivered
        self._invocations: Invocations | None = None
        self._counted = (0, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"squall-map-{self.id}", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------- asked by other threads

    def submit(
        self, payloads: Sequence[bytes], function: bytes | None, chunksize: int | None, *, whole: bool = False
    ) -> list[CallFuture[Any]]:
        """Have items called: pickled arguments of ``function``, or whole calls where that is None."""
        futures = self.promise(len(payloads), whole=whole)
        self.fill(futures, payloads, function, chunksize)
        return futures

    def promise(self, count: int, *, whole: bool = False) -> list[CallFuture[Any]]:
        """Futures of items that are filled later."""
        with self._submitting:
            futures = [CallFuture[Any](self, next(self._numbers), whole=whole) for _ in range(count)]
            if self._refusal is None:
                self._futures.update({future.item: future for future in futures})
                return futures
        for future in futures:
            future.settle(None, self._refusal)
        return futures

    def fill(
        self,
        futures: list[CallFuture[Any]],
        payloads: Sequence[bytes],
        function: bytes | None,
        chunksize: int | None,
    ) -> None:
        """Have the items of promised futures called."""
        if futures:
            self._inbox.put(_Group(futures[0].item, list(payloads), function, chunksize))

    def close(self) -> None:
        """No more items will come: the job ends when all are done."""
        self._inbox.put(events.Closed())

    def cancel(self, items: tuple[int, ...] | None) -> None:
        """Nobody wants these items any more (None: none at all)."""
        if items is None:
            self.stop("cancelled")
            return
        with self._submitting:
            for item in items:
                self._futures.pop(item, None)
        self._inbox.put(events.Cancelled(items))

    def cancel_all(self) -> None:
        """Cancel all futures that are not done."""
        with self._submitting:
            open_ = list(self._futures.values())
        for future in open_:
            future.cancel()

    def stop(self, reason: str) -> None:
        """End now: what is not done fails, what runs is ended.  Returns at once."""
        self._inbox.put(events.Stop(reason))
        self.close()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left of the job; whether that is so."""
        if threading.current_thread() is self._thread:
            return False
        # Not Thread.join, which after a Ctrl-C takes the thread for ended although it runs.
        return self._over.wait(timeout)

    @contextlib.contextmanager
    def ended_by_interrupt(self) -> Iterator[None]:
        """Ctrl-C inside ends the job, so that nothing goes on running."""
        try:
            yield
        except KeyboardInterrupt:
            self.stop("interrupted")
            self.join(_END_S)
            raise

    def is_running(self, item: int) -> bool:
        """Whether a call has begun for the item."""
        with self._lock:
            return self._machine.is_running(item)

    def status(self) -> MapStatus:
        """The job at this moment."""
        with self._lock:
            status = self._machine.status(self._now())
        if self._error is None:
            return status
        told = self._error.what if isinstance(self._error, SquallError) else repr(self._error)
        return dataclasses.replace(status, state="failed", reason=told)

    def bill(self) -> Bill:
        """What it costs so far."""
        with self._lock:
            return self._machine.ledger.bill(self._now())

    def logs(self) -> str:
        """What the functions wrote, call by call."""
        lines = []
        for (slot, attempt), text in sorted(self._logs().items()):
            lines += [f"[item {slot}, attempt {attempt}] {line}" for line in text.splitlines()]
        return "\n".join(lines)

    def _logs(self) -> Logs:
        return {} if self._invocations is None else self._invocations.logs()

    def _record(self) -> JobRecord:
        return map_record(self.id, self.status(), self.bill(), self._tags)

    def _shown_logs(self) -> Logs:
        return newest_logs(self._logs())

    def _now(self) -> float:
        """Seconds since the job began, until it ended."""
        return time.monotonic() - self._began if self._ended_s is None else self._ended_s

    # --------------------------------------------------------------------------- the job's life

    def _run(self) -> None:
        at_exit.opened(self)
        try:
            with ExitStack() as resources:
                resources.callback(self._note_end)
                resources.callback(remove, self._objects, self._storage.folder)
                claim(self._objects, self._storage.folder)
                invocations = self._open()
                resources.callback(invocations.end, self._note_killed)
                self._drive(invocations)
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
            self._error = error
        try:
            self._refuse(self._error or self._refusal_at_end())
            self._window.close(self._record, self._shown_logs)
        finally:
            at_exit.closed(self)
            self._over.set()

    def _open(self) -> Invocations:
        backend = self._settings.run.resolve_backend()
        platform = BACKENDS.load(backend.name)(backend)
        at_exit.register()
        endpoint: Endpoint = platform.prepare(
            Shape(HANDLER, self._settings.run.memory_mb, backend.lifetime_s)
        )
        self._invocations = Invocations(endpoint, self._storage, self._settings.timeout_s, self._inbox.put)
        return self._invocations

    def _refusal_at_end(self) -> SquallError:
        """What those are told who submit more to a job that has ended."""
        reason = self._machine.reason
        return causes.stopped(reason) if reason else SettingError("the job has ended", fix="start another")

    def _note_killed(self, key: tuple[int, int], outcome: Outcome) -> None:
        with self._lock:
            self._machine.ledger.end(key, outcome.billed_s)

    def _note_end(self) -> None:
        self._count_objects()
        self._ended_s = self._now()

    def _refuse(self, error: BaseException) -> None:
        """Nothing more is called: what is open, and what is still submitted, fails."""
        with self._submitting:
            self._refusal = error
            open_, self._futures = list(self._futures.values()), {}
        for future in open_:
            future.settle(None, error)

    # --------------------------------------------------------------------------------- the loop

    def _drive(self, invocations: Invocations) -> None:
        ticked = self._now()
        while not self._machine.ended:
            event = self._next_event(invocations)
            if event is not None:
                self._handle(event, invocations)
            if self._now() - ticked > TICK_S:
                ticked = self._now()
                self._count_objects()
                self._handle(events.Tick(), invocations)
                if self._window.tick(self._record, self._shown_logs):
                    self.stop("stopped from elsewhere")

    def _next_event(self, invocations: Invocations) -> events.Event | None:
        try:
            message = self._inbox.get(timeout=LOOK_S if self._machine.is_idle else TICK_S)
        except queue.Empty:
            return None
        match message:
            case BaseException():
                raise message
            case _Group():
                return self._taken_in(message)
            case Returned():
                invocations.collect(message)
                return None
            case Collected():
                return self._noted(message)
            case events.Cancelled(items):
                for item in items:
                    self._forget(item)
        return message

    def _taken_in(self, group: _Group) -> events.Submitted:
        if len(group.payloads) > 1 and sum(map(len, group.payloads)) <= _TOGETHER_BYTES:
            items = range(group.first, group.first + len(group.payloads))
            self._storage.put_items(items, group.payloads)
        else:
            self._payloads.update(enumerate(group.payloads, group.first))
        self._functions.append("" if group.function is None else group.function)
        return events.Submitted(group.first, tuple(map(len, group.payloads)), group.chunksize)

    def _noted(self, collected: Collected) -> events.Ended:
        done = collected.done
        if done is not None:
            with self._lock:
                self._machine.ledger.objects(done.gets, done.puts)
        with self._submitting:
            self._stored.update({i: stored for i, stored in collected.stored.items() if i in self._futures})
        values = frozenset(item for item, stored in collected.stored.items() if stored.end.ok)
        raised = frozenset(collected.stored) - values
        busy_s = 0.0 if done is None else done.busy_s
        return events.Ended(collected.call, collected.outcome, values, raised, busy_s)

    def _handle(self, event: events.Event, invocations: Invocations) -> None:
        with self._lock:
            commands = self._machine.handle(event, self._now())
        for command in commands:
            self._execute(command, invocations)

    def _execute(self, command: events.Command, invocations: Invocations) -> None:
        match command:
            case events.Launch(call):
                new = [self._payloads.pop(item) for item in call.items if item in self._payloads]
                invocations.launch(call, new, self._function(call.group))
            case events.Deliver(item):
                self._settle(item, *self._stored.pop(item).load(item))
            case events.Fail(item, error):
                self._settle(item, None, error)
            case events.Kill(call):
                invocations.cancel(call)
            case events.GiveUp(call):
                invocations.give_up(call)

    def _function(self, group: int) -> str:
        function = self._functions[group]
        if isinstance(function, bytes):
            function = self._functions[group] = self._storage.put_function(group, function)
        return function

    def _settle(self, item: int, value: Any, error: BaseException | None) -> None:
        self._forget(item)
        with self._submitting:
            future = self._futures.pop(item, None)
        if future is not None:
            future.settle(value, error)

    def _forget(self, item: int) -> None:
        """It will not be called again."""
        self._storage.forget(item)
        self._payloads.pop(item, None)
        self._stored.pop(item, None)

    def _count_objects(self) -> None:
        gets, puts = self._objects.gets, self._objects.puts
        with self._lock:
            self._machine.ledger.objects(gets - self._counted[0], puts - self._counted[1])
        self._counted = gets, puts
