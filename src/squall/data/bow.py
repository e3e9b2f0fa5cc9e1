"""`read_bow`: bags of words that someone has counted already, as a stored data set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import msgspec

from squall.config import Problems
from squall.data.bow_readers import LdacReader, UciReader, is_uci
from squall.data.counts import CountRows, count_blocks, write_counts
from squall.data.dataset import Dataset
from squall.data.finding import find_one
from squall.data.inputs import Seen
from squall.data.reading import Storage, storage_of, stored_dataset
from squall.data.skipped import Skipped, skipped_warnings
from squall.data.vocabulary import Vocabulary, read_vocabulary
from squall.records import Manifest

_READER_VERSION = 1


class _Reader(Protocol):
    width: int

    def rows(self, seen: Seen) -> Iterator[CountRows]:
        """The documents."""


def read_bow(
    path: str | os.PathLike[str],
    *,
    vocabulary: Vocabulary = None,
    format: Literal["auto", "uci", "ldac"] = "auto",
    errors: Literal["raise", "skip"] = "raise",
    storage: Storage = None,
) -> Dataset:
    """Read a bag of words into a data set: one sparse column ``counts``, a row for each document.

    UCI's ``docword`` files (three lines with the numbers of documents, words and records; then
    ``document word count``, numbered from 1 and sorted by document) and Blei's LDA-C (a line for each
    document: the number of different words, then ``word:count``, numbered from 0).  A UCI file is read in
    one pass of bounded memory; LDA-C in two if no vocabulary says how many words there are.

    Parameters
    ----------
    path : str or path
        A file or its URL; plain, gzip, bzip2, xz or zstandard.
    vocabulary : path or list of str, optional
        The words in the order of their numbers, or a file (or its URL) with one on each line;
        ``dataset.dictionary("counts")`` then has them.
    format : str
        ``"uci"``, ``"ldac"`` or ``"auto"``: by the first three lines.
    errors : {"raise", "skip"}
        What to do about a malformed record (of LDA-C: a document).  Skipped ones are counted, and the
        first ten told.
    storage : str, path or ObjectStore, optional
        Where to keep the data set; see :func:`squall.data.objects.default_storage`.

    Raises
    ------
    SettingError
        If a setting is wrong.
    DataError
        If the file cannot be read, is cut short, or a record is malformed: a number that is none, beyond the
        vocabulary, or a word that comes twice in a document; names file, line and field.
    StoreError
        If the store refuses.

    Warns
    -----
    UserWarning
        Of records that were skipped.
    """
    problems = Problems("read_bow")
    problems.choice("format", format, ["auto", "uci", "ldac"])
    problems.choice("errors", errors, ["raise", "skip"])
    problems.raise_if_any()
    words = read_vocabulary(vocabulary)
    source, store = find_one(path, "path"), storage_of(storage)

    def write(prefix: str, seen: Seen) -> Manifest:
        skipped = Skipped(errors == "skip")
        uci = is_uci(source) if format == "auto" else format == "uci"
        reader: _Reader = UciReader(source, words, skipped) if uci else LdacReader(source, words, skipped)
        blocks = count_blocks(reader.rows(seen), reader.width)
        manifest = write_counts(store, prefix, blocks, reader.width, words, source.name)
        return msgspec.structs.replace(manifest, warnings=skipped_warnings([skipped], "record"))

    settings: list[Any] = [words, format, errors]
    return stored_dataset("bow", _READER_VERSION, [source], settings, store, write)
