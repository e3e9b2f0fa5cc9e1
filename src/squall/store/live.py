"""Pulls and pushes that the server itself applies, for clients that cannot map its memory.

One thread serves all of them, one after the other, so updates are whole and in the order in
which they came.
"""

from __future__ import annotations

from collections.abc import Callable

from squall.errors import StoreError
from squall.records import Float32, Stamp
from squall.store import wire
from squall.store.layout import Cells
from squall.store.table import ParameterTable

PIECE_BYTES = 4 << 20
"""Bytes of one piece of a whole table: others are served between two."""

_MAX_NUMBER = 1 << 62  # of an attempt, a sequence or minibatches: far below what a word holds


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
        self._tables: dict[str, tuple[ParameterTable, Cells]] = {}

    def forget(self, name: str) -> None:
        """Let go of a table that is dropped."""
        self._tables.pop(name, None)

    def answer(self, request: wire.TableData) -> wire.Reply:
        """Do what a request asks for."""
        known = self._tables.get(request.name)
        if known is None:
            known = self._tables[request.name] = self._load(request.name)
        table, cells = known
        match request:
            case wire.Exchange():
                weights = self._exchange(table, request)
            case wire.Update():
                return wire.Applied(self._update(table, request), bool(cells.stop[0]))
            case wire.PullRows():
                rows = wire.unpack_rows(request.rows, request.narrow)
                _check_size(table, len(rows))
                weights = table.pull(rows)
            case wire.PullRange():
                weights = self._pull_piece(table, request.first)
        return wire.Weights(table.spec.rows, table.spec.dim, bool(cells.stop[0]), weights.data)

    def _exchange(self, table: ParameterTable, request: wire.Exchange) -> Float32:
        rows, n_pushed = wire.unpack_rows(request.rows, request.narrow), request.n_pushed
        push = None
        if n_pushed is not None:
            values = wire.unpack_values(request.values, n_pushed, request.dim)
            push, rows = (rows[:n_pushed], values), rows[n_pushed:]
        _check_size(table, len(rows))
        return table.exchange(push, rows, _checked(request.stamp))

    def _update(self, table: ParameterTable, request: wire.Update) -> bool:
        rows = wire.unpack_rows(request.rows, request.narrow)
        values = wire.unpack_values(request.values, len(rows), request.dim)
        apply = table.add if request.raw else table.push
        return apply(rows, values, _checked(request.stamp))

    def _pull_piece(self, table: ParameterTable, first: int) -> Float32:
        spec = table.spec
        if not 0 <= first <= spec.rows:
            raise StoreError(f"there is no row {first}", where=f"table {spec.name!r}")
        count = min(spec.rows - first, max(1, PIECE_BYTES // (4 * spec.dim)))
        _check_size(table, count)
        return table.read(first, count)


def _checked(stamp: Stamp) -> Stamp:
    if max(abs(stamp.attempt), abs(stamp.sequence), abs(stamp.minibatches)) >= _MAX_NUMBER:
        raise StoreError(f"{stamp} cannot stamp an update", fix=f"use numbers below {_MAX_NUMBER}")
    return stamp


def _check_size(table: ParameterTable, n_rows: int) -> None:
    """Refuse a pull whose reply would not go into a frame, before anything is taken for it."""
    size = 4 * n_rows * table.spec.dim
    if size > wire.MAX_PAYLOAD:
        raise StoreError(
            f"{n_rows} rows of {table.spec.dim} are too large for one reply",
            where=f"table {table.spec.name!r}",
            fix=f"pull at most {wire.MAX_PAYLOAD // (4 * table.spec.dim)} rows at once",
        )
