"""A client's end of the wire: a blocking Unix socket, one request and one reply at a time."""

from __future__ import annotations

import os
import socket
from typing import TypeVar

from squall.errors import StoreError
from squall.store import wire

REPLY_TIMEOUT_S = 60.0
"""Seconds to wait for a reply, beyond what the request itself may wait."""

_Reply = TypeVar("_Reply", bound=wire.Reply)


class Connection:
    """A connection to the server at ``unix:<path>``, made on first use.

    It is dropped whenever an exchange was broken off (a timeout, Ctrl-C), since a late
    reply would be taken for the next one's; the next request makes another.

    Parameters
    ----------
    address : str
        ``"unix:/path/of/the/socket"``.
    """

    def __init__(self, address: str) -> None:
        scheme, _, path = address.partition(":")
        if scheme != "unix" or not path:
            raise StoreError(f"{address!r} is not the address of an embedded store", fix='use "unix:/path"')
        self.address = address
        self._path = path
        self._pid = os.getpid()
        self._socket: socket.socket | None = None
        self._closed = False

    def open(self) -> None:
        """Connect and shake hands, unless that has been done.

        Raises
        ------
        StoreError
            If there is no server, or one of another version.
        """
        self.request(None, wire.Welcome)

    def request(self, request: wire.Request | None, expected: type[_Reply], wait: float = 0.0) -> _Reply:
        """Send a request and wait for its reply.

        Raises
        ------
        StoreError, StaleAttemptError
            What the server answered, or that it cannot be reached.
        """
        return self._exchange(request, expected, wait, fd_follows=False)[0]

    def request_memory(self, request: wire.Request, expected: type[_Reply]) -> tuple[_Reply, int]:
        """The same for a reply that brings a file descriptor, which the caller must close."""
        return self._exchange(request, expected, 0.0, fd_follows=True)

    def close(self) -> None:
        """Close; idempotent.  Later requests are refused."""
        self._closed = True
        self._drop()

    def _exchange(
        self, request: wire.Request | None, expected: type[_Reply], wait: float, fd_follows: bool
    ) -> tuple[_Reply, int]:
        self._check_usable()
        frame = None if request is None else wire.pack(request)
        finished = False
        fd = -1
        try:
            welcome = self._connect()
            reply: wire.Reply = welcome if frame is None else self._talk(frame, wait)
            if fd_follows and isinstance(reply, expected):
                fd = self._receive_fd()
            finished = True
        except OSError as error:
            raise self._unreachable(error) from error
        except wire.MalformedFrameError as error:
            raise self._foreign(error.what) from error
        finally:
            if not finished:
                self._drop()
        if isinstance(reply, wire.Failed):
            raise wire.error_of(reply)
        if not isinstance(reply, expected):
            self._drop()
            raise self._foreign(f"a {type(reply).__name__} came where a {expected.__name__} was due")
        return reply, fd

    def _connect(self) -> wire.Welcome:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(REPLY_TIMEOUT_S)
            self._socket.connect(self._path)
            reply = self._talk(wire.pack(wire.Hello(wire.VERSION)), 0.0)
            if not isinstance(reply, wire.Welcome) or reply.version != wire.VERSION:
                raise wire.MalformedFrameError(f"it answers {reply} to protocol version {wire.VERSION}")
        return wire.Welcome(wire.VERSION)

    def _talk(self, frame: bytearray, wait: float) -> wire.Reply:
        assert self._socket is not None
        self._socket.settimeout(REPLY_TIMEOUT_S + wait)
        self._socket.sendall(frame)
        size = wire.body_size(self._receive(wire.HEADER_BYTES))
        return wire.unpack_reply(self._receive(size))

    def _receive(self, size: int) -> bytearray:
        """Exactly ``size`` bytes: one more might be the one that carries a descriptor."""
        assert self._socket is not None
        data = bytearray(size)
        view = memoryview(data)
        done = 0
        while done < size:
            n = self._socket.recv_into(view[done:])
            if n == 0:
                raise ConnectionResetError("the server closed the connection")
            done += n
        return data

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

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreError("it has been closed", where=self.address, fix="connect again")
        if os.getpid() != self._pid:
            raise StoreError(
                f"this connection belongs to process {self._pid}, of which this one is a fork",
                where=self.address,
                fix="connect again in the new process",
            )

    def _unreachable(self, error: OSError) -> StoreError:
        what = "it does not answer" if isinstance(error, TimeoutError) else f"it cannot be reached ({error})"
        return StoreError(
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
