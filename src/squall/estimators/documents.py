"""Documents to learn topics from: rows of counts, without labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from squall.data.dataset import Dataset
from squall.errors import DataError
from squall.estimators.targets import Blocks, Check
from squall.records import CategoricalColumn, Column, ColumnSpec, RawBlock, SparseColumn


class DocumentTarget:
    """Nothing is to be predicted: counts are checked and added up on their way.

    Attributes
    ----------
    classes : ndarray of str
        The words, by their numbers; empty where they have no names.
    documents, tokens : float
        How many there were in the training data.

    Raises
    ------
    DataError
        If a count is below 0, or all are 0.
    """

    def __init__(self, data: Dataset) -> None:
        self.classes: npt.NDArray[Any] = np.array(words_of(data), dtype=object)
        self.documents = self.tokens = 0.0

    def learn(self, data: Dataset, check: Check) -> None:
        """There is nothing to learn before."""

    def training(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The documents, without labels."""
        for block in blocks:
            self.documents += block.n_rows
            self.tokens += sum(_tokens(name, column) for name, column in block.columns.items())
            yield RawBlock(block.n_rows, block.columns)
        if not self.tokens:
            raise DataError("there are no words in any of the documents", fix="check the data given to fit")

    def held_out(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The same, not counted."""
        return checked_documents(blocks)


def checked_documents(blocks: Blocks) -> Blocks:
    """Documents without labels; DataError if a count is below 0."""
    for block in blocks:
        for name, column in block.columns.items():
            _tokens(name, column)
        yield RawBlock(block.n_rows, block.columns)


def words_of(data: Dataset) -> list[str]:
    """What the features of a data set stand for; none if one of them has no name.

    Words of a dictionary (`read_text`, `read_bow`), or names of columns.
    """
    words: list[str] = []
    for spec in data.columns:
        own = _names(data, spec)
        if own is None:
            return []
        words += own
    numbered = words == [str(i) for i in range(len(words))]  # columns of a table without names
    return [] if numbered else words


def _names(data: Dataset, spec: ColumnSpec) -> list[str] | None:
    strings = data.shared_strings(spec)
    if strings is not None and spec.kind == "sparse":
        return strings.strings()
    return [spec.name] if spec.kind not in ("sparse", "dense") else None


def _tokens(name: str, column: Column) -> float:
    """The sum of a column's counts."""
    if isinstance(column, CategoricalColumn):
        return 0.0  # refused, in words of its own, where features are laid out
    if isinstance(column, SparseColumn) and column.values is None:
        return float(len(column.indices))
    values = column.values
    assert values is not None
    if len(values) and float(np.min(values)) < 0:
        raise DataError(
            f"Negative values in data passed to LatentDirichletAllocation: a count is {np.min(values):g}",
            where=f"column {name!r}",
            fix="give counts of words, or other weights of at least 0",
        )
    total = float(np.sum(values, dtype=np.float64))
    return total if math.isfinite(total) else 0.0  # refused there, too
