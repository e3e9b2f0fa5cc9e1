"""What the TCP transport promises: strangers stay outside, lost replies do no harm."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from squall.errors import StoreError
from squall.protocols import AtomicBlobs, SharedTables
from squall.records import OptimizerSpec, Stamp, TableSpec, WorkerTask
from squall.store import Store, StoreAddress, connect, live, serving, tcp, wire
from squall.store.auth import NONCE_BYTES, Door, WrongTokenError, prove
from squall.store.embedded import EmbeddedStore
from squall.store.process import StoreProcess
from squall.store.tcp import TcpConnection
from squall.store.uploads import PART_BYTES
from squall.testing.blobs import numbered
from squall.testing.stores import filled, report_of, rows_of
from tests.store.proxy import Proxy, once, read_frame
from tests.store.test_wire import HELLO, read_to_end


@pytest.fixture
def address(server: StoreProcess) -> StoreAddress:
    return server.listen_tcp()


@pytest.fixture
def store(address: StoreAddress) -> Iterator[Store]:
    with connect(address.url, address.token) as store:
        yield store


def dial(address: StoreAddress) -> socket.socket:
    host, port = address.url.removeprefix("tcp://").split(":")
    dialled = socket.create_connection((host, int(port)))
    dialled.settimeout(20.0)
    return dialled


def spec_of(job: str, rows: int = 10, dim: int = 1) -> TableSpec:
    return TableSpec(f"{job}/w", rows, dim, OptimizerSpec("sgd", 1.0), rows)


# ------------------------------------------------------------------------------------ the token


def test_it_listens_once_and_on_this_host_only(server: StoreProcess, address: StoreAddress) -> None:
    assert server.listen_tcp() == address
    assert address.url.startswith("tcp://127.0.0.1:")
    assert len(bytes.fromhex(address.token)) == 32
    other = [a for _, _, _, _, a in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    port = int(address.url.rpartition(":")[2])
    for host in {a[0] for a in other} - {"127.0.0.1"}:
        if not host.startswith("127."):
            with pytest.raises(OSError):
                socket.create_connection((host, port), 2.0)


def test_a_wrong_token_is_refused(server: StoreProcess, address: StoreAddress, store: Store) -> None:
    for wrong in ("0" * 64, address.token[:-1], address.token.upper(), address.token + "\0"):
        with pytest.raises(StoreError, match="does not know this store's token"):
            connect(address.url, wrong)
    assert store.blobs.get("x") is None
    assert "WrongTokenError" in server.log()


def test_no_token(server: StoreProcess, address: StoreAddress) -> None:
    with pytest.raises(StoreError, match="asks for a token"):
        connect(address.url)
    with dial(address) as stranger:
        stranger.sendall(HELLO)
        assert isinstance(wire.unpack_reply(read_frame(stranger)[4:]), wire.Challenge)
        stranger.sendall(wire.pack(wire.OpenJob("stranger", 1)))
        assert read_to_end(stranger) == b""
    assert "came where a Proof was due" in server.log()


def test_what_a_client_once_proved_proves_nothing_again(address: StoreAddress) -> None:
    with dial(address) as honest:
        honest.sendall(HELLO)
        challenge = wire.unpack_reply(read_frame(honest)[4:])
        assert isinstance(challenge, wire.Challenge)
        proof, _ = prove(address.token, challenge)
        honest.sendall(wire.pack(proof))
        welcome = wire.unpack_reply(read_frame(honest)[4:])
        assert isinstance(welcome, wire.Welcome)
    with dial(address) as replay:
        replay.sendall(HELLO)
        read_frame(replay)
        replay.sendall(wire.pack(proof))
        assert isinstance(wire.unpack_reply(read_frame(replay)[4:]), wire.Failed)
        assert read_to_end(replay) == b""


@pytest.mark.parametrize("fake", ["replayed", "reflected", "without"])
def test_a_server_must_know_the_token_too(fake: str) -> None:
    """A process that has taken a dead server's port, and has recorded what that one said."""
    token, nonce = "secret", bytes(NONCE_BYTES)

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as client:
            read_frame(client)
            if fake == "without":
                client.sendall(wire.pack(wire.Welcome(wire.VERSION)))
                return
            client.sendall(wire.pack(wire.Challenge(wire.VERSION, nonce)))
            proof = wire.unpack_request(read_frame(client)[4:])
            assert isinstance(proof, wire.Proof)
            recorded = prove(token, wire.Challenge(wire.VERSION, nonce))[1]
            said = recorded if fake == "replayed" else proof.proof
            client.sendall(wire.pack(wire.Welcome(wire.VERSION, said)))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with pytest.raises(StoreError, match=r"does not know this store's token|it answers Welcome"):
            connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}", token)
        thread.join(10)


def test_the_door_takes_each_frame_in_its_turn() -> None:
    door = Door("token")
    with pytest.raises(wire.MalformedFrameError):
        door.answer(wire.Proof(bytes(NONCE_BYTES), b""))
    challenge = door.answer(wire.Hello(wire.VERSION))
    assert isinstance(challenge, wire.Challenge)
    with pytest.raises(wire.MalformedFrameError):
        door.answer(wire.Hello(wire.VERSION))
    with pytest.raises(wire.MalformedFrameError):
        door.answer(wire.Proof(b"short", b""))
    with pytest.raises(WrongTokenError):
        door.answer(prove("other", challenge)[0])
    assert not door.open
    door.answer(prove("token", challenge)[0])
    assert door.open
    assert Door("token").answer(wire.Hello(wire.VERSION)) != challenge


def test_the_token_is_shown_nowhere(server: StoreProcess, address: StoreAddress, store: Store) -> None:
    task = WorkerTask(
        "j",
        0,
        0,
        1,
        "",
        "",
        address.url,
        {},
        "j/w",
        {},
        1,
        1,
        0,
        OptimizerSpec("sgd", 1.0),
        token=address.token,
    )
    shown = [
        repr(address),
        repr(task),
        repr(wire.Listening(address.url, address.token)),
        repr(server),
        repr(store),
    ]
    shown += [Path(f"/proc/{server.pid}/{name}").read_bytes().decode() for name in ("cmdline", "environ")]
    shown.append(server.log())
    assert not [text for text in shown if address.token in text]
    assert "slot=0" in repr(task)


@pytest.mark.parametrize(
    "url", ["tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tcp://u@127.0.0.1:1", "tcp://127.0.0.1:1/x"]
)
def test_bad_addresses(url: str) -> None:
    with pytest.raises(StoreError, match="not the address"):
        connect(url, "token")


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1", "/tmp/x"])
def test_addresses_of_no_store(url: str) -> None:
    with pytest.raises(StoreError, match="not the address of a store"):
        connect(url)


# ------------------------------------------------------------------------------------- deadlines


@pytest.mark.parametrize("sent", [b"", HELLO[:5], HELLO, HELLO + b"\0\0"])
def test_a_slow_stranger_is_given_up(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(serving, "HELLO_TIMEOUT_S", 0.05)

    async def serve() -> bytes:
        server = serving.Server(serving.StoreService("unused"))
        listening = await server.listen_tcp()
        host, port = listening.address.removeprefix("tcp://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        received = await asyncio.wait_for(reader.read(), 20.0)
        writer.close()
        server.close()
        return received

    assert (len(asyncio.run(serve())) > 0) == sent.startswith(HELLO)


def test_silent_strangers_cannot_keep_clients_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_STRANGERS", 5)

    async def serve() -> None:
        server = serving.Server(serving.StoreService("unused"))
        listening = await server.listen_tcp()
        host, port = listening.address.removeprefix("tcp://").split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        store = await asyncio.to_thread(connect, listening.address, listening.token)
        assert await asyncio.to_thread(store.blobs.get, "x") is None
        store.close()
        for _, writer in silent:
            writer.close()
        server.close()

    asyncio.run(asyncio.wait_for(serve(), 20.0))


def test_buffers_of_large_frames_are_held_as_long_as_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_LARGE_BUFFERS", 3 << 20)
    values = [bytes([i]) * (1 << 20) for i in range(3)]

    def put_all(stores: list[Store]) -> None:
        for _ in range(3):
            for value, store in zip(values, stores, strict=True):
                store.blobs.put(f"j/{value[0]}", value)
        assert stores[0].blobs.mget([f"j/{i}" for i in range(3)]) == values

    async def serve() -> list[int]:
        server = serving.Server(serving.StoreService("unused"))
        listening = await server.listen_tcp()
        stores = [await asyncio.to_thread(connect, listening.address, listening.token) for _ in values]
        await asyncio.to_thread(put_all, stores)
        held = [len(client._view) for client in server._clients]
        assert sum(size for size in held if size > serving._KEPT_BUFFER) == server._large
        for store in stores:
            store.close()
        while server._clients:
            await asyncio.sleep(0.001)
        server.close()
        return [server._large, *sorted(held)]

    nothing, *held = asyncio.run(asyncio.wait_for(serve(), 20.0))
    assert nothing == 0
    assert held[1] <= serving._KEPT_BUFFER < 1 << 20 < held[2] <= 3 << 20  # room for one of the three


# -------------------------------------------------------------------- lost connections, repeats


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("call", ["push", "add", "exchange"])
def test_an_update_sent_again_is_applied_once(
    store: Store, address: StoreAddress, job: str, place: str, call: str
) -> None:
    spec = spec_of(job)
    store.tables.create(spec)
    cut = once(call.capitalize(), at=2)
    with Proxy(address.url, **{place: cut}) as proxy, connect(proxy.url, address.token) as client:
        for sequence in range(4):
            stamp, rows, ones = Stamp(0, 0, sequence, sequence + 1), rows_of(0), filled((1, 1), 1.0)
            if call == "exchange":
                got = client.tables.exchange(spec.name, (rows, ones), rows, stamp)
                assert got.item() == -(sequence + 1), "the reply is the one to the last sending"
            elif call == "push":
                client.tables.push(spec.name, rows, ones, stamp)
            else:
                client.tables.add(spec.name, rows, -ones, stamp)
        assert proxy.requests.count("Hello") == 2, "it has connected again"
    assert store.tables.pull(spec.name, rows_of(0)).item() == -4.0
    assert store.control.progress(job, 0).tolist() == [4]


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_report_sent_again_arrives_once(store: Store, address: StoreAddress, job: str, place: str) -> None:
    with Proxy(address.url, **{place: once("SendReport", at=2)}) as proxy:
        with connect(proxy.url, address.token) as client:
            client.control.register(job, 0, 0, 7)
            for rows in range(3):
                client.control.report(job, report_of(0, 0, rows=rows))
            client.control.register(job, 0, 0, 7)
    assert [r.rows for r in store.control.reports(job, 0, 0.0)] == [0, 1, 2]


@pytest.mark.parametrize(
    "request_name", ["Register", "CreateTable", "PullRange", "GetBlobs", "Hello", "Proof"]
)
def test_any_other_lost_reply_does_no_harm(
    store: Store, address: StoreAddress, job: str, request_name: str
) -> None:
    with Proxy(address.url) as proxy, connect(proxy.url, address.token) as client:
        client.blobs.get("x")
        proxy.after = once(request_name)
        if request_name in ("Hello", "Proof"):
            first = once("GetBlobs")
            greeting = once(request_name)
            proxy.after = lambda name: first(name) or greeting(name)
        assert client.blobs.get(f"{job}/none") is None
        assert client.control.register(job, 0, 0, 1).minibatches == 0
        client.tables.create(spec_of(job))
        assert client.tables.pull(f"{job}/w").tolist() == [[0.0]] * 10


UPDATES: dict[str, Callable[[AtomicBlobs, str], object]] = {
    "PutBlob": lambda blobs, key: blobs.put_if_absent(key, b"1"),
    "CompareAndSet": lambda blobs, key: blobs.compare_and_set(key, None, b"1"),
    "AddToCounter": lambda blobs, key: blobs.add(key) == 1,
    "Reduce": lambda blobs, key: blobs.reduce(key, np.ones(2), "sum", 0) is None,
    "PutPart": lambda blobs, key: blobs.put_if_absent(key, numbered(3 * PART_BYTES)),
}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("request_name", UPDATES)
def test_a_lost_update_of_blobs_is_sent_again_and_done_once(
    address: StoreAddress, job: str, request_name: str, place: str
) -> None:
    update, key = UPDATES[request_name], f"{job}/a"
    with Proxy(address.url, **{place: once(request_name)}) as proxy:
        with connect(proxy.url, address.token) as client:
            assert update(client.blobs, key), "its own success is not denied"
        assert proxy.requests.count("Hello") == 2, "it has connected again"
    with connect(address.url, address.token) as other:
        if request_name == "Reduce":
            assert other.blobs.reduced(key, 1, 0.0) is not None
        else:
            assert not update(other.blobs, key)
        if request_name == "PutPart":
            assert other.blobs.get(key) == numbered(3 * PART_BYTES)


def test_a_put_that_is_sent_again_does_not_undo_a_later_one(
    store: Store, address: StoreAddress, job: str
) -> None:
    key = f"{job}/a"

    def lose_the_reply(name: str) -> bool:
        if name == "PutBlob" and store.blobs.get(key) == b"first":
            store.blobs.put(key, b"second")
            return True
        return False

    with Proxy(address.url, after=lose_the_reply) as proxy, connect(proxy.url, address.token) as client:
        client.blobs.put(key, b"first")
    assert store.blobs.get(key) == b"second"


def test_a_server_that_has_died_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "RETRIES", 4)
    with StoreProcess.start() as process:
        address = process.listen_tcp()
        with connect(address.url, address.token) as client:
            os.kill(process.pid, signal.SIGKILL)
            start = time.monotonic()
            with pytest.raises(StoreError, match="cannot be reached"):
                client.blobs.get("x")
            assert time.monotonic() - start < 10.0


def test_one_delivery_of_two_with_the_same_process_id(store: Store, address: StoreAddress, job: str) -> None:
    """Each in a sandbox of its own both may be process 1."""
    with connect(address.url, address.token) as other:
        store.control.register(job, 0, 0, 1)
        store.control.register(job, 0, 0, 1)
        with pytest.raises(StoreError, match="already runs"):
            other.control.register(job, 0, 0, 1)


# ---------------------------------------------------------------------------------------- tables


def test_asking_whether_to_stop_costs_nothing_beside_updates(
    store: Store, address: StoreAddress, job: str
) -> None:
    store.tables.create(spec_of(job))
    rows = rows_of(0)
    with Proxy(address.url) as proxy, connect(proxy.url, address.token) as client:
        for sequence in range(5):
            client.tables.exchange(f"{job}/w", None, rows, Stamp(0, 0, sequence))
            assert not client.control.stop_requested(job)
        store.control.request_stop(job)
        assert not proxy.requests.count("AskStop")
        assert client.control.stop_requested(job), "nothing has been said since: it asks"
        assert proxy.requests.count("AskStop") == 1
        client.tables.push(f"{job}/w", rows, filled((1, 1), 1.0), Stamp(0, 0, 9))
        assert client.control.stop_requested(job)
        assert proxy.requests.count("AskStop") == 1


def test_tables_are_not_shared(store: Store) -> None:
    assert not isinstance(store.tables, SharedTables)


def test_progress_is_a_copy_that_cannot_be_written(store: Store, job: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        store.control.progress(job, 0)[0] = 1


def test_both_ways_see_one_table(server: StoreProcess, store: Store, job: str) -> None:
    store.tables.create(spec_of(job))
    store.tables.push(f"{job}/w", rows_of(3), filled((1, 1), 1.0), Stamp(0, 0, 0, 1))
    with EmbeddedStore(server.address) as near:
        assert near.tables.pull(f"{job}/w", rows_of(3)).item() == -1.0
        assert near.control.progress(job, 0).item() == 1
        assert not near.tables.push(f"{job}/w", rows_of(3), filled((1, 1), 1.0), Stamp(0, 0, 0, 1))
        assert near.tables.shared(f"{job}/w").step.item() == 1


@pytest.mark.parametrize(("rows", "dim"), [(3_000_000, 1), (1 << 17, 17), (3, (1 << 20) + 1)])
def test_a_large_table_comes_in_pieces(store: Store, job: str, rows: int, dim: int) -> None:
    assert rows * dim * 4 > live.PIECE_BYTES
    store.tables.create(spec_of(job, rows, dim))
    some = rows_of(0, rows // 2, rows - 1)
    values = np.arange(3 * dim, dtype=np.float32).reshape(3, dim)
    store.tables.add(f"{job}/w", some, values, Stamp(-1, 0, 0))
    whole = store.tables.pull(f"{job}/w")
    assert whole.shape == (rows, dim)
    assert np.array_equal(whole[some], values)
    assert np.count_nonzero(whole) == np.count_nonzero(values)


def test_a_pull_too_large_for_a_reply(store: Store, job: str) -> None:
    store.tables.create(spec_of(job, 2, 1 << 20))
    with pytest.raises(StoreError, match="too large for one reply"):
        store.tables.pull(f"{job}/w", np.zeros(20, dtype=np.int64))
    assert store.tables.pull(f"{job}/w", rows_of(1)).shape == (1, 1 << 20)


def test_a_push_too_large_for_a_frame(store: Store, job: str) -> None:
    store.tables.create(spec_of(job, 20, 1 << 20))
    with pytest.raises(StoreError, match="too large"):
        store.tables.push(f"{job}/w", np.arange(20), filled((20, 1 << 20), 1.0), Stamp(0, 0, 0))
    assert store.tables.push(f"{job}/w", np.arange(10), filled((10, 1 << 20), 1.0), Stamp(0, 0, 0))


@pytest.mark.parametrize("stamp", [Stamp(0, 2**63, 0), Stamp(0, 0, 2**63 - 1), Stamp(0, 0, 0, 2**63 - 1)])
def test_numbers_that_no_word_holds(store: Store, job: str, stamp: Stamp) -> None:
    store.tables.create(spec_of(job))
    with pytest.raises(StoreError, match="cannot stamp"):
        store.tables.push(f"{job}/w", rows_of(0), filled((1, 1), 1.0), stamp)
    assert store.tables.push(f"{job}/w", rows_of(0), filled((1, 1), 1.0), Stamp(0, 0, 0))


def rows_frame(name: str, *, header: dict[str, int], data: bytes) -> bytes:
    """A frame as a client of another make might send it."""
    fields = {
        "kind": wire.PUSH,
        "flags": wire.NARROW_ROWS,
        "name_bytes": len(name),
        "slot": 0,
        "attempt": 0,
        "sequence": 0,
        "minibatches": 0,
        "dim": 2,
        "n_pushed": 1,
        "n_pulled": 0,
    }
    fields.update(header)
    title = name.encode().ljust(wire.padded(len(name)), b"\0")
    body = struct.pack(">BBHiqqqIII", *fields.values()) + title + data
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"kind": wire.PULL, "n_pushed": 0, "n_pulled": 2}, bytes(7)),
        ({"kind": wire.PULL, "n_pushed": 0, "n_pulled": 1}, b"\x0a\0\0\0"),
        ({"kind": wire.PULL, "flags": 0, "n_pushed": 0, "n_pulled": 1}, b"\xff" * 8),
        ({"kind": wire.PULL, "n_pushed": 0, "n_pulled": 2**32 - 1}, b""),
        ({"kind": wire.PULL_RANGE, "sequence": -1, "n_pushed": 0}, b""),
        ({"kind": wire.PULL_RANGE, "sequence": 11, "n_pushed": 0}, b""),
        ({}, bytes(4 + 7)),
        ({}, bytes(4 + 9)),
        ({"dim": 1}, bytes(4 + 4)),
        ({"dim": 0}, bytes(4)),
        ({"dim": 2**32 - 1}, bytes(12)),
        ({"kind": wire.EXCHANGE, "n_pushed": 2**32 - 1}, bytes(12)),
        ({"kind": wire.EXCHANGE, "n_pulled": 1}, bytes(4) + b"\xff" * 4 + b"\0\0\x80?" * 2),
        ({"attempt": 2**62}, bytes(12)),
        ({"slot": 99}, bytes(12)),
        ({"slot": -2}, bytes(12)),
    ],
)
def test_what_does_not_fit_is_refused_by_the_server(
    store: Store, address: StoreAddress, job: str, header: dict[str, int], data: bytes
) -> None:
    """It changes nothing, and the connection goes on."""
    name = f"{job}/w"
    store.tables.create(spec_of(job, 10, 2))
    connection = TcpConnection(address.url, address.token)

    def answer(frame: bytes) -> wire.Weights:
        connection.hold()
        try:
            connection.start(frame)
            reply = connection.fetch(frame)
            if not wire.is_of_rows(reply):
                connection.refuse(reply)
            return wire.unpack_weights(reply)
        finally:
            connection.release()

    try:
        for _ in range(2):
            with pytest.raises(StoreError):
                answer(rows_frame(name, header=header, data=data))
        assert answer(rows_frame(name, header={"sequence": 5}, data=bytes(12))).flags & wire.CHANGED
        with pytest.raises(StoreError, match="not expected here"):
            connection.request(wire.Listen(), wire.Done)
    finally:
        connection.close()
    assert not store.tables.pull(name).any()
    assert store.control.progress(job, 0).item() == 0


def test_weights_are_the_callers_own(store: Store, job: str) -> None:
    store.tables.create(spec_of(job, 1000))
    pulled = store.tables.pull(f"{job}/w", np.arange(1000))
    again = store.tables.pull(f"{job}/w", np.arange(1000))
    assert pulled.flags.aligned and pulled.flags.writeable
    assert not np.shares_memory(pulled, again)
