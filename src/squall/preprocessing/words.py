"""Counts of words, by the vocabulary of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from squall.records import ColumnSpec, RawBlock, SparseColumn


class WordTransform:
    """The only column of a data set, whose features are ``words``, as counts of the words ``known``.

    Others are left out.
    """

    def __init__(self, words: Sequence[str], known: Sequence[str]) -> None:
        numbers = {word: i for i, word in enumerate(known)}
        self._words, self._known = list(words), list(known)
        self._translation = np.array([numbers.get(word, -1) for word in words], dtype=np.int32)

    def apply(self, block: RawBlock) -> RawBlock:
        """See :class:`squall.protocols.BlockTransform`."""
        ((name, column),) = block.columns.items()
        assert isinstance(column, SparseColumn)
        indices = self._translation[column.indices]
        rows = np.repeat(np.arange(block.n_rows), np.diff(column.indptr))
        order = np.lexsort((indices, rows))
        order = order[indices[order] >= 0]
        indptr = np.append(0, np.cumsum(np.bincount(rows[order], minlength=block.n_rows))).astype(np.int64)
        values = None if column.values is None else column.values[order]
        counts = SparseColumn(indptr, indices[order], values, len(self._known))
        return RawBlock(block.n_rows, {name: counts}, block.labels, block.weights, block.qid)

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """See :class:`squall.protocols.BlockTransform`."""
        return [msgspec.structs.replace(spec, width=len(self._known)) for spec in columns]

    def to_dict(self) -> dict[str, Any]:
        """See :class:`squall.protocols.BlockTransform`."""
        return {"type": "words", "words": self._words, "known": self._known}
