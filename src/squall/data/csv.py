"""`read_csv`: a CSV file as a stored data set, parsed once for each content and settings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from squall.data.csv_chunks import CsvFormat
from squall.data.csv_reader import CsvReader
from squall.data.dataset import Dataset
from squall.data.files import changed, checked_file, file_digest
from squall.data.ingest import store_blocks, stored_source
from squall.data.objects import ObjectStore, default_storage
from squall.data.partitions import FORMAT_VERSION
from squall.data.sources import digest
from squall.data.text import is_storable
from squall.errors import SettingError
from squall.paths import user_path
from squall.records import Manifest

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")

_CHUNK_BYTES = 1 << 20
_READER_VERSION = 2  # of what is made of a file; those stored by another are read again


def read_csv(
    path: str | os.PathLike[str],
    *,
    label: str | int | None = None,
    header: bool = True,
    delimiter: str = ",",
    missing: Sequence[str] = MISSING,
    categorical: Sequence[str] = (),
    storage: str | os.PathLike[str] | ObjectStore | None = None,
) -> Dataset:
    """Read a CSV file (RFC 4180, UTF-8; plain, gzip, bzip2 or xz) into a data set.

    The file is read in two passes of bounded memory: one decides the kind of each column over
    the *whole* file, one writes typed partitions of about 10 MB to the object store.  A second
    call with the same content and settings finds them there and parses nothing; what is found
    damaged is read from the file again.

    Columns are int64 if every value is an integer and none is missing, float64 if all are
    numbers, else categories.  Blanks around unquoted fields are dropped.  Blank lines are
    skipped; there are no comment lines.

    Parameters
    ----------
    path : str or path
        One local file.
    label : str or int, optional
        Name of the label column; without a header also its number, from 0 on (or from −1
        backwards).  It is removed from the features; its values become the sorted label
        map, but for numbers with more than 10,000 different ones, which stay numbers.
    header : bool
        Whether the first record holds the names; if not they are ``"0"``, ``"1"``, ….
    delimiter : str
        One ASCII character.
    missing : sequence of str
        Texts that mean "no value".
    categorical : sequence of str
        Columns that are text whatever they look like, so that codes keep leading zeros.
    storage : str, path or ObjectStore, optional
        Where to keep the data set; see :func:`squall.data.objects.default_storage`.

    Raises
    ------
    SettingError
        If a setting is wrong; all of them are named at once.
    DataError
        If the file cannot be read as a table, or a number in it is infinite; names file, line
        and field.
    StoreError
        If the store refuses.

    Warns
    -----
    UserWarning
        If a column holds no value at all, or numbers had to be kept as text (one of them is
        none, or they are written with decimal commas or separators); each time, not only when
        the file is parsed.
    """
    _check_settings(path, label, header, delimiter, missing, categorical)
    file = checked_file(user_path(path))
    store = storage if isinstance(storage, ObjectStore) else ObjectStore(storage or default_storage())
    settings = [label, header, delimiter, sorted(set(missing)), sorted(set(categorical))]
    stamp = _stamp(file)
    content = file_digest(file)
    prefix = f"datasets/{digest(['csv', _READER_VERSION, FORMAT_VERSION, content, settings])}"
    form = CsvFormat(file, header, ord(delimiter), [m.encode() for m in missing], _CHUNK_BYTES)

    def write() -> Manifest:
        now = _stamp(file)
        if now != stamp and file_digest(file) != content:  # much later, to mend what was damaged
            raise changed(str(file))
        manifest = _write(store, prefix, CsvReader(form, label, list(categorical)), file.name)
        if _stamp(file) != now:
            raise changed(str(file))  # before the manifest is stored: no data set opens
        return manifest

    source = stored_source(store, prefix, str(file), write)
    for warning in source.manifest.warnings:  # each time: whoever reads now may not have read then
        warnings.warn(f"{file}{warning}", UserWarning, stacklevel=2)
    return Dataset(source)


def _stamp(file: Path) -> tuple[int, int]:
    """What differs once a file has been written to."""
    stat = checked_file(file).stat()
    return stat.st_size, stat.st_mtime_ns


def _write(store: ObjectStore, prefix: str, reader: CsvReader, source: str) -> Manifest:
    """Store the rows; the manifest is what is left to store."""
    classes = None if reader.label is None else reader.label.classes
    partitions, missing_counts = store_blocks(store, prefix, reader.blocks())
    return Manifest(
        rows=reader.n_rows,
        columns=reader.columns,
        partitions=partitions,
        label=None if reader.label is None else reader.label.name,
        classes=None if classes is None else classes.tolist(),
        missing=missing_counts,
        source=source,
        warnings=reader.warnings,
        format_version=FORMAT_VERSION,
    )


def _check_settings(
    path: Any, label: Any, header: Any, delimiter: Any, missing: Any, categorical: Any
) -> None:
    wrong = []
    if not isinstance(path, str | os.PathLike):
        wrong.append(f"path={path!r} is not one path (lists of files are not read yet)")
    elif "://" in str(path):
        wrong.append(f"path={str(path)!r} is a URL: download the file first")
    elif any(c in str(path) for c in "*?[") and not user_path(path).exists():
        wrong.append(f"path={str(path)!r} is a pattern: name one file")
    if label is not None and (isinstance(label, bool) or not isinstance(label, str | int)):
        wrong.append(f"label={label!r} is not a column's name")
    if isinstance(label, int) and header is True:
        wrong.append(f"label={label!r} is a number, and the file has a header: give the column's name")
    if not isinstance(header, bool):
        wrong.append(f"header={header!r} is neither True nor False")
    if (
        not (isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii())
        or delimiter in '"\r\n\0'
    ):
        wrong.append(f"delimiter={delimiter!r} is not one ASCII character other than a quote or line end")
    for name, value in (("missing", missing), ("categorical", categorical)):
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            wrong.append(f"{name}={value!r} is not a sequence of strings")
        elif not all(map(is_storable, value)):
            wrong.append(f"{name}={value!r} holds a lone surrogate, which no file can")
    if isinstance(label, str) and not is_storable(label):
        wrong.append(f"label={label!r} holds a lone surrogate, which no column's name can")
    if wrong:
        raise SettingError("read_csv: " + "; ".join(wrong), fix="see help(squall.read_csv)")
