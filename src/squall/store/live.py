"""Pulls and pushes that the server itself applies, for clients that cannot map its memory.

One thread serves all of them, one after the other, so updates are whole and in the order in
which they came.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from squall.errors import StoreError
from squall.store import wire
from squall.store.layout import Cells
from squall.store.table import ParameterTable

PIECE_BYTES = 4 << 20
"""Bytes of one piece of a whole table: others are served between two."""

_FIRST_REPLY = 64 << 10  # bytes
_KEPT_REPLY = 1 << 20  # bytes at most that are held between frames


class LiveTables:
    """Tables at work in the server.

    Parameters
    ----------
    load : callable
        From a table's name to the table and its job's words; raises `StoreError` if there is
        none.
    """

    def __init__(self, load: Callable[[str], tuple[ParameterTable, Cells]]) -> None:
        self._load = load
        self._tables: dict[bytes, tuple[ParameterTable, Cells]] = {}
        self._reply = memoryview(bytearray(_FIRST_REPLY))

    def forget(self, name: str) -> None:
        """Let go of a table that is dropped."""
        self._tables.pop(name.encode(), None)

    def release_reply(self) -> None:
        """The last reply is still being sent: the next one goes elsewhere."""
        self._reply = memoryview(bytearray(_FIRST_REPLY))

    def answer(self, frame: memoryview) -> memoryview:
        """Do what a whole frame asks for; the reply's frame is valid until the next.

        Raises
        ------
        MalformedFrameError
            If the frame is not of the protocol.
        StoreError
            If the request is refused; nothing has changed.
        """
        request, name = wire.unpack_rows(frame)
        table, cells = self._tables.get(name) or self._find(name)
        spec, flags = table.spec, request.flags
        said = wire.STOP if cells.stop[0] else 0
        if request.kind == wire.PULL_RANGE:
            return self._answer_range(table, request.sequence, said)
        width = 4
        if flags & wire.HALF_REPLY:
            width, said = 2, said | wire.HALF_WEIGHTS
        n_bytes = width * request.n_pulled * spec.dim
        if n_bytes > wire.MAX_PAYLOAD:
            raise _too_large(table, request.n_pulled, width)
        reply = self._room(n_bytes)
        if table.serve(request, frame, reply):
            said |= wire.CHANGED
        return reply[: wire.pack_weights(reply, said, spec.dim, spec.rows, n_bytes)]

    def _answer_range(self, table: ParameterTable, first: int, said: int) -> memoryview:
        spec = table.spec
        if not 0 <= first <= spec.rows:
            raise StoreError(f"there is no row {first}", where=f"table {spec.name!r}")
        count = min(spec.rows - first, max(1, PIECE_BYTES // (4 * spec.dim)))
        if 4 * spec.dim > wire.MAX_PAYLOAD:
            raise _too_large(table, count, 4)
        weights = table.read(first, count)
        reply = self._room(weights.nbytes)
        target = np.frombuffer(reply, np.float32, weights.size, wire.REPLY_BYTES)
        np.copyto(target, weights.reshape(-1))
        return reply[: wire.pack_weights(reply, said, spec.dim, spec.rows, weights.nbytes)]

    def _find(self, name: bytes) -> tuple[ParameterTable, Cells]:
        try:
            known = self._load(name.decode())
        except UnicodeDecodeError as error:
            raise StoreError(f"{name[:80]!r} cannot name a table") from error
        self._tables[name] = known
        return known

    def _room(self, n_bytes: int) -> memoryview:
        size = wire.REPLY_BYTES + n_bytes
        if size <= len(self._reply):
            return self._reply
        room = memoryview(bytearray(size))
        if size <= _KEPT_REPLY:
            self._reply = room
        return room


def _too_large(table: ParameterTable, n_rows: int, width: int) -> StoreError:
    """For a pull whose reply would not go into a frame; nothing has been taken for it."""
    return StoreError(
        f"{n_rows} rows of {table.spec.dim} are too large for one reply",
        where=f"table {table.spec.name!r}",
        fix=f"pull at most {wire.MAX_PAYLOAD // (width * table.spec.dim)} rows at once",
    )
