"""Vocabularies: one word for each position of a column of counts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from squall.data.finding import find_one
from squall.data.inputs import Input
from squall.data.streams import BOM, read_chunks
from squall.data.text import check_storable
from squall.errors import DataError, SettingError

Vocabulary = str | os.PathLike[str] | Sequence[str] | None


def read_vocabulary(vocabulary: Vocabulary) -> list[str] | None:
    """The words of a list, or of a file that holds one on each line.

    Raises
    ------
    SettingError
        If it is neither.
    DataError
        If the file cannot be read, a line is blank or no UTF-8, or a word comes twice.
    """
    if vocabulary is None:
        return None
    if isinstance(vocabulary, str | os.PathLike):
        source = find_one(vocabulary, "vocabulary")
        words, where = _lines(source), f"{source.name}:"
    else:
        words, where = _listed(vocabulary), "vocabulary, word "
    place: dict[str, int] = {}
    for number, word in enumerate(words, 1):
        if not word:
            raise DataError("the line is blank", where=f"{where}{number}", fix="remove it")
        if word in place:
            raise DataError(
                f"the word {word!r} comes twice: also at {place[word]}",
                where=f"{where}{number}",
                fix="remove one",
            )
        place[word] = number
    check_storable(words, "vocabulary")
    return words


def _listed(vocabulary: Any) -> list[str]:
    if not isinstance(vocabulary, Sequence) or not all(isinstance(word, str) for word in vocabulary):
        raise SettingError(
            f"vocabulary={str(vocabulary)[:80]!r} is neither a file nor a list of words", fix="give either"
        )
    return list(vocabulary)


def _lines(source: Input) -> list[str]:
    raw = b"".join(read_chunks(source)).removeprefix(BOM)
    words = []
    for number, line in enumerate(raw.rstrip().split(b"\n"), 1):
        try:
            words.append(line.decode().strip())
        except UnicodeDecodeError as error:
            raise DataError(f"{line[:80]!r} is not UTF-8 text", where=f"{source.name}:{number}") from error
    return words
