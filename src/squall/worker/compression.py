"""Smaller updates: what is filtered out or rounded off is kept and sent later, not lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from squall.records import Float32, Int64, Update

_INT8_MAX = 127
_FLOAT16_MAX = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class Compression:
    """What to leave out, and how to round the rest; see :class:`squall.ParameterServer`."""

    filter: str | None = None
    level: float = 0.0
    encoding: str | None = None

    @property
    def nothing(self) -> bool:
        """Whether updates go out as they are."""
        return self.filter is None and self.encoding is None


class Compressor:
    """One worker's filter and encoding, with what they have held back.

    A row goes out if any of its elements passes.  What is held back of it then, by rounding, is
    the error that the next update of this row takes in (error feedback; Seide et al. 2014).

    Parameters
    ----------
    compression : Compression
        What to do.
    rows, dim : int
        Shape of the table.  Memory is taken only where something is held back.
    """

    def __init__(self, compression: Compression, rows: int, dim: int) -> None:
        self._do = compression
        self._held = np.zeros((rows, dim), dtype=np.float32)
        self._before = np.empty(0, dtype=np.int64), self._held[:0]  # what the last update changed

    def compress(self, rows: Int64, gradient: Float32, weights: Float32, step: int) -> Update:
        """What is to be sent of a minibatch's gradient.

        Parameters
        ----------
        rows : (n,) int64
        gradient, weights : (n, dim) float32
            Of these rows; the weights are those at which the gradient was taken.
        step : int
            The worker's minibatches before this one.
        """
        before = self._held[rows]
        self._before = rows, before
        total = before + gradient
        passed = self._passes(total, weights, step)
        self._held[rows] = total
        return self._taken(rows, total) if passed is None else self._taken(rows[passed], total[passed])

    def _taken(self, rows: Int64, values: Float32) -> Update:
        """An update of these values; what its encoding cannot hold is kept."""
        update = _encoded(rows, values, self._do.encoding)
        self._held[rows] = 0.0 if self._do.encoding is None else values - update.decoded()
        return update

    def _passes(self, total: Float32, weights: Float32, step: int) -> Any:
        """Positions of the rows that are sent; None for all."""
        match self._do.filter:
            case "threshold":
                return np.flatnonzero((np.abs(total) > self._do.level).any(axis=1))
            case "significance":
                bound = self._do.level / math.sqrt(step + 1)
                return np.flatnonzero((np.abs(total) > bound * np.abs(weights)).any(axis=1))
            case "top-k":
                size = np.abs(total).max(axis=1)
                n_kept = max(1, math.ceil(self._do.level * len(size)))
                if n_kept >= len(size):
                    return None
                return np.sort(np.argpartition(size, -n_kept)[-n_kept:])
        return None

    def undo(self) -> None:
        """The last update was not sent after all: hold back what was held back before it."""
        rows, values = self._before
        self._held[rows] = values

    def rest(self) -> Update | None:
        """All that is held back, exactly; None if there is nothing."""
        rows = self._rows_held()
        return Update(rows, self._held[rows]) if len(rows) else None

    def _rows_held(self) -> Int64:
        return np.flatnonzero(self._held.any(axis=1)).astype(np.int64)

    def state_dict(self) -> dict[str, Any]:
        """What is held back, as plain data."""
        rows = self._rows_held()
        return {"rows": rows.astype("<i8").tobytes(), "values": self._held[rows].astype("<f4").tobytes()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what a predecessor held back."""
        rows = np.frombuffer(state["rows"], dtype="<i8").astype(np.int64)
        values = np.frombuffer(state["values"], dtype="<f4").astype(np.float32)
        self._held[rows] = values.reshape(len(rows), self._held.shape[1])


def _encoded(rows: Int64, values: Float32, encoding: str | None) -> Update:
    match encoding:
        case "float16":
            return Update(rows, np.clip(values, -_FLOAT16_MAX, _FLOAT16_MAX).astype(np.float16))
        case "int8":
            scale = float(np.float32(np.abs(values).max(initial=0.0) / _INT8_MAX)) or 1.0
            return Update(rows, np.rint(values / np.float32(scale)).astype(np.int8), scale)
    return Update(rows, values)
