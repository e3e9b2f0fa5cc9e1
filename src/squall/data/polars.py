"""Columns of a polars DataFrame; whoever has one has loaded polars already."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from squall.data.frames import MAX_EXACT, beyond_int64, would_round
from squall.data.text import checked_names
from squall.errors import DataError
from squall.records import CategoricalColumn, Column, DenseColumn, NumericColumn

_MAX_DIGITS = 15  # decimals of so many digits come back from float64 as they were


def is_polars(data: Any) -> bool:
    """Whether it is a frame of polars."""
    return type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "collect_schema")


def polars_columns(frame: Any, names: Sequence[str] | None) -> dict[str, Column]:
    """One typed column for each of the frame's own.

    Raises
    ------
    DataError
        If it is a lazy frame, names come twice, or a column cannot be kept exactly as it is.
    """
    if not hasattr(frame, "get_columns"):
        raise DataError("a LazyFrame has not been computed yet", where="X", fix="give frame.collect()")
    where = "a column name of X" if names is None else "feature_names"
    titles = checked_names(frame.columns if names is None else names, frame.width, where)
    pairs = zip(titles, frame.get_columns(), strict=True)
    return {name: _series_column(series, f"X, column {name!r}") for name, series in pairs}


def _series_column(series: Any, where: str) -> Column:
    pl: Any = importlib.import_module("polars")
    dtype = series.dtype
    if dtype == pl.Boolean:
        return _whole(series.cast(pl.UInt8), pl, where)
    if dtype.is_integer():
        return _whole(series, pl, where)
    if dtype.is_float() or dtype == pl.Null:
        return NumericColumn(_floats(series, pl))
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return _text(series.cast(pl.String))
    if dtype == pl.Decimal:
        return _decimals(series, pl, where)
    if dtype == pl.Array and len(dtype.shape) == 1 and dtype.inner in (pl.Float32, pl.Float64):
        if series.null_count():
            raise DataError("a vector is missing", where=where, fix="fill it with a vector of NaN")
        return DenseColumn(np.ascontiguousarray(series.to_numpy()).reshape(len(series), dtype.shape[0]))
    if dtype.is_temporal():
        raise DataError(
            f"dates and times ({dtype}) are not features as they are",
            where=where,
            fix="turn them into numbers, such as series.dt.weekday() or series.dt.epoch()",
        )
    raise DataError(
        f"a column of type {dtype} is not supported",
        where=where,
        fix="cast it to numbers or to strings, or flatten what is nested",
    )


def _floats(series: Any, pl: Any) -> Any:
    # Nulls become NaN.
    return np.ascontiguousarray(series.cast(pl.Float64).fill_null(float("nan")).to_numpy())


def _whole(series: Any, pl: Any, where: str) -> NumericColumn:
    low, high = series.min() or 0, series.max() or 0
    if not series.null_count():
        if low < np.iinfo(np.int64).min or high > np.iinfo(np.int64).max:
            raise beyond_int64(where)
        return NumericColumn(np.ascontiguousarray(series.cast(pl.Int64).to_numpy()))
    if low < -MAX_EXACT or high > MAX_EXACT:
        raise would_round(where)
    return NumericColumn(_floats(series, pl))


def _decimals(series: Any, pl: Any, where: str) -> NumericColumn:
    dtype = series.dtype
    if dtype.scale == 0:
        return _whole(series.cast(pl.Int128), pl, where)
    if (dtype.precision or 38) <= _MAX_DIGITS:
        return NumericColumn(_floats(series, pl))
    raise DataError(
        f"float64 would round decimals of up to {dtype.precision or 38} digits",
        where=where,
        fix=f"cast the column to at most {_MAX_DIGITS} digits, to pl.Float64 or to strings",
    )


def _text(series: Any) -> CategoricalColumn:
    known = series.drop_nulls().unique().sort()
    missing = series.is_null().to_numpy()
    if len(known) == 0:
        return CategoricalColumn.from_strings(np.full(len(series), -1, dtype=np.int32), [])
    codes = known.search_sorted(series.fill_null(known[0])).to_numpy().astype(np.int32)
    codes[missing] = -1
    return CategoricalColumn.from_strings(codes, known.to_list())
