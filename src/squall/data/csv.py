"""`read_csv`: CSV and TSV files as a stored data set of typed columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from squall.config import Problems, Run
from squall.data.csv_delimiter import delimiter_of
from squall.data.csv_format import CsvFormat
from squall.data.dataset import Dataset
from squall.data.dialects import Dialect
from squall.data.encodings import encoding_problem, in_utf8
from squall.data.finding import Paths, find_inputs, path_problems
from squall.data.labels import LABEL_KINDS, LabelKind
from squall.data.parsing import read_text
from squall.data.reading import Storage, storage_of
from squall.data.text import is_storable

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")


def read_csv(
    path: Paths,
    *,
    label: str | int | None = None,
    label_kind: LabelKind = "auto",
    weight: str | int | None = None,
    header: bool = True,
    delimiter: str = "auto",
    quoting: bool = True,
    missing: Sequence[str] = MISSING,
    categorical: Sequence[str] = (),
    encoding: str = "utf-8",
    errors: Literal["raise", "skip"] = "raise",
    storage: Storage = None,
    run: Run | None = None,
) -> Dataset:
    """Read CSV or TSV (RFC 4180) into a data set of typed columns.

    The text is streamed into partitions of about 10 MB with bounded memory.  The kind of each
    column is decided over the *whole* set: it is assumed from the first lines, and where later ones
    do not fit, the set is read a second time.  A second call with the same content and settings
    finds the partitions and parses nothing; what is found damaged is read again.

    Columns are int64 if every value is an integer and none is missing, float64 if all are
    numbers, else categories.  Blanks around unquoted fields are dropped.  Blank lines are
    skipped; there are no comment lines.

    Parameters
    ----------
    path : str, path or sequence of these
        Files, folders, patterns (``"part-*.csv"``) or URLs of these (``s3://``, ``gs://``, ``az://``,
        ``https://``, ``file://``); plain, gzip, bzip2, xz or zstandard, known by their first bytes.
        All must have the same columns.
    label : str or int, optional
        Name of the label column; without a header also its number, from 0 on (or from −1
        backwards).  It is removed from the features.
    label_kind : {"auto", "classes", "numbers"}
        What labels are: classes, which become the sorted label map, or numbers to predict.  ``"auto"``:
        classes, but for numbers with more than 10,000 different ones.
    weight : str or int, optional
        Name (or number) of the column that holds sample weights >= 0; removed from the features.
    header : bool
        Whether the first record holds the names; if not they are ``"0"``, ``"1"``, ….
    delimiter : str
        One ASCII character; ``"\\t"`` for TSV.  ``"auto"``: a comma, unless the first records of the first
        file are cut alike by tabs, semicolons or bars instead; `Dataset.info` says so.
    quoting : bool
        Whether a field may be quoted (``"``); if not, quotes are as other characters.
    missing : sequence of str
        Texts that mean "no value".
    categorical : sequence of str
        Columns that are text whatever they look like, so that codes keep leading zeros.
    encoding : str
        Of the text, as Python names it (``"cp1252"``, ``"utf-16"``, …).  UTF-16 and UTF-32 are recognised by
        their byte-order mark.  Text that is not UTF-8 is read in one stream, and all of it must be
        in its encoding.
    errors : {"raise", "skip"}
        What to do about rows that have another number of fields, quotes that do not match, text that
        is not UTF-8, an infinite number, no label or no weight.  Skipped ones are counted, and the first ten
        told.
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
        If the text cannot be read as a table, or a number in it is infinite; names file, line
        and field.
    StoreError
        If the store refuses.

    Warns
    -----
    UserWarning
        If a column holds no value at all, numbers had to be kept as text (one of them is
        none, or they are written with decimal commas or separators), or rows were skipped; each
        time, not only when the text is parsed.
    """
    _check_settings(
        path, label, label_kind, weight, header, delimiter, quoting, missing, categorical, encoding, errors
    )
    inputs = in_utf8(find_inputs(path), encoding)
    quote = ord('"') if quoting else 0
    between = delimiter_of(inputs[0], quote) if delimiter == "auto" else ord(delimiter)
    dialect = Dialect(header, between, [m.encode() for m in dict.fromkeys(missing)], quote)
    form = CsvFormat(dialect, label, weight, sorted(set(categorical)), errors, label_kind=label_kind)
    return read_text(form, inputs, storage_of(storage, run), run)


def _check_settings(
    path: Any,
    label: Any,
    label_kind: Any,
    weight: Any,
    header: Any,
    delimiter: Any,
    quoting: Any,
    missing: Any,
    categorical: Any,
    encoding: Any,
    errors: Any,
) -> None:
    problems = Problems("read_csv")
    for problem in path_problems(path):
        problems.add(problem)
    for setting, value in (("label", label), ("weight", weight)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            problems.add(f"{setting}={value!r} is not a column's name")
        elif isinstance(value, int) and header is True:
            problems.add(
                f"{setting}={value!r} is a number, and the file has a header: give the column's name"
            )
        elif isinstance(value, str) and not is_storable(value):
            problems.add(f"{setting}={value!r} holds a lone surrogate, which no column's name can")
    for setting, value in (("header", header), ("quoting", quoting)):
        if not isinstance(value, bool):
            problems.add(f"{setting}={value!r} is neither True nor False")
    is_one = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()
    if delimiter != "auto" and (not is_one or delimiter in '"\r\n\0'):
        problems.add(
            f'delimiter={delimiter!r} is not "auto", or one ASCII character other than a quote or line end'
        )
    for setting, value in (("missing", missing), ("categorical", categorical)):
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            problems.add(f"{setting}={value!r} is not a sequence of strings")
        elif not all(map(is_storable, value)):
            problems.add(f"{setting}={value!r} holds a lone surrogate, which no file can")
    if wrong := encoding_problem(encoding):
        problems.add(wrong)
    problems.choice("label_kind", label_kind, LABEL_KINDS)
    if label_kind == "numbers" and isinstance(label, str) and label in categorical:
        problems.add(f'label_kind="numbers", and categorical= names the label {label!r}: it cannot be both')
    problems.choice("errors", errors, ["raise", "skip"])
    problems.raise_if_any()
