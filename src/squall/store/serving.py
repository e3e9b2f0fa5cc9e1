"""Frames in, frames out: the store's service behind a listening Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from squall.errors import StoreError
from squall.log import get_logger
from squall.store import wire
from squall.store.service import Answer, StoreService

MAX_CONNECTIONS = 4096
"""Connections at a time; more are closed at once."""

HELLO_TIMEOUT_S = 10.0
"""Seconds that a new connection has to say Hello."""

FRAME_TIMEOUT_S = 60.0
"""Seconds that a frame may take from its first byte to its last, in either direction."""

_MAX_LOGGED = 1000  # refused connections; a flood must not fill the disk

_log = get_logger(__name__)


class Server:
    """Connections of clients, each answered in turn; none can hold up another."""

    def __init__(self, service: StoreService) -> None:
        self._service = service
        self._n_connections = 0
        self._n_logged = 0
        self._last_used = asyncio.get_running_loop().time()

    def idle_s(self) -> float:
        """Seconds since the last request or new connection; 0 while a job is open."""
        now = asyncio.get_running_loop().time()
        if self._service.n_jobs:
            self._last_used = now
        return now - self._last_used

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        self._n_connections += 1
        try:
            if self._n_connections > MAX_CONNECTIONS:
                raise wire.MalformedFrameError(f"more than {MAX_CONNECTIONS} connections")
            # `drain` then means that all has been sent, which a descriptor must wait for.
            writer.transport.set_write_buffer_limits(high=0)
            await self._greet(reader, writer)
            while (body := await _read_frame(reader, wire.MAX_FRAME, None)) is not None:
                await self._reply(writer, await self._service.answer(wire.unpack_request(body)))
                self._last_used = asyncio.get_running_loop().time()
        except (wire.MalformedFrameError, TimeoutError, OSError) as error:
            self._refused(error)
        finally:
            self._n_connections -= 1
            writer.transport.abort()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await _read_frame(reader, wire.MAX_HELLO, HELLO_TIMEOUT_S)
        if body is None:
            return
        hello = wire.unpack_request(body)
        if not isinstance(hello, wire.Hello):
            raise wire.MalformedFrameError(f"the first frame is a {type(hello).__name__}, not a Hello")
        self._last_used = asyncio.get_running_loop().time()
        await self._reply(writer, Answer(wire.Welcome(wire.VERSION)))
        if hello.version != wire.VERSION:
            raise wire.MalformedFrameError(f"the client speaks version {hello.version}, not {wire.VERSION}")

    async def _reply(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        writer.write(_pack(answer.reply))
        async with asyncio.timeout(FRAME_TIMEOUT_S):
            await writer.drain()
        if answer.memory is not None:
            _send_descriptor(writer, answer.memory.fd)

    def _refused(self, error: Exception) -> None:
        if isinstance(error, ConnectionError):
            _log.debug("a client has gone: %s", error)  # killed workers are everyday
            return
        self._n_logged += 1
        if self._n_logged <= _MAX_LOGGED:
            _log.warning("connection closed: %s: %s", type(error).__name__, error)


def _pack(reply: wire.Reply) -> bytearray:
    try:
        return wire.pack(reply)
    except StoreError as error:  # such as several values that are too large together
        return wire.pack(wire.failure(error))


def _send_descriptor(writer: asyncio.StreamWriter, fd: int) -> None:
    # A transport's own socket object cannot send descriptors, so borrow its file.
    borrowed = socket.socket(fileno=writer.get_extra_info("socket").fileno())
    try:
        socket.send_fds(borrowed, [b"\0"], [fd])
    finally:
        borrowed.detach()


async def _read_frame(reader: asyncio.StreamReader, limit: int, timeout: float | None) -> bytes | None:
    """One frame's body, or None if the other side has closed between frames."""
    try:
        async with asyncio.timeout(timeout):
            first = await reader.read(1)
            if not first:
                return None
        async with asyncio.timeout(FRAME_TIMEOUT_S if timeout is None else timeout):
            header = first + await reader.readexactly(wire.HEADER_BYTES - 1)
            return await reader.readexactly(wire.body_size(header, limit))
    except asyncio.IncompleteReadError as error:
        raise wire.MalformedFrameError("a frame ends in the middle") from error


async def serve(listener: socket.socket, folder: str, owner_fd: int, idle_s: float) -> None:
    """Serve on ``listener`` until the owner has gone or ``idle_s`` have passed without a job."""
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    loop.add_reader(owner_fd, end.set)
    server = Server(StoreService(folder))
    accepting = await asyncio.start_unix_server(server.connected, sock=listener)
    while not end.is_set() and (rest := idle_s - server.idle_s()) > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest if idle_s != float("inf") else None):
                await end.wait()
    # Not `async with`: from Python 3.12 on that would wait for the clients to leave.
    accepting.close()
