"""Inside an environment: a process that calls one handler, again and again.

It is a forked child of the launcher that goes on here (`run`), or, with ``isolation="strict"``,
a fresh Python (`squall.functions.local.fresh`); both end up in `live`.

Nothing here may import more than the standard library, numpy, obstore, safetensors, msgspec
and Squall's own light modules: it is what a running function has in memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

import msgspec

from squall import procfs
from squall.functions import payload
from squall.functions.local import wire
from squall.functions.local.leftovers import remove_tree
from squall.protocols import Handler
from squall.worker import telling

NOT_SET_UP = 70
"""Exit code of an environment that failed before it could be of use (sysexits' EX_SOFTWARE)."""

CHANNEL_FD = 3
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Birth:
    """What a new environment is given by the launcher that forks it."""

    shape: wire.Prepare
    home: str
    channel: socket.socket
    log_fd: int
    started: float
    launcher: int
    open_files: tuple[int, int]  # the client's limits; the launcher has raised its own


@dataclass(frozen=True, slots=True)
class Place:
    """Where an environment has moved in."""

    shape: wire.Prepare
    channel: socket.socket
    temp_dir: str
    started: float

    def calls(self) -> Iterator[wire.Call]:
        """Calls as they arrive, until the launcher closes the channel."""
        return map(msgspec.msgpack.Decoder(wire.Call).decode, wire.bodies(self.channel))


@dataclass(slots=True)
class LocalContext:
    """`squall.protocols.FunctionContext` of one call."""

    invocation_id: str
    memory_mb: int
    temp_dir: str
    cold_start_s: float
    deadline: float

    def remaining_s(self) -> float:
        """Seconds until this call is ended."""
        return max(0.0, self.deadline - time.monotonic())


def run(birth: Birth) -> NoReturn:
    """(in a forked child of the launcher) Be an environment; never returns."""
    live(lambda: _move_in(birth))


def live(move_in: Callable[[], Place]) -> NoReturn:
    """Be an environment until the launcher ends it; never returns.

    ``atexit`` functions and finalisers do not run: on a cloud they would not either.
    """
    code = NOT_SET_UP
    try:
        place = move_in()
        code = 1
        _serve(place)
        code = 0
    except SystemExit as request:  # raised by the handler: it ends the process, as anywhere
        code = exit_code(request)
    except BaseException:  # noqa: BLE001 - this is the process's outermost frame
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def exit_code(request: SystemExit) -> int:
    """The code with which a process ends that lets this pass; says what else it was given."""
    if request.code is None:
        return 0
    if isinstance(request.code, int):
        return request.code & 0xFF
    print(request.code, file=sys.stderr)
    return 1


# ------------------------------------------------------------------------------ moving in


def _move_in(birth: Birth) -> Place:
    """Become a process of its own: group, signals, descriptors, folder, random numbers."""
    leave_launcher(birth)
    temp_dir = make_temp_dir(birth.home)
    os.environ["TMPDIR"] = temp_dir
    channel = settle(birth.shape, temp_dir)
    if "numpy.random" in sys.modules:  # else every environment would draw the same numbers
        sys.modules["numpy.random"].seed()
    return Place(birth.shape, channel, temp_dir, birth.started)


def leave_launcher(birth: Birth) -> None:
    """Keep nothing that is the launcher's: its session, signals, descriptors, limits."""
    os.setsid()
    die_with(birth.launcher)
    _reset_signals()
    _keep_only(birth)
    resource.setrlimit(resource.RLIMIT_NOFILE, birth.open_files)


def settle(shape: wire.Prepare, temp_dir: str) -> socket.socket:
    """Make Python itself at home in this process; gives the channel."""
    tempfile.tempdir = temp_dir
    sys.stdout = text_stream(1)
    sys.stderr = text_stream(2)
    sys.path[:] = shape.sys_path
    sys.argv[:] = [shape.handler]
    channel = socket.socket(fileno=CHANNEL_FD)
    channel.set_inheritable(False)
    return channel


def die_with(launcher: int) -> None:
    """Ask Linux to kill this process when the launcher ends, however that happens.

    The signal is sent when the *thread* that forked ends; the launcher has only one.
    """
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != launcher:  # it ended before it could be asked for
        os._exit(1)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_only(birth: Birth) -> None:
    """Close every inherited descriptor but the channel; 0, 1 and 2 become null and the log.

    The launcher's objects for the others still exist in this process's copy of its memory.
    They are referenced from frames below this one, which never return, so none of them is
    ever collected and closes a descriptor of the function's with the same number.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(birth.log_fd, 1)
    os.dup2(birth.log_fd, 2)
    if birth.channel.fileno() != CHANNEL_FD:
        os.dup2(birth.channel.fileno(), CHANNEL_FD, inheritable=False)
    os.closerange(CHANNEL_FD + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def text_stream(fd: int) -> TextIO:
    """A descriptor to print to, line by line."""
    return open(fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def make_temp_dir(home: str) -> str:
    """A new folder for this process below ``home``, by whose name the launcher knows it."""
    path = Path(home) / str(os.getpid())
    path.mkdir(mode=0o700)
    return str(path)


def _empty(folder: str) -> None:
    """Remove what a call has left in its folder: warm calls must not fill the disk."""
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        Path(folder).mkdir(mode=0o700, parents=True)
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                Path(entry.path).unlink(missing_ok=True)


# -------------------------------------------------------------------------------- serving


def _serve(place: Place) -> None:
    """Answer calls until the launcher closes the channel or the handler cannot be had."""
    pid = os.getpid()
    shape, channel = place.shape, place.channel
    handler: Handler | None = None
    memory = _PeakMemory()
    for call in place.calls():
        context = LocalContext(call.id, shape.memory_mb, place.temp_dir, 0.0, call.deadline)
        if handler is None:
            try:
                handler = load(shape.handler)
            except Exception as error:  # noqa: BLE001 - anything may be raised by an import
                channel.sendall(wire.frame(raised(error, memory.read(), last=True)))
                return
            context.cold_start_s = time.monotonic() - place.started
            context.deadline = time.monotonic() + shape.timeout_s
            channel.sendall(wire.frame(wire.Loaded()))
        done = call_handler(handler, call.event, context, memory.read)
        if os.getpid() != pid:  # the handler forked, and its child has come back here
            os._exit(0)
        channel.sendall(wire.frame(done))
        _empty(place.temp_dir)


def load(name: str) -> Handler:
    """Import ``"module:function"``."""
    module, _, function = name.partition(":")
    target: Any = importlib.import_module(module)
    for part in function.split("."):
        target = getattr(target, part)
    handler: Handler = target
    return handler


def call_handler(
    handler: Handler, event: bytes, context: LocalContext, memory: Callable[[], int]
) -> wire.Done:
    """Call it; what it returned or raised, and what ``memory`` says then.

    Raises
    ------
    SystemExit
        If the handler has: it wants to end its process.
    """
    try:
        result = handler(payload.decode(event), context)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, the caller is told
        _flush()
        return raised(error, memory())
    _flush()
    return _returned(result, memory())


def _returned(result: Any, peak: int) -> wire.Done:
    try:
        value = payload.encode(result)
    except ValueError as error:
        text = f"the handler's return value cannot be sent: {error}; put it in Blobs and return its key"
        return wire.Done(None, "TypeError", text, peak_memory=peak)
    if len(value) > payload.MAX_RESULT_BYTES:
        text = (
            f"the handler's return value is {len(value):,} bytes of JSON, more than the "
            f"{payload.MAX_RESULT_BYTES:,} allowed; put it in Blobs and return its key"
        )
        return wire.Done(None, "ValueError", text, peak_memory=peak)
    return wire.Done(value, peak_memory=peak)


def raised(error: BaseException, peak: int, last: bool = False) -> wire.Done:
    """An exception as its caller is told of it."""
    return wire.Done(None, *telling.told(error, __file__), peak, last)


def _flush() -> None:
    """Send on what Python and C have buffered, so that it is counted to this call."""
    for stream in (sys.stdout, sys.stderr):
        # The handler may have closed or replaced them; that is its affair, not an error.
        with contextlib.suppress(Exception):
            stream.flush()
    _libc.fflush(None)


class _PeakMemory:
    """Private memory of this process, read at the end of each call in a few microseconds."""

    def __init__(self) -> None:
        self._fd = os.open("/proc/self/statm", os.O_RDONLY) if procfs.PRESENT else -1

    def read(self) -> int:
        """Bytes now (the launcher looks in between)."""
        if self._fd < 0:
            return procfs.own_peak_bytes()
        return procfs.anonymous_bytes(os.pread(self._fd, 128, 0))
