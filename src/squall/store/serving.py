"""Frames in, frames out: the store's service behind its listening sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from typing import cast

from squall.errors import StoreError
from squall.log import get_logger
from squall.store import wire
from squall.store.auth import Door, WrongTokenError, new_token
from squall.store.memory import Segment
from squall.store.service import Answer, StoreService
from squall.store.stat import ShardStat, new_histogram, request_stat, resident_bytes

MAX_CONNECTIONS = 4096
"""Clients at a time; more are closed at once."""

MAX_STRANGERS = 512
"""Connections at a time that have not been greeted; the oldest must go for one more."""

HELLO_TIMEOUT_S = 10.0
"""Seconds that a new connection has for its greeting."""

FRAME_TIMEOUT_S = 60.0
"""Seconds that a frame may take from its first byte to its last, in either direction."""

BACKLOG = 1024
"""Connections that may wait to be accepted: all workers of a job may come at the same moment."""

_log = get_logger(__name__)

_QUIET_S = 10.0  # in which each kind of refusal is told once; a flood must not fill the disk
_MAX_KINDS = 10
_NUMBER = re.compile(r"\d+")
_FIRST_BUFFER = 2048  # bytes for a greeting
_BUFFER = 64 << 10  # bytes at least from then on
_KEPT_BUFFER = 256 << 10  # bytes at most that any connection holds between frames
_LARGE_BUFFERS = (
    64 << 20
)  # bytes at most that all hold together beyond that: large frames come again and again


class Rationed:
    """Warns of what may happen thousands of times a second: of each kind once, of all others by a count.

    Parameters
    ----------
    log : logging.Logger
        Where.
    quiet_s : float
        Seconds from a first line to the count, and until kinds are told anew.
    """

    def __init__(self, log: logging.Logger, quiet_s: float = _QUIET_S) -> None:
        self._log, self._quiet_s = log, quiet_s
        self._kinds: set[str] = set()  # told lately
        self._untold = 0

    def warn(self, text: str) -> None:
        """Write it, or count it; in a running event loop."""
        kind = _NUMBER.sub("", text)
        if not self._kinds:
            asyncio.get_running_loop().call_later(self._quiet_s, self._tell)
        if kind in self._kinds or len(self._kinds) >= _MAX_KINDS:
            self._untold += 1
            return
        self._kinds.add(kind)
        self._log.warning("%s", text)

    def _tell(self) -> None:
        if self._untold:
            self._log.warning("and %d more like these in the last %g s", self._untold, self._quiet_s)
        self._kinds.clear()
        self._untold = 0


class Server:
    """Connections of clients, each answered in turn; none can hold up another."""

    def __init__(self, service: StoreService, info: wire.ServerInfo = wire.ServerInfo()) -> None:  # noqa: B008 (frozen)
        self.service, self.info = service, info
        self._strangers: dict[ClientConnection, None] = {}  # in the order of their arrival
        self._clients: set[ClientConnection] = set()
        self._refusals = Rationed(_log)
        self._listening = asyncio.Lock()
        self._started = time.monotonic()
        self._other = new_histogram()
        self._tcp: tuple[wire.Listening, asyncio.Server] | None = None
        self._large = 0  # bytes of large buffers that connections hold
        self.used()

    def used(self) -> None:
        """Somebody needs the server at this moment."""
        self._last_used = time.monotonic()

    def idle_s(self) -> float:
        """Seconds since the last request or new connection; 0 while a job is open."""
        if self.service.n_jobs:
            self.used()
        return time.monotonic() - self._last_used

    async def listen_tcp(self) -> wire.Listening:
        """Listen on a free port of the loopback interface as well, from the first call on."""
        async with self._listening:
            if self._tcp is None:
                token = new_token()
                loop = asyncio.get_running_loop()
                listener = await loop.create_server(
                    lambda: ClientConnection(self, token), "127.0.0.1", 0, backlog=BACKLOG
                )
                host, port = listener.sockets[0].getsockname()
                self._tcp = wire.Listening(f"tcp://{host}:{port}", token), listener
            return self._tcp[0]

    def close(self) -> None:
        """Stop listening on TCP."""
        if self._tcp is not None:
            self._tcp[1].close()

    def arrived(self, stranger: ClientConnection) -> None:
        """A connection has been made; too many of them push the oldest out."""
        self._strangers[stranger] = None
        if len(self._strangers) > MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.refuse(TimeoutError("too many others wait to be greeted"))

    def greeted(self, stranger: ClientConnection) -> None:
        """A connection is a client's from now on; raises `MalformedFrameError` for one too many."""
        if len(self._clients) >= MAX_CONNECTIONS:
            raise wire.MalformedFrameError(f"more than {MAX_CONNECTIONS} connections")
        del self._strangers[stranger]
        self._clients.add(stranger)

    def left(self, connection: ClientConnection) -> None:
        """A connection has ended."""
        self._strangers.pop(connection, None)
        self._clients.discard(connection)

    def may_hold(self, more: int) -> bool:
        """Whether a connection may hold so many bytes more for large frames; less if below 0."""
        if self._large + more > _LARGE_BUFFERS:
            return False
        self._large += more
        return True

    def note_other(self, seconds: float) -> None:
        """Any other request has been answered."""
        self._other.note(seconds)

    def stat(self) -> ShardStat:
        """How the server is at this moment."""
        service = self.service
        return ShardStat(
            shard=self.info.shard,
            pid=os.getpid(),
            loop=type(asyncio.get_running_loop()).__module__.partition(".")[0],
            uptime_s=time.monotonic() - self._started,
            clients=len(self._clients),
            resident=resident_bytes(),
            held=service.held_bytes,
            limit=service.limit,
            tables=service.table_stats(),
            jobs=service.job_stats(),
            requests=[*service.rows_stats(), request_stat("other", self._other)],
            snapshot=service.snapshots.latest if service.snapshots else None,
            snapshot_error=service.snapshots.error if service.snapshots else None,
        )

    def log(self, error: Exception) -> None:
        """Note why a connection was closed."""
        if isinstance(error, ConnectionError):
            _log.debug("a client has gone: %s", error)  # killed workers are everyday
            return
        self._refusals.warn(f"connection closed: {type(error).__name__}: {error}")


class ClientConnection(asyncio.BufferedProtocol):
    """One connection: a greeting, then requests, each answered before the next is looked at.

    What arrives goes into one buffer, which grows with what has arrived, never with what a
    header claims; requests are decoded where they lie.

    Parameters
    ----------
    server : Server
        What all connections share.
    token : str, optional
        What the client must know; None where it needs to know nothing.
    private : bool
        Whether this is the embedded store's own Unix socket, which may ask for more.
    certificate : bytes, optional
        SHA-256 of the certificate shown; None without TLS.
    """

    def __init__(
        self, server: Server, token: str | None, private: bool = False, certificate: bytes | None = None
    ) -> None:
        self._server = server
        self._door = Door(token, server.info, certificate or b"")
        self._open = False  # as the door, but faster to ask
        self._frames = server.service.frames
        self._private = private
        self._tls = certificate is not None
        self._view = memoryview(bytearray(_FIRST_BUFFER))
        self._start = self._end = 0  # what has arrived and not been looked at
        self._large = 0  # bytes of a large buffer that it may hold
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._unsent = False
        self._memory: Segment | None = None  # whose descriptor is to follow what is unsent
        self._at_end = False

    # ------------------------------------------------------------------ called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not derive from it
        if not self._tls:
            # `pause_writing` then tells that not all has been sent, which a descriptor must wait for.
            # (TLS would take a limit of 0 for reached at once, and sends no descriptors.)
            self._transport.set_write_buffer_limits(high=0)
        self._server.used()
        self._set_timer(HELLO_TIMEOUT_S)
        self._server.arrived(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See :class:`asyncio.BufferedProtocol`."""
        if self._end == len(self._view):
            self._make_room()
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """See :class:`asyncio.BufferedProtocol`."""
        self._end += nbytes
        # What comes most by far is one request about rows, alone and whole: without a detour.
        if (
            self._start == 0
            and self._open
            and self._end <= _KEPT_BUFFER
            and not (self._task is not None or self._unsent or self._transport.is_closing())
            and (size := self._frames.serve(self._view, self._end)) > 0
        ):
            self._end = 0
            self._send_weights(memoryview(self._frames.reply)[:size])
        else:
            self._work()

    def eof_received(self) -> bool:
        """The client sends no more; what it has asked for is still answered."""
        self._at_end = True
        if self._task is None and self._start < self._end:
            self.refuse(wire.MalformedFrameError("a frame ends in the middle"))
        return self._task is not None or self._unsent

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self._set_timer(None)
        if self._task is not None:
            self._task.cancel()
        self._hold_large(0)
        self._server.left(self)
        if exc is not None:
            self._server.log(exc)

    def pause_writing(self) -> None:
        """Not all of a reply has been sent; the client may take its time, up to a limit."""
        self._unsent = True
        self._transport.pause_reading()
        self._set_timer(FRAME_TIMEOUT_S)

    def resume_writing(self) -> None:
        """All has been sent."""
        self._unsent = False
        self._set_timer(None)
        self._send_descriptor()
        self._resume()

    # -------------------------------------------------------------------------------- requests

    def refuse(self, error: Exception) -> None:
        """Close the connection, and no other, because of ``error``."""
        if not self._transport.is_closing():
            self._server.log(error)
            self._transport.abort()

    def _work(self) -> None:
        """Answer what has arrived whole, as far as that can be done at once."""
        try:
            while not self._busy() and (frame := self._next_frame()) is not None:
                if self._open and wire.is_of_rows(frame):
                    self._send_weights(self._server.service.answer_rows(frame))
                else:
                    self._serve(wire.unpack_request(frame[wire.HEADER_BYTES :]))
        except (wire.MalformedFrameError, OSError) as error:
            self.refuse(error)
        except WrongTokenError as error:
            self._transport.write(wire.pack(wire.failure(error)))
            self._server.log(error)
            self._transport.close()
        if self._door.open and not self._busy():
            self._set_timer(FRAME_TIMEOUT_S if self._start < self._end else None)

    def _busy(self) -> bool:
        return self._task is not None or self._unsent or self._transport.is_closing()

    def _resume(self) -> None:
        """Go on after a pause."""
        if self._at_end:
            self._transport.close()
        self._transport.resume_reading()
        self._work()

    def _next_frame(self) -> memoryview | None:
        """The next frame, valid until more is received; None if it is not all there."""
        start = self._start
        if self._end < start + wire.HEADER_BYTES:
            return None
        limit = wire.MAX_FRAME if self._door.open else wire.MAX_HELLO
        end = start + wire.HEADER_BYTES + wire.body_size(self._view, limit, start)
        if self._end < end:
            return None
        self._start = end
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._view) > max(_KEPT_BUFFER, self._large) and not self._hold_large(len(self._view)):
                frame, self._view = self._view[start:end], memoryview(bytearray(_BUFFER))
                return frame
        return self._view[start:end]

    def _hold_large(self, size: int) -> bool:
        """Whether the buffer may stay that large between frames; if not, it may not be large at all."""
        granted = self._server.may_hold(size - self._large)
        if not granted:
            self._server.may_hold(-self._large)
        self._large = size if granted else 0
        return granted

    def _make_room(self) -> None:
        """For more of a frame that has filled the buffer: as much again as has arrived."""
        held = self._view[self._start : self._end]
        size = len(held)
        view = self._view if self._start else memoryview(bytearray(max(_BUFFER, 2 * size)))
        view[:size] = held
        self._view, self._start, self._end = view, 0, size

    def _send_weights(self, reply: memoryview | bytearray) -> None:
        self._server.used()
        if self._timer is not None:
            self._set_timer(None)  # the frame is complete
        self._transport.write(reply)
        if self._unsent or self._tls:  # TLS may hold on to it without a word
            self._frames.release_reply()

    def _serve(self, request: wire.Request) -> None:
        self._server.used()
        if not self._door.open:
            self._greet(request)
            return
        start = time.perf_counter()
        self._set_timer(None)  # the frame is complete
        if isinstance(request, wire.OfOwner) and self._private:
            self._serve_later(request)
        elif isinstance(request, wire.GetStat):
            self._reply(Answer(wire.Status(self._server.stat())))
        elif (answer := self._server.service.answer_at_once(request)) is not None:
            self._reply(answer)
            self._server.note_other(time.perf_counter() - start)
        else:
            self._serve_later(request)

    def _greet(self, request: wire.Request) -> None:
        reply = self._door.answer(request)
        if self._door.open:
            self._server.greeted(self)
            self._open = True
        self._reply(Answer(reply))
        if isinstance(request, wire.Hello) and request.version != wire.VERSION:
            raise wire.MalformedFrameError(f"the client speaks version {request.version}, not {wire.VERSION}")

    def _serve_later(self, request: wire.Request) -> None:
        self._transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._answer_later(request))

    async def _answer_later(self, request: wire.Request) -> None:
        try:
            if isinstance(request, wire.Listen):
                answer = Answer(await self._server.listen_tcp())
            else:
                answer = await self._server.service.answer_later(request)
        except BaseException:
            self._transport.abort()
            raise
        self._task = None
        self._server.used()
        self._reply(answer)
        if not self._unsent:
            self._resume()

    # ---------------------------------------------------------------------------------- replies

    def _reply(self, answer: Answer) -> None:
        self._memory = answer.memory
        self._transport.write(_pack(answer.reply))
        if not self._unsent:
            self._send_descriptor()

    def _send_descriptor(self) -> None:
        segment, self._memory = self._memory, None
        if segment is None:
            return
        # A transport's own socket object cannot send descriptors, so borrow its file.
        borrowed = socket.socket(fileno=self._transport.get_extra_info("socket").fileno())
        try:
            socket.send_fds(borrowed, [b"\0"], [segment.fd])
        except OSError as error:
            self.refuse(error)
        finally:
            borrowed.detach()

    def _set_timer(self, seconds: float | None) -> None:
        """Close the connection in so many seconds, unless that is under way; None: do not."""
        if seconds is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            late = TimeoutError(f"a frame took more than {seconds:g} s")
            self._timer = asyncio.get_running_loop().call_later(seconds, self.refuse, late)


def _pack(reply: wire.Reply) -> bytearray:
    try:
        return wire.pack(reply)
    except StoreError as error:  # such as several values that are too large together
        return wire.pack(wire.failure(error))


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop if the extra "server" is installed, which halves a frame's time; else None."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def serve(listener: socket.socket, folder: str, huge: int | None, owner_fd: int, idle_s: float) -> None:
    """Serve on ``listener`` until the owner has gone or ``idle_s`` have passed without a job."""
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    loop.add_reader(owner_fd, end.set)
    loop.add_signal_handler(signal.SIGTERM, end.set)
    server = Server(StoreService(folder, huge))
    accepting = await loop.create_unix_server(
        lambda: ClientConnection(server, None, private=True), sock=listener
    )
    while not end.is_set() and (rest := idle_s - server.idle_s()) > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest if idle_s != float("inf") else None):
                await end.wait()
    # Not `async with`: from Python 3.12 on that would wait for the clients to leave.
    accepting.close()
    server.close()
