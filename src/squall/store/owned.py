"""A table whose updates one owner applies, under a rule of consistency, without I/O."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from squall import _kernels
from squall.errors import StoreError
from squall.records import Float32, Int64, Stamp, Sync
from squall.store.clocks import Clocks
from squall.store.table import ParameterTable


@dataclass(frozen=True, slots=True)
class _Part:
    """One slot's update, waiting for the others'."""

    stamp: Stamp
    rows: Int64
    values: Float32


class OwnedTable:
    """What :meth:`squall.protocols.Tables.meet` promises.

    At most one update of each slot waits at a time.

    Parameters
    ----------
    table : ParameterTable
        Its parameters.
    clocks : Clocks
        Of its job.
    """

    def __init__(self, table: ParameterTable, clocks: Clocks) -> None:
        self._table, self._clocks = table, clocks
        self._staged: dict[int, _Part] = {}
        self._read_at: dict[int, int] = {}  # the table's step when a slot last read

    @property
    def dim(self) -> int:
        """Columns of the table."""
        return self._table.spec.dim

    def offer(self, rows: Int64, values: Float32, stamp: Stamp, sync: Sync, now: float) -> bool:
        """Take an update, which becomes the owner's; whether others may go on because of it.

        Raises
        ------
        StaleAttemptError, StoreError
            As `ParameterTable.push`; nothing has changed.
        """
        self._hear(stamp, now)
        if sync.staged:
            if not self._table.accepts(rows, values, stamp):
                return False
            self._staged[stamp.slot] = _Part(stamp, rows, values)
            return self.end_round()
        if sync.weighted:
            values = values * self._weight(stamp.slot)
        if not self._table.push(rows, values, stamp):
            return False
        if stamp.minibatches:
            self._clocks.tick(stamp.slot)
        return sync.staleness is not None

    def _weight(self, slot: int) -> np.float32:
        step = self._table.step
        return np.float32(max(1, step - self._read_at.get(slot, step)) ** (-1 / 3))

    def ready(self, stamp: Stamp, sync: Sync, now: float) -> bool:
        """Whether the sender of this stamp may read; StaleAttemptError if it has been replaced."""
        self._hear(stamp, now)
        if sync.staged:
            part = self._staged.get(stamp.slot)
            return part is None or part.stamp != stamp
        return sync.staleness is None or self._clocks.may_read(stamp.slot, sync.staleness, now)

    def _hear(self, stamp: Stamp, now: float) -> None:
        self._table.check_attempt(stamp)
        if stamp.slot < 0:
            raise StoreError("the driver has no clock", fix="let workers meet, each with its own slot")
        self._clocks.hear(stamp.slot, now)

    def read(self, rows: Int64, stamp: Stamp) -> Float32:
        """Weights of some rows."""
        self._read_at[stamp.slot] = self._table.step
        return self._table.pull(rows)

    def end_round(self) -> bool:
        """Apply what waits, if every slot that is due has sent it; whether it was applied."""
        due, staged = self._clocks.due, self._staged
        if not due or len(staged) < len(due):
            return False
        parts = [staged[slot] for slot in due if slot in staged and self._table.is_newest(staged[slot].stamp)]
        if len(parts) < len(due):
            return False
        update = _tree_sum({part.stamp.slot: part for part in parts}, 0, self._clocks.n_slots)
        assert update is not None
        rows, total = update
        if not self._table.spec.summed and self._clocks.n_slots > 1:
            total = total / np.float32(self._clocks.n_slots)
        self._table.push_together(rows, total, [part.stamp for part in parts])
        for slot in due:
            del staged[slot]
        return True


def _tree_sum(parts: dict[int, _Part], low: int, high: int) -> tuple[Int64, Float32] | None:
    """The sum over slots ``low`` … ``high − 1``, by halves: in one order whoever came first."""
    if high - low == 1:
        part = parts.get(low)
        return None if part is None else (part.rows, part.values)
    middle = (low + high + 1) // 2
    left, right = _tree_sum(parts, low, middle), _tree_sum(parts, middle, high)
    if left is None or right is None:
        return right if left is None else left
    return _add(*left, *right)


def _add(left_rows: Int64, left: Float32, right_rows: Int64, right: Float32) -> tuple[Int64, Float32]:
    if len(left_rows) == len(right_rows) and np.array_equal(left_rows, right_rows):
        return left_rows, left + right
    rows, where = _distinct(np.concatenate((left_rows, right_rows)))
    total = np.zeros((len(rows), left.shape[1]), dtype=np.float32)
    total[where[: len(left)]] = left
    total[where[len(left) :]] += right
    return rows, total


def _distinct(rows: Int64) -> tuple[Int64, Int64]:
    """Rows without repeats, and where in them each of ``rows`` is."""
    if not len(rows) or rows.max() >= 1 << 31:
        return np.unique(rows, return_inverse=True)
    unique, where = _kernels.localize(rows.astype(np.int32))
    return unique, where.astype(np.int64)
