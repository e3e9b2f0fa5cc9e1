"""A block of typed columns that CSV text is read into, chunk by chunk, each value straight into its place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from squall._kernels import ColumnReading, StringDictionary
from squall.data.csv_columns import Chunk, Mask
from squall.data.csv_schema import Kind
from squall.records import CategoricalColumn, Column, NumericColumn, RawBlock

_DTYPES: dict[str, np.dtype[Any]] = {
    "int64": np.dtype(np.int64),
    "float64": np.dtype(np.float64),
    "categorical": np.dtype(np.int32),
}

Array = npt.NDArray[Any]


class _Place(NamedTuple):
    """Where the values of one column go."""

    column: int
    name: str
    dtype: np.dtype[Any]
    texts: StringDictionary | None  # of a column of text


class CsvBlock:
    """Rows on their way to one block, which has dictionaries of its own.

    Parameters
    ----------
    names : list of str
    kinds : list of str
        Of the columns; those of labels and weights are not read here, but given to `keep`.
    block_bytes : int
        That it will have, about.
    """

    def __init__(self, names: list[str], kinds: list[Kind], block_bytes: int) -> None:
        self._places = [
            _Place(i, name, _DTYPES[kind], StringDictionary() if kind == "categorical" else None)
            for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
            if kind in _DTYPES
        ]
        self._row_bytes = sum(place.dtype.itemsize for place in self._places)
        self._expected_rows = block_bytes // max(1, self._row_bytes)
        self._arrays = [np.empty(0, place.dtype) for place in self._places]
        self._labels: list[Array] = []
        self._weights: list[Array] = []
        self.n_rows = self._n_read = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of the columns, dictionaries included."""
        return self.n_rows * self._row_bytes + sum(p.texts.n_bytes for p in self._places if p.texts)

    def read(self, chunk: Chunk) -> list[tuple[int, Array, tuple[int, int]]]:
        """Read a chunk behind the rows; it does not count until `keep`.

        Returns
        -------
        list of (column, values, (evidence, first bad row))
            See :func:`squall._kernels.csv_read_columns`.
        """
        self._n_read = chunk.n_rows
        end = self.n_rows + chunk.n_rows
        if self._arrays and end > len(self._arrays[0]):
            self._reserve(max(end + end // 2, self._expected_rows + chunk.n_rows))
        columns: list[ColumnReading] = [
            (p.column, array, p.texts) for p, array in zip(self._places, self._arrays, strict=True)
        ]
        found = chunk.columns(columns, self.n_rows)
        return [
            (column, array[self.n_rows : end], what)
            for (column, array, _), what in zip(columns, found, strict=True)
        ]

    def keep(self, usable: Mask, labels: Array | None, weights: Array | None) -> None:
        """Those of the rows just read belong to the block."""
        start, end = self.n_rows, self.n_rows + self._n_read
        self.n_rows += int(np.count_nonzero(usable))
        if self.n_rows < end:
            for array in self._arrays:
                array[start : self.n_rows] = array[start:end][usable]
        for parts, more in ((self._labels, labels), (self._weights, weights)):
            if more is not None:
                parts.append(more if self.n_rows == end else more[usable])

    def finish(self) -> RawBlock:
        """The block, whose arrays are written to again after `clear`."""
        columns: dict[str, Column] = {}
        for place, array in zip(self._places, self._arrays, strict=True):
            values = array[: self.n_rows]
            columns[place.name] = (
                NumericColumn(values)
                if place.texts is None
                else CategoricalColumn(values, *place.texts.to_arrays())
            )
        labels, weights = (
            np.concatenate(parts) if parts else None for parts in (self._labels, self._weights)
        )
        return RawBlock(self.n_rows, columns, labels, weights)

    def clear(self) -> None:
        """Begin another block in the same memory, which the system takes its time to give."""
        for place in self._places:
            if place.texts is not None:
                place.texts.clear()
        self._labels, self._weights, self.n_rows = [], [], 0

    def _reserve(self, n_rows: int) -> None:
        """Have place for so many; the rows expected should need no more than the first time."""
        for i, array in enumerate(self._arrays):
            larger = np.empty(n_rows, array.dtype)
            larger[: self.n_rows] = array[: self.n_rows]
            self._arrays[i] = larger
