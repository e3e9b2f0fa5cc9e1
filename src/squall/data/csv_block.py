"""A block of typed columns that CSV text is read into, chunk by chunk, each value straight into its place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from squall._kernels import ColumnReading, StringDictionary
from squall.data.csv_columns import Chunk, Mask
from squall.data.csv_schema import Kind
from squall.records import CategoricalColumn, Column, NumericColumn, RawBlock, SparseColumn

_DTYPES: dict[str, np.dtype[Any]] = {
    "int64": np.dtype(np.int64),
    "float64": np.dtype(np.float64),
    "categorical": np.dtype(np.int32),
}

HASHED = "hashed"
"""The sparse column of slots, named as `squall.FeatureHasher` names it."""

Array = npt.NDArray[Any]


class _Place(NamedTuple):
    """Where the values of one column go."""

    column: int
    name: str
    dtype: np.dtype[Any]
    how: StringDictionary | tuple[bytes, int] | None  # of a column of text


class CsvBlock:
    """Rows on their way to one block, which has dictionaries of its own.

    Parameters
    ----------
    names : list of str
    kinds : list of str
        Of the columns; those of labels and weights are not read here, but given to `keep`.
    block_bytes : int
        That it will have, about.
    n_features : int
        Columns of text become slots of one sparse column of this width; 0: they stay text.
    """

    def __init__(self, names: list[str], kinds: list[Kind], block_bytes: int, n_features: int = 0) -> None:
        self._n_features = n_features
        self._places = [
            _Place(i, name, _DTYPES[kind], self._how(name) if kind == "categorical" else None)
            for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
            if kind in _DTYPES
        ]
        self._texts = [place.how for place in self._places if isinstance(place.how, StringDictionary)]
        self._row_bytes = sum(place.dtype.itemsize for place in self._places)
        self._expected_rows = block_bytes // max(1, self._row_bytes)
        self._slots = np.empty((0, 0), np.int32)
        self._arrays = [np.empty(0, place.dtype) for place in self._places]
        self._labels: list[Array] = []
        self._weights: list[Array] = []
        self.n_rows = self._n_read = 0

    def _how(self, name: str) -> StringDictionary | tuple[bytes, int]:
        return (f"{name}=".encode(), self._n_features) if self._n_features else StringDictionary()

    @property
    def n_bytes(self) -> int:
        """Bytes of the columns, dictionaries included."""
        return self.n_rows * self._row_bytes + sum(texts.n_bytes for texts in self._texts)

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
            (p.column, array, p.how) for p, array in zip(self._places, self._arrays, strict=True)
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
            if place.how is None:
                columns[place.name] = NumericColumn(values)
            elif isinstance(place.how, StringDictionary):
                columns[place.name] = CategoricalColumn(values, *place.how.to_arrays())
        if width := self._slots.shape[1]:
            indptr = np.arange(self.n_rows + 1, dtype=np.int64) * width
            slots = self._slots[: self.n_rows].reshape(-1)
            columns[HASHED] = SparseColumn(indptr, slots, None, self._n_features)
        labels, weights = (
            np.concatenate(parts) if parts else None for parts in (self._labels, self._weights)
        )
        return RawBlock(self.n_rows, columns, labels, weights)

    def clear(self) -> None:
        """Begin another block in the same memory, which the system takes its time to give."""
        for texts in self._texts:
            texts.clear()
        self._labels, self._weights, self.n_rows = [], [], 0

    def _reserve(self, n_rows: int) -> None:
        """Have place for so many; the rows expected should need no more than the first time."""
        hashed = [i for i, place in enumerate(self._places) if isinstance(place.how, tuple)]
        self._slots = np.empty((n_rows, len(hashed)), np.int32)
        for i, array in enumerate(self._arrays):
            larger = self._slots[:, hashed.index(i)] if i in hashed else np.empty(n_rows, array.dtype)
            larger[: self.n_rows] = array[: self.n_rows]
            self._arrays[i] = larger
