"""The entry point of `squall.map` inside a function: from items to results in the object store.

A result is stored once.  The parts of a call are numbered objects, each created only if it does
not exist: should the same event be delivered twice, both runs add their parts to one row of them,
and readers take the first result that they meet of an item.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from squall.data.objects import ObjectStore
from squall.errors import SerializationError
from squall.protocols import FunctionContext
from squall.records import CallsDone, CallTask, ItemEnd
from squall.worker import alarm, telling
from squall.worker.pickles import Seal, Verified, check_version, dumps, loads

_FLUSH_BYTES = 8 << 20
_FLUSH_S = 1.0
_MARGIN_S = 1.0  # to store results before the function's time is over
_MAX_EXCEPTION_BYTES = 1 << 20  # a larger one is told in words only

inside = False
"""Whether this process is calling a function of `squall.map` at the moment."""

_stores: dict[str, ObjectStore] = {}  # by URL: connections are used again
_loaded: dict[tuple[str, str], Any] = {}  # the last function, by job and key


class Star:
    """A function of several arguments as one of a tuple.

    Parameters
    ----------
    fn : callable
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        """``fn(*arguments)``."""
        return self.fn(*arguments)


def handle(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
    """Call a function for some items, and store what comes of it.

    Parameters
    ----------
    event : dict
        A :class:`squall.records.CallTask` as plain data.
    context : FunctionContext
        The platform's facts about this invocation.

    Returns
    -------
    dict
        A :class:`squall.records.CallsDone` as plain data.
    """
    task = msgspec.convert(event, CallTask)
    check_version(task.python)
    objects = _stores.setdefault(task.storage, ObjectStore(task.storage))
    gets, puts = objects.gets, objects.puts
    seal = Seal(bytes.fromhex(task.key))
    function = _function(task, objects, seal) if task.function else None
    payloads = seal.open(task.items, objects.get(task.items))
    results = _Results(task, objects, seal)
    _work(task, function, payloads, results, context)
    done = CallsDone(results.parts, results.busy_s, objects.gets - gets, objects.puts - puts)
    return dict(msgspec.to_builtins(done))


def _function(task: CallTask, objects: ObjectStore, seal: Seal) -> Any:
    """The job's function, loaded once an environment."""
    name = (task.key, task.function)
    if name not in _loaded:
        (pickled,) = seal.open(task.function, objects.get(task.function))
        _loaded.clear()
        try:
            _loaded[name] = loads(pickled)
        except Exception as error:
            raise SerializationError(
                f"the function cannot be loaded where it is to run: {type(error).__name__}: {error}",
                fix="install what it imports where functions run, too",
            ) from error
    return _loaded[name]


def _work(
    task: CallTask, function: Any, payloads: list[Verified], results: _Results, context: FunctionContext
) -> None:
    """All items, or as many as there is time for: whoever called sees what is missing."""
    longest = 0.0
    for position in _positions(task):
        if results.busy_s and context.remaining_s() < 1.5 * longest + _MARGIN_S:
            break
        began = time.monotonic()
        end, data = _call(function, payloads[position], position, task.timeout_s)
        if task.slowdown > 1.0:
            time.sleep((task.slowdown - 1.0) * (time.monotonic() - began))
        took = time.monotonic() - began
        longest = max(longest, took)
        results.add(end, data, took)
    results.flush()


def _positions(task: CallTask) -> Iterator[int]:
    for start, stop in task.ranges:
        yield from range(start, stop)


def _call(function: Any, payload: Verified, position: int, timeout_s: float | None) -> tuple[ItemEnd, bytes]:
    """One item's end, and its pickled value or exception (nothing, if that cannot be pickled)."""
    global inside
    inside = True
    try:
        if timeout_s is not None:
            alarm.arm(timeout_s)
        return ItemEnd(position, True), dumps(_apply(function, payload))
    except SystemExit:  # ends the process, as anywhere
        raise
    except BaseException as error:  # noqa: BLE001 (whatever it is, the caller is told)
        return _raised(position, error)
    finally:
        if timeout_s is not None:
            alarm.disarm()
        inside = False


def _apply(function: Any, payload: Verified) -> Any:
    if function is not None:
        return function(loads(payload))
    function, arguments, keywords = loads(payload)
    return function(*arguments, **keywords)


def _raised(position: int, error: BaseException) -> tuple[ItemEnd, bytes]:
    end = ItemEnd(position, False, *telling.told(error, __file__))
    if not isinstance(error, Exception):  # nobody wants a KeyboardInterrupt of another process
        return end, b""
    try:
        data = dumps(error)
    except SerializationError:
        return end, b""
    return end, data if len(data) <= _MAX_EXCEPTION_BYTES else b""


@dataclass
class _Results:
    """Stores results, some together, under the next free name of the call."""

    task: CallTask
    objects: ObjectStore
    seal: Seal
    parts: int = 0
    busy_s: float = 0.0
    _ends: list[ItemEnd] = field(default_factory=list)
    _data: list[bytes] = field(default_factory=list)
    _bytes: int = 0
    _flushed: float = field(default_factory=time.monotonic)

    def add(self, end: ItemEnd, data: bytes, seconds: float) -> None:
        """Take an item's end and value."""
        self.busy_s += seconds
        self._ends.append(end)
        self._data.append(data)
        self._bytes += len(data)
        late = time.monotonic() - self._flushed > _FLUSH_S
        if self.task.careful or late or self._bytes > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Store what has been taken since the last time."""
        if not self._ends:
            return
        parts = [msgspec.msgpack.encode(self._ends), *self._data]
        while True:
            name = f"{self.task.results}-{self.parts}"
            self.parts += 1
            if self.objects.create(name, self.seal.close(name, parts)):
                break  # else another delivery of this event has come first with that part
        self._ends, self._data, self._bytes = [], [], 0
        self._flushed = time.monotonic()
