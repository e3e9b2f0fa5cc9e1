"""Columns of a DataFrame (recognised by its methods; pandas is never imported)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from squall.data.text import check_storable, checked_names
from squall.errors import DataError, DataTypeError
from squall.records import CategoricalColumn, Column, NumericColumn

MAX_EXACT = 2**53  # the largest integer below which float64 holds every integer


def frame_columns(frame: Any, names: Sequence[str] | None) -> dict[str, Column]:
    """One typed column for each of the frame's own.

    Raises
    ------
    DataError
        If names come twice, or a column cannot be kept exactly as it is.
    """
    where = "a column name of X" if names is None else "feature_names"
    titles = checked_names(frame.columns if names is None else names, frame.shape[1], where)
    return {name: _series_column(frame.iloc[:, i], f"X, column {name!r}") for i, name in enumerate(titles)}


def _series_column(series: Any, where: str) -> Column:
    kind = getattr(series.dtype, "kind", "O")
    if hasattr(series, "cat"):
        categories = [str(value) for value in series.cat.categories]
        check_storable(categories, where)
        return CategoricalColumn.from_strings(np.asarray(series.cat.codes, dtype=np.int32), categories)
    if kind in "mM" or "datetime" in str(series.dtype):
        raise DataError(
            f"dates and times ({series.dtype}) are not features as they are",
            where=where,
            fix='turn them into numbers, such as series.dt.dayofweek or series.astype("int64")',
        )
    if kind == "f" and isinstance(series.dtype, np.dtype):
        return NumericColumn(series.to_numpy().astype(np.float64, copy=False))
    if kind in "biuf":
        return _number_column(series, where)
    if kind in "OUT":
        return object_column(series.to_numpy(dtype=object), where, np.asarray(series.isna()))
    raise DataError(
        f"a column of type {series.dtype} is not supported", where=where, fix="convert it to float64"
    )


def _number_column(series: Any, where: str) -> NumericColumn:
    """Booleans, integers, and pandas' own number types with missing values."""
    missing = np.asarray(series.isna())
    if not missing.any() and series.dtype.kind != "f":
        values = series.to_numpy(dtype=None if isinstance(series.dtype, np.dtype) else object)
        return NumericColumn(_int64(np.asarray(values), where))
    filled = series.fillna(False if series.dtype.kind == "b" else 0)
    numbers = filled.to_numpy(dtype=np.float64).copy()
    if series.dtype.kind in "iu" and np.any(np.abs(numbers) > MAX_EXACT - 1):
        raise would_round(where)
    numbers[missing] = np.nan
    return NumericColumn(numbers)


def _int64(values: npt.NDArray[Any], where: str) -> npt.NDArray[np.int64]:
    try:
        if values.dtype.kind == "u" and values.size and int(values.max()) > np.iinfo(np.int64).max:
            raise OverflowError
        return values.astype(np.int64, copy=False)
    except OverflowError as error:
        raise beyond_int64(where) from error


def beyond_int64(where: str) -> DataError:
    """The error for an integer that no column of integers holds."""
    return DataError(
        "an integer is beyond the range of int64", where=where, fix="turn the column into strings"
    )


def would_round(where: str) -> DataError:
    """The error for integers that float64 would change."""
    return DataError(
        "integers beyond 2**53 beside missing values: float64, which can say 'missing', would round them",
        where=where,
        fix="turn the column into strings, or fill the missing values",
    )


def object_column(
    values: npt.NDArray[Any], where: str, missing: npt.NDArray[np.bool_] | None = None
) -> Column:
    """A column of Python objects (n_rows,): numbers if all are, text if all are.

    Raises
    ------
    DataError
        If they are of mixed types; a `DataTypeError` if they are neither numbers nor text.
    """
    if missing is None:
        missing = np.array([v is None or (isinstance(v, float) and v != v) for v in values], dtype=bool)
    present = values[~missing]
    # NumPy's numbers are not all Python's: str, int, float and bool cover those that are scalars.
    if all(isinstance(v, str) for v in present):
        if len(present) or not len(values):
            return _text_column(values, missing, where)
        return NumericColumn(np.full(len(values), np.nan))
    if all(isinstance(v, int | float | np.number | np.bool_) for v in present):
        return _numbers_among_objects(values, present, missing, where)
    raise _odd_one(values, missing, where)


def _odd_one(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_], where: str) -> DataError:
    """The error that shows what in a column is neither text nor, if there is such a thing, a number."""
    odd = [row for row, v in enumerate(values) if not missing[row] and not isinstance(v, str)]
    strange = [row for row in odd if not isinstance(values[row], int | float | np.number | np.bool_)]
    row = (strange or odd)[0]
    told = f"row {row:,} holds {values[row]!r} of type {type(values[row]).__name__}"
    fix = "give numbers or strings, not both: for example astype(str)"
    if strange:
        return DataTypeError(f"{told}, and an argument must be a string or a number", where=where, fix=fix)
    return DataError(f"{told} in a column of text", where=where, fix=fix)


def _text_column(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_], where: str) -> CategoricalColumn:
    place: dict[str, int] = {}
    codes = np.array(
        [
            -1 if absent else place.setdefault(v, len(place))
            for v, absent in zip(values, missing, strict=True)
        ],
        dtype=np.int32,
    )
    check_storable(place, where)
    return CategoricalColumn.from_strings(codes, list(place))


def _numbers_among_objects(
    values: npt.NDArray[Any], present: npt.NDArray[Any], missing: npt.NDArray[np.bool_], where: str
) -> NumericColumn:
    if not missing.any() and all(isinstance(v, int | np.integer | np.bool_) for v in present):
        return NumericColumn(_int64(values, where))
    numbers = np.full(len(values), np.nan)
    numbers[~missing] = present.astype(np.float64)
    if any(isinstance(v, int | np.integer) and int(v) != float(v) for v in present):
        raise DataError(
            "an integer beyond 2**53 beside fractions or missing values would be rounded",
            where=where,
            fix="turn the column into strings",
        )
    return NumericColumn(numbers)
