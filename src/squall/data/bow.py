"""`read_bow`: bags of words that someone has counted already, as a stored data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from squall.data.bow_readers import LdacReader, UciReader, is_uci
from squall.data.counts import CountRows, count_blocks, write_counts
from squall.data.dataset import Dataset
from squall.data.delimited import Skipped
from squall.data.inputs import find_inputs, local_paths
from squall.data.objects import ObjectStore
from squall.data.reading import Storage, stored_dataset
from squall.data.vocabulary import Vocabulary, read_vocabulary
from squall.errors import SettingError
from squall.records import Manifest

_READER_VERSION = 1


class _Reader(Protocol):
    width: int

    def rows(self) -> Iterator[CountRows]:
        """The documents."""


def read_bow(
    path: str | Path,
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
        A local file; plain, gzip, bzip2 or xz.
    vocabulary : path or list of str, optional
        The words in the order of their numbers, or a file with one on each line;
        ``dataset.dictionary("counts")`` then has them.
    format : str
        ``"uci"``, ``"ldac"`` or ``"auto"``: by the first three lines.
    errors : str
        What to do with a malformed record (of LDA-C: a document): ``"raise"`` an error, or ``"skip"``
        it and warn.
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
    wrong = []
    if format not in ("auto", "uci", "ldac"):
        wrong.append(f'format={format!r} is none of "auto", "uci", "ldac"')
    if errors not in ("raise", "skip"):
        wrong.append(f'errors={errors!r} is neither "raise" nor "skip"')
    if wrong:
        raise SettingError("read_bow: " + "; ".join(wrong), fix="see help(squall.read_bow)")
    words = read_vocabulary(vocabulary)
    inputs = find_inputs(path)
    if len(inputs) > 1:
        raise SettingError(f"path={str(path)!r} means {len(inputs):,} files: name one")
    (file,) = local_paths(inputs)

    def write(store: ObjectStore, prefix: str) -> Manifest:
        skipped = Skipped(errors == "skip")
        uci = is_uci(file) if format == "auto" else format == "uci"
        reader: _Reader = UciReader(file, words, skipped) if uci else LdacReader(file, words, skipped)
        blocks = count_blocks(reader.rows(), reader.width)
        manifest = write_counts(store, prefix, blocks, reader.width, words, file.name)
        return msgspec.structs.replace(manifest, warnings=skipped.warnings("records"))

    settings: list[Any] = [words, format, errors]
    return stored_dataset("bow", _READER_VERSION, inputs, settings, storage, write)
