"""`read_libsvm`: LIBSVM and SVMlight text as a stored data set of one sparse column."""

from __future__ import annotations

from typing import Any, Literal

from squall.config import Problems, Run
from squall.data.dataset import Dataset
from squall.data.finding import Paths, find_inputs, path_problems
from squall.data.labels import LABEL_KINDS, LabelKind
from squall.data.libsvm_format import LibsvmFormat
from squall.data.parsing import read_text
from squall.data.reading import Storage, storage_of

_MAX_WIDTH = 2**31 - 1


def read_libsvm(
    path: Paths,
    *,
    index_base: int | Literal["auto"] = "auto",
    n_features: int | None = None,
    label_kind: LabelKind = "auto",
    wider: Literal["raise", "drop"] = "raise",
    duplicates: Literal["raise", "sum", "last"] = "raise",
    errors: Literal["raise", "skip"] = "raise",
    storage: Storage = None,
    run: Run | None = None,
) -> Dataset:
    """Read LIBSVM (SVMlight) text into a data set: a sparse column ``"x"``, and labels ``"y"``.

    A row is ``label [qid:integer] index:value index:value …  # comment``, each on a line of its
    own.  Blank lines and lines that are a comment are no rows; tabs, CRLF, a byte-order mark and a
    missing last line end are taken as they are meant.  Indices may come in any order.  Rows without
    a label can be read too, where none has one.

    The text is streamed into partitions of about 10 MB with bounded memory.  A second call with the
    same content and settings finds them and parses nothing.

    Parameters
    ----------
    path : str, path or sequence of these
        Files, folders, patterns (``"part-*.svm"``) or URLs of these (``s3://``, ``gs://``, ``az://``,
        ``https://``, ``file://``); plain, gzip, bzip2, xz or zstandard, known by their first bytes.
    index_base : 0, 1 or "auto"
        The index of the first feature.  ``"auto"``: 0 if an index 0 is anywhere in the set, else 1;
        decided once for all files.  Give it where training and test rows are read apart.
    n_features : int, optional
        The width; the largest index decides if None.  A narrower set is padded.
    label_kind : {"auto", "classes", "numbers"}
        What labels are: classes, which become the sorted label map, or numbers to predict.  ``"auto"``:
        classes, unless there are more than 10,000 different ones.
    wider : {"raise", "drop"}
        What to do about entries beyond ``n_features``.
    duplicates : {"raise", "sum", "last"}
        What to do about an index that comes twice in a row.
    errors : {"raise", "skip"}
        What to do about rows that cannot be read.  Skipped ones are counted, and the first ten told.
    storage : str, path or ObjectStore, optional
        Where to keep the data set; see :func:`squall.data.objects.default_storage`.
    run : Run, optional
        Where functions parse the ranges of large inputs; default: the ``with squall.Run(…)`` around
        the call.

    Raises
    ------
    SettingError
        If a setting is wrong; all of them are named at once.
    DataError
        If the text cannot be read; names file, line and column, the token, and what was expected.
    StoreError
        If the store refuses.

    Warns
    -----
    UserWarning
        If rows were skipped or entries dropped.

    Examples
    --------
    >>> train = squall.read_libsvm("a9a")  # doctest: +SKIP
    >>> test = squall.read_libsvm("a9a.t", n_features=123)  # doctest: +SKIP
    """
    _check_settings(path, index_base, n_features, label_kind, wider, duplicates, errors)
    form = LibsvmFormat(
        None if index_base == "auto" else int(index_base),
        None if n_features is None else int(n_features),
        wider,
        duplicates,
        errors,
        label_kind,
    )
    return read_text(form, find_inputs(path), storage_of(storage, run), run)


def _check_settings(
    path: Any, index_base: Any, n_features: Any, label_kind: Any, wider: Any, duplicates: Any, errors: Any
) -> None:
    problems = Problems("read_libsvm")
    for problem in path_problems(path):
        problems.add(problem)
    problems.integer("index_base", index_base, 0, high=1, auto=True)
    if n_features is not None:
        problems.integer("n_features", n_features, 1, high=_MAX_WIDTH)
    problems.choice("label_kind", label_kind, LABEL_KINDS)
    problems.choice("wider", wider, ["raise", "drop"])
    if n_features is None and wider == "drop":
        problems.add('wider="drop" says nothing without n_features: give the width')
    problems.choice("duplicates", duplicates, ["raise", "sum", "last"])
    problems.choice("errors", errors, ["raise", "skip"])
    problems.raise_if_any()
