"""Strangers at the socket: they are turned away, and nobody else notices (faults 17, 18)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.errors import StaleAttemptError, StoreError
from squall.records import OptimizerSpec, TableSpec
from squall.store import serving, wire
from squall.store.embedded import EmbeddedStore, connect
from squall.store.layout import Cells
from squall.store.live import LiveTables
from squall.store.process import StoreProcess
from squall.store.service import StoreService
from squall.store.table import ParameterTable
from squall.testing.stores import soon

HELLO = bytes(wire.pack(wire.Hello(wire.VERSION)))

STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "length of 2^63, big": struct.pack(">Q", 1 << 63) + b"x",
    "length of 2^63, little": struct.pack("<Q", 1 << 63) + b"x",
    "length of 2^32 - 1": struct.pack(">I", 0xFFFFFFFF),
    "long hello": struct.pack(">I", 5000) + bytes(5000),
    "not msgpack": struct.pack(">I", 4) + b"\xc1\xc1\xc1\xc1",
    "other message": struct.pack(">I", 3) + msgspec.msgpack.encode([1]) + b"\0",
    "no hello": bytes(wire.pack(wire.CloseJob("job"))),
    "other version": bytes(wire.pack(wire.Hello(99))),
    "bad second frame": HELLO + struct.pack(">I", 5) + b"abcde",
    "nested": HELLO + struct.pack(">I", 50_000) + b"\x91" * 50_000,
    "second hello as table": HELLO + struct.pack(">I", 12) + b"\x92\xabCreateTable"[:12],
}


@pytest.fixture(params=["unix", "tcp"])
def address(request: pytest.FixtureRequest, server: StoreProcess) -> str:
    """Where a stranger knocks; the client that must not notice uses the other door."""
    return server.address if request.param == "unix" else server.listen_tcp().url


def stranger(address: str) -> socket.socket:
    scheme, _, place = address.partition(":")
    if scheme == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(place)
    else:
        host, port = place.removeprefix("//").split(":")
        connection = socket.create_connection((host, int(port)))
    connection.settimeout(20.0)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass  # also an end: the server left what it had not read
    return data


@pytest.mark.parametrize("kind", STRANGERS)
def test_strangers_are_turned_away(
    server: StoreProcess, address: str, store: EmbeddedStore, job: str, kind: str
) -> None:
    store.blobs.put(f"{job}/a", b"1")
    with stranger(address) as connection:
        connection.sendall(STRANGERS[kind])
        read_to_end(connection)
    assert store.blobs.get(f"{job}/a") == b"1"
    assert "connection closed: MalformedFrameError" in server.log()


def test_random_bytes(server: StoreProcess, address: str, store: EmbeddedStore, job: str) -> None:
    source = random.Random(0)
    for number in range(100):
        with stranger(address) as connection:
            prefix = HELLO if number % 2 else b""
            try:
                connection.sendall(prefix + source.randbytes(source.randrange(1, 3000)))
                connection.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, OSError):
                continue  # it was turned away before it had finished
            read_to_end(connection)
    assert not store.control.stop_requested(job)
    assert store.blobs.get(f"{job}/none") is None


@pytest.mark.parametrize("cut", [1, 3, 4, 5, len(HELLO) - 1])
def test_truncated_frames(
    server: StoreProcess, address: str, store: EmbeddedStore, job: str, cut: int
) -> None:
    for prefix in (b"", HELLO):
        with stranger(address) as connection:
            connection.sendall(prefix + HELLO[:cut])
            connection.shutdown(socket.SHUT_WR)
            read_to_end(connection)
    assert store.blobs.get(f"{job}/none") is None
    # Its log tells each kind once in a while, and of many kinds only how many more there were.
    assert soon(lambda: "a frame ends in the middle" in server.log() or "more like these" in server.log())


def test_a_large_claim_takes_no_memory(
    server: StoreProcess, address: str, store: EmbeddedStore, job: str
) -> None:
    def resident() -> int:
        return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4096

    before = resident()
    connections = [stranger(address) for _ in range(50)]
    try:
        for connection in connections:
            connection.sendall(HELLO + struct.pack(">I", wire.MAX_FRAME) + b"x")
        store.blobs.put(f"{job}/a", b"1")
        assert resident() - before < 32 << 20
    finally:
        for connection in connections:
            connection.close()


def test_a_flood_of_silent_connections(
    server: StoreProcess, address: str, store: EmbeddedStore, job: str
) -> None:
    connections = [stranger(address) for _ in range(300)]
    try:
        store.blobs.put(f"{job}/a", b"1")
        with connect(server.address) as late:
            assert late.blobs.get(f"{job}/a") == b"1"
    finally:
        for connection in connections:
            connection.close()


def test_descriptors_of_strangers_are_given_back(
    server: StoreProcess, address: str, store: EmbeddedStore, job: str
) -> None:
    def files() -> int:
        store.blobs.get(f"{job}/none")
        return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))

    before = files()
    for _ in range(200):
        with stranger(address) as connection:
            connection.sendall(STRANGERS["http"])
            read_to_end(connection)
    assert files() <= before


def test_errors_keep_their_class_and_parts() -> None:
    for error in (StoreError("what", where="where", fix="fix"), StaleAttemptError("what")):
        reply = wire.unpack_reply(wire.pack(wire.failure(error))[wire.HEADER_BYTES :])
        assert isinstance(reply, wire.Failed)
        again = wire.error_of(reply)
        assert (type(again), again.args) == (type(error), error.args)


def test_pack_and_unpack() -> None:
    request = wire.PutBlob("k", b"\0\1", wire.Once(1, 2), if_absent=True)
    frame = bytes(wire.pack(request))
    assert wire.body_size(frame[:4]) == len(frame) - 4
    assert wire.unpack_request(frame[4:]) == request
    with pytest.raises(wire.MalformedFrameError):
        wire.unpack_reply(frame[4:])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([wire.unpack_request, wire.unpack_reply]))
def test_any_bytes_are_a_message_or_refused(body: bytes, unpack: Callable[[bytes], object]) -> None:
    with contextlib.suppress(wire.MalformedFrameError):
        unpack(body)


@pytest.mark.parametrize("sent", [b"", HELLO[:5], HELLO + b"\0\0"], ids=["silent", "hello", "frame"])
def test_a_slow_client_is_given_up(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(serving, "HELLO_TIMEOUT_S", 0.05)
    monkeypatch.setattr(serving, "FRAME_TIMEOUT_S", 0.05)
    assert len(serve_one(sent)) == (len(wire.pack(wire.Welcome(wire.VERSION))) if len(sent) > 5 else 0)


def test_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 0)
    assert serve_one(HELLO) == b""


def serve_one(sent: bytes) -> bytes:
    """What a server in this process answers to some bytes before it closes the connection."""

    async def serve() -> None:
        class Watched(serving.ClientConnection):
            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                lost.set()

        lost = asyncio.Event()
        server = serving.Server(StoreService("unused"))
        await asyncio.get_running_loop().connect_accepted_socket(lambda: Watched(server, None), ours)
        await asyncio.wait_for(lost.wait(), 20.0)

    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(sent)
        asyncio.run(serve())
        return read_to_end(theirs)


# ------------------------------------------------------------------------------ frames of rows


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_a_request_about_rows_or_refused(body: bytes) -> None:
    with contextlib.suppress(wire.MalformedFrameError):
        wire.unpack_rows(memoryview(struct.pack(">I", len(body)) + body))


_counts = st.integers(0, 3) | st.integers(0, 2**32 - 1)
_words = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=500, deadline=None)
@given(
    st.tuples(
        st.integers(0, 7),
        st.integers(0, 255),
        st.sampled_from([3, 0, 1600, 65535]),
        st.integers(-3, 3),
        _words,
        _words,
        _words,
        _counts,
        _counts,
        _counts,
    ),
    st.binary(max_size=64),
)
def test_a_table_survives_any_header(header: tuple[int, ...], data: bytes) -> None:
    """What is refused changes nothing, and what is answered is a frame."""
    spec = TableSpec("a/b", 4, 2, OptimizerSpec("sgd", 1.0), 4)
    table, cells = ParameterTable.private(spec, 2), Cells.private(2)
    tables = LiveTables(lambda name: (table, cells))
    body = struct.pack(">BBHiqqqIII", *header) + b"a/b\0" + data
    frame = memoryview(struct.pack(">I", len(body)) + body)
    try:
        reply = tables.answer(frame)
    except StoreError:
        assert not table.pull().any()
        assert table.shared.step[0] == 0
    else:
        assert wire.body_size(reply) == len(reply) - wire.HEADER_BYTES
        assert wire.unpack_weights(reply).dim == 2
