"""Documents to counts of words: which words are counted is decided over all documents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from squall.data.counts import CountRows
from squall.data.delimited import Skipped
from squall.data.documents import Documents
from squall.data.labels import Classes, check_class_count, sorted_classes
from squall.errors import DataError

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
    """A reader of documents; making it goes through all of them once.

    Parameters
    ----------
    documents : Documents
        What there is to read.
    rule : Rule
        Which words are counted.
    vocabulary : list of str or None
        The words, if they are known.
    skipped : Skipped
        What to do with documents that cannot be read.

    Attributes
    ----------
    vocabulary : list of str
        The words that are counted, in order of their code points, or as given.
    classes : array or None
        The sorted label map.

    Raises
    ------
    DataError
        If a document cannot be read and is not to be skipped, or no word is left.
    """

    def __init__(
        self, documents: Documents, rule: Rule, vocabulary: Sequence[str] | None, skipped: Skipped
    ) -> None:
        self._documents, self._rule, self._skip = documents, rule, skipped.allowed
        survey = _Survey(rule, vocabulary is None)
        for document in documents.read(skipped):
            survey.add(document.text, document.label)
        self.vocabulary = survey.vocabulary() if vocabulary is None else list(vocabulary)
        self.classes: Classes | None = None
        self._class_of: dict[str, int] = {}
        if survey.labels:
            texts = sorted(survey.labels)
            check_class_count(len(texts), "label")
            numeric, integer = _all_numbers(texts)
            self.classes, codes = sorted_classes(texts, numeric, integer)
            self._class_of = dict(zip(texts, codes.tolist(), strict=True))

    def rows(self) -> Iterator[CountRows]:
        """The documents' counts, in their order."""
        place = {word: i for i, word in enumerate(self.vocabulary)}
        parts: list[tuple[list[int], list[int]]] = []
        labels: list[int] = []
        for document in self._documents.read(Skipped(self._skip)):
            known = (place[word] for word in self._rule.words(document.text) if word in place)
            counts = sorted(Counter(known).items())
            parts.append(([word for word, _ in counts], [n for _, n in counts]))
            if document.label is not None:
                labels.append(self._class_of[document.label])
            if len(parts) == _DOCUMENTS:
                yield _rows(parts, labels)
                parts, labels = [], []
        if parts:
            yield _rows(parts, labels)


class _Survey:
    """In how many documents each word is, and how often."""

    def __init__(self, rule: Rule, count: bool) -> None:
        self._rule, self._count = rule, count
        self._documents = Counter[str]()
        self._times = Counter[str]()
        self._n = 0
        self.labels: set[str] = set()

    def add(self, text: str, label: str | None) -> None:
        self._n += 1
        if label is not None:
            self.labels.add(label)
        if self._count:
            words = Counter(self._rule.words(text))
            self._documents.update(words.keys())
            if self._rule.max_features is not None:
                self._times.update(words)

    def vocabulary(self) -> list[str]:
        rule, n = self._rule, self._n
        if not self._documents:
            raise DataError(
                f"there is no word in {n:,} documents", fix="check token_pattern, and where the text is"
            )
        least = rule.min_df if isinstance(rule.min_df, int) else rule.min_df * n
        most = rule.max_df if isinstance(rule.max_df, int) else rule.max_df * n
        kept = [w for w, d in self._documents.items() if least <= d <= most and w not in rule.stop_words]
        if rule.max_features is not None:
            # Among words that are equally frequent the first of the alphabet stay.
            kept = sorted(kept, key=lambda word: (-self._times[word], word))[: rule.max_features]
        if not kept:
            raise DataError(
                f"none of {len(self._documents):,} different words in {n:,} documents is left",
                fix="lower min_df, raise max_df, or give fewer stop_words",
            )
        return sorted(kept)


def _rows(parts: list[tuple[list[int], list[int]]], labels: list[int]) -> CountRows:
    return CountRows(
        np.array([len(words) for words, _ in parts], dtype=np.int64),
        np.array([word for words, _ in parts for word in words], dtype=np.int32),
        np.array([n for _, counts in parts for n in counts], dtype=np.int64),
        np.array(labels, dtype=np.int32) if labels else None,
    )


def _all_numbers(texts: list[str]) -> tuple[bool, bool]:
    """(whether all are finite numbers, whether all are integers)."""
    integer = all(re.fullmatch(r"[+-]?\d{1,18}", text) for text in texts)
    numeric = integer or all(
        re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?", text) for text in texts
    )
    return numeric, integer
