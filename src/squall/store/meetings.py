"""`Tables.meet` at both ends of a connection: how updates travel, and who holds them in the server.

Rows travel as little-endian uint32 where all of them fit, else int64; values as float32,
float16, or int8 that are multiples of one scale.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from squall.errors import StoreError
from squall.records import Float32, Int64, Meeting, Stamp, Sync, Update
from squall.store import wire
from squall.store.clocks import Clocks
from squall.store.connection import Connection
from squall.store.layout import Cells
from squall.store.owned import OwnedTable
from squall.store.table import ParameterTable

ENCODINGS: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
}
"""Types that the values of an update may have."""

_WIDE, _NARROW = np.dtype("<i8"), np.dtype("<u4")
_MAX_NUMBER = 1 << 62  # of an attempt, a sequence or minibatches: far below what a word holds
_NOTHING = memoryview(b"")


# -------------------------------------------------------------------------------- the client


def meet(
    connection: Connection,
    name: str,
    update: Update | None,
    pull: Int64,
    stamp: Stamp,
    sync: Sync,
    timeout: float,
) -> tuple[Meeting, bool]:
    """`Tables.meet`, which is the same whatever the socket; and whether the job is to stop."""
    encoding, values, dim, scale = "float32", _NOTHING, 1, 1.0
    rows, n_pushed = pull, None
    if update is not None:
        n_pushed, scale = len(update.rows), update.scale
        encoding, values = _packed_values(update)
        rows, dim = np.concatenate((update.rows, pull)), update.values.shape[1]
    narrow, packed = _packed_rows(rows)
    request = wire.Meet(name, stamp, sync, timeout, n_pushed, narrow, packed, encoding, scale, dim, values)
    reply = connection.request(request, wire.Met, timeout)
    return Meeting(_weights(reply, len(pull)) if reply.ready else None, reply.held), reply.stop


def _packed_rows(rows: Int64) -> tuple[bool, memoryview]:
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise StoreError(f"rows: {rows.dtype} of shape {rows.shape}", fix="give an int64 vector")
    narrow = 0 <= int(np.bitwise_or.reduce(rows)) < 1 << 32
    return narrow, np.ascontiguousarray(rows, dtype=_NARROW if narrow else _WIDE).data


def _packed_values(update: Update) -> tuple[str, memoryview]:
    values, encoding = update.values, update.values.dtype.name
    if encoding not in ENCODINGS or values.ndim != 2 or len(values) != len(update.rows):
        raise StoreError(
            f"values: {values.dtype} of shape {values.shape}",
            fix=f"give {', '.join(ENCODINGS)} of shape ({len(update.rows)}, dim)",
        )
    return encoding, np.ascontiguousarray(values, dtype=ENCODINGS[encoding]).data


def _weights(reply: wire.Met, n_rows: int) -> Float32:
    values: npt.NDArray[Any] = np.frombuffer(reply.values, dtype=ENCODINGS["float32"])
    if reply.dim < 1 or len(values) != n_rows * reply.dim:
        raise _foreign(f"{len(values)} weights are not {n_rows} rows of {reply.dim}")
    return values.astype(np.float32).reshape(n_rows, reply.dim)


# -------------------------------------------------------------------------------- the server


class _Place(NamedTuple):
    """Where the slots of a job meet over one table."""

    owned: OwnedTable
    cells: Cells


class Meetings:
    """All tables over which slots meet.

    Parameters
    ----------
    load : callable
        From a table's name to the table, its job's words and clocks; raises `StoreError` if
        there is none.
    wake : callable
        Told the name of a job whose waiting slots may be able to go on.
    """

    def __init__(
        self, load: Callable[[str], tuple[ParameterTable, Cells, Clocks]], wake: Callable[[str], None]
    ) -> None:
        self._load, self._wake = load, wake
        self._places: dict[str, _Place] = {}

    def forget(self, name: str) -> None:
        """Let go of a table that is dropped."""
        self._places.pop(name, None)

    def end_rounds(self, job: str) -> None:
        """A slot has come to a barrier: the others no longer wait for it."""
        for name, place in self._places.items():
            if name.startswith(f"{job}/"):
                place.owned.end_round()

    def offer(self, request: wire.Meet) -> None:
        """Take the update that a request brings, if it brings one."""
        if request.n_pushed is None:
            return
        place, rows = self._place(request.name), _unpacked_rows(request)
        if not 0 <= request.n_pushed <= len(rows):
            raise _foreign(f"{request.n_pushed} of {len(rows)} rows cannot be pushed")
        rows = rows[: request.n_pushed]
        update = Update(rows, _unpacked_values(request, len(rows)), request.scale)
        stamp = _checked(request.stamp)
        if place.owned.offer(rows, update.decoded(), stamp, request.sync, time.monotonic()):
            self._wake(request.name.partition("/")[0])

    def met(self, request: wire.Meet, held: float = 0.0) -> wire.Met | None:
        """The rows that a request asks for, or None if it has to wait (``held`` seconds so far)."""
        place, stamp = self._place(request.name), _checked(request.stamp)
        if not place.owned.ready(stamp, request.sync, time.monotonic()):
            return None
        rows = _unpacked_rows(request)[request.n_pushed or 0 :]
        _check_size(request.name, len(rows), place.owned.dim)
        weights = place.owned.read(rows, stamp)
        return wire.Met(True, bool(place.cells.stop[0]), held, weights.shape[1], weights.data)

    def not_met(self, request: wire.Meet, held: float) -> wire.Met:
        """The reply when the time is over."""
        return wire.Met(False, bool(self._place(request.name).cells.stop[0]), held, 1, _NOTHING)

    def _place(self, name: str) -> _Place:
        known = self._places.get(name)
        if known is None:
            table, cells, clocks = self._load(name)
            known = self._places[name] = _Place(OwnedTable(table, clocks), cells)
        return known


def _unpacked_rows(request: wire.Meet) -> Int64:
    """A copy, since what is staged outlives its frame."""
    kind = _NARROW if request.narrow else _WIDE
    if len(request.rows) % kind.itemsize:
        raise _foreign(f"{len(request.rows)} bytes are no rows")
    return np.frombuffer(request.rows, dtype=kind).astype(np.int64)


def _unpacked_values(request: wire.Meet, n_rows: int) -> npt.NDArray[Any]:
    kind = ENCODINGS.get(request.encoding)
    if kind is None:
        raise _foreign(f"there is no encoding {request.encoding!r}")
    if request.dim < 1 or len(request.values) != n_rows * request.dim * kind.itemsize:
        raise _foreign(
            f"{len(request.values)} bytes are not {n_rows} rows of {request.dim} {request.encoding}"
        )
    values: npt.NDArray[Any] = np.frombuffer(request.values, dtype=kind).astype(kind.newbyteorder("="))
    return values.reshape(n_rows, request.dim)


def _checked(stamp: Stamp) -> Stamp:
    if max(abs(stamp.attempt), abs(stamp.sequence), abs(stamp.minibatches)) >= _MAX_NUMBER:
        raise StoreError(f"{stamp} cannot stamp an update", fix=f"use numbers below {_MAX_NUMBER}")
    return stamp


def _check_size(name: str, n_rows: int, dim: int) -> None:
    """Refuse a reply that would not go into a frame, before anything is taken for it."""
    if 4 * n_rows * dim > wire.MAX_PAYLOAD:
        raise StoreError(
            f"{n_rows} rows of {dim} are too large for one reply",
            where=f"table {name!r}",
            fix=f"pull at most {wire.MAX_PAYLOAD // (4 * dim)} rows at once",
        )


def _foreign(what: str) -> StoreError:
    return StoreError(what, fix="use the same Squall version on both sides")
