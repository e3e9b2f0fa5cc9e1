"""Initial values of a table: each a pure function of the seed, the row and the column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squall.errors import StoreError
from squall.records import Float32, InitialValues, Int64

_UInt64 = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_AT_ONCE = 1 << 14  # values, of which a dozen intermediate arrays stay in a cache


def check_initial(initial: InitialValues) -> None:
    """Raise `StoreError` unless values can be made by it."""
    known = np.isfinite(initial.scale) and initial.scale >= 0 and initial.zero_columns >= 0
    if not (known and 0 <= initial.seed < 1 << 64):
        raise StoreError(
            f"{initial} cannot be",
            where="initial values",
            fix="give a finite scale and zero_columns of at least 0, and a seed from 0 to 2**64 - 1",
        )


def initial_values(initial: InitialValues, rows: Int64, dim: int) -> Float32:
    """Values (n, dim) of rows, by their numbers in the whole table.

    A counter-based generator: SplitMix64's finaliser (Steele, Lea, Flood 2014) of seed and place;
    normal values by Box and Muller (1958).
    """
    values = np.empty((len(rows), dim), dtype=np.float32)
    piece = max(1, _AT_ONCE // dim)
    for start in range(0, len(rows), piece):
        values[start : start + piece] = _some_values(initial, rows[start : start + piece], dim)
    return values


def _some_values(initial: InitialValues, rows: Int64, dim: int) -> npt.NDArray[np.float64]:
    columns = np.arange(dim, dtype=np.int64)
    place = (rows[:, None] * dim + columns).astype(np.uint64)
    key = _mixed(np.array([initial.seed], dtype=np.uint64))
    spread = np.where(columns < initial.zero_columns, 0.0, initial.scale)
    first = _fraction(_mixed(_even(place) * _GOLDEN + key))
    if initial.kind == "uniform":
        return np.asarray((2.0 * first - 1.0) * spread)
    second = _fraction(_mixed((_even(place) | np.uint64(1)) * _GOLDEN + key))
    normal = np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second)
    return np.asarray(normal * spread)


def _even(x: _UInt64) -> _UInt64:
    return x << np.uint64(1)


def _mixed(x: _UInt64) -> _UInt64:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _fraction(x: _UInt64) -> npt.NDArray[np.float64]:
    """In [0, 1), of the upper 53 bits."""
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53
