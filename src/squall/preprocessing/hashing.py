"""Feature hashing: categorical columns become one sparse column of fixed width.

Slot of a value = MurmurHash3 x86 32-bit (seed 0) of the UTF-8 text ``column=value``, taken
as unsigned, modulo the width; a missing value hashes as the empty text.  The hash is part of
the format, so a model reads the same everywhere (Weinberger et al., ICML 2009, without sign).
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from squall import _kernels
from squall.errors import DataError
from squall.records import CategoricalColumn, ColumnSpec, Int32, RawBlock, SparseColumn

SEED = 0


class HashTransform(msgspec.Struct, frozen=True, tag="hash"):
    """Replace ``columns``, if any, by one sparse column ``output`` of ``n_features`` slots.

    Every row has exactly one entry of value 1 for each hashed column; two columns whose
    values meet in one slot add up.
    """

    columns: list[str]
    n_features: int
    output: str = "hashed"

    def apply(self, block: RawBlock) -> RawBlock:
        """Hash the columns; the others pass.

        Raises
        ------
        DataError
            If a column is not there or not categorical.
        """
        if not self.columns:
            return block
        slots = np.empty((block.n_rows, len(self.columns)), dtype=np.int32)
        for i, name in enumerate(self.columns):
            column = block.columns.get(name)
            if not isinstance(column, CategoricalColumn):
                raise DataError(
                    "it is missing" if column is None else "it was categorical in fit and is not here",
                    where=f"column {name!r}",
                    fix=f"read the data with categorical=[{name!r}] and the same columns as in fit",
                )
            slots[:, i] = self._slots(name, column)
        indptr = np.arange(block.n_rows + 1, dtype=np.int64) * len(self.columns)
        columns = {n: c for n, c in block.columns.items() if n not in self.columns}
        columns[self.output] = SparseColumn(indptr, slots.reshape(-1), None, self.n_features)
        return RawBlock(block.n_rows, columns, block.labels, block.weights)

    def _slots(self, name: str, column: CategoricalColumn) -> Int32:
        prefix = f"{name}=".encode()
        missing = np.int32(_kernels.murmur3_32(prefix, SEED) % self.n_features)
        known = _kernels.hash_slots(prefix, column.offsets, column.data, self.n_features, SEED)
        return np.append(known, missing)[column.codes].astype(np.int32, copy=False)

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """The hashed columns make way for the one they become, at the end."""
        if not self.columns:
            return columns
        kept = [c for c in columns if c.name not in self.columns]
        return [*kept, ColumnSpec(self.output, "sparse", self.n_features)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]
