"""The store's client over TCP: everything by requests, nothing shared.

A table's rows and values go out in one frame and come back in one, and every such reply says
whether the job's workers are to stop, so that asking for that costs nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

import numpy as np

from squall.errors import LostUpdatesError, StoreError
from squall.records import Float32, Int64, Meeting, Stamp, Sync, TableContents, TableSpec, Update
from squall.store import wire
from squall.store.auth import check_server, prove
from squall.store.calls import RowsCaller
from squall.store.connection import Connection, Forgiveness, Patience
from squall.store.contents import check_whole, dump_table, load_table
from squall.store.control import no_such_job
from squall.store.meetings import meet
from squall.store.requests import RemoteControl, RemoteStore

if TYPE_CHECKING:
    from squall._kernels import FrameClient
    from squall.store.sharding import ShardedStore

CONNECT_TIMEOUT_S = 10.0
"""Seconds to wait until a server takes a connection."""

RETRIES = 10
"""How often a request is sent again after the connection was lost: for some 3 s."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
_BUFFER = 64 << 10  # bytes: a reply that fits is received at once


def connect(
    address: str, token: str = "", patience: Patience | None = None, forgive: Forgiveness | None = None
) -> TcpStore | ShardedStore:
    """Connect to the store at ``"tcp://host:port"`` or, by TLS, ``"tls://host:port"``.

    A server says which other shards it has beside it; shards that are served apart are listed,
    ``"tcp://host:port,host:port"``, in the same order by all clients.

    Parameters
    ----------
    address : str
        Where it is.
    token : str
        What it asks for, if anything.
    patience : callable, optional
        Seconds that a reply may take.
    forgive : callable, optional
        See :func:`squall.store.connect`.

    Raises
    ------
    StoreError
        If the address is not of this form, nobody answers there, or the token is wrong.
    """
    shards = connections(address, token, patience, forgive)
    if len(shards) == 1:
        return TcpStore(shards[0])
    from squall.store.sharding import ShardedStore

    return ShardedStore(shards)


def connections(
    address: str, token: str = "", patience: Patience | None = None, forgive: Forgiveness | None = None
) -> list[TcpConnection]:
    """Open connections to all shards of a store, in order; see `connect`."""
    scheme, _, places = address.partition("://")
    with contextlib.ExitStack() as undo:
        shards: dict[str, TcpConnection] = {}
        for place in places.split(","):
            first = TcpConnection(f"{scheme}://{place}", token, patience, forgive)
            undo.callback(first.close)
            if first.address in shards:  # announced by one before
                continue
            first.open()
            assert first.server is not None
            for port in first.server.ports or (first.port,):
                url = url_of(first.tls, first.host, port)
                own = port == first.port
                shards[url] = first if own else TcpConnection(url, token, patience, forgive)
                undo.callback(shards[url].close)
        for shard in shards.values():
            shard.open()
        undo.pop_all()
    return list(shards.values())


class TcpStore(RemoteStore):
    """One process's view of a store of one shard; it belongs to the thread that made it.

    Parameters
    ----------
    connection : TcpConnection
        To the server; the store closes it.

    Attributes
    ----------
    tables : TcpTables
        Implements :class:`squall.protocols.Tables`.
    blobs : RemoteBlobs
        Implements :class:`squall.protocols.AtomicBlobs`.
    control : TcpControl
        Implements :class:`squall.protocols.Control`.
    """

    def __init__(self, connection: TcpConnection) -> None:
        super().__init__(connection)
        flags = StopFlags()
        self.tables = TcpTables(connection, flags)
        self.control = TcpControl(connection, flags)


class TcpConnection(Connection):
    """A connection over TCP, which is made again, and the request repeated, when it is lost.

    Parameters
    ----------
    address : str
        ``"tcp://host:port"``.
    token : str
        What the server and this client show each other that they know; empty for none.
    patience : callable, optional
        Seconds that a reply may take.
    forgive : callable, optional
        See :func:`squall.store.connect`.
    """

    def __init__(
        self, address: str, token: str, patience: Patience | None = None, forgive: Forgiveness | None = None
    ) -> None:
        super().__init__(address, patience)
        self.tls, self.host, self.port = _place(address)
        self._token, self._forgive = token, forgive
        self.server: wire.ServerInfo | None = None  # as of the last greeting
        self._timeout = 0.0
        self._buffer = memoryview(bytearray(_BUFFER))

    def _dial(self) -> socket.socket:
        dialled = socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_S)
        dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            dialled = _wrapped(dialled, self.address)
        # Blocking, with the kernel's own limit: Python's would cost a poll at every call.
        dialled.setblocking(True)
        self._timeout = 0.0
        return dialled

    def _greet(self) -> None:
        reply = self._talk(wire.pack(wire.Hello(wire.VERSION)), 0.0)
        if isinstance(reply, wire.Welcome) and not self._token:
            self._meet(self._check_version(reply, wire.Welcome).server)
            return
        if not self._token:
            raise StoreError(
                "this store asks for a token",
                where=self.address,
                fix="set SQUALL_STORE_TOKEN or SQUALL_STORE_TOKEN_FILE as it was started with",
            )
        challenge = self._check_version(reply, wire.Challenge)
        proof, expected = prove(self._token, challenge, self._certificate())
        reply = self._talk(wire.pack(proof), 0.0)
        if isinstance(reply, wire.Failed):
            raise StoreError(reply.what, where=self.address, fix="take address and token from the same run")
        welcome = self._check_version(reply, wire.Welcome)
        check_server(expected, welcome)
        self._meet(welcome.server)

    def _certificate(self) -> bytes:
        """SHA-256 of the certificate that the server has shown, if the connection is by TLS."""
        if not isinstance(self._socket, ssl.SSLSocket):
            return b""
        return hashlib.sha256(self._socket.getpeercert(binary_form=True) or b"").digest()

    def _meet(self, server: wire.ServerInfo) -> None:
        """Remember who has answered; raises `LostUpdatesError`, once, if it is not who did before."""
        before, self.server = self.server, server
        if before is not None and before.incarnation != server.incarnation:
            error = _lost(self.address, server)
            if self._forgive is None or not error.restored:
                raise error
            self._forgive(error)

    def _try_again(self, failures: int) -> bool:
        if failures > RETRIES or self._closed:
            return False
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (failures - 1))
        time.sleep(pause * random.uniform(0.5, 1.0))
        return True

    def _send(self, frame: bytes | bytearray, timeout: float) -> None:
        connected = self._connect()
        self._limit(connected, timeout)
        try:
            connected.sendall(frame)
        except (BlockingIOError, ssl.SSLWantWriteError) as error:
            raise TimeoutError("it takes no more requests") from error
        except ssl.SSLError as error:
            raise ConnectionResetError(f"TLS: {error}") from error

    def _limit(self, connected: socket.socket, timeout: float) -> None:
        """Seconds that sending and receiving may take."""
        if timeout != self._timeout:
            value = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
            self._timeout = timeout

    def _receive_some(self, view: memoryview) -> int:
        try:
            return super()._receive_some(view)
        except (BlockingIOError, ssl.SSLWantReadError) as error:
            raise TimeoutError("no reply") from error
        except ssl.SSLError as error:
            raise ConnectionResetError(f"TLS: {error}") from error

    def _receive_frame(self) -> memoryview:
        return self._receive_whole()[wire.HEADER_BYTES :]

    def _receive_whole(self) -> memoryview:
        """One frame with its header, valid until the next one if it is a small one."""
        buffer = self._buffer
        have = self._receive_some(buffer)
        while have < wire.HEADER_BYTES:
            have += self._receive_some(buffer[have:])
        size = wire.HEADER_BYTES + wire.body_size(buffer)
        if have > size:
            raise wire.MalformedFrameError(f"{have - size} bytes follow a reply")
        if size <= len(buffer):
            frame = buffer[:size]
        else:
            frame = memoryview(bytearray(size))
            frame[:have] = buffer[:have]
        if have < size:
            self._receive_into(frame[have:])
        return frame

    # ------------------------------------------------------------------------- frames of rows

    def hold(self) -> None:
        """Reserve the connection for one call; it must be followed by `release`."""
        self._check_usable()
        if not self._busy.acquire(blocking=False):
            raise self._contended()

    def release(self) -> None:
        """The call is over, or the connection was dropped."""
        self._busy.release()

    def drop(self) -> None:
        """Want no reply to what has been sent."""
        self._drop()

    def begin(self, client: FrameClient, shard: int) -> int:
        """The connected socket by which ``client`` sends its frame; -1 where `fetch` gets the reply."""
        if self.tls:
            self.start(client.request(shard))
            return -1
        try:
            connected = self._connect()
            self._limit(connected, self._patience())
        except ConnectionError:
            self._drop()
        except BaseException as error:  # noqa: BLE001 (raised again)
            self._drop()
            self._raise(error)
        else:
            return connected.fileno()
        return -1

    def start(self, frame: bytes) -> None:
        """Send a frame of rows; the next call must be `fetch` or `drop`."""
        try:
            self._send(frame, self._patience())
        except ConnectionError:
            self._drop()  # `fetch` sends it again
        except BaseException as error:  # noqa: BLE001 (raised again)
            self._drop()
            self._raise(error)

    def fetch(self, frame: bytes, failure: Exception | None = None) -> memoryview:
        """The reply to a frame that was sent, which is sent again whenever the connection was lost.

        Parameters
        ----------
        frame : bytes
            In case it is to be sent again.
        failure : OSError or MalformedFrameError, optional
            What the first attempt to receive the reply has come to.

        Raises
        ------
        StoreError
            That the server cannot be reached.
        """
        try:
            return self._await(frame, failure)
        except BaseException as error:  # noqa: BLE001 (raised again)
            self._drop()
            self._raise(error)

    def refuse(self, reply: bytes | memoryview) -> NoReturn:
        """Raise what a reply means that is not the weights asked for."""
        try:
            if wire.is_of_rows(reply):
                wire.unpack_weights(reply)
                raise wire.MalformedFrameError(f"{len(reply)} bytes are not the weights asked for")
            failed = wire.unpack_reply(reply[wire.HEADER_BYTES :])
        except wire.MalformedFrameError as error:
            self._drop()
            self._raise(error)
        if isinstance(failed, wire.Failed):
            raise wire.error_of(failed)
        self._drop()
        raise self._foreign(f"a {type(failed).__name__} came where weights were due")

    def _await(self, frame: bytes, failure: Exception | None) -> memoryview:
        failures = 0
        while True:
            try:
                if failure is not None:
                    failed, failure = failure, None
                    raise failed
                if self._socket is None:
                    self._send(frame, self._patience())
                return self._receive_whole()
            except ConnectionError:
                self._drop()
                failures += 1
                if not self._try_again(failures):
                    raise


def _place(address: str) -> tuple[bool, str, int]:
    """Whether by TLS, host and port of an address."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if (
        host is None
        or port is None
        or parts.scheme not in ("tcp", "tls")
        or address != url_of(parts.scheme == "tls", host, port)
    ):
        raise StoreError(
            f"{address!r} is not the address of a store on TCP",
            fix='use "tcp://host:port" or "tls://host:port"',
        )
    return parts.scheme == "tls", host, port


def url_of(tls: bool, host: str, port: int) -> str:
    """The address of a server."""
    return f"{'tls' if tls else 'tcp'}://{f'[{host}]' if ':' in host else host}:{port}"


def _wrapped(dialled: socket.socket, address: str) -> socket.socket:
    """A TLS connection over a plain one; the token, not an authority, vouches for its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return context.wrap_socket(dialled)
    except ssl.SSLError as error:
        dialled.close()
        raise StoreError(
            f"it does not speak TLS: {error}", where=address, fix='for a store without TLS use "tcp://…"'
        ) from error
    except BaseException:
        dialled.close()
        raise


def _lost(address: str, server: wire.ServerInfo) -> LostUpdatesError:
    where = f"shard {server.shard} of the parameter store at {address}"
    if server.restored is None:
        return LostUpdatesError(
            "it died and came back empty: the tables of its jobs are lost",
            where=where,
            fix="start the job again; one served with --snapshot-every forgets less",
        )
    ago = max(0.0, time.time() - server.restored.taken_at)
    error = LostUpdatesError(
        f"it died and came back from snapshot {server.restored.number}: what was pushed to it in the "
        f"last {ago:.1f} s is lost",
        where=where,
        fix="start the job again, or go on from there where losing a few updates does no harm",
    )
    error.restored, error.incarnation = True, f"{server.shard}:{server.incarnation}"
    return error


class StopFlags:
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

    def __init__(self, connection: TcpConnection, flags: StopFlags) -> None:
        self._connection = connection
        self._flags = flags
        self._rows = RowsCaller([connection])

    def create(self, spec: TableSpec, source: str | None = None) -> None:
        """See :meth:`squall.protocols.Tables.create`; the name is ``"<job>/<name>"``."""
        self._connection.request(wire.CreateTable(spec, source=source), wire.Done)

    def drop(self, name: str) -> None:
        """See :meth:`squall.protocols.Tables.drop`."""
        self._connection.request(wire.DropTable(name), wire.Done)

    def describe(self, name: str) -> TableSpec:
        """See :meth:`squall.protocols.Tables.describe`."""
        return self._connection.request(wire.DescribeTable(name), wire.Description).spec

    def pull(self, name: str, rows: Int64 | None = None, *, half: bool = False) -> Float32:
        """See :meth:`squall.protocols.Tables.pull`; a large table comes in pieces."""
        if rows is None:
            return self._rows.pull_all(name)
        return self._weights(wire.PULL, wire.HALF_REPLY * half, name, _NOBODY, None, rows)

    def push(self, name: str, rows: Int64, gradient: Float32, stamp: Stamp, *, half: bool = False) -> bool:
        """See :meth:`squall.protocols.Tables.push`."""
        return self._update(wire.PUSH, name, rows, gradient, stamp, half)

    def exchange(
        self,
        name: str,
        push: tuple[Int64, Float32] | None,
        pull: Int64,
        stamp: Stamp,
        *,
        half: bool = False,
    ) -> Float32:
        """See :meth:`squall.protocols.Tables.exchange`."""
        flags = (wire.HALF_REPLY | wire.HALF_VALUES) * half
        if push is None:
            flags |= wire.NO_PUSH
        return self._weights(wire.EXCHANGE, flags, name, stamp, push, pull)

    def meet(
        self, name: str, update: Update | None, pull: Int64, stamp: Stamp, sync: Sync, timeout: float
    ) -> Meeting:
        """See :meth:`squall.protocols.Tables.meet`."""
        meeting, stop = meet(self._connection, name, update, pull, stamp, sync, timeout)
        self._flags.note(name, stop)
        return meeting

    def add(self, name: str, rows: Int64, deltas: Float32, stamp: Stamp, *, half: bool = False) -> bool:
        """See :meth:`squall.protocols.Tables.add`."""
        return self._update(wire.ADD, name, rows, deltas, stamp, half)

    def dump(self, name: str) -> TableContents:
        """See :meth:`squall.protocols.Tables.dump`; it comes in pieces."""
        return dump_table(self._connection, name)

    def load(self, name: str, contents: TableContents) -> None:
        """See :meth:`squall.protocols.Tables.load`; it goes in pieces."""
        check_whole(self.describe(name), contents)
        load_table(self._connection, name, contents)

    def _update(self, kind: int, name: str, rows: Int64, values: Float32, stamp: Stamp, half: bool) -> bool:
        said, _ = self._rows.call(kind, wire.HALF_VALUES * half, name, stamp, (rows, values))
        self._flags.note(name, bool(said & wire.STOP))
        return bool(said & wire.CHANGED)

    def _weights(
        self,
        kind: int,
        flags: int,
        name: str,
        stamp: Stamp,
        push: tuple[Int64, Float32] | None,
        pull: Int64,
    ) -> Float32:
        said, weights = self._rows.call(kind, flags, name, stamp, push, pull)
        self._flags.note(name, bool(said & wire.STOP))
        assert weights is not None
        return weights


_NOBODY = Stamp(0, 0, 0)


class TcpControl(RemoteControl):
    """Control by requests; the stop flag comes with the replies of the tables too."""

    def __init__(self, connection: Connection, flags: StopFlags, client: int | None = None) -> None:
        # Process ids do not tell clients on several hosts (or in several sandboxes) apart.
        super().__init__(connection, client or 1 + int.from_bytes(os.urandom(7)))
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
