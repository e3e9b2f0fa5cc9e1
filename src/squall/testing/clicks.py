"""Synthetic click logs of any size from a seed, with a planted model: the best loss is known.

Each row has 13 fields of numbers (in logarithmic buckets, as is usual for such data) and 26
fields of names with heavy-tailed vocabularies of 10 to 10⁷ values, hashed together into one
space: 39 entries of value 1.  Labels are drawn from a logistic model whose weights are part
of the seed, so the loss of that model is the lowest that any can reach.  With ``interactions``
the planted model is a factorisation machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from squall.data.dataset import Dataset
from squall.data.sources import digest
from squall.records import Bill, CategoricalColumn, ColumnSpec, Float32, Int32, RawBlock, SparseColumn

N_FEATURES = 2**20
FIELDS = 39
_NUMBERS = 13
_PART_ROWS = 100_000
_BIAS, _SPREAD = -2.0, 0.25
_FACTORS = 4


@dataclass(frozen=True)
class ClickRows:
    """Some rows: hashed entries, labels, and the planted model's margins."""

    indices: Int32  # (n_rows, 39)
    labels: Int32  # (n_rows,)
    margins: Float32  # (n_rows,)

    def best_loss(self) -> float:
        """Mean log-loss of the planted model on these rows."""
        signed = np.where(self.labels == 1, -self.margins, self.margins).astype(np.float64)
        return float(np.mean(np.logaddexp(0.0, signed)))


class ClickSource:
    """Rows made when they are read; a data set's source (:class:`squall.data.sources.Source`).

    Parameters
    ----------
    n_rows : int
    seed : int
    part_rows : int
        Rows of a partition: what is in memory at a time.
    interactions : float
        Deviation, over rows, of what pairs of numbers add to the margin.
    """

    def __init__(
        self, n_rows: int, seed: int, part_rows: int = _PART_ROWS, interactions: float = 0.0
    ) -> None:
        self._seed, self._interactions = seed, interactions
        self.columns = [ColumnSpec("clicks", "sparse", N_FEATURES)]
        self.label: str | None = "click"
        self.classes: np.ndarray[tuple[int], np.dtype[np.int64]] | None = np.array([0, 1])
        self.missing: dict[str, int] | None = {}
        self.rows = [min(part_rows, n_rows - start) for start in range(0, n_rows, part_rows)]

    def read(self, partition: int) -> RawBlock:
        """All rows of one partition."""
        rows = self.make(partition)
        n = len(rows.labels)
        indptr = np.arange(n + 1, dtype=np.int64) * FIELDS
        column = SparseColumn(indptr, rows.indices.reshape(-1), None, N_FEATURES)
        return RawBlock(n, {"clicks": column}, rows.labels)

    def make(self, partition: int) -> ClickRows:
        """The same rows with what they were drawn from."""
        draw = np.random.default_rng([self._seed, partition])
        n = self.rows[partition]
        indices = np.empty((n, FIELDS), dtype=np.int32)
        for field in range(FIELDS):
            indices[:, field] = _slots(field, _values(draw, field, n))
        margins = (_BIAS + _weights(self._seed)[indices].sum(axis=1)).astype(np.float32)
        if self._interactions:
            margins += _pairs(self._seed, indices) * np.float32(self._interactions)
        labels = (draw.random(n) < 1.0 / (1.0 + np.exp(-margins))).astype(np.int32)
        return ClickRows(indices, labels, margins)

    def dictionary(self, column: str) -> CategoricalColumn | None:
        """None: clicks are hashed."""
        return None

    def key(self) -> str:
        """A name for the content."""
        version = ["clicks", 1] if not self._interactions else ["clicks of pairs", 1, self._interactions]
        return digest([*version, self._seed, self.rows])

    def bill(self) -> Bill | None:
        """None: clicks are not read."""
        return None


def clicks(n_rows: int, seed: int = 0, part_rows: int = _PART_ROWS, interactions: float = 0.0) -> Dataset:
    """A data set of synthetic clicks.

    Parameters
    ----------
    n_rows : int
        Any number; memory is bounded by ``part_rows``.
    seed : int
        Of the planted model and the rows.
    part_rows : int
        Rows made at a time.
    interactions : float
        Deviation of what pairs of numbers add to the margin; 0: the planted model is linear.
    """
    return Dataset(ClickSource(n_rows, seed, part_rows, interactions))


def _values(draw: np.random.Generator, field: int, n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Values of a field: buckets of a log-normal number, or ranks of a power law."""
    if field < _NUMBERS:
        numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = np.floor(
            2.0 * draw.normal(1.0 + field % 5, 1.0 + field % 3, n)
        ).astype(np.int64)
        return numbers
    # Inverse of the distribution function of a power law with exponent 1.1 over 1 … vocabulary.
    vocabulary = 10.0 ** (1.0 + 6.0 * (field - _NUMBERS) / (FIELDS - _NUMBERS - 1))
    top = vocabulary**-0.1
    ranks: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        (1.0 - draw.random(n) * (1.0 - top)) ** -10.0
    ).astype(np.int64)
    return ranks


def _slots(
    field: int, values: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Multiplicative hash of (field, value) into the space."""
    mixed = (values.astype(np.uint64) * np.uint64(40) + np.uint64(field)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(44)).astype(np.int32)


def _weights(seed: int) -> Float32:
    """The planted model."""
    draw = np.random.default_rng([seed, 2**31])
    return draw.normal(0.0, _SPREAD, N_FEATURES).astype(np.float32)


def _pairs(seed: int, indices: Int32) -> Float32:
    """What the planted factors make of each row's numbers, of deviation 1 or so: (n_rows,).

    Pairs of names are so many, and most so rare, that no number of rows would tell what they do.
    """
    draw = np.random.default_rng([seed, 2**31, 1])
    n_pairs = _NUMBERS * (_NUMBERS - 1) / 2
    factors = draw.normal(0.0, (_FACTORS * n_pairs) ** -0.25, (N_FEATURES, _FACTORS)).astype(np.float32)
    taken = factors[indices[:, :_NUMBERS]]  # (n_rows, 13, _FACTORS)
    total: Float32 = (np.square(taken.sum(axis=1)) - np.square(taken).sum(axis=1)).sum(axis=1) / 2
    return total
