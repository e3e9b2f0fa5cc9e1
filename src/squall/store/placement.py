"""Which rows of a table a shard holds, and what they are called there; without I/O."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from squall.errors import StoreError
from squall.records import Int64, TableSpec

MAX_SHARDS = 1024
"""Shards that one store may have."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The part of one shard of ``n_shards`` in a table.

    Its rows keep their order: local row ``i`` is row ``first + i * step`` of the whole table.

    Attributes
    ----------
    shard, n_shards : int
        Whose part.
    first, step : int
        Of the shard's rows in the whole table.
    rows : int
        How many they are.
    """

    shard: int
    n_shards: int
    first: int
    step: int
    rows: int

    @staticmethod
    def of(spec: TableSpec, shard: int, n_shards: int) -> Placement:
        """What it holds; it may have no rows of a small table.  `StoreError` if there is no such shard."""
        if not 0 <= shard < n_shards <= MAX_SHARDS:
            raise StoreError(
                f"there cannot be a shard {shard} of {n_shards}",
                where=f"table {spec.name!r}",
                fix=f"use 1 to {MAX_SHARDS} shards",
            )
        if spec.sharding == "hash":
            return Placement(shard, n_shards, shard, n_shards, len(range(shard, spec.rows, n_shards)))
        size = stretch(spec.rows, n_shards)
        first = min(shard * size, spec.rows)
        return Placement(shard, n_shards, first, 1, min(size, spec.rows - first))

    def local(self, spec: TableSpec) -> TableSpec:
        """The table as the shard itself sees it: never without a row, lest it be no table."""
        regularized = len(range(self.first, min(spec.regularized_rows, spec.rows), self.step))
        return msgspec.structs.replace(
            spec, rows=max(1, self.rows), regularized_rows=min(regularized, self.rows)
        )

    def globals(self, start: int, stop: int) -> Int64:
        """Numbers in the whole table of local rows ``start`` to ``stop - 1``."""
        return self.first + self.step * np.arange(start, stop, dtype=np.int64)

    @property
    def index(self) -> slice:
        """Its rows as an index into the whole table."""
        return slice(self.first, self.first + self.rows * self.step, self.step)


def stretch(rows: int, n_shards: int) -> int:
    """Rows of a shard when a table is cut into stretches."""
    return -(-rows // n_shards)


def split(spec: TableSpec, rows: Int64, n_shards: int) -> list[tuple[Int64, Int64]]:
    """For each shard: positions in ``rows`` that are its own, and these rows' local numbers."""
    if spec.sharding == "hash":
        local, owner = np.divmod(rows, n_shards)
    else:
        owner, local = np.divmod(rows, stretch(spec.rows, n_shards))
    parts = []
    for shard in range(n_shards):
        at = np.flatnonzero(owner == shard)
        parts.append((at, local[at]))
    return parts
