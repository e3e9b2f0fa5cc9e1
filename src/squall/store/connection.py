"""A client's end of the wire: a blocking socket, one request and one reply at a time."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from squall.errors import LostUpdatesError, StoreError, StoreLostError
from squall.store import wire

REPLY_TIMEOUT_S = 60.0
"""Seconds to wait for a reply, beyond what the request itself may wait, unless told otherwise."""

Patience = Callable[[], float]
"""Says, before each request, how many seconds a reply to it may take."""

Forgiveness = Callable[[LostUpdatesError], None]
"""Is told of updates that a restored shard has lost, and takes it upon itself to have them made again."""

_Reply = TypeVar("_Reply", bound=wire.Reply)
_Greeting = TypeVar("_Greeting", wire.Welcome, wire.Challenge)


class Connection:
    """A connection to the server, made on first use; base of those over a kind of socket.

    It is dropped whenever an exchange was broken off (a timeout, Ctrl-C), since a late
    reply would be taken for the next one's; the next request makes another.

    Parameters
    ----------
    address : str
        Where the server is, for messages too.
    patience : callable, optional
        Seconds that a reply may take; default 60.
    """

    def __init__(self, address: str, patience: Patience | None = None) -> None:
        self.address = address
        self._patience = patience or (lambda: REPLY_TIMEOUT_S)
        self._pid = os.getpid()
        self._socket: socket.socket | None = None
        self._closed = False
        self._busy = threading.Lock()

    def open(self) -> None:
        """Connect and shake hands, unless that has been done.

        Raises
        ------
        StoreError
            If there is no server, or one of another version.
        """
        with self._whole():
            self._connect()

    def request(self, request: wire.Request, expected: type[_Reply], wait: float = 0.0) -> _Reply:
        """Send a request and wait for its reply, ``wait`` seconds longer than usual.

        Raises
        ------
        StoreError, StaleAttemptError
            What the server answered, or that it cannot be reached.
        """
        frame = wire.pack(request)
        failures = 0
        with self._whole():
            while True:
                try:
                    reply = self._talk(frame, wait)
                    break
                except ConnectionError:
                    self._drop()
                    failures += 1
                    if not self._try_again(failures):
                        raise
        return self._checked(reply, expected)

    def close(self) -> None:
        """Close; idempotent.  Later requests are refused."""
        self._closed = True
        self._drop()

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """One exchange: it comes to its end, or the connection is dropped."""
        self._check_usable()
        if not self._busy.acquire(blocking=False):
            raise self._contended()
        try:
            yield
        except BaseException as error:  # noqa: BLE001 (raised again)
            self._drop()
            self._raise(error)
        finally:
            self._busy.release()

    def _checked(self, reply: wire.Reply, expected: type[_Reply]) -> _Reply:
        if isinstance(reply, wire.Failed):
            raise wire.error_of(reply)
        if not isinstance(reply, expected):
            self._drop()
            raise self._foreign(f"a {type(reply).__name__} came where a {expected.__name__} was due")
        return reply

    def _connect(self) -> socket.socket:
        if self._socket is None:
            self._socket = self._dial()
            self._greet()
        return self._socket

    def _dial(self) -> socket.socket:
        """A new socket that is connected to the server."""
        raise NotImplementedError

    def _greet(self) -> None:
        """Say Hello on the new socket."""
        self._check_version(self._talk(wire.pack(wire.Hello(wire.VERSION)), 0.0), wire.Welcome)

    def _check_version(self, reply: wire.Reply, expected: type[_Greeting]) -> _Greeting:
        if not isinstance(reply, expected) or reply.version != wire.VERSION:
            raise wire.MalformedFrameError(f"it answers {reply} to protocol version {wire.VERSION}")
        return reply

    def _try_again(self, failures: int) -> bool:
        """Whether to connect and send again, after a pause, when the connection was lost."""
        return False

    def _talk(self, frame: bytearray, wait: float) -> wire.Reply:
        self._send(frame, self._patience() + wait)
        return wire.unpack_reply(self._receive_frame())

    def _send(self, frame: bytearray, timeout: float) -> None:
        connected = self._connect()
        connected.settimeout(timeout)
        connected.sendall(frame)

    def _receive_frame(self) -> bytearray | memoryview:
        """The body of one frame.

        Not a byte more: that might be the one that carries a descriptor.
        """
        header = bytearray(wire.HEADER_BYTES)
        self._receive_into(memoryview(header))
        body = bytearray(wire.body_size(header))
        self._receive_into(memoryview(body))
        return body

    def _receive_into(self, view: memoryview) -> None:
        """Fill ``view``."""
        done = 0
        while done < len(view):
            done += self._receive_some(view[done:])

    def _receive_some(self, view: memoryview) -> int:
        """What has arrived, at least one byte and at most a view full."""
        assert self._socket is not None
        n = self._socket.recv_into(view)
        if n == 0:
            raise ConnectionResetError("the server closed the connection")
        return n

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreError("it has been closed", where=self.address, fix="connect again")
        if os.getpid() != self._pid:
            raise StoreError(
                f"this connection belongs to process {self._pid}, of which this one is a fork",
                where=self.address,
                fix="connect again in the new process",
            )

    def _contended(self) -> StoreError:
        return StoreError(
            "two threads use one connection at once", where=self.address, fix="connect in each thread"
        )

    def _raise(self, error: BaseException) -> NoReturn:
        """Raise what broke an exchange off, in words that say what to do about it."""
        if isinstance(error, OSError):
            raise self._unreachable(error) from error
        if isinstance(error, wire.MalformedFrameError):
            raise self._foreign(error.what) from error
        raise error

    def _unreachable(self, error: OSError) -> StoreLostError:
        what = "it does not answer" if isinstance(error, TimeoutError) else f"it cannot be reached ({error})"
        return StoreLostError(
            what, where=self.address, fix="its process may have ended with the client's: start the work again"
        )

    def _foreign(self, what: str) -> StoreError:
        return wire.MalformedFrameError(
            what, where=self.address, fix="use the same Squall version on both sides"
        )

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class UnixConnection(Connection):
    """A connection over a Unix socket, which can bring memory.

    Parameters
    ----------
    address : str
        ``"unix:/path/of/the/socket"``.
    patience : callable, optional
        As above.
    """

    def __init__(self, address: str, patience: Patience | None = None) -> None:
        scheme, _, self._path = address.partition(":")
        if scheme != "unix" or not self._path:
            raise StoreError(f"{address!r} is not the address of an embedded store", fix='use "unix:/path"')
        super().__init__(address, patience)

    def request_memory(self, request: wire.Request, expected: type[_Reply]) -> tuple[_Reply, int]:
        """As `request` for a reply that brings a file descriptor, which the caller must close."""
        frame = wire.pack(request)
        with self._whole():
            reply = self._talk(frame, 0.0)
            fd = self._receive_fd() if isinstance(reply, expected) else -1
        return self._checked(reply, expected), fd

    def _dial(self) -> socket.socket:
        dialled = socket.socket(socket.AF_UNIX)
        try:
            dialled.settimeout(self._patience())
            _connect_patiently(dialled, self._path, self._patience())
        except BaseException:
            dialled.close()
            raise
        return dialled

    def _receive_fd(self) -> int:
        assert self._socket is not None
        close_on_exec = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        data, fds, _, _ = socket.recv_fds(self._socket, 1, 1, close_on_exec)
        if not data or not fds:
            raise StoreError(
                "no memory came with the reply",
                where=self.address,
                fix="raise this process's limit of open files (ulimit -n)",
            )
        return fds[0]


def _connect_patiently(sock: socket.socket, path: str, seconds: float) -> None:
    """Connect, also while more clients wait to be accepted than the server's queue holds.

    For a Unix socket that is an immediate EAGAIN, whatever the socket's timeout.
    """
    deadline = time.monotonic() + seconds
    pause = 0.001
    while True:
        try:
            return sock.connect(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
