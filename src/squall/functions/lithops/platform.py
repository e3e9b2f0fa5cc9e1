"""Lithops's functions as the client sees them."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import itertools
import os
import queue
import secrets
import sys
import threading
from pathlib import Path
from typing import Any

import lithops
import msgspec

from squall.config import LithopsBackend
from squall.errors import PlatformError
from squall.functions import payload
from squall.functions.invocation import Ending
from squall.functions.lithops import inside
from squall.functions.local.chaos import ChaosPlatform
from squall.functions.shapes import check_shape
from squall.log import get_logger
from squall.protocols import FunctionPlatform
from squall.records import Outcome, OutcomeKind, Shape
from squall.units import parse_duration

_MIN_MEMORY_MB, _MAX_MEMORY_MB = 128, 1 << 20
_START_S = 120.0
"""Time that a worker has for starting and importing, beside its function's own."""

_LOOK_S = 0.05
_HERE = 32
"""Functions that localhost runs at once; a stand-by must not wait for the turn of whom it is to relieve."""

_log = get_logger("squall.functions.lithops")


class LithopsInvocation(Ending):
    """`squall.protocols.Invocation` of a call by Lithops.  Usable from any thread."""

    def __init__(self, call_id: str) -> None:
        super().__init__(call_id)
        self._logs = ""

    def cancel(self) -> bool:
        """False: Lithops cannot end what it has dispatched; stop flags and time limits do."""
        return False

    def logs(self) -> str:
        """What it wrote (the last 1 MB), once it has ended; nothing before."""
        return self._logs

    def end(self, reply: inside.Reply) -> None:
        """(for the platform) What the worker sent home."""
        self._logs = reply.logs
        value = payload.decode(reply.value.encode()) if reply.value else None
        self.finish(msgspec.structs.replace(reply.outcome, value=value))


class LithopsEndpoint:
    """`squall.protocols.Endpoint` of functions by Lithops.  Usable from any thread."""

    def __init__(self, platform: LithopsPlatform, shape: Shape) -> None:
        self._platform, self._shape = platform, shape

    @property
    def shape(self) -> Shape:
        """The shape it was prepared for."""
        return self._shape

    def invoke(self, event: dict[str, Any]) -> LithopsInvocation:
        """Hand one invocation to Lithops and return at once.

        Raises
        ------
        PlatformError
            If the event is too large or not JSON, or the platform is closed.
        """
        return self._platform._submit(self._shape, payload.encode_event(event))


class LithopsPlatform:
    """Functions by Lithops, behind `squall.protocols.FunctionPlatform`.

    One thread talks to Lithops, whose executor is not made for several: calls that come close to
    one another go out as one map.  Each is run by :mod:`squall.functions.lithops.inside`, so Squall
    has to be installed in the runtime.  Outcomes are those of that module; where its process ends
    with the worker (its machine is lost, its container runs out of memory), they are what Lithops
    makes of it, as far as that says.

    Parameters
    ----------
    backend : LithopsBackend
        Which of Lithops's backends, and how.

    Raises
    ------
    PlatformError
        If Lithops refuses its configuration.
    """

    name = "lithops"

    def __init__(self, backend: LithopsBackend) -> None:
        self._lifetime_s = parse_duration(backend.lifetime)
        self._executor: Any = _executor(backend)
        self._numbers, self._prefix = itertools.count(1), f"lithops-{secrets.token_hex(4)}"
        self._asked: queue.SimpleQueue[tuple[LithopsInvocation, inside.Call] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards closing
        self._closed = False
        self._waiting: list[tuple[LithopsInvocation, Any]] = []  # with Lithops's future; the thread's own
        self._thread = threading.Thread(target=self._work, name="squall-lithops", daemon=True)
        self._thread.start()

    def prepare(self, shape: Shape) -> LithopsEndpoint:
        """A function of this shape; Lithops makes its runtime at the first call.

        Raises
        ------
        PlatformError
            If no platform can give that memory or time, or the handler's name is not of the
            form ``"module:function"``.
        """
        self._check_open()
        check_shape(shape, _MIN_MEMORY_MB, _MAX_MEMORY_MB)
        timeout_s = min(shape.timeout_s, self._lifetime_s)
        return LithopsEndpoint(self, Shape(shape.handler, shape.memory_mb, timeout_s))

    def close(self) -> None:
        """Ask Lithops to end what it can; what was still running counts as lost.  Idempotent."""
        with self._lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        self._asked.put(None)
        self._thread.join()
        executor, self._executor = self._executor, None
        executor.__exit__(None, None, None)
        if executor.data_cleaner:
            executor.clean(clean_cloudobjects=False, clean_fn=True, on_exit=True)
        atexit.unregister(executor._clean_at_exit)  # it would keep the clouds' connections until then

    # ---------------------------------------------------------------------------- the thread

    def _submit(self, shape: Shape, event: bytes) -> LithopsInvocation:
        self._check_open()
        invocation = LithopsInvocation(f"{self._prefix}-{next(self._numbers)}")
        call = inside.Call(invocation.id, shape.handler, event.decode(), shape.memory_mb, shape.timeout_s)
        self._asked.put((invocation, call))
        return invocation

    @property
    def closed(self) -> bool:
        """Whether it has been."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise PlatformError("this Lithops platform is closed", fix="make a new one")

    def _work(self) -> None:
        closing = False
        while not closing:
            asked, closing = self._next()
            for batch in _by_shape(asked):
                self._send(batch)
            self._waiting = [entry for entry in self._waiting if not self._has_ended(*entry)]
        for invocation, _ in self._waiting:
            invocation.finish(Outcome(OutcomeKind.LOST, error="its platform was closed"))

    def _next(self) -> tuple[list[tuple[LithopsInvocation, inside.Call]], bool]:
        """What has been asked for, and whether that was the last; waits for something to do."""
        asked = []
        with contextlib.suppress(queue.Empty):
            entry = self._asked.get(timeout=_LOOK_S) if self._waiting else self._asked.get()
            while entry is not None:
                asked.append(entry)
                entry = self._asked.get(block=False)
            return asked, True
        return asked, False

    def _send(self, batch: list[tuple[LithopsInvocation, inside.Call]]) -> None:
        first = batch[0][1]
        try:
            futures = self._executor.map(
                inside.run,
                [(msgspec.json.encode(call).decode(),) for _, call in batch],
                chunksize=1,
                runtime_memory=first.memory_mb,
                timeout=int(first.timeout_s + _START_S),
                include_modules=None,  # none are sent: Squall is in the runtime
            )
        except Exception as error:  # noqa: BLE001 - clouds' libraries raise anything
            _log.warning("Lithops refused %d calls: %s", len(batch), error)
            for invocation, _ in batch:
                invocation.finish(_refused(error))
            return
        self._waiting += [
            (invocation, future) for (invocation, _), future in zip(batch, futures, strict=True)
        ]

    def _has_ended(self, invocation: LithopsInvocation, future: Any) -> bool:
        if not (future.ready or future.success or future.done):
            return False
        hook = sys.excepthook  # Lithops puts one of its own there when a function has failed
        try:
            reply = future.result(internal_storage=self._executor.internal_storage)
            invocation.end(msgspec.json.decode(reply, type=inside.Reply))
        except BaseException as error:  # noqa: BLE001 - what Lithops rebuilds is of any type
            invocation.finish(_lost(error, future))
        finally:
            sys.excepthook = hook
        return True


_lock = threading.Lock()
_platforms: dict[LithopsBackend, LithopsPlatform] = {}


def open_platform(backend: LithopsBackend) -> FunctionPlatform:
    """The platform that a run's backend asks for, shared by its jobs (the registry's entry)."""
    real = dataclasses.replace(backend, chaos=None)
    with _lock:
        found = _platforms.get(real)
        if found is None or found.closed:
            found = _platforms[real] = LithopsPlatform(real)
    return found if backend.chaos is None else ChaosPlatform(found, backend.chaos)


def shutdown() -> None:
    """Close all shared platforms."""
    with _lock:
        platforms = list(_platforms.values())
        _platforms.clear()
    for platform in platforms:
        platform.close()


def _executor(backend: LithopsBackend) -> Any:
    settings: dict[str, Any] = {"backend": backend.backend, "storage": backend.storage}
    if backend.backend == "localhost":
        settings["runtime"] = sys.executable  # else it takes the first python on the path
        settings["worker_processes"] = backend.concurrency or _HERE
    try:
        return lithops.FunctionExecutor(
            config_file=None if backend.config is None else os.fspath(Path(backend.config).expanduser()),
            log_level=None,
            **{name: value for name, value in settings.items() if value is not None},
        )
    except Exception as error:  # a cloud's library may raise anything
        raise PlatformError(
            f"Lithops cannot be used as configured: {error}",
            where=repr(backend),
            fix="see docs/lithops.md for what its configuration must say; `lithops test` checks it",
        ) from error


def _by_shape(
    asked: list[tuple[LithopsInvocation, inside.Call]],
) -> list[list[tuple[LithopsInvocation, inside.Call]]]:
    """Batches of calls of the same memory and time."""
    batches: dict[tuple[int, float], list[tuple[LithopsInvocation, inside.Call]]] = {}
    for entry in asked:
        batches.setdefault((entry[1].memory_mb, entry[1].timeout_s), []).append(entry)
    return list(batches.values())


def _refused(error: Exception) -> Outcome:
    """Nothing ran: the platform is full, or cannot be reached."""
    text = f"{type(error).__name__}: {error}"
    full = any(sign in text for sign in ("TooManyRequests", "429", "Throttl", "Rate Exceeded"))
    return Outcome(OutcomeKind.THROTTLED if full else OutcomeKind.LOST, error=text)


def _lost(error: BaseException, future: Any) -> Outcome:
    """What Lithops says of a worker that sent nothing home."""
    kinds: dict[type[BaseException], OutcomeKind] = {
        TimeoutError: OutcomeKind.TIMED_OUT,
        MemoryError: OutcomeKind.OUT_OF_MEMORY,
    }
    kind = kinds.get(type(error), OutcomeKind.LOST)
    seconds = float(future.stats.get("worker_exec_time", 0.0))
    return Outcome(kind, error=f"{type(error).__name__}: {error}", cold=True, billed_s=seconds)
