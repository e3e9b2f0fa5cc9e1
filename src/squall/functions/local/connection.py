"""The client's end of one launcher: starting it, talking to it, noticing its end."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import IO, Protocol

import msgspec

import squall
from squall.errors import PlatformError
from squall.functions import payload
from squall.functions.local import leftovers, memory, wire
from squall.log import get_logger
from squall.records import Outcome, OutcomeKind

_MODULE = "squall.functions.local.launcher"
_START_S = 60.0
_END_S = 15.0
_OBEY_S = 10.0  # for a call to end once that was asked for; else the launcher is stopped, or hangs
_STDERR_CHARS = 4000
_SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_log = get_logger("squall.functions.local")
_decode = msgspec.msgpack.Decoder(wire.Log | wire.End | wire.Idle).decode


class ConnectionEndedError(Exception):
    """The launcher is gone (or about to go); a message was not delivered."""


class LauncherKilledError(PlatformError):
    """The launcher got a signal while it started: another one may do better."""


class Call(Protocol):
    """What a connection has to know of an invocation; called from its reader thread."""

    @property
    def id(self) -> str:
        """Unique name."""

    def add_log(self, data: bytes) -> None:
        """It wrote this."""

    def finish(self, outcome: Outcome) -> None:
        """It has ended."""


class Connection:
    """A running launcher.  All methods may be called from any thread.

    Parameters
    ----------
    hello : Hello
        The launcher's settings.

    Raises
    ------
    PlatformError
        If the launcher cannot be started; with what it wrote to its standard error.
    """

    def __init__(self, hello: wire.Hello) -> None:
        self._lock = threading.Lock()  # guards sending and the attributes below
        self._pending: dict[str, Call] = {}
        self._cancelled: dict[str, float] = {}  # pending calls, and when their end was asked for
        self._watch: threading.Timer | None = None
        self._prepared: set[int] = set()
        self._open = True
        self._closing = self._started = False
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _discard
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _start(theirs, self._stderr)
            except PlatformError:
                self._discard()
                raise
        _connections.add(self)
        self._bodies = wire.bodies(self._socket)
        ready = self._shake_hands(hello)
        self.home, self.memory, self.exposed = Path(ready.home), ready.memory, ready.exposed
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name="squall-local-reader", daemon=True)
        self._reader.start()
        self._started = True

    def _shake_hands(self, hello: wire.Hello) -> wire.Ready:
        try:
            self._socket.settimeout(_START_S)
            self._socket.sendall(wire.frame(hello))
            ready = msgspec.msgpack.decode(next(self._bodies), type=wire.Ready)
            self._socket.settimeout(None)
            return ready
        except (StopIteration, OSError) as error:
            signalled = not isinstance(error, TimeoutError) and self._wait_for_end() < 0
            self._process.kill()
            self._process.wait()
            written = self._written()
            self._discard()
            raise (LauncherKilledError if signalled else PlatformError)(
                f"the launcher of local functions did not start:\n{written or error!r}",
                where=sys.executable,
                fix="check that this Python can import squall: "
                f"`{sys.executable} -P -c 'import squall.functions.local.launcher'`",
            ) from error

    def _wait_for_end(self) -> int:
        """Status of a launcher that has closed its channel; 0 if it runs on all the same."""
        try:
            return self._process.wait(_OBEY_S)
        except subprocess.TimeoutExpired:
            return 0

    def descriptors(self) -> set[int]:
        """Descriptors of this process that belong to it."""
        return {self._socket.fileno(), -1 if self._stderr.closed else self._stderr.fileno()} - {-1}

    # ----------------------------------------------------------------------------- talking

    @property
    def is_open(self) -> bool:
        """Whether calls may be submitted."""
        return self._open

    @property
    def has_ended(self) -> bool:
        """Whether the launcher is gone and all that it ran has been reported."""
        return not self._reader.is_alive()

    def submit(self, call: Call, shape: wire.Prepare, event: bytes) -> None:
        """Start a call.

        Raises
        ------
        ConnectionEndedError
            If the launcher is gone: the call was not started.
        """
        message = wire.frame(wire.Invoke(call.id, shape.key, event))
        with self._lock:
            self._send_shape(shape)
            self._pending[call.id] = call
            try:
                self._send(message)
            except ConnectionEndedError:
                del self._pending[call.id]
                raise

    def prepare(self, shape: wire.Prepare) -> None:
        """Let the launcher import what it may of a shape's handler before the first call."""
        with self._lock:
            self._send_shape(shape)

    def _send_shape(self, shape: wire.Prepare) -> None:
        if shape.key not in self._prepared:
            self._send(wire.frame(shape))
            self._prepared.add(shape.key)

    def _send(self, message: bytes) -> None:
        """Send, with the lock held.  After a failure the reader sees the end, too, and tidies up."""
        if not self._open:
            raise ConnectionEndedError
        try:
            self._socket.sendall(message)
        except OSError as error:
            self._open = False
            raise ConnectionEndedError from error

    def cancel(self, call: Call) -> bool:
        """Ask for the end of a call, and see to it; False if it has ended already."""
        with self._lock:
            if call.id not in self._pending:
                return False
            self._cancelled.setdefault(call.id, time.monotonic())
            self._watch_obedience()
            with contextlib.suppress(ConnectionEndedError):  # the call ends with the launcher
                self._send(wire.frame(wire.Cancel(call.id)))
        return True

    def _watch_obedience(self) -> None:
        """With the lock held: look again when the oldest cancelled call should have ended."""
        if self._watch is None and self._cancelled:
            due = min(self._cancelled.values()) + _OBEY_S
            self._watch = threading.Timer(max(0.0, due - time.monotonic()), self._end_if_deaf)
            self._watch.daemon = True
            self._watch.start()

    def _end_if_deaf(self) -> None:
        with self._lock:
            self._watch = None
            if self._cancelled and time.monotonic() - min(self._cancelled.values()) >= _OBEY_S:
                _log.warning("the launcher did not end a cancelled function in time; killing it")
                self._process.kill()
            else:
                self._watch_obedience()

    def _forget_cancelled(self, *calls: str) -> None:
        """With the lock held: these calls have ended."""
        for call in calls:
            self._cancelled.pop(call, None)
        if self._watch is not None and not self._cancelled:
            self._watch.cancel()
            self._watch = None

    def close(self) -> None:
        """End the launcher and all that it runs; wait until nothing is left.  Idempotent."""
        with self._lock:
            self._closing = True
            self._stop_sending()
        if threading.current_thread() is not self._reader:  # (a callback may close us)
            self._reader.join(_END_S)
            if self._reader.is_alive():
                _log.warning("the launcher did not end in time, or a callback hangs; killing it")
                self._process.kill()
                self._reader.join(_END_S)

    def abandon(self) -> None:
        """(In a forked child of the client.) Let go of the launcher, which is the parent's."""
        self._open = False
        self._socket.close()
        self._stderr.close()
        self._process.returncode = 0  # not our child: else Popen would warn that it still runs

    def _stop_sending(self) -> None:
        """Close our direction only: the launcher closes the other when nothing is left."""
        self._open = False
        with contextlib.suppress(OSError):  # it is dead
            self._socket.shutdown(socket.SHUT_WR)

    # ----------------------------------------------------------------------- reader thread

    def _read(self) -> None:
        try:
            for body in self._bodies:
                self._handle(_decode(body))
        except OSError as error:
            _log.info("connection to the launcher: %s", error)
        finally:
            self._at_end()

    def _handle(self, message: wire.Log | wire.End | wire.Idle) -> None:
        match message:
            case wire.End():
                with self._lock:
                    call = self._pending.pop(message.id)
                    self._forget_cancelled(message.id)
                call.finish(_with_value(message))
            case wire.Log():
                self._pending[message.id].add_log(message.data)
            case wire.Idle():
                with self._lock:
                    if not self._pending:
                        self._stop_sending()

    def _at_end(self) -> None:
        """Clear up after the launcher before anyone hears of it: a successor must find no one."""
        with self._lock:
            self._open = False
            pending, self._pending = self._pending, {}
            self._forget_cancelled(*self._cancelled.copy())
        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if status != 0:
            leftovers.clear_after(self.home)
            memory.remove_orphans()
        outcome = self._lost(status)
        self._discard()
        for call in pending.values():
            call.finish(outcome)

    def _lost(self, status: int) -> Outcome:
        if self._closing:
            return Outcome(OutcomeKind.KILLED, signal=9, error="the platform was closed")
        text = f"the launcher of local functions ended (status {status}) {self._written()}"
        return Outcome(OutcomeKind.LOST, error=text.rstrip())

    def _written(self) -> str:
        """The end of what the launcher wrote to its standard error."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip()[-_STDERR_CHARS:]

    def _discard(self) -> None:
        self._socket.close()
        self._stderr.close()


def _with_value(message: wire.End) -> Outcome:
    if message.outcome.kind is not OutcomeKind.RETURNED:
        return message.outcome
    return msgspec.structs.replace(message.outcome, value=payload.decode(message.value))


# -------------------------------------------------------------------------------- starting


def _start(channel: socket.socket, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a launcher that talks over ``channel``.

    In a session of its own: Ctrl-C in the terminal is for the client alone, which decides
    what becomes of its functions.
    """
    if not sys.executable:
        raise PlatformError(
            "this Python does not know its own executable (sys.executable is empty)",
            fix="set sys.executable to the path of a Python that can import squall",
        )
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, str(channel.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            pass_fds=[channel.fileno()],
            start_new_session=True,
            env=_environment(),
        )
    except OSError as error:
        raise PlatformError(
            f"the launcher of local functions cannot be started: {error}",
            where=sys.executable,
            fix="set sys.executable to the path of a Python that can import squall",
        ) from error


def _environment() -> dict[str, str]:
    """Variables for the launcher: BLAS without threads, and the way to this very squall."""
    variables = dict(os.environ)
    if sys.flags.ignore_environment:  # python -E or -I: the launcher is to ignore them as well
        variables = {name: value for name, value in variables.items() if not name.startswith("PYTHON")}
    # Behind the user's own entries; it also serves those who put squall on sys.path by hand.
    path = [variables[name] for name in ("PYTHONPATH",) if variables.get(name)]
    variables["PYTHONPATH"] = os.pathsep.join([*path, str(Path(squall.__file__).resolve().parents[1])])
    return variables | dict.fromkeys(_SINGLE_THREADED, "1")


# ------------------------------------------------------------------- forks of the client

_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def open_launchers() -> list[Connection]:
    """All that run and belong to this process."""
    return [c for c in list(_connections) if c._started and not c.has_ended]


def _abandon_all() -> None:
    """A forked child holds copies of our sockets: the launcher would not see our end."""
    for connection in list(_connections):
        connection.abandon()
    _connections.clear()


os.register_at_fork(after_in_child=_abandon_all)
