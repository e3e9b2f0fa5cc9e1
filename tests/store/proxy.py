"""A relay between clients and a store, which does harm at chosen frames."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from squall.store import wire

Hook = Callable[[str], bool]


def never(name: str) -> bool:
    return False


class Proxy:
    """Listens on a port of its own; ``before`` and ``after`` are asked with each request's name.

    True from ``before`` cuts the connection before the server sees the request, True from
    ``after`` when it has been served, before its reply is passed on.
    """

    def __init__(self, upstream: str, before: Hook = never, after: Hook = never) -> None:
        host, port = upstream.removeprefix("tcp://").split(":")
        self._upstream = (host, int(port))
        self.before, self.after = before, after
        self.requests: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._relay, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _relay(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._upstream) as server:
            while frame := read_frame(client):
                name = request_name(frame)
                self.requests.append(name)
                if self.before(name):
                    return
                server.sendall(frame)
                reply = read_frame(server)
                if self.after(name):
                    return
                client.sendall(reply)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


class TlsDoor:
    """Listens by TLS on a port of its own, and passes all on to one without."""

    def __init__(self, upstream: int, certificate: Path, key: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._loop = asyncio.new_event_loop()
        self._upstream = upstream
        start = asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=context)
        self._server = self._loop.run_until_complete(start)
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))

    def __enter__(self) -> TlsDoor:
        return self

    def __exit__(self, *error: object) -> None:
        async def end() -> None:
            self._server.close()
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await asyncio.sleep(0.1)  # the sockets are closed by then
            self._loop.call_soon(self._loop.stop)

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(10)
        self._loop.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    writer.close()


_ROWS = {
    wire.PULL: "Pull",
    wire.PULL_RANGE: "PullRange",
    wire.PUSH: "Push",
    wire.ADD: "Add",
    wire.EXCHANGE: "Exchange",
}


def request_name(frame: bytes) -> str:
    if wire.is_of_rows(memoryview(frame)):
        return _ROWS[wire.unpack_rows(memoryview(frame))[0].kind]
    return str(msgspec.msgpack.decode(frame[wire.HEADER_BYTES :])[0])


def read_frame(connection: socket.socket) -> bytes:
    """One frame with its header; nothing at the end of the connection."""
    header = receive(connection, 4)
    return header + receive(connection, struct.unpack(">I", header)[0]) if header else b""


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def once(name: str, at: int = 1) -> Hook:
    """True for the ``at``-th request of a name, and never again."""
    count = 0

    def hook(seen: str) -> bool:
        nonlocal count
        count += seen == name
        return seen == name and count == at

    return hook
