"""Data sets from arrays that are already in memory: NumPy, SciPy, pandas, polars, Arrow, lists.

Nothing is stored, and nothing copied that need not be: partitions are views of the caller's arrays.
All kinds are recognised by their methods; no library is imported that is not loaded already.
NaN and infinity are kept as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from squall._kernels import all_ones, csr_validate
from squall.config import Problems
from squall.data.arrow import arrow_table, table_columns
from squall.data.dataset import Dataset
from squall.data.frames import frame_columns, object_column
from squall.data.labels import LABEL_KINDS, Classes, LabelKind, encode_labels
from squall.data.polars import is_polars, polars_columns
from squall.data.sources import MemorySource
from squall.data.text import checked_names
from squall.errors import DataError
from squall.records import Column, DenseColumn, Float64, Int32, NumericColumn, RawBlock, SparseColumn

_PART_BYTES = 10_000_000
_MAX_INDEX = 2**31 - 1
_MATRIX = "x"  # name of the column that a whole matrix becomes

Columns = dict[str, Column]


def from_arrays(
    X: Any,
    y: Any = None,
    *,
    weights: Any = None,
    feature_names: Sequence[str] | None = None,
    label_kind: LabelKind = "auto",
) -> Dataset:
    """A data set of rows that are in memory.

    Parameters
    ----------
    X : array, sparse matrix, DataFrame, table or list of rows (n_rows, n_columns)
        A NumPy array becomes one dense column ``x``, a SciPy matrix one sparse column ``x``;
        a DataFrame of pandas or polars, an Arrow table, or an array that holds text, one column for
        each of its own: int64 if all values are whole numbers (or booleans), float64 if they are
        numbers or some are missing, else categories.
    y : array, Series, Arrow array or list (n_rows,), optional
        Labels: numbers, strings or booleans.
    weights : array (n_rows,), optional
        Sample weights ≥ 0.
    feature_names : sequence of str, optional
        Names of the columns of a dense array, which then become columns of their own.
    label_kind : {"auto", "classes", "numbers"}
        What labels are: classes, which become the sorted label map, or numbers to predict.  ``"auto"``:
        classes, but for numbers with more than 10,000 different ones.

    Raises
    ------
    DataError
        If shapes do not fit together, labels are not of their kind, or something cannot be kept exactly
        as it is.
    SettingError
        If ``label_kind`` is none.
    MissingExtraError
        If X is Arrow data and pyarrow is not installed.
    """
    problems = Problems("from_arrays")
    problems.choice("label_kind", label_kind, LABEL_KINDS)
    problems.raise_if_any()
    columns, n_rows = _columns(X, feature_names)
    label: str | None = None
    classes: Classes | None = None
    codes: Int32 | Float64 | None = None
    if y is not None:
        classes, codes = encode_labels(y, n_rows, kind=label_kind)
        label = str(getattr(y, "name", None) or "y")
        while label in columns:
            label += "_"
    block = RawBlock(n_rows, columns, codes, _weights(weights, n_rows))
    part_rows = max(1, _PART_BYTES * n_rows // max(1, _n_bytes(columns)))
    return Dataset(MemorySource(block, part_rows, label, classes))


def _columns(X: Any, names: Sequence[str] | None) -> tuple[Columns, int]:
    if hasattr(X, "tocsr"):
        return _of_sparse(X, names)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return frame_columns(X, names), len(X)
    if is_polars(X):
        return polars_columns(X, names), len(X)
    if hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__"):
        table = arrow_table(X, "X")
        return table_columns(table, names), table.num_rows
    array = _two_dimensions(X)
    if array.dtype.kind == "O":
        return _of_objects(array, names), len(array)
    if names is None:
        pixels = array.dtype == np.uint8  # an eighth of what float64 takes
        return {_MATRIX: DenseColumn(array if pixels else exact_float(array, "X"))}, len(array)
    own = array if array.dtype == np.int64 else exact_float(array, "X").astype(np.float64, copy=False)
    titles = checked_names(names, array.shape[1], "feature_names")
    return {name: NumericColumn(own[:, i]) for i, name in enumerate(titles)}, len(array)


def _two_dimensions(X: Any) -> npt.NDArray[Any]:
    if np.ma.isMaskedArray(X):
        raise DataError("masked arrays would lose their mask", where="X", fix="give X.filled(numpy.nan)")
    try:
        array = np.asarray(X)
        if array.dtype.kind in "USTO":  # a list that mixes numbers and text must not become all text
            array = np.asarray(X, dtype=object)
    except ValueError as error:
        raise DataError("X is a list of rows of different lengths", fix="give rows of one length") from error
    if array.ndim != 2:
        raise DataError(
            f"Expected 2D array, got {array.ndim}D array instead: shape {array.shape}",
            where="X",
            fix="Reshape your data: X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row",
        )
    return array


def exact_float(array: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    """``array`` itself if it is float64 or float32, else the same numbers as float64.

    Raises
    ------
    DataError
        If they are no numbers, or would have to be rounded.
    """
    if array.dtype in (np.float64, np.float32):
        return array
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported", where=where, fix="give the real and imaginary parts")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{array.dtype} is not a type of number", where=where, fix="convert it to float64")
    if array.dtype.kind in "iu" and array.size and (array.max() > 2**53 or array.min() < -(2**53)):
        raise DataError(
            "integers beyond 2**53 would be rounded",
            where=where,
            fix="give a DataFrame or feature_names: columns of their own keep integers exactly",
        )
    narrow = array.astype(np.float64)
    if (
        array.dtype.kind == "f"
        and array.dtype.itemsize > 8
        and not np.array_equal(narrow, array, equal_nan=True)
    ):
        raise DataError(f"{array.dtype} would be rounded", where=where, fix="round it: astype(numpy.float64)")
    return narrow


def _of_objects(array: npt.NDArray[Any], names: Sequence[str] | None) -> Columns:
    """A table of Python objects: numbers throughout, or else a column for each of its own."""
    titles = checked_names(names, array.shape[1], "feature_names") if names is not None else None
    columns = {
        name: object_column(array[:, i], f"X, column {name!r}")
        for i, name in enumerate(titles or [str(i) for i in range(array.shape[1])])
    }
    if titles is None and all(isinstance(column, NumericColumn) for column in columns.values()):
        return {_MATRIX: DenseColumn(array.astype(np.float64))}
    return columns


def _of_sparse(X: Any, names: Sequence[str] | None) -> tuple[Columns, int]:
    if names is not None:
        raise DataError("feature_names cannot name the columns of a sparse matrix", fix="leave them out")
    if len(X.shape) != 2:
        raise DataError(f"Expected 2D array, got {len(X.shape)}D sparse array instead", where="X")
    n_rows, width = (int(n) for n in X.shape)
    if width > _MAX_INDEX:
        raise DataError(
            f"a sparse matrix of {width:,} columns is wider than 2**31 - 1",
            where="X",
            fix="hash the column numbers into fewer columns (FeatureHasher)",
        )
    csr = X.tocsr()
    try:
        # Narrow indices are checked by a kernel, in one pass; wide ones must be before they are narrowed.
        csr.check_format(full_check=csr.indices.dtype != np.int32)
        # A matrix may be made of views, whose elements lie apart.
        indptr = np.ascontiguousarray(csr.indptr, dtype=np.int64)
        indices = np.ascontiguousarray(csr.indices, dtype=np.int32)
        if csr.indices.dtype == np.int32:
            csr_validate(indptr, indices, None, width)
    except (ValueError, IndexError) as error:
        raise DataError(f"the sparse matrix is inconsistent: {error}", where="X") from error
    if not csr.has_canonical_format:  # elements that repeat mean their sum, also to models of pairs
        csr = csr.copy()
        csr.sum_duplicates()
        indptr, indices = csr.indptr.astype(np.int64), csr.indices.astype(np.int32)
    values: Any = np.ascontiguousarray(exact_float(csr.data, "X"))
    column = SparseColumn(
        indptr,
        indices,
        None if len(values) and all_ones(values) else values,
        width,
    )
    return {_MATRIX: column}, n_rows


def _weights(weights: Any, n_rows: int) -> Float64 | None:
    if weights is None:
        return None
    fix = "give one finite number >= 0 for each row"
    try:
        values: Float64 = np.ascontiguousarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError("weights are not numbers", where="weights", fix=fix) from error
    if values.shape != (n_rows,):
        raise DataError(f"X has {n_rows:,} rows and weights have shape {values.shape}", fix=fix)
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise DataError("a weight is negative, infinite or NaN", where="weights", fix=fix)
    return values


def _n_bytes(columns: Columns) -> int:
    total = 0
    for column in columns.values():
        if isinstance(column, SparseColumn):
            total += column.indptr.nbytes + column.indices.nbytes * (1 if column.values is None else 3)
        elif isinstance(column, NumericColumn | DenseColumn):
            total += column.values.nbytes
        else:
            total += column.codes.nbytes
    return total
