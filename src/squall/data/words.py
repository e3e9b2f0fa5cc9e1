"""`read_text`: documents as counts of their words, as a stored data set."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from squall.config import Problems
from squall.data.counts import count_blocks, write_counts
from squall.data.dataset import Dataset
from squall.data.documents import CsvDocuments, Documents, FileDocuments, LineDocuments, folder_of
from squall.data.encodings import encoding_problem, in_utf8, keeps_ascii
from squall.data.finding import Paths, find_below, path_problems
from squall.data.inputs import Seen
from squall.data.labels import LABEL_KINDS, LabelKind
from squall.data.reading import Storage, storage_of, stored_dataset
from squall.data.skipped import Skipped, skipped_warnings
from squall.data.tokens import Rule, TextReader
from squall.data.vocabulary import Vocabulary, read_vocabulary
from squall.errors import SettingError
from squall.records import Manifest

_READER_VERSION = 2


def read_text(
    path: Paths,
    *,
    column: str | None = None,
    label: str | None = None,
    label_kind: LabelKind = "auto",
    documents: Literal["file", "line"] | None = None,
    vocabulary: Vocabulary = None,
    token_pattern: str = r"\b\w\w+\b",
    lowercase: bool = True,
    min_df: float = 1,
    max_df: float = 1.0,
    max_features: int | None = None,
    stop_words: Sequence[str] = (),
    separator: str = ",",
    encoding: str = "utf-8",
    errors: Literal["raise", "skip"] = "raise",
    storage: Storage = None,
) -> Dataset:
    """Read documents into a data set: how often each word comes in each of them.

    The result has one sparse column ``counts``; ``dataset.dictionary("counts")`` has the words, in
    order of their code points.  Memory holds the different words and some documents at a time: counts
    wait in a temporary file until it is known which words are wanted.  The same documents and settings
    give the same numbers as scikit-learn's ``CountVectorizer``.

    Parameters
    ----------
    path : str, path or sequence of these
        Files, folders (all files below them), patterns or URLs, as for `read_csv`.
    column : str, optional
        The files are CSV files with a header, and this column holds the documents.
    label : str, optional
        With ``column`` the column of labels; without, ``"folder"``: the name of each file's folder.
    label_kind : {"auto", "classes", "numbers"}
        What labels are; as for `read_csv`.
    documents : str, optional
        Without ``column``: whether each ``"file"`` or each ``"line"`` is a document.  May be left out
        where ``path`` is a folder, a pattern or a list: then each file is.
    vocabulary : path or list of str, optional
        The words to count, such as those of the training data; what follows does not choose, then.
    token_pattern : str
        Regular expression of a word (of its group, if it has one).
    lowercase : bool
        Whether all is made lower case first.
    min_df, max_df : int or float
        Words that are in fewer or more documents are not counted: a number of documents, or as float
        a share of them.
    max_features : int, optional
        Only the words that come most often, of equals the first in the alphabet.
    stop_words : sequence of str
        Words that are not counted.
    separator : str
        What is between the fields of a CSV file: one ASCII character.
    encoding : str
        Of the text, as Python names it.  UTF-16 and UTF-32 are recognised by their byte-order mark.
    errors : {"raise", "skip"}
        What to do about a document that is not text in that encoding, or a malformed record.  Skipped ones
        are counted, and the first ten told.  (Lines and records of text whose lines cannot be told before
        it is decoded, such as UTF-16, are not skipped for their encoding.)
    storage : str, path or ObjectStore, optional
        Where to keep the data set; see :func:`squall.data.objects.default_storage`.

    Raises
    ------
    SettingError
        If a setting is wrong; all of them are named at once.
    DataError
        If a file cannot be read, a document is no text, or no word is left.
    StoreError
        If the store refuses.

    Warns
    -----
    UserWarning
        Of documents that were skipped.
    """
    rule = _checked_rule(
        {
            "path": path,
            "column": column,
            "label": label,
            "label_kind": label_kind,
            "documents": documents,
            "token_pattern": token_pattern,
            "lowercase": lowercase,
            "min_df": min_df,
            "max_df": max_df,
            "max_features": max_features,
            "stop_words": stop_words,
            "separator": separator,
            "encoding": encoding,
            "errors": errors,
        }
    )
    words = read_vocabulary(vocabulary)
    found_below = find_below(path)
    inputs, store = [found for _, found in found_below], storage_of(storage)
    if not keeps_ascii(encoding):
        inputs, encoding = in_utf8(inputs, encoding), "utf-8"
    if column is None and documents is None:
        if isinstance(path, str | os.PathLike) and len(inputs) == 1 and not found_below[0][0]:
            raise SettingError(
                f"read_text: is all of {inputs[0].name} one document?",
                fix='set documents="line" or "file", or for a CSV file column=',
            )
        documents = "file"
    found: Documents
    if column is not None:
        found = CsvDocuments(inputs, column, label, separator, encoding)
    elif documents == "line":
        found = LineDocuments(inputs, encoding)
    else:
        found = FileDocuments(inputs, encoding, label is not None)

    def write(prefix: str, seen: Seen) -> Manifest:
        skipped = Skipped(errors == "skip")
        with tempfile.TemporaryFile() as spool:
            reader = TextReader(found.read(skipped, seen), rule, words, spool, label_kind)
            known = reader.vocabulary
            blocks = count_blocks(reader.rows(), len(known))
            manifest = write_counts(store, prefix, blocks, len(known), known, inputs[0].name)
        classes = None if reader.classes is None else reader.classes.tolist()
        return msgspec.structs.replace(
            manifest,
            label=label,
            classes=classes,
            warnings=skipped_warnings([skipped], "document"),
        )

    folders = [folder_of(source) for source in inputs] if label == "folder" and column is None else []
    settings = [
        column,
        label,
        label_kind,
        documents,
        words,
        folders,
        separator,
        encoding,
        errors,
        _plain(rule),
    ]
    return stored_dataset("text", _READER_VERSION, inputs, settings, store, write)


def _plain(rule: Rule) -> list[Any]:
    # 1 and 1.0 mean different things.
    return [
        rule.token_pattern, rule.lowercase, repr(rule.min_df), repr(rule.max_df), rule.max_features,
        sorted(rule.stop_words),
    ]  # fmt: skip


def _checked_rule(s: dict[str, Any]) -> Rule:
    problems = Problems("read_text")
    for problem in (*_wrong_sources(s), *_wrong_words(s)):
        problems.add(problem)
    problems.raise_if_any()
    return Rule(
        s["token_pattern"],
        s["lowercase"],
        s["min_df"],
        s["max_df"],
        s["max_features"],
        frozenset(s["stop_words"]),
    )


def _wrong_sources(s: dict[str, Any]) -> list[str]:
    wrong = list(path_problems(s["path"]))
    wrong += [
        f"{name}={s[name]!r} is not a column's name"
        for name in ("column", "label")
        if s[name] is not None and not isinstance(s[name], str)
    ]
    if s["column"] is None and s["label"] not in (None, "folder"):
        wrong.append(f'label={s["label"]!r} without column=: only "folder" is possible')
    if s["documents"] not in (None, "file", "line"):
        wrong.append(f'documents={s["documents"]!r} is neither "file" nor "line"')
    elif s["documents"] is not None and s["column"] is not None:
        wrong.append("documents= and column= exclude each other")
    elif s["documents"] == "line" and s["label"] is not None:
        wrong.append('label= is not possible with documents="line"')
    separator = s["separator"]
    if (
        not (isinstance(separator, str) and len(separator) == 1 and separator.isascii())
        or separator in '"\r\n\0'
    ):
        wrong.append(f"separator={separator!r} is not one ASCII character other than a quote or line end")
    if problem := encoding_problem(s["encoding"]):
        wrong.append(problem)
    if s["label_kind"] not in LABEL_KINDS:
        wrong.append(f"label_kind={s['label_kind']!r} is none of {', '.join(map(repr, LABEL_KINDS))}")
    if s["errors"] not in ("raise", "skip"):
        wrong.append(f'errors={s["errors"]!r} is neither "raise" nor "skip"')
    return wrong


def _wrong_words(s: dict[str, Any]) -> list[str]:
    wrong = []
    try:
        if re.compile(s["token_pattern"]).groups > 1:
            wrong.append(f"token_pattern={s['token_pattern']!r} has more than one group")
    except (re.error, TypeError) as error:
        wrong.append(f"token_pattern={s['token_pattern']!r} is no regular expression: {error}")
    if not isinstance(s["lowercase"], bool):
        wrong.append(f"lowercase={s['lowercase']!r} is neither True nor False")
    for name in ("min_df", "max_df"):
        value = s[name]
        share = isinstance(value, float) and 0 <= value <= 1
        number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not (share or number):
            wrong.append(
                f"{name}={value!r} is neither a number of documents (1, 2, …) nor a share (0.0 to 1.0)"
            )
    features = s["max_features"]
    if features is not None and (isinstance(features, bool) or not isinstance(features, int) or features < 1):
        wrong.append(f"max_features={features!r} is not an integer >= 1")
    stop = s["stop_words"]
    if isinstance(stop, str) or not all(isinstance(word, str) for word in stop):
        wrong.append(f"stop_words={stop!r} is not a list of words")
    return wrong
