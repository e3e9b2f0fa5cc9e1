"""Documents to counts of words: which words are counted is decided over all documents."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np

from squall.data.counts import CountRows
from squall.data.documents import Document
from squall.data.labels import Classes, LabelKind, are_numbers, exact_numbers, sorted_classes
from squall.errors import DataError
from squall.records import Float64, Int32, Int64

_DOCUMENTS = 1 << 12  # turned into rows at once


@dataclass(frozen=True, slots=True)
class Rule:
    """What is a word, and which words are counted."""

    token_pattern: str
    lowercase: bool
    min_df: int | float
    max_df: int | float
    max_features: int | None
    stop_words: frozenset[str]

    def words(self, text: str) -> list[str]:
        """The words of a text, in order."""
        return re.findall(self.token_pattern, text.lower() if self.lowercase else text)


class TextReader:
    """A reader of documents; making it goes through all of them.

    Parameters
    ----------
    documents : iterator of Document
        What there is to read.
    rule : Rule
        Which words are counted.
    vocabulary : list of str or None
        The words, if they are known.
    spool : file
        Where counts wait, in no more memory than there are different words, until it is known which of
        them are wanted.
    label_kind : str
        As for :func:`squall.data.labels.are_numbers`.

    Attributes
    ----------
    vocabulary : list of str
        The words that are counted, in order of their code points, or as given.
    classes : array or None
        The sorted label map; None if there are no labels, or they are numbers.

    Raises
    ------
    DataError
        If a document cannot be read and is not to be skipped, or no word is left.
    """

    def __init__(
        self,
        documents: Iterator[Document],
        rule: Rule,
        vocabulary: list[str] | None,
        spool: IO[bytes],
        label_kind: LabelKind = "auto",
    ) -> None:
        self._rule, self._spool, self._fixed = rule, spool, vocabulary is not None
        self._place = {word: i for i, word in enumerate(vocabulary or [])}
        self._labels: dict[str, int] = {}
        self._documents = self._times = np.zeros(0, dtype=np.int64)  # with each word; of each word
        self._n = self._chunks = 0
        while chunk := list(itertools.islice(documents, _DOCUMENTS)):
            self._count(chunk)
        self.vocabulary = self._chosen() if vocabulary is None else vocabulary
        self.classes: Classes | None = None
        self._label_of: Int32 | Float64 = np.zeros(0, dtype=np.int32)  # by number of its text
        if self._labels:
            self.classes, self._label_of = _labels_of(list(self._labels), label_kind)

    def _count(self, chunk: list[Document]) -> None:
        """Spool the counts of some documents, with words and labels in order of first appearance."""
        counted = [Counter(self._rule.words(document.text)) for document in chunk]
        if self._fixed:
            counted = [Counter({w: n for w, n in c.items() if w in self._place}) for c in counted]
        place, labels = self._place, self._labels
        lengths = np.array([len(c) for c in counted], dtype=np.int64)
        words = np.array([place.setdefault(w, len(place)) for c in counted for w in c], dtype=np.int32)
        counts = np.array([n for c in counted for n in c.values()], dtype=np.int64)
        codes = [labels.setdefault(d.label, len(labels)) for d in chunk if d.label is not None]
        for array in (lengths, words, counts, np.array(codes, dtype=np.int32)):
            np.save(self._spool, array, allow_pickle=False)
        self._n += len(chunk)
        self._chunks += 1
        self._documents = _grown(self._documents, np.bincount(words, minlength=len(place)))
        times = np.bincount(words, weights=counts, minlength=len(place)).astype(np.int64)
        self._times = _grown(self._times, times)

    def _chosen(self) -> list[str]:
        rule, n, words = self._rule, self._n, list(self._place)
        if not words:
            what = f"is no word in {n:,} document{'s' if n > 1 else ''}" if n else "are no documents"
            raise DataError(f"there {what}", fix="check token_pattern, and where the text is")
        least = rule.min_df if isinstance(rule.min_df, int) else rule.min_df * n
        most = rule.max_df if isinstance(rule.max_df, int) else rule.max_df * n
        wanted = (self._documents >= least) & (self._documents <= most)
        kept = [words[i] for i in np.flatnonzero(wanted).tolist() if words[i] not in rule.stop_words]
        if rule.max_features is not None:
            # Among words that are equally frequent the first of the alphabet stay.
            times = dict(zip(words, self._times.tolist(), strict=True))
            kept = sorted(kept, key=lambda word: (-times[word], word))[: rule.max_features]
        if not kept:
            raise DataError(
                f"none of {len(words):,} different words in {n:,} documents is left",
                fix="lower min_df, raise max_df, or give fewer stop_words",
            )
        return sorted(kept)

    def rows(self) -> Iterator[CountRows]:
        """The documents' counts, in their order."""
        final = {word: i for i, word in enumerate(self.vocabulary)}
        place = np.array([final.get(word, -1) for word in self._place], dtype=np.int32)
        self._spool.seek(0)
        for _ in range(self._chunks):
            lengths, words, counts, codes = (np.load(self._spool, allow_pickle=False) for _ in range(4))
            row, words = np.repeat(np.arange(len(lengths)), lengths), place[words]
            kept = words >= 0
            row, words, counts = row[kept], words[kept], counts[kept]
            order = np.lexsort((words, row))
            labels = self._label_of[codes] if len(codes) else None
            n_words = np.bincount(row, minlength=len(lengths))
            yield CountRows(n_words, words[order], counts[order], labels)


def _labels_of(texts: list[str], kind: LabelKind) -> tuple[Classes | None, Int32 | Float64]:
    """(label map, class of each text); (None, the numbers that they are), if they are too many."""
    numeric, integer = _all_numbers(texts)
    if are_numbers(kind, len(texts), numeric, "label"):
        number = int if integer else float
        return None, exact_numbers(np.array([number(text) for text in texts]), "label")
    return sorted_classes(texts, numeric, integer)


def _grown(total: Int64, more: Int64) -> Int64:
    more[: len(total)] += total
    return more


def _all_numbers(texts: list[str]) -> tuple[bool, bool]:
    """(whether all are finite numbers, whether all are integers)."""
    integer = all(re.fullmatch(r"[+-]?\d{1,18}", text) for text in texts)
    numeric = integer or all(
        re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?", text) for text in texts
    )
    return numeric, integer
