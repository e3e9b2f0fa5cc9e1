"""Frames of rows against NumPy: what is packed, served, sent and put together."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall import _kernels
from squall._kernels import Fence, FrameClient, FrameServer, Histogram, Refusal, ServedTable, Status

RULE = _kernels.Rule(_kernels.ADAGRAD, 0.5, l2=0.1)
DIM, ROWS, N_SLOTS = 3, 50, 2
STRIDE = _kernels.table_stride(_kernels.ADAGRAD, DIM, True)
PULL, PULL_RANGE, PUSH, ADD, EXCHANGE = 1, 2, 3, 4, 5
HALF_VALUES, HALF_REPLY, NO_PUSH = 2, 4, 8
CHANGED, STOP = 1, 2
HEADER, REPLY = struct.Struct(">IBBHiqqqIII"), struct.Struct(">IBBHIq")


class Served:
    """A table of ones behind a server of its own, as one shard has it."""

    def __init__(self, rule: _kernels.Rule = RULE, rows: int = ROWS) -> None:
        self.table = np.zeros((rows, _kernels.table_stride(rule_kind(rule), DIM, rule.lazy)), np.float32)
        self.table[:, :DIM] = 1.0
        self.step, self.stop = np.array([5]), np.zeros(1, np.int64)
        words = np.full((N_SLOTS + 1, 8), -1)
        words[:, 2] = 0
        self.attempts, self.sequences, self.progress = words[:, 0], words[:, 1], words[:, 2]
        fence = Fence(self.attempts, self.sequences, self.progress)
        self.latencies = [Histogram(8, 8, 100) for _ in range(5)]
        self.server = FrameServer(self.latencies)
        self.server.add(b"a/b", ServedTable(self.table, self.step, DIM, rule, rows - 10, fence, self.stop))

    def state(self) -> tuple[bytes, ...]:
        arrays = self.table, self.step, self.sequences, self.progress
        return tuple(array.tobytes() for array in arrays)

    def serve(self, frame: bytes) -> int:
        return self.server.serve(frame, len(frame))

    def answer(self, frame: bytes) -> bytes:
        size = self.serve(frame)
        assert size > 0, size
        return bytes(self.server.reply[:size])


def rule_kind(rule: _kernels.Rule) -> int:
    return _kernels.FTRL if rule is FTRL else _kernels.ADAGRAD


FTRL = _kernels.Rule(_kernels.FTRL, 0.5)


def rows_of(*rows: int) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


def ones(n: int, dim: int = DIM) -> np.ndarray:
    return np.ones((n, dim), dtype=np.float32)


def pack(
    client: FrameClient,
    kind: int,
    flags: int = 0,
    stamp: tuple[int, ...] = (0, 0, 0, 0),
    pushed: np.ndarray | None = None,
    values: np.ndarray | None = None,
    pulled: np.ndarray | None = None,
    place: tuple[int, int] = (0, 0),
) -> None:
    client.pack(kind, flags, b"a/b", *stamp, pushed, values, pulled, *place)


def packed(*args: Any, **kwargs: Any) -> bytes:
    client = FrameClient(1)
    pack(client, *args, **kwargs)
    return client.request(0)


# ------------------------------------------------------------------------------------ float16


def halves() -> np.ndarray:
    """Every float16 there is, and what lies between two of them."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    every = every[np.isfinite(every)]
    between = (np.sort(every)[:-1] + np.sort(every)[1:]) / 2
    tiny = np.array([1e-8, -1e-8, 1e-30, 6e-8, 65504.0, -65504.0], dtype=np.float32)
    return np.concatenate((every, between, np.nextafter(between, np.float32(np.inf)), tiny))


def test_float16_is_numpys() -> None:
    values = halves()[:, None]
    n, expected = len(values), halves().astype(np.float16)
    frame = packed(PUSH, HALF_VALUES, pushed=np.arange(n), values=values)
    assert np.array_equal(np.frombuffer(frame[-2 * n :], np.uint16), expected.view(np.uint16))
    client = FrameClient(1)
    pack(client, PULL, pulled=np.arange(n))
    reply = REPLY.pack(REPLY.size - 4 + 2 * n, 9, 4, 0, 1, n) + expected.tobytes()
    assert client.accept(0, reply)
    assert np.array_equal(client.weights()[:, 0], expected.astype(np.float32))


def test_too_large_for_float16_is_cut() -> None:
    values = np.array([[1e6], [-np.inf], [65519.0], [np.nan]], dtype=np.float32)
    got = np.frombuffer(packed(PUSH, HALF_VALUES, pushed=np.arange(4), values=values)[-8:], np.float16)
    assert got[:3].tolist() == [65504.0, -65504.0, 65504.0]
    assert np.isnan(got[3])


# ------------------------------------------------------------------------------------ packing


@pytest.mark.parametrize("rows", [[], [0, 1], [2**32 - 1], [2**32], [-1, 2], [2**62, 0]])
def test_rows_keep_their_numbers(rows: list[int]) -> None:
    frame = packed(PULL, pulled=np.array(rows, dtype=np.int64))
    narrow = HEADER.unpack_from(frame)[2] & 1
    assert narrow == all(0 <= row < 2**32 for row in rows)
    assert np.frombuffer(frame, "<u4" if narrow else "<i8", offset=HEADER.size + 4).tolist() == rows


@pytest.mark.parametrize("stamp", [(0, 2**63, 0, 0), (0, 0, -(2**63) - 1, 0), (2**63, 0, 0, 0)])
def test_numbers_that_no_header_holds(stamp: tuple[int, ...]) -> None:
    with pytest.raises(OverflowError):
        packed(PULL, stamp=stamp, pulled=rows_of(1))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"pulled": np.zeros(2, np.int32)}, TypeError),
        ({"pulled": np.zeros((2, 1), np.int64)}, ValueError),
        ({"pulled": np.arange(4)[::2]}, ValueError),
        ({"pushed": rows_of(1, 2), "values": ones(1)}, ValueError),
        ({"pushed": rows_of(1), "values": np.ones((1, 1))}, TypeError),
        ({"pushed": rows_of(1), "values": None}, TypeError),
        ({"stamp": (2**31, 0, 0, 0)}, ValueError),
    ],
)
def test_what_makes_no_frame(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        packed(EXCHANGE, **arguments)


# ------------------------------------------------------------------------------------ serving


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", [PULL, PUSH, ADD, EXCHANGE])
def test_one_call_does_what_several_do(wide: bool, half: bool, kind: int) -> None:
    draw, served, other = np.random.default_rng(kind), Served(), Served()
    pushed, pulled = draw.permutation(ROWS)[:9], draw.integers(0, ROWS, 20)
    values = draw.normal(size=(9, DIM)).astype(np.float16).astype(np.float32)
    flags = (HALF_VALUES | HALF_REPLY) * half
    stamp = (1, 3, 7, 8)
    if wide:
        numbers = (values.astype(np.float16) if half else values).tobytes()
        data = b"a/b\0" + np.concatenate((pushed, pulled)).tobytes() + numbers
        frame = HEADER.pack(HEADER.size - 4 + len(data), kind, flags, 3, *stamp, DIM, 9, 20) + data
    else:
        frame = packed(kind, flags, stamp, pushed, values, pulled)
    reply = served.answer(frame)

    table, step = other.table, 5
    if kind == ADD:
        _kernels.table_pull(table, pushed, DIM, RULE, step, ROWS - 10)
        _kernels.table_add(table, pushed, values)
    elif kind != PULL:
        _kernels.table_update(table, pushed, values, RULE, step, ROWS - 10)
        step += 1
    expected = _kernels.table_pull(table, pulled, DIM, RULE, step, ROWS - 10)
    assert np.array_equal(served.table.view(np.uint32), table.view(np.uint32))
    assert served.step[0] == step
    assert (served.attempts[1], served.sequences[1], served.progress[1]) == (
        (-1, -1, 0) if kind == PULL else (3, 7, 8)
    )
    client = FrameClient(1)
    pack(client, PULL, pulled=pulled)
    assert client.accept(0, reply)
    assert client.said() == (0 if kind == PULL else CHANGED)
    assert np.array_equal(client.weights(), expected.astype(np.float16) if half else expected)
    assert [sum(latency.counts().values()) for latency in served.latencies] == [
        int(kind == other_kind) for other_kind in (PULL, PULL_RANGE, PUSH, ADD, EXCHANGE)
    ]


def test_repeats_and_old_attempts() -> None:
    served = Served()

    def push(stamp: tuple[int, ...], flags: int = 0) -> int:
        size = served.serve(packed(PUSH, flags, stamp, rows_of(1), ones(1)))
        return size if size < 0 else REPLY.unpack_from(served.server.reply)[2]

    assert push((0, 1, 4, 1)) == CHANGED
    before = served.table.copy()
    assert push((0, 1, 4, 3)) == 0, "a repeat"
    assert served.progress[0] == 3, "which counts, for its first sender may have died before it could"
    assert push((0, 2, 3, 0)) == 0, "older than the last"
    assert push((0, 1, 9, 9)) == Refusal.STALE_ATTEMPT
    assert push((0, 2, 9, 9), NO_PUSH) == 0, "nothing is pushed, but the attempt is looked at"
    assert push((0, 1, 9, 9), NO_PUSH) == Refusal.STALE_ATTEMPT
    assert push((N_SLOTS, 0, 0, 0)) == push((-2, 0, 0, 0)) == Refusal.NO_SUCH_SLOT
    assert np.array_equal(served.table, before)
    assert (served.step[0], served.progress[0], served.sequences[0]) == (6, 3, 4)
    assert push((-1, 0, 0, 0)) == CHANGED, "the driver's words are the last"
    assert served.sequences[-1] == 0
    served.stop[0] = 1
    assert push((0, 2, 5, 0)) == CHANGED | STOP


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", Refusal.NOT_OF_ROWS),
        (packed(PULL, pulled=rows_of(1))[:-1], Refusal.NOT_OF_ROWS),
        (packed(PULL, pulled=rows_of(1)) + b"\0", Refusal.NOT_OF_ROWS),
        (packed(0, pulled=rows_of(1)), Refusal.NOT_OF_ROWS),
        (packed(6, pulled=rows_of(1)), Refusal.NOT_OF_ROWS),
        (packed(PULL_RANGE), Refusal.OF_A_RANGE),
        (packed(PULL, pulled=rows_of(1)).replace(b"a/b", b"a/c"), Refusal.UNKNOWN_TABLE),
        (packed(PULL, pulled=rows_of(ROWS)), Refusal.BAD_ARRAYS),
        (packed(PULL, pulled=rows_of(-1)), Refusal.BAD_ARRAYS),
        (packed(PUSH, 0, (0, 0, 0, 2**62), rows_of(1), ones(1)), Refusal.BAD_STAMP),
        (packed(PUSH, 0, (0, 0, -(2**63), 0), rows_of(1), ones(1)), Refusal.BAD_STAMP),
        (packed(PUSH, 0, (0, 0, 0, 0), rows_of(1), ones(1, 2)), Refusal.BAD_WIDTH),
        (packed(EXCHANGE, 0, (0, 0, 0, 0), rows_of(1), ones(1), rows_of(ROWS)), Refusal.BAD_ARRAYS),
        (HEADER.pack(HEADER.size, 1, 1, 3, 0, 0, 0, 0, 0, 0, 2**32 - 1) + b"a/b\0", Refusal.TOO_LARGE),
        (HEADER.pack(HEADER.size, 1, 1, 3, 0, 0, 0, 0, 0, 0, 1 << 20) + b"a/b\0", Refusal.BAD_ARRAYS),
        (HEADER.pack(HEADER.size, 3, 1, 3, 0, 0, 0, 0, 3, 2**32 - 1, 0) + b"a/b\0", Refusal.BAD_ARRAYS),
        (HEADER.pack(HEADER.size, 3, 1, 1601, 0, 0, 0, 0, 3, 0, 0) + b"a/b\0", Refusal.NOT_OF_ROWS),
    ],
)
def test_what_is_refused_changes_nothing(frame: bytes, code: int) -> None:
    served = Served()
    before = served.state()
    assert served.serve(frame) == code
    assert served.state() == before
    assert (served.server.problem != "") == (code == Refusal.BAD_ARRAYS)


def test_nothing_is_added_to_weights_that_follow_from_a_state() -> None:
    served = Served(FTRL)
    assert served.serve(packed(ADD, 0, (0, 0, 0, 0), rows_of(1), ones(1))) == Refusal.NOT_ADDABLE
    assert served.serve(packed(PUSH, 0, (0, 0, 0, 0), rows_of(1), ones(1))) > 0


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_frame_of_any_bytes(data: st.DataObject) -> None:
    """Good frames with some bytes changed, cut or added to: an answer of the right size, or no change."""
    served = Served()
    frame = bytearray(packed(EXCHANGE, 0, (0, 1, 2, 3), rows_of(1, 2), ones(2), rows_of(3)))
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=4)):
        frame[at] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)) | st.just(len(frame)))]
    frame += data.draw(st.binary(max_size=8))
    if data.draw(st.booleans()):
        frame[:4] = struct.pack(">I", max(0, len(frame) - 4))
    before = served.state()
    size = served.serve(bytes(frame))
    if size < 0:
        assert served.state() == before
    else:
        length, kind, _, _, dim, rows = REPLY.unpack_from(served.server.reply)
        assert (length + 4, kind, dim, rows) == (size, 9, DIM, ROWS)


def test_a_reply_that_is_being_sent_is_left_alone() -> None:
    served = Served()
    frame = packed(PULL, pulled=rows_of(1))
    first = served.answer(frame)
    sending = served.server.reply
    served.server.release_reply()
    served.table[1] = 2.0
    assert served.answer(frame) != first
    assert bytes(sending[: len(first)]) == first


def test_a_forgotten_table_is_let_go() -> None:
    served = Served()
    served.server.forget(b"a/b")
    assert served.serve(packed(PULL, pulled=rows_of(1))) == Refusal.UNKNOWN_TABLE


def test_words_that_do_not_go_together() -> None:
    word = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="equally many"):
        Fence(word, np.zeros(3, np.int64), word)
    with pytest.raises(TypeError, match="attempts"):
        Fence(np.zeros(2, np.int32), word, word)
    with pytest.raises(IndexError, match="slot"):
        Fence(word, word, word).last(1)


# ------------------------------------------------------------------------------------- shards


@pytest.mark.parametrize("stretch", [0, 17])
@pytest.mark.parametrize("half", [False, True])
def test_shards_together_are_one_table(stretch: int, half: bool) -> None:
    draw, whole = np.random.default_rng(stretch), Served()
    n = 3
    parts = [
        Served(rows=min(stretch, ROWS - stretch * i) if stretch else len(range(i, ROWS, n))) for i in range(n)
    ]
    flags = (HALF_VALUES | HALF_REPLY) * half
    one, several = FrameClient(1), FrameClient(n)
    for sequence in range(3):
        rows, values = draw.permutation(ROWS)[:20], draw.normal(size=(20, DIM)).astype(np.float32)
        arguments = (ADD, flags, (0, 0, sequence, 0), rows, values, draw.integers(0, ROWS, 40))
        pack(one, *arguments)
        pack(several, *arguments, (ROWS, stretch))
        assert one.accept(0, whole.answer(one.request(0)))
        for at, part in enumerate(parts):
            assert several.said() == -1
            assert several.accept(at, part.answer(several.request(at)))
        assert several.said() == CHANGED
        assert several.weights().shape == (40, DIM)
        # Which rows are penalised differs here, but not what is added to rows of step 5.
        assert np.array_equal(several.weights(), one.weights())


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 1 << 40), st.integers(1, 1024), st.booleans(), st.data())
def test_any_row_finds_its_shard(rows: int, n: int, dealt: bool, data: st.DataObject) -> None:
    stretch = -(-rows // n)
    row = data.draw(st.integers(0, rows - 1))
    client = FrameClient(n)
    pack(client, PULL, pulled=rows_of(row), place=(rows, 0 if dealt else stretch))
    shard, local = (row % n, row // n) if dealt else divmod(row, stretch)
    if n == 1:
        shard, local = 0, row
    header = HEADER.unpack_from(client.request(shard))
    assert header[-1] == 1
    kind = "<u4" if header[2] & 1 else "<i8"
    assert np.frombuffer(client.request(shard), kind, offset=HEADER.size + 4).tolist() == [local]


def test_rows_of_no_shard() -> None:
    for row in (-1, 10):
        with pytest.raises(IndexError, match="rows"):
            pack(FrameClient(2), PULL, pulled=rows_of(row), place=(10, 5))
    with pytest.raises(ValueError, match="stretch"):
        pack(FrameClient(2), PULL, pulled=rows_of(1), place=(10, 4))


# ------------------------------------------------------------------------------------ talking

GOOD = REPLY.pack(REPLY.size - 4 + 4, 9, STOP, 0, 1, 10) + struct.pack("<f", 2.5)


def talk(reply: bytes, pieces: int = 1, end: bool = True) -> tuple[FrameClient, int]:
    """What a client of one row makes of a peer that answers so."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(None)
        timeout = struct.pack("ll", 0, 50_000)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        client = FrameClient(1)
        pack(client, PULL, pulled=rows_of(1))

        def serve() -> None:
            size = len(client.request(0))
            while size:
                size -= len(theirs.recv(size))
            step = max(1, len(reply) // pieces)
            for at in range(0, len(reply), step):
                theirs.sendall(reply[at : at + step])
            if end:
                theirs.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve)
        thread.start()
        said = client.talk([ours.fileno()])
        thread.join()
    return client, said


@pytest.mark.parametrize("pieces", [1, 5, len(GOOD)])
def test_a_reply_in_pieces(pieces: int) -> None:
    client, said = talk(GOOD, pieces)
    assert (said, client.status(0), client.reply(0)) == (STOP, Status.DONE, GOOD)
    assert client.weights().tolist() == [[2.5]]


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (b"", Status.CLOSED),
        (GOOD[:-1], Status.CLOSED),
        (bytes(8), Status.BAD_SIZE),
        (struct.pack(">I", (64 << 20) + 1), Status.BAD_SIZE),
        (GOOD + b"x", Status.TRAILING_BYTES),
        (struct.pack(">I", 3) + b"\x91\xa1x", Status.DONE),
        (GOOD[:4] + b"\x08" + GOOD[5:], Status.DONE),
        (struct.pack(">I", len(GOOD)) + GOOD[4:] + bytes(4), Status.DONE),
        (REPLY.pack(REPLY.size - 4, 9, 0, 0, 0, 10), Status.DONE),
    ],
)
def test_replies_that_are_no_weights(reply: bytes, status: int) -> None:
    client, said = talk(reply)
    assert (said, client.status(0)) == (-1, status)
    with pytest.raises(ValueError, match="no weights"):
        client.weights()


def test_a_peer_that_is_late_or_gone() -> None:
    client, said = talk(GOOD[:6], end=False)
    assert (said, client.status(0)) == (-1, Status.RECEIVE_TIMED_OUT)
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert client.talk([ours.fileno()]) == -1
    assert client.status(0) > 0, "an errno"
    assert client.talk([-1]) == -1
    with pytest.raises(ValueError, match="fds"):
        client.talk([])


def test_signals_are_handled_while_it_waits() -> None:
    class InterruptionError(Exception):
        pass

    interrupted = threading.Event()

    def interrupt(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise InterruptionError

    before = signal.signal(signal.SIGUSR1, interrupt)
    ours, theirs = socket.socketpair()
    client = FrameClient(1)
    pack(client, PULL, pulled=rows_of(1))

    refused: list[Exception] = []

    def kill() -> None:
        theirs.recv(1000)  # from now on it waits
        try:
            pack(client, PULL, pulled=rows_of(1))
        except RuntimeError as error:
            refused.append(error)
        while not interrupted.is_set():  # a signal just before it waits does not wake it
            os.kill(os.getpid(), signal.SIGUSR1)
            interrupted.wait(0.05)

    try:
        with ours, theirs:
            thread = threading.Thread(target=kill)
            thread.start()
            with pytest.raises(InterruptionError):
                client.talk([ours.fileno()])
            thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "under way" in str(refused)


# ---------------------------------------------------------------------------------- latencies


@given(st.floats(1e-9, 1e3))
def test_durations_find_their_buckets(seconds: float) -> None:
    histogram = Histogram(8, 8, 320)
    histogram.note(seconds)
    ((bucket, count),) = histogram.counts().items()
    assert count == 1
    low, high = (1e-9 * 2 ** (8 + (bucket + more) / 8) for more in (0, 1))
    assert seconds < high * 1.000001 and (bucket == 0 or seconds > low * 0.999999)


def test_odd_durations() -> None:
    histogram = Histogram(8, 8, 10)
    for seconds in (0.0, -1.0, 1e9, float("inf")):
        histogram.note(seconds)
    assert histogram.counts() == {0: 2, 9: 2}
