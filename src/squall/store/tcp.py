"""The store's client over TCP: everything by requests, nothing shared.

A table's rows and values go out in one frame and come back in one, and every such reply says
whether the job's workers are to stop, so that asking for that costs nothing.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from urllib.parse import urlsplit

import numpy as np

from squall.errors import StoreError
from squall.records import Float32, Int64, Meeting, Stamp, Sync, TableSpec, Update
from squall.store import wire
from squall.store.auth import check_server, prove
from squall.store.connection import Connection, Patience
from squall.store.control import no_such_job
from squall.store.meetings import meet
from squall.store.requests import RemoteControl, RemoteStore

CONNECT_TIMEOUT_S = 10.0
"""Seconds to wait until a server takes a connection."""

RETRIES = 10
"""How often a request is sent again after the connection was lost: for some 3 s."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
_BUFFER = 64 << 10  # bytes: a reply that fits is received at once


def connect(address: str, token: str, patience: Patience | None = None) -> TcpStore:
    """Connect to the store at ``"tcp://host:port"``.

    Parameters
    ----------
    address : str
        Where it is.
    token : str
        What it asks for; see :meth:`squall.store.process.StoreProcess.listen_tcp`.
    patience : callable, optional
        Seconds that a reply may take.

    Raises
    ------
    StoreError
        If the address is not of this form, nobody answers there, or the token is wrong.
    """
    store = TcpStore(address, token, patience)
    store.open()
    return store


class TcpStore(RemoteStore):
    """One process's view of the store; it belongs to the thread that made it.

    Attributes
    ----------
    tables : TcpTables
        Implements :class:`squall.protocols.Tables`.
    blobs : RemoteBlobs
        Implements :class:`squall.protocols.Blobs`.
    control : TcpControl
        Implements :class:`squall.protocols.Control`.
    """

    def __init__(self, address: str, token: str, patience: Patience | None = None) -> None:
        connection = TcpConnection(address, token, patience)
        super().__init__(connection)
        flags = _StopFlags()
        self.tables = TcpTables(connection, flags)
        self.control = TcpControl(connection, flags)


class TcpConnection(Connection):
    """A connection over TCP, which is made again, and the request repeated, when it is lost.

    Parameters
    ----------
    address : str
        ``"tcp://host:port"``.
    token : str
        What the server and this client show each other that they know.
    patience : callable, optional
        Seconds that a reply may take.
    """

    def __init__(self, address: str, token: str, patience: Patience | None = None) -> None:
        super().__init__(address, patience)
        self._host, self._port = _host_and_port(address)
        if not token:
            raise StoreError("this store asks for a token", where=address, fix="give the store's token")
        self._token = token
        self._timeout = 0.0
        self._buffer = memoryview(bytearray(_BUFFER))

    def _dial(self) -> socket.socket:
        dialled = socket.create_connection((self._host, self._port), CONNECT_TIMEOUT_S)
        dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Blocking, with the kernel's own limit: Python's would cost a poll at every call.
        dialled.setblocking(True)
        self._timeout = 0.0
        return dialled

    def _greet(self) -> None:
        challenge = self._check_version(self._talk(wire.pack(wire.Hello(wire.VERSION)), 0.0), wire.Challenge)
        proof, expected = prove(self._token, challenge)
        reply = self._talk(wire.pack(proof), 0.0)
        if isinstance(reply, wire.Failed):
            raise StoreError(reply.what, where=self.address, fix="take address and token from the same run")
        check_server(expected, self._check_version(reply, wire.Welcome))

    def _try_again(self, failures: int) -> bool:
        if failures > RETRIES or self._closed:
            return False
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (failures - 1))
        time.sleep(pause * random.uniform(0.5, 1.0))
        return True

    def _send(self, frame: bytearray, timeout: float) -> None:
        connected = self._connect()
        if timeout != self._timeout:
            value = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
            self._timeout = timeout
        try:
            connected.sendall(frame)
        except BlockingIOError as error:
            raise TimeoutError("it takes no more requests") from error

    def _receive_some(self, view: memoryview) -> int:
        try:
            return super()._receive_some(view)
        except BlockingIOError as error:
            raise TimeoutError("no reply") from error

    def _receive_frame(self) -> memoryview:
        """One frame's body, at the end of memory of its own, so that values in it are aligned."""
        buffer = self._buffer
        have = self._receive_some(buffer)
        while have < wire.HEADER_BYTES:
            have += self._receive_some(buffer[have:])
        size = wire.body_size(buffer[: wire.HEADER_BYTES])
        have -= wire.HEADER_BYTES
        if have > size:
            raise wire.MalformedFrameError(f"{have - size} bytes follow a reply")
        offset = -size % 8
        body = memoryview(bytearray(offset + size))[offset:]
        body[:have] = buffer[wire.HEADER_BYTES : wire.HEADER_BYTES + have]
        if have < size:
            self._receive_into(body[have:])
        return body


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or address != f"tcp://{host}:{port}":
        raise StoreError("that is not the address of a store on TCP", fix='use "tcp://host:port"')
    return host, port


class _StopFlags:
    """What the latest replies said of stopping, by job, each good for one question."""

    def __init__(self) -> None:
        self._latest: dict[str, bool] = {}
        self._known: set[str] = set()

    def note(self, table: str, stop: bool) -> None:
        """A reply about a table said this of its job."""
        self._latest[table.partition("/")[0]] = stop

    def take(self, job: str) -> bool | None:
        """The latest that was said since the last question, if anything was."""
        latest = self._latest.pop(job, None)
        if latest is not None:
            self._known.add(job)
        return latest

    def knows(self, job: str) -> bool:
        """Whether anything was ever said of this job."""
        return job in self._known or job in self._latest

    def remember(self, job: str) -> None:
        """The job exists."""
        self._known.add(job)


class TcpTables:
    """Tables that the server updates: one frame out and one back for each call.

    A push that is sent again, because the connection was lost before its reply came, is
    applied once.
    """

    def __init__(self, connection: Connection, flags: _StopFlags) -> None:
        self._connection = connection
        self._flags = flags

    def create(self, spec: TableSpec) -> None:
        """See :meth:`squall.protocols.Tables.create`; the name is ``"<job>/<name>"``."""
        self._connection.request(wire.CreateTable(spec), wire.Done)

    def drop(self, name: str) -> None:
        """See :meth:`squall.protocols.Tables.drop`."""
        self._connection.request(wire.DropTable(name), wire.Done)

    def describe(self, name: str) -> TableSpec:
        """See :meth:`squall.protocols.Tables.describe`."""
        return self._connection.request(wire.DescribeTable(name), wire.Description).spec

    def pull(self, name: str, rows: Int64 | None = None) -> Float32:
        """See :meth:`squall.protocols.Tables.pull`; a large table comes in pieces."""
        if rows is None:
            return self._pull_all(name)
        wire.check_rows(rows)
        return self._weights(wire.PullRows(name, *wire.pack_rows(rows)), len(rows))[0]

    def push(self, name: str, rows: Int64, gradient: Float32, stamp: Stamp) -> bool:
        """See :meth:`squall.protocols.Tables.push`."""
        return self._update(name, rows, gradient, stamp, raw=False)

    def exchange(self, name: str, push: tuple[Int64, Float32] | None, pull: Int64, stamp: Stamp) -> Float32:
        """See :meth:`squall.protocols.Tables.exchange`."""
        wire.check_rows(pull)
        if push is None:
            request = wire.Exchange(name, stamp, None, *wire.pack_rows(pull), 0, _NOTHING)
        else:
            rows, gradient = push
            wire.check_rows(rows)
            values = wire.pack_values(gradient, len(rows))
            packed = wire.pack_rows(np.concatenate((rows, pull)))
            request = wire.Exchange(name, stamp, len(rows), *packed, gradient.shape[1], values)
        return self._weights(request, len(pull))[0]

    def meet(
        self, name: str, update: Update | None, pull: Int64, stamp: Stamp, sync: Sync, timeout: float
    ) -> Meeting:
        """See :meth:`squall.protocols.Tables.meet`."""
        meeting, stop = meet(self._connection, name, update, pull, stamp, sync, timeout)
        self._flags.note(name, stop)
        return meeting

    def add(self, name: str, rows: Int64, deltas: Float32, stamp: Stamp) -> bool:
        """See :meth:`squall.protocols.Tables.add`."""
        return self._update(name, rows, deltas, stamp, raw=True)

    def _update(self, name: str, rows: Int64, values: Float32, stamp: Stamp, raw: bool) -> bool:
        wire.check_rows(rows)
        data = wire.pack_values(values, len(rows))
        request = wire.Update(name, stamp, raw, *wire.pack_rows(rows), values.shape[1], data)
        reply = self._connection.request(request, wire.Applied)
        self._flags.note(name, reply.stop)
        return reply.changed

    def _pull_all(self, name: str) -> Float32:
        first, n_rows = self._weights(wire.PullRange(name, 0))
        if len(first) == n_rows:
            return first
        whole = np.empty((n_rows, first.shape[1]), dtype=np.float32)
        whole[: len(first)] = first
        done = len(first)
        while done < n_rows:
            piece, _ = self._weights(wire.PullRange(name, done))
            if not 0 < len(piece) <= n_rows - done or piece.shape[1] != whole.shape[1]:
                raise StoreError("it changed its shape while it was pulled", where=f"table {name!r}")
            whole[done : done + len(piece)] = piece
            done += len(piece)
        return whole

    def _weights(self, request: wire.TableData, n_rows: int | None = None) -> tuple[Float32, int]:
        """The weights that a request brings, ``n_rows`` of them if that is known; rows in all."""
        reply = self._connection.request(request, wire.Weights)
        self._flags.note(request.name, reply.stop)
        if n_rows is None:
            n_rows = len(reply.values) // (4 * max(1, reply.dim))
        return wire.unpack_values(reply.values, n_rows, reply.dim), reply.table_rows


_NOTHING = memoryview(b"")


class TcpControl(RemoteControl):
    """Control by requests; the stop flag comes with the replies of the tables too."""

    def __init__(self, connection: Connection, flags: _StopFlags) -> None:
        # Process ids do not tell clients on several hosts (or in several sandboxes) apart.
        super().__init__(connection, 1 + int.from_bytes(os.urandom(7)))
        self._flags = flags

    def progress(self, job: str, slot: int) -> Int64:
        """See :meth:`squall.protocols.Control.progress`: as it is now, read-only."""
        done = self._connection.request(wire.GetProgress(job, slot), wire.Progress).minibatches
        cell = np.array([done], dtype=np.int64)
        cell.flags.writeable = False
        return cell

    def advance(self, job: str, slot: int, attempt: int, minibatches: int) -> None:
        """See :meth:`squall.protocols.Control.advance`."""
        self._connection.request(wire.Advance(job, slot, attempt, minibatches), wire.Done)

    def request_stop(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.request_stop`."""
        self._connection.request(wire.RequestStop(job), wire.Done)

    def stop_requested(self, job: str) -> bool:
        """See :meth:`squall.protocols.Control.stop_requested`; True once the job is closed.

        Answered by the latest reply about one of the job's tables since the last question, or
        else by a request.
        """
        latest = self._flags.take(job)
        if latest is not None:
            return latest
        reply = self._connection.request(wire.AskStop(job), wire.Stopping)
        if reply.stop is not None:
            self._flags.remember(job)
            return reply.stop
        if self._flags.knows(job):
            return True
        raise no_such_job(job)
