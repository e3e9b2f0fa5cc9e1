"""Pulls and pushes that the server itself applies, for clients that cannot map its memory.

One thread serves all of them, one after the other, so updates are whole and in the order in
which they came.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from squall import _kernels
from squall._kernels import Refusal
from squall.errors import StoreError
from squall.store import wire
from squall.store.layout import Cells
from squall.store.stat import RequestStat, new_histogram, request_stat
from squall.store.table import ParameterTable

PIECE_BYTES = 4 << 20
"""Bytes of one piece of a whole table: others are served between two."""


class LiveTables:
    """Tables at work in the server.

    Parameters
    ----------
    load : callable
        From a table's name to the table and its job's words; raises `StoreError` if there is
        none.

    Attributes
    ----------
    frames : FrameServer
        Serves what can be served at once; `answer` knows what to do about the rest.
    """

    def __init__(self, load: Callable[[str], tuple[ParameterTable, Cells]]) -> None:
        self._load = load
        self._tables: dict[bytes, tuple[ParameterTable, Cells]] = {}
        self._latencies = {kind: new_histogram() for kind in sorted(wire.ROWS)}
        self.frames = _kernels.FrameServer(list(self._latencies.values()))

    def forget(self, name: str) -> None:
        """Let go of a table that is dropped."""
        self._tables.pop(name.encode(), None)
        self.frames.forget(name.encode())

    def stats(self) -> list[RequestStat]:
        """How many requests were served, and how fast: without their way through the network."""
        return [request_stat(name, self._latencies[kind]) for kind, name in wire.ROWS.items()]

    def answer(self, frame: memoryview) -> memoryview:
        """Do what a whole frame asks for; the reply's frame is valid until the next.

        Raises
        ------
        MalformedFrameError
            If the frame is not of the protocol.
        StoreError
            If the request is refused; nothing has changed.
        """
        code = self.frames.serve(frame, len(frame))
        if code == Refusal.UNKNOWN_TABLE:
            self._open(wire.unpack_rows(frame)[1])
            code = self.frames.serve(frame, len(frame))
        if code > 0:
            return memoryview(self.frames.reply)[:code]
        request, name = wire.unpack_rows(frame)
        if code == Refusal.NOT_OF_ROWS:
            raise wire.MalformedFrameError(f"a frame of {len(frame)} bytes claims {request.size}")
        table, cells = self._tables[name]
        if code == Refusal.OF_A_RANGE:
            return self._answer_range(table, request.sequence, wire.STOP if cells.stop[0] else 0)
        if code == Refusal.TOO_LARGE:
            raise _too_large(table, request.n_pulled, 2 if request.flags & wire.HALF_REPLY else 4)
        raise table.refusal(code, request, self.frames.problem)

    def _answer_range(self, table: ParameterTable, first: int, said: int) -> memoryview:
        start, spec = time.perf_counter(), table.spec
        if not 0 <= first <= spec.rows:
            raise StoreError(f"there is no row {first}", where=f"table {spec.name!r}")
        count = min(spec.rows - first, max(1, PIECE_BYTES // (4 * spec.dim)))
        if 4 * spec.dim > wire.MAX_PAYLOAD:
            raise _too_large(table, count, 4)
        weights = table.read(first, count)
        reply = memoryview(bytearray(wire.REPLY_BYTES + weights.nbytes))
        target = np.frombuffer(reply, np.float32, weights.size, wire.REPLY_BYTES)
        np.copyto(target, weights.reshape(-1))
        wire.pack_weights(reply, said, spec.dim, spec.rows, weights.nbytes)
        self._latencies[wire.PULL_RANGE].note(time.perf_counter() - start)
        return reply

    def _open(self, name: bytes) -> None:
        try:
            table, cells = self._load(name.decode())
        except UnicodeDecodeError as error:
            raise StoreError(f"{name[:80]!r} cannot name a table") from error
        self._tables[name] = table, cells
        self.frames.add(name, table.served(cells.stop))


def _too_large(table: ParameterTable, n_rows: int, width: int) -> StoreError:
    """For a pull whose reply would not go into a frame; nothing has been taken for it."""
    return StoreError(
        f"{n_rows} rows of {table.spec.dim} are too large for one reply",
        where=f"table {table.spec.name!r}",
        fix=f"pull at most {wire.MAX_PAYLOAD // (width * table.spec.dim)} rows at once",
    )
