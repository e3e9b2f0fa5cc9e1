"""Feature hashing: categorical columns become one sparse column of fixed width.

Slot of a value = MurmurHash3 x86 32-bit (seed 0) of the UTF-8 text ``column=value``, taken
as unsigned, modulo the width; a missing value hashes as the empty text.  A cross of columns hashes
as ``a=value␟b=value…`` (:mod:`squall.preprocessing.crossing`).  Where entries are signed, the sign is
a second hash of the same text (seed 1; odd means −1), so that values which meet in one slot cancel
rather than add up on average (Weinberger et al., ICML 2009).  All this is part of the format, so a
model reads the same everywhere.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from squall import _kernels
from squall.preprocessing.columns import text_column
from squall.preprocessing.crossing import crossed
from squall.records import CategoricalColumn, ColumnSpec, Float32, Int32, RawBlock, SparseColumn

SEED = 0
SIGN_SEED = 1


class HashTransform(msgspec.Struct, frozen=True, tag="hash"):
    """Replace ``columns``, if any, by one sparse column ``output`` of ``n_features`` slots.

    Every row has exactly one entry for each hashed column, and one for each of the ``crosses``
    (which are of hashed columns), of value 1, or of 1 or −1 where ``signed``; entries that meet
    in one slot add up.
    """

    columns: list[str]
    n_features: int
    output: str = "hashed"
    crosses: list[list[str]] = []
    signed: bool = False

    def apply(self, block: RawBlock) -> RawBlock:
        """Hash the columns; the others pass.

        Raises
        ------
        DataError
            If a column is not there or not categorical.
        """
        if not self.columns:
            return block
        texts = [(name, text_column(name, block)) for name in self.columns]
        texts += [
            (cross[0], crossed(cross, [text_column(n, block) for n in cross])) for cross in self.crosses
        ]
        slots = np.empty((block.n_rows, len(texts)), dtype=np.int32)
        for i, (name, column) in enumerate(texts):
            slots[:, i] = _slots(name, column, self.n_features, SEED)
        indptr = np.arange(block.n_rows + 1, dtype=np.int64) * len(texts)
        values = self._signs(block.n_rows, texts) if self.signed else None
        columns = {n: c for n, c in block.columns.items() if n not in self.columns}
        columns[self.output] = SparseColumn(indptr, slots.reshape(-1), values, self.n_features)
        return RawBlock(block.n_rows, columns, block.labels, block.weights, block.qid)

    def _signs(self, n_rows: int, texts: list[tuple[str, CategoricalColumn]]) -> Float32:
        signs = np.empty((n_rows, len(texts)), dtype=np.float32)
        for i, (name, column) in enumerate(texts):
            signs[:, i] = 1 - 2 * _slots(name, column, 2, SIGN_SEED)
        return signs.reshape(-1)

    def slot_names(self) -> list[str]:
        """A name for each slot."""
        return [f"{self.output}_{slot}" for slot in range(self.n_features)]

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """The hashed columns make way for the one they become, at the end."""
        if not self.columns:
            return columns
        kept = [c for c in columns if c.name not in self.columns]
        return [*kept, ColumnSpec(self.output, "sparse", self.n_features)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def _slots(name: str, column: CategoricalColumn, n: int, seed: int) -> Int32:
    prefix = f"{name}=".encode()
    missing = np.int32(_kernels.murmur3_32(prefix, seed) % n)
    known = _kernels.hash_slots(prefix, column.offsets, column.data, n, seed)
    return np.append(known, missing)[column.codes].astype(np.int32, copy=False)
