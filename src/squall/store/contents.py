"""Whole tables, with their optimisers' state, on their way between a server and its client."""

from __future__ import annotations

import numpy as np

from squall.errors import StoreError
from squall.records import Float32, TableContents, TableSpec
from squall.store import wire
from squall.store.connection import Connection
from squall.store.table import ParameterTable, table_stride

PIECE_BYTES = 4 << 20
"""Bytes of one piece: others are served between two."""


def dump_rows(table: ParameterTable, request: wire.DumpRows) -> wire.DumpedRows:
    """(server) A piece of a table."""
    rows, stride = table.shared.array.shape
    if not 0 <= request.first <= rows:
        raise StoreError(f"there is no row {request.first}", where=f"table {request.name!r}")
    part = table.dump(request.first, min(rows - request.first, _height(stride)))
    return wire.DumpedRows(rows, stride, table.step, part.reshape(-1).view(np.uint8).data)


def load_rows(table: ParameterTable, request: wire.LoadRows) -> None:
    """(server) Set a piece of a table."""
    if request.stride < 1 or len(request.values) % (4 * request.stride):
        raise StoreError(
            f"{len(request.values)} bytes are no rows of {request.stride} float32",
            where=f"table {request.name!r}",
        )
    values = np.frombuffer(request.values, dtype=np.float32).reshape(-1, request.stride)
    table.load(request.first, values, request.step)


def dump_table(connection: Connection, name: str) -> TableContents:
    """(client) The part of a table that a server has."""
    pieces: list[Float32] = []
    first = 0
    while True:
        reply = connection.request(wire.DumpRows(name, first), wire.DumpedRows)
        piece = np.frombuffer(reply.values, dtype=np.float32).reshape(-1, reply.stride)
        pieces.append(piece)
        first += len(piece)
        if first >= reply.rows:
            return TableContents(np.concatenate(pieces), reply.step)


def load_table(connection: Connection, name: str, contents: TableContents) -> None:
    """(client) Set the part of a table that a server has; `check_whole` has passed the whole."""
    array = np.ascontiguousarray(contents.array, dtype=np.float32)
    stride = array.shape[1]
    for first in range(0, len(array), _height(stride)):
        part = array[first : first + _height(stride)]
        values = part.reshape(-1).view(np.uint8).data
        connection.request(wire.LoadRows(name, first, stride, contents.step, values), wire.Done)


def check_whole(spec: TableSpec, contents: TableContents) -> None:
    """Refuse what are not the contents of a whole table of this spec, before any of it has changed."""
    wanted, array = (spec.rows, table_stride(spec)), contents.array
    if array.dtype != np.float32 or array.shape != wanted or contents.step < 0:
        raise StoreError(
            f"{array.dtype} of shape {array.shape} at step {contents.step} are no contents of it",
            where=f"table {spec.name!r}",
            fix=f"give float32 of shape {wanted}, as `dump` does",
        )


def _height(stride: int) -> int:
    return max(1, PIECE_BYTES // (4 * stride))
