"""CSV to typed columns in two passes: decide one schema over the whole file, then read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from squall._kernels import StringDictionary
from squall.data.csv_chunks import Chunk, CsvFormat, read_records
from squall.data.csv_survey import CsvLabel, Survey
from squall.data.files import changed
from squall.records import CategoricalColumn, Column, ColumnSpec, Float64, Int32, NumericColumn, RawBlock


class CsvReader:
    """A `squall.protocols.Reader` of one CSV file; making it runs the first pass.

    Parameters
    ----------
    form : CsvFormat
        The file, and how it is written.
    label : str, int or None
        Name (or number) of the label column.
    categorical : list of str
        Columns that are text whatever they look like.

    Attributes
    ----------
    columns : list of ColumnSpec
        The feature columns.
    label : CsvLabel or None
        The label.
    n_rows : int
        Number of records.
    warnings : list of str
        What a reader should know; each is to follow the file's name.

    Raises
    ------
    DataError
        If the file cannot be read as a table; names file, line and column.
    """

    def __init__(self, form: CsvFormat, label: str | int | None, categorical: list[str]) -> None:
        self._form = form
        survey = Survey(form, label, categorical)
        for chunk in read_records(form, survey.start):
            survey.add(chunk)
        survey.check()
        self.n_rows = survey.n_rows
        self.label = survey.finish_label()
        self.columns = survey.finish_columns()
        self.warnings = survey.warnings
        at = {name: i for i, name in enumerate(survey.names)}
        self._places = [at[spec.name] for spec in self.columns]

    def blocks(self, target_bytes: int = 10_000_000) -> Iterator[RawBlock]:
        """Rows in file order, in blocks of about ``target_bytes`` when stored."""
        block = _BlockBuilder(self.columns, self._places, self.label)
        n_rows = 0
        for chunk in read_records(self._form, lambda names: None):
            block.add(chunk)
            n_rows += chunk.n_rows
            if block.n_bytes >= target_bytes:
                yield block.finish()
                block = _BlockBuilder(self.columns, self._places, self.label)
        if n_rows != self.n_rows:
            raise changed(str(self._form.path))
        if block.n_rows:
            yield block.finish()


class _BlockBuilder:
    """Chunks of typed columns on their way to one block, which has dictionaries of its own."""

    def __init__(self, columns: list[ColumnSpec], places: list[int], label: CsvLabel | None) -> None:
        self._columns = [
            (spec, place, StringDictionary()) for spec, place in zip(columns, places, strict=True)
        ]
        self._parts: list[list[Any]] = [[] for _ in columns]
        self._label, self._labels = label, list[Int32 | Float64]()
        self.n_rows = self.n_bytes = 0

    def add(self, chunk: Chunk) -> None:
        self.n_rows += chunk.n_rows
        for parts, (spec, place, texts) in zip(self._parts, self._columns, strict=True):
            parts.append(self._read(chunk, spec, place, texts))
            self.n_bytes += parts[-1].nbytes
        if self._label is not None:
            codes = chunk.codes(self._label.column, self._label.texts)
            if len(self._label.texts) > len(self._label.class_of):
                raise changed(chunk.where(0, self._label.column))
            self._labels.append(self._label.class_of[codes])
            self.n_bytes += codes.nbytes

    def _read(self, chunk: Chunk, spec: ColumnSpec, place: int, texts: StringDictionary) -> Any:
        if spec.kind == "categorical":
            known = len(texts)
            codes = chunk.codes(place, texts)
            # New strings enter the block's dictionary: about their share of the text, and an offset each.
            added = len(texts) - known
            self.n_bytes += added * (8 + chunk.text_bytes(place) // chunk.n_rows)
            return codes
        if spec.kind == "int64":
            integers, absent, first_bad = chunk.int64(place)
            if first_bad >= 0 or absent.any():
                raise changed(chunk.where(max(first_bad, 0), place))
            return integers
        numbers, first_bad = chunk.float64(place)
        if first_bad >= 0:
            raise changed(chunk.where(first_bad, place))
        return numbers

    def finish(self) -> RawBlock:
        columns: dict[str, Column] = {}
        for parts, (spec, _, texts) in zip(self._parts, self._columns, strict=True):
            values = np.concatenate(parts)
            if spec.kind == "categorical":
                columns[spec.name] = CategoricalColumn(values, *texts.to_arrays())
            else:
                columns[spec.name] = NumericColumn(values)
        labels: Any = np.concatenate(self._labels) if self._label is not None else None  # of one dtype
        return RawBlock(self.n_rows, columns, labels)
