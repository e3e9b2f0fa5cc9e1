"""The curves of a training: losses against what has been spent, and the marks on their axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from squall.records import Float64, HistoryRecord
from squall.units import format_count, format_duration, format_money

TRAINING, HELD_OUT = "training", "held-out"
_WIDE = 20.0  # largest loss over smallest, above which the axis is logarithmic


@dataclass(frozen=True)
class Spent:
    """What a loss is drawn against."""

    label: str
    of: Callable[[Sequence[HistoryRecord]], Float64]
    show: Callable[[float], str]

    def marks(self, low: float, high: float, at_most: int) -> list[float]:
        """Round values from ``low`` to ``high``, evenly apart: whole epochs, minutes of long times."""
        unit = 1.0
        if self.label == "time":
            unit = max((u for u in (1.0, 60.0, 3600.0) if high - low >= 2 * u), default=1.0)
        if self.label == "epochs":
            at_most = min(at_most, int(high - low) + 1)
        return [mark * unit for mark in marks(low / unit, high / unit, at_most)]


def _times(history: Sequence[HistoryRecord]) -> Float64:
    return np.array([record.time_s for record in history])


def _rows(history: Sequence[HistoryRecord]) -> Float64:
    return np.cumsum([record.rows for record in history], dtype=np.float64)


def _costs(history: Sequence[HistoryRecord]) -> Float64:
    return np.array([record.cost_usd for record in history])


def _epochs(history: Sequence[HistoryRecord]) -> Float64:
    return np.array([float(record.epoch) for record in history])


AGAINST = {
    "time": Spent("time", _times, format_duration),
    "rows": Spent("rows", _rows, format_count),
    "cost": Spent("cost", _costs, format_money),
    "epochs": Spent("epochs", _epochs, lambda number: f"{number:g}"),
}


@dataclass(frozen=True)
class Curve:
    """Points of one loss; of none that is not finite."""

    name: str
    x: Float64  # (n_points,)
    y: Float64  # (n_points,)


def curves(history: Sequence[HistoryRecord], against: str) -> list[Curve]:
    """Training loss, and held-out loss if it was measured."""
    x = AGAINST[against].of(history)
    found = []
    losses = {
        TRAINING: [record.loss for record in history],
        HELD_OUT: [
            math.nan if record.validation_loss is None else record.validation_loss for record in history
        ],
    }
    for name, values in losses.items():
        y = np.array(values)
        known = np.isfinite(y)
        if known.any():
            found.append(Curve(name, x[known], y[known]))
    return found


def beginning(x: Float64) -> float:
    """Where an axis begins: an epoch before the first, for of all time starting alone may be the most."""
    return max(0.0, float(x[0] - (x[-1] - x[0]) / (len(x) - 1))) if len(x) > 1 else 0.0


def is_wide(shown: Sequence[Curve]) -> bool:
    """Whether the losses differ so much that only a logarithmic axis shows them all."""
    values = np.concatenate([curve.y for curve in shown])
    return bool(values.min() > 0 and values.max() > _WIDE * values.min())


def marks(low: float, high: float, at_most: int) -> list[float]:
    """Round numbers from ``low`` to ``high``, evenly apart."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / at_most))
    for factor in (1, 2, 5, 10, 20, 50):
        first, last = math.ceil(low / (step * factor) - 1e-9), math.floor(high / (step * factor) + 1e-9)
        if last - first + 1 <= at_most:
            return [i * step * factor for i in range(first, last + 1)]
    raise AssertionError("a hundred times the step is more than the range")


def wide_marks(low: float, high: float, at_most: int) -> list[float]:
    """The same for a logarithmic axis: 1, 2 and 5 times powers of ten, or these powers alone."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [factor * 10.0**power for power in powers for factor in factors]
        inside = [mark for mark in found if low <= mark <= high]
        if len(inside) <= at_most:
            return inside
    return inside[:: -(-len(inside) // at_most)]
