"""The launcher's side of an environment: its birth, what is known of it, its end."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import msgspec

from squall import procfs
from squall.functions.local import environment, leftovers, wire
from squall.functions.local.memory import MemoryGroup
from squall.records import Outcome, OutcomeKind

STARTUP_S = 30.0
"""Time to import a handler; it is not part of the function's own timeout."""

_READ_BYTES = 1 << 18
_SEND_BUFFER = 4 * 64 * 1024  # so that an event always fits and sending one never blocks
_decode = msgspec.msgpack.Decoder(wire.Loaded | wire.Done).decode


@dataclass(slots=True)
class Running:
    """The call that an environment is working on."""

    id: str
    cold: bool
    started: float
    deadline: float
    loading: bool  # the handler is still being imported
    peak: int = 0
    killed_as: OutcomeKind | None = None  # why the launcher has killed it
    reason: str = ""


@dataclass(slots=True, eq=False)
class Environment:
    """One environment, as the launcher sees it."""

    pid: int
    shape: wire.Prepare
    channel: socket.socket
    log_fd: int
    memory: MemoryGroup
    home: str
    started: float
    running: Running | None = None
    fresh: bool = True  # no call has been sent to it yet
    doomed: bool = False  # has been killed, or has died: must get no more calls
    reaped: bool = False  # its process id may belong to another process by now
    idle_since: float = 0.0
    log_open: bool = True  # (a handler may close its standard output and error)
    frames: wire.Frames = field(default_factory=wire.Frames)

    @classmethod
    def fork(
        cls,
        shape: wire.Prepare,
        memory: MemoryGroup,
        home: str,
        open_files: tuple[int, int],
        run: Callable[[environment.Birth], NoReturn],
    ) -> Environment:
        """Make a new one, whose process goes on in ``run``.

        Raises
        ------
        OSError
            If the machine has no more processes or descriptors to give.
        """
        started = time.monotonic()
        ours, theirs = socket.socketpair()
        log_read, log_write = os.pipe()
        try:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            os.set_blocking(log_read, False)
            birth = environment.Birth(shape, home, theirs, log_write, started, os.getpid(), open_files)
            pid = os.fork()
        except OSError:
            ours.close()
            os.close(log_read)
            raise
        else:
            if pid == 0:
                run(birth)
        finally:  # only in the launcher: run() never returns
            theirs.close()
            os.close(log_write)
        return cls(pid, shape, ours, log_read, memory, home, started)

    def send(self, call_id: str, event: bytes) -> bool:
        """Give it a call; False if it has died while it was idle, so that another must do."""
        now = time.monotonic()
        if self.fresh:
            self.running = Running(call_id, True, self.started, now + STARTUP_S, loading=True)
        else:
            self.running = Running(call_id, False, now, now + self.shape.timeout_s, loading=False)
        message = wire.Call(call_id, event, self.running.deadline)
        try:
            self.channel.sendall(wire.frame(message))
        except OSError:
            self.kill()
            if not self.fresh:  # (a new one that dies is this call's affair: its end says why)
                self.running = None
                return False
        self.fresh = False
        return True

    def receive(self) -> Iterator[wire.Loaded | wire.Done | None]:
        """What it says, without waiting; None at the end of the channel."""
        try:
            while data := self.channel.recv(_READ_BYTES, socket.MSG_DONTWAIT):
                for body in self.frames.feed(data):
                    yield _decode(body)
                if len(data) < _READ_BYTES:
                    return
        except BlockingIOError:
            return
        except (OSError, ValueError, msgspec.MsgspecError):  # reset, or the handler wrote into it
            pass
        yield None

    def read_log(self) -> bytes | None:
        """What it has written, without waiting: None if nothing, empty if it never will again."""
        try:
            return os.read(self.log_fd, _READ_BYTES)
        except BlockingIOError:
            return None

    def loaded(self) -> None:
        """Its handler is imported: the call's own time starts."""
        if self.running is not None:
            self.running.loading = False
            self.running.deadline = time.monotonic() + self.shape.timeout_s

    def look(self, now: float) -> None:
        """Note the memory of the running call; end it if it is over a limit."""
        call = self.running
        if call is None or call.killed_as is not None:
            return
        private = procfs.private_bytes(self.pid)
        call.peak = max(call.peak, private)
        if self.memory.over_limit(self.pid, private):
            self.kill(OutcomeKind.OUT_OF_MEMORY)
        elif now >= call.deadline:
            self.kill(OutcomeKind.TIMED_OUT, self._timeout_text(call))

    def kill(self, kind: OutcomeKind = OutcomeKind.KILLED, reason: str = "") -> None:
        """SIGKILL it and what it has started; its end is noticed elsewhere."""
        if self.reaped:
            return
        self.doomed = True
        if self.running is not None and self.running.killed_as is None:
            self.running.killed_as, self.running.reason = kind, reason
        leftovers.end_process(self.pid)
        leftovers.end_group(self.pid)

    def dispose(self) -> None:
        """Give its resources up, after its end; its memory group is left to the caller."""
        leftovers.end_group(self.pid)
        self.channel.close()
        os.close(self.log_fd)
        leftovers.remove_tree(Path(self.home) / str(self.pid))

    # ------------------------------------------------------------------------- how it ended

    def finished(self, call: Running, done: wire.Done) -> Outcome:
        """The outcome of a call whose handler returned or raised."""
        return Outcome(
            OutcomeKind.RAISED if done.value is None else OutcomeKind.RETURNED,
            error_type=done.error_type,
            error=done.error,
            traceback=done.traceback,
            cold=call.cold,
            billed_s=time.monotonic() - call.started,
            peak_memory=max(call.peak, done.peak_memory),
        )

    def died(self, call: Running, status: int) -> Outcome:
        """The outcome of a call whose process ended with this wait status."""
        kind, error = self._cause(call, status)
        limit = self.shape.memory_mb << 20
        return Outcome(
            kind,
            error=error,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
            cold=call.cold,
            billed_s=time.monotonic() - call.started,
            peak_memory=max(call.peak, limit) if kind is OutcomeKind.OUT_OF_MEMORY else call.peak,
        )

    def _cause(self, call: Running, status: int) -> tuple[OutcomeKind, str]:
        """Only what is known: a SIGKILL is out-of-memory if the limiter says that it did it."""
        if os.WIFEXITED(status):
            if call.loading and os.WEXITSTATUS(status) == environment.NOT_SET_UP:
                return OutcomeKind.LOST, "the environment could not be set up: its log says why"
            return OutcomeKind.EXITED, f"the function's process exited with code {os.WEXITSTATUS(status)}"
        number = os.WTERMSIG(status)
        kind, reason = call.killed_as, call.reason
        if number != signal.SIGKILL:
            kind, reason = None, ""
        elif kind is not OutcomeKind.TIMED_OUT and self.memory.oom_kills():
            kind = OutcomeKind.OUT_OF_MEMORY
        if kind is OutcomeKind.OUT_OF_MEMORY:
            reason = f"the function used more than its {self.shape.memory_mb:,} MB"
        return kind or OutcomeKind.KILLED, reason or f"the function's process got {_signal_name(number)}"

    def _timeout_text(self, call: Running) -> str:
        if call.loading:
            return f"importing {self.shape.handler} took more than {STARTUP_S:g} s"
        return f"the function ran for more than {self.shape.timeout_s:g} s"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
