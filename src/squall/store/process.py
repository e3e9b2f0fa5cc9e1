"""Starting the embedded store's server, keeping one warm, and ending it with this process."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import IO, TypeVar

from squall.errors import StoreError
from squall.store import wire
from squall.store.closing import Closing
from squall.store.connection import UnixConnection
from squall.store.opening import StoreAddress

START_TIMEOUT_S = 30.0
"""Seconds that the server may take to start."""

END_TIMEOUT_S = 5.0
"""Seconds that the server may take to end before it is killed."""

TOUCH_TIMEOUT_S = 20.0
"""Seconds in which the warm store must answer, or it is taken for dead and replaced."""

SILENT_TIMEOUT_S = 1.0
"""The same for a store that has just failed to answer."""

SNAPSHOT_TIMEOUT_S = 600.0
"""Seconds that a snapshot of a job may take."""

_Reply = TypeVar("_Reply", bound=wire.Reply)

IDLE_S = 60.0
"""Seconds that the warm store outlives its last job."""


class StoreProcess(Closing):
    """A server process that ends with this one, however this one ends.

    Made by :meth:`start`.  A forked child of this process neither owns nor may use it.
    All methods may be called from any thread.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], owner_fd: int, errors: IO[bytes], address: str
    ) -> None:
        self._popen = popen
        self._owner_fd = owner_fd
        self._errors = errors
        self._address = address
        # Runs once: by `close`, when nobody holds this object any more, or at exit.
        self._finish = weakref.finalize(self, _finish, popen, owner_fd, errors, address)
        _ours.add(self)

    @classmethod
    def start(cls, idle_s: float | None = None) -> StoreProcess:
        """Start a server and wait until it listens.

        Parameters
        ----------
        idle_s : float, optional
            End it after so many seconds without an open job; never if None.

        Raises
        ------
        StoreError
            If it does not start; carries what it wrote to its standard error.
        """
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - the process object closes it
        read_end, write_end = os.pipe()
        try:
            popen = _launch(read_end, errors, idle_s)
        except BaseException:
            os.close(write_end)
            errors.close()
            raise
        finally:
            os.close(read_end)
        try:
            address = _read_address(popen, errors)
        except BaseException:
            os.close(write_end)
            _end(popen)
            errors.close()
            raise
        return cls(popen, write_end, errors, address)

    @property
    def address(self) -> str:
        """Where to :func:`~squall.store.embedded.connect`: ``"unix:<path>"``."""
        return self._address

    def listen_tcp(self) -> StoreAddress:
        """Where to connect by TCP on this host; the server listens there from the first call on."""
        listening = self._ask(wire.Listen(), wire.Listening)
        return StoreAddress(listening.address, listening.token)

    def keep_job(self, job: str, url: str, number: int, *, whole: bool) -> None:
        """Have a snapshot of one job written below ``url``; of one moment if it is to be ``whole``.

        Raises
        ------
        StoreError
            If there is no such job, or it cannot be written.
        """
        self._ask(wire.KeepJob(job, url, number, whole), wire.Snapshot, SNAPSHOT_TIMEOUT_S)

    def restore_job(self, job: str, url: str) -> bool:
        """Open a job as its latest snapshot below ``url`` holds it; False if there is none.

        Raises
        ------
        StoreError
            If the job is open, or the snapshot is damaged.
        """
        return self._ask(wire.RestoreJob(job, url), wire.Done, SNAPSHOT_TIMEOUT_S).changed

    def _ask(self, request: wire.Request, expected: type[_Reply], wait: float = 0.0) -> _Reply:
        connection = UnixConnection(self._address)
        try:
            return connection.request(request, expected, wait)
        finally:
            connection.close()

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether it runs and is ours."""
        return self._finish.alive and self._popen.poll() is None

    @property
    def folder(self) -> Path:
        """Its temporary folder, which holds the socket."""
        return Path(self._address.removeprefix("unix:")).parent

    def descriptors(self) -> set[int]:
        """Descriptors of this process that belong to it."""
        return {self._owner_fd, self._errors.fileno()}

    def log(self) -> str:
        """What the server wrote to its standard error so far (the last 64 kB)."""
        return "" if self._errors.closed else _read_errors(self._errors)

    def touch(self, seconds: float = TOUCH_TIMEOUT_S) -> bool:
        """Start its idle time anew; False if it has ended, or does not answer in time."""
        connection = UnixConnection(self._address, lambda: seconds)
        try:
            connection.open()
        except StoreError:
            return False
        finally:
            connection.close()
        return self.alive

    def close(self) -> None:
        """End the server; all its memory goes back.  Idempotent."""
        self._finish()

    def kill(self) -> None:
        """End a server that does not answer: there is no waiting for it to do so by itself."""
        self._popen.kill()
        self._finish()

    def _disown(self) -> None:
        """In a forked child: let go without a trace in the parent's server."""
        if self._finish.detach() is not None:
            os.close(self._owner_fd)  # or the child would keep the server alive
            self._popen.returncode = 0  # it is not this process's to wait for
            self._errors.close()

    def __repr__(self) -> str:
        return f"<StoreProcess {self.pid} at {self._address}>"


def _launch(read_end: int, errors: IO[bytes], idle_s: float | None) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise StoreError("this process does not know its Python (sys.executable is empty)", fix="set it")
    idle = float("inf") if idle_s is None else idle_s
    command = [sys.executable, "-P", "-m", "squall.store.server", str(read_end), str(idle)]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=[read_end],
            start_new_session=True,  # Ctrl-C is for the client
            env=server_environment(),
        )
    except OSError as error:
        raise StoreError(f"the store's server cannot be started: {error}", where=sys.executable) from error


def server_environment() -> dict[str, str]:
    """Environment of a server's process: it imports what this one would."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(_search_path())}


def _search_path() -> list[str]:
    """Where this process found what the server imports, so that the server finds the same.

    No more than that: another folder, such as the script's, may hold a file named like a
    module of the standard library, which the server would then import in its stead.
    """
    import msgspec
    import numpy

    import squall

    files = [module.__file__ for module in (squall, msgspec, numpy)]
    return list(dict.fromkeys(str(Path(file).parent.parent) for file in files if file))


def _read_address(popen: subprocess.Popen[bytes], errors: IO[bytes]) -> str:
    """The line that the server writes when it listens."""
    assert popen.stdout is not None
    deadline = time.monotonic() + START_TIMEOUT_S
    line = b""
    with popen.stdout as output:
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(output.fileno(), 4096) if ready else b""
            if not part:
                popen.kill()
                code = popen.wait()
                raise StoreError(
                    f"the store's server did not start (exit code {code}):\n{_read_errors(errors)}",
                    where=" ".join(map(str, popen.args)) if isinstance(popen.args, list) else None,
                    fix="run that command by hand; `squall` must be importable by it",
                )
            line += part
    return line.decode().strip()


def _read_errors(errors: IO[bytes]) -> str:
    # Not `read`: the server writes at the same file position.
    size = os.fstat(errors.fileno()).st_size
    return os.pread(errors.fileno(), 1 << 16, max(0, size - (1 << 16))).decode(errors="replace").strip()


def _finish(popen: subprocess.Popen[bytes], owner_fd: int, errors: IO[bytes], address: str) -> None:
    os.close(owner_fd)
    _end(popen)
    errors.close()
    folder = Path(address.removeprefix("unix:")).parent
    if folder.exists():  # a server that was killed has left it
        shutil.rmtree(folder)


def _end(popen: subprocess.Popen[bytes]) -> None:
    """Wait for a server whose pipe has been closed; kill it if it hangs."""
    try:
        popen.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()


# ------------------------------------------------------------------------------- the warm store


class _Warm:
    """The store that this process keeps running between jobs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: StoreProcess | None = None


_warm = _Warm()
_ours: weakref.WeakSet[StoreProcess] = weakref.WeakSet()


def shared_store() -> StoreProcess:
    """The warm store of this process, started if there is none.

    It ends by :func:`shutdown`, with this process, or 60 s after its last job; then the
    next call starts another.  May be called from any thread.

    Raises
    ------
    StoreError
        If it does not start.
    """
    with _warm.lock:
        process = _warm.process
        if process is not None and not (process.alive and process.touch()):
            process.kill()
            process = None
        if process is None:
            process = StoreProcess.start(idle_s=IDLE_S)
        _warm.process = process
        return process


def shutdown() -> None:
    """End the warm store, if there is one; idempotent."""
    with _warm.lock:
        process, _warm.process = _warm.process, None
        if process is not None:
            process.close()


def open_stores() -> list[StoreProcess]:
    """All that run and belong to this process."""
    return [process for process in list(_ours) if process.alive]


def end_silent_store() -> None:
    """Kill the warm store unless it answers; the next job starts another."""
    with _warm.lock:
        process = _warm.process
        if process is not None and not process.touch(SILENT_TIMEOUT_S):
            process.kill()
            _warm.process = None


def _forget_after_fork() -> None:
    # Disowned before the last reference goes: its end would remove the parent's socket.
    for process in list(_ours):
        process._disown()
    _warm.lock = threading.Lock()
    _warm.process = None


os.register_at_fork(after_in_child=_forget_after_fork)
