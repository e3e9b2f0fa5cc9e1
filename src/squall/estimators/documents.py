"""Documents to learn topics from: rows of counts, without labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from squall.data.dataset import Dataset
from squall.errors import DataError
from squall.estimators.targets import Blocks, Check, Target
from squall.preprocessing.words import WordTransform
from squall.protocols import Objects
from squall.records import CategoricalColumn, Column, ColumnSpec, Float32, RawBlock, SparseColumn

LENT = 0.03
"""Tokens, as a share of the new documents', for which topics count with which another training begins."""


@dataclass(frozen=True)
class Topics:
    """What a fitted model knows: tokens (n_words, n_topics), what words they are of, of how many documents.

    ``step`` is that of online variational Bayes.
    """

    counts: Float32
    words: list[str]
    documents: float
    step: int

    @property
    def tokens(self) -> float:
        """How many they are."""
        return float(self.counts.sum(dtype=np.float64))


class DocumentTarget(Target):
    """Nothing is to be predicted: counts are checked and added up on their way.

    Topics of ``before`` are gone on from.  With ``adds`` the documents are more of those that these are
    of.  Otherwise they take their place: the topics fade, or they are lent and taken off in the end.

    Attributes
    ----------
    classes : ndarray of str
        The words, by their numbers; empty where they have no names.  Those that are new are the last.
    documents, tokens : float
        How many there are in the training data, and in what it is added to.

    Raises
    ------
    DataError
        If a count is below 0, or all are 0.
    """

    def __init__(
        self, data: Dataset, before: Topics | None = None, *, adds: bool = False, fades: bool = False
    ) -> None:
        own, known = words_of(data), [] if before is None else before.words
        words = [*known, *sorted(set(own) - set(known))] if known else own
        self.classes: npt.NDArray[Any] = np.array(words, dtype=object)
        self.before, self._lends = before, before is not None and not (adds or fades)
        self.documents = self.tokens = 0.0
        if before is not None and adds:
            self.documents, self.tokens = before.documents, before.tokens

    def learn(self, data: Dataset, check: Check) -> None:
        """There is nothing to learn before."""

    def features(self, data: Dataset) -> Dataset:
        """Counts of this model's words, whatever numbers they have in the data."""
        return by_words(data, self.classes.tolist())

    def training(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The documents, without labels."""
        tokens = 0.0
        for block in blocks:
            self.documents += block.n_rows
            tokens += sum(_tokens(name, column) for name, column in block.columns.items())
            yield RawBlock(block.n_rows, block.columns)
        if not tokens:
            raise DataError("there are no words in any of the documents", fix="check the data given to fit")
        self.tokens += tokens

    def held_out(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The same, not counted."""
        return checked_documents(blocks)

    def lent(self) -> Float32 | None:
        """(after `training`) Counts (n_words, n_topics) to begin with that stand for no documents."""
        if self.before is None or not self._lends:
            return None
        return self.beginning(LENT * self.tokens / self.before.tokens)

    def keep(self, objects: Objects, folder: str) -> Float32 | None:
        """What is lent, to be taken off in the end; see `recalled_loan`."""
        lent = self.lent()
        if lent is not None:
            objects.put(_loan_key(folder), save({"lent": lent}))
        return lent

    def beginning(self, scale: float = 1.0) -> Float32:
        """What was known before, times ``scale``: (n_words, n_topics)."""
        assert self.before is not None
        counts = self.before.counts
        scaled = counts * np.float32(scale)
        new = max(0, len(self.classes) - len(counts))
        return np.vstack([scaled, np.zeros((new, counts.shape[1]), dtype=np.float32)])


def recalled_loan(objects: Objects, folder: str) -> Float32 | None:
    """What the topics of a job began with, as `DocumentTarget.keep` has put it into its folder."""
    data = objects.find(_loan_key(folder))
    return None if data is None else load(bytes(data))["lent"]


def _loan_key(folder: str) -> str:
    return f"{folder}/lent.safetensors"


def by_words(data: Dataset, known: list[str]) -> Dataset:
    """Counts of the words ``known``, by name, if both they and those of the data have names."""
    own = words_of(data)
    named = len(data.columns) == 1 and data.columns[0].kind == "sparse"
    if not (named and own and known) or own == known:
        return data
    return data.with_transform(WordTransform(own, known))


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
