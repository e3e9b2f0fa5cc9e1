"""One call inside a Lithops worker: in a process of its own, so that every end can be told.

What Lithops knows of a function that dies is a sentence; here its parent sees signal, exit code,
time and memory, and sends them home as a result like any other.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

import msgspec

from squall import procfs
from squall.functions.local import wire
from squall.functions.local.environment import (
    LocalContext,
    call_handler,
    die_with,
    exit_code,
    load,
    raised,
    text_stream,
)
from squall.protocols import Handler
from squall.records import Outcome, OutcomeKind

MAX_LOG_BYTES = 1 << 20
_LOOK_S = 0.01
_CHUNK = 1 << 16


class Call(msgspec.Struct, frozen=True):
    """A call on its way; ``event`` is JSON."""

    id: str
    handler: str
    event: str
    memory_mb: int
    timeout_s: float


class Reply(msgspec.Struct, frozen=True):
    """How it ended; ``value`` is JSON (the outcome's own is empty), ``logs`` what was written."""

    outcome: Outcome
    value: str
    logs: str


def run(call: str) -> str:
    """Run a `Call`; both it and the `Reply` are JSON, so that nothing of ours is pickled."""
    asked = msgspec.json.decode(call, type=Call)
    cold_s = _age_s()
    try:
        handler = load(asked.handler)
    except Exception as error:  # noqa: BLE001 - anything may be raised by an import
        return _reply(_outcome_of(raised(error, 0)), b"", "", cold_s)
    with tempfile.TemporaryDirectory(prefix="squall-") as folder, tempfile.TemporaryFile() as log:
        started = time.monotonic()
        child = _Child.fork(handler, asked, folder, log, cold_s)
        outcome, value = child.watch(asked)
        seconds = cold_s + time.monotonic() - started
        size = os.fstat(log.fileno()).st_size
        written = os.pread(log.fileno(), MAX_LOG_BYTES, max(0, size - MAX_LOG_BYTES))
        return _reply(outcome, value, written.decode(errors="replace"), seconds)


def _reply(outcome: Outcome, value: bytes, logs: str, billed_s: float) -> str:
    billed = msgspec.structs.replace(outcome, billed_s=billed_s, cold=True)
    return msgspec.json.encode(Reply(billed, value.decode(), logs)).decode()


def _age_s() -> float:
    """Seconds since this process began; Lithops makes one for each call."""
    if not procfs.PRESENT:
        return 1e-3
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return max(1e-3, uptime - procfs.start_time(os.getpid()) / os.sysconf("SC_CLK_TCK"))


class _Child:
    """The process in which the handler runs, as its parent sees it."""

    def __init__(self, pid: int, results: int) -> None:
        self._pid, self._results = pid, results
        self._received = bytearray()

    @staticmethod
    def fork(handler: Handler, asked: Call, folder: str, log: IO[bytes], cold_s: float) -> _Child:
        results, sending = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(results)
            _be(handler, asked, folder, log.fileno(), sending, parent, cold_s)
        os.close(sending)
        with contextlib.suppress(OSError):  # it has done so itself
            os.setpgid(pid, pid)
        return _Child(pid, results)

    def watch(self, asked: Call) -> tuple[Outcome, bytes]:
        """Wait for its end, or make it; (outcome, value as JSON)."""
        ends, limit, peak = time.monotonic() + asked.timeout_s, asked.memory_mb << 20, 0
        forced: Outcome | None = None
        for status in self._looks():
            if status is not None:
                break
            peak = max(peak, procfs.private_bytes(self._pid))
            if forced is None and time.monotonic() >= ends:
                forced = Outcome(OutcomeKind.TIMED_OUT, error=f"it ran for more than {asked.timeout_s:g} s")
            elif forced is None and peak > limit:
                told = f"it used {peak >> 20:,} MB, more than its {asked.memory_mb:,} MB"
                forced = Outcome(OutcomeKind.OUT_OF_MEMORY, error=told)
            if forced is not None:
                self._kill()
        self._kill()  # what it has started goes with it
        self._read()
        os.close(self._results)
        outcome, value = (forced, b"") if forced is not None else self._end(status)
        return msgspec.structs.replace(outcome, peak_memory=max(peak, outcome.peak_memory)), value

    def _looks(self) -> Iterator[int | None]:
        """The wait status once it has ended, None before; every few milliseconds."""
        while True:
            self._read()
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            yield status if pid else None
            select.select([self._results], [], [], _LOOK_S)

    def _read(self) -> None:
        while select.select([self._results], [], [], 0)[0]:
            chunk = os.read(self._results, _CHUNK)
            if not chunk:
                time.sleep(_LOOK_S)  # it has closed its end, but goes on
                return
            self._received += chunk

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)

    def _end(self, status: int | None) -> tuple[Outcome, bytes]:
        assert status is not None
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            return Outcome(OutcomeKind.KILLED, error=f"signal {-code}", signal=-code), b""
        if code or not self._received:
            return Outcome(OutcomeKind.EXITED, error=f"exit code {code}", exit_code=code), b""
        done = msgspec.msgpack.decode(self._received, type=wire.Done)
        return _outcome_of(done), done.value or b""


def _outcome_of(done: wire.Done) -> Outcome:
    kind = OutcomeKind.RAISED if done.value is None else OutcomeKind.RETURNED
    return Outcome(
        kind,
        error_type=done.error_type,
        error=done.error,
        traceback=done.traceback,
        peak_memory=done.peak_memory,
    )


def _be(
    handler: Handler, asked: Call, folder: str, log_fd: int, sending: int, parent: int, cold_s: float
) -> NoReturn:
    """(in the child) Run the handler and send what came of it."""
    code = 1
    try:
        os.setpgid(0, 0)
        die_with(parent)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        sys.stdout, sys.stderr = text_stream(1), text_stream(2)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        context = LocalContext(asked.id, asked.memory_mb, folder, cold_s, time.monotonic() + asked.timeout_s)
        done = call_handler(handler, asked.event.encode(), context, lambda: procfs.private_bytes(os.getpid()))
        frame = memoryview(msgspec.msgpack.encode(done))
        while frame:
            frame = frame[os.write(sending, frame) :]
        code = 0
    except SystemExit as request:  # raised by the handler
        code = exit_code(request)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)
