"""`read_parquet`: Parquet files as a stored data set, one row group after the other."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from squall.config import Problems
from squall.data.arrow import pyarrow
from squall.data.dataset import Dataset
from squall.data.finding import Paths, find_inputs, path_problems
from squall.data.ingest import store_blocks
from squall.data.inputs import Input, Seen
from squall.data.labels import LABEL_KINDS, LabelKind
from squall.data.parquet_reader import ParquetReader
from squall.data.reading import Storage, storage_of, stored_dataset
from squall.records import Manifest

_READER_VERSION = 2


def read_parquet(
    path: Paths,
    *,
    label: str | None = None,
    label_kind: LabelKind = "auto",
    weight: str | None = None,
    columns: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    storage: Storage = None,
) -> Dataset:
    """Read Parquet files into a data set.

    Row groups are streamed: memory holds some pages of each column and one partition.  The schema
    is decided for all files at once, from what is written about their row groups; a second call
    with the same content and settings finds the data set stored.

    Whole numbers and booleans become int64, or float64 if some are missing; other numbers float64
    (decimals of up to 15 digits, too); text and Parquet's dictionaries categories; vectors
    (fixed_size_list of numbers) dense columns.  Dates, nested and binary values are refused:
    choose the other columns.

    Parameters
    ----------
    path : str, path or sequence of these
        Files, folders (all ``*.parquet`` below them), patterns or URLs, as for `read_csv`; of objects in
        a store the ranges that are needed are asked for.
    label : str, optional
        The label column; it is removed from the features.
    label_kind : {"auto", "classes", "numbers"}
        What labels are; as for `read_csv`.
    weight : str, optional
        The column of sample weights ≥ 0; it is removed from the features.
    columns : sequence of str, optional
        The feature columns to read; all if None, but for an index that pandas has written
        without a name.
    categorical : sequence of str
        Whole numbers and booleans that are categories, such as identifiers.
    storage : str, path or ObjectStore, optional
        Where to keep the data set; see :func:`squall.data.objects.default_storage`.

    Raises
    ------
    SettingError
        If a setting is wrong; all of them are named at once.
    DataError
        If a file is no Parquet file, damaged or without rows, files do not fit together, a column
        cannot be kept exactly, or a label is missing.
    MissingExtraError
        If pyarrow is not installed.
    StoreError
        If a store refuses.

    Warns
    -----
    UserWarning
        If a column holds no value at all; if values are written in folders' names (``year=2020/``),
        which are not read.
    """
    _check_settings(path, label, label_kind, weight, columns, categorical)
    pyarrow("read_parquet")
    inputs, store = find_inputs(path, "*.parquet"), storage_of(storage)
    _warn_of_hive(inputs)
    chosen = None if columns is None else list(columns)
    settings = [label, label_kind, weight, chosen, sorted(set(categorical))]

    def write(prefix: str, seen: Seen) -> Manifest:
        reader = ParquetReader(inputs, label, weight, chosen, list(categorical), label_kind)
        partitions, missing = store_blocks(store, prefix, reader.blocks(seen))
        return Manifest(
            rows=reader.n_rows,
            columns=reader.columns,
            partitions=partitions,
            label=label,
            classes=None if reader.classes is None else reader.classes.tolist(),
            missing=missing,
            warnings=[
                f"{inputs[0].name}: column {spec.name!r} holds no value; it is kept, as {spec.kind}"
                for spec in reader.columns
                if missing.get(spec.name) == reader.n_rows
            ],
        )

    return stored_dataset("parquet", _READER_VERSION, inputs, settings, store, write)


def _check_settings(
    path: Any, label: Any, label_kind: Any, weight: Any, columns: Any, categorical: Any
) -> None:
    problems = Problems("read_parquet")
    problems.choice("label_kind", label_kind, LABEL_KINDS)
    for problem in path_problems(path):
        problems.add(problem)
    for name, value in (("label", label), ("weight", weight)):
        if value is not None and not isinstance(value, str):
            problems.add(f"{name}={value!r} is not a column's name")
    for name, value in (("columns", columns), ("categorical", categorical)):
        if value is None and name == "columns":
            continue
        if (
            isinstance(value, str)
            or not isinstance(value, Sequence)
            or not all(isinstance(v, str) for v in value)
        ):
            problems.add(f"{name}={value!r} is not a list of columns' names")
        elif len(set(value)) != len(value):
            problems.add(f"{name} names a column twice")
    if label is not None and label == weight:
        problems.add(f"label and weight are both {label!r}")
    problems.raise_if_any()


def _warn_of_hive(inputs: list[Input]) -> None:
    for found in inputs:
        for part in PurePath(found.name).parts[:-1]:
            if "=" in part and not part.startswith("="):
                warnings.warn(
                    f"{found.name}: the value in the folder's name {part!r} is not read as a column",
                    UserWarning,
                    stacklevel=3,
                )
                return
