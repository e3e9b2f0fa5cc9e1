"""Columns of Arrow data: tables in memory, and batches of Parquet files.

What becomes of each type is decided here, once for both.  pyarrow is imported only when there
is Arrow data to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from squall.data.frames import MAX_EXACT, beyond_int64, would_round
from squall.data.text import checked_names
from squall.errors import DataError, MissingExtraError
from squall.records import CategoricalColumn, Column, DenseColumn, NumericColumn

_MAX_DIGITS = 15  # decimals of so many digits come back from float64 as they were
_MAX_INT_DIGITS = 18  # integers of so many digits fit into int64

Sort = Literal["whole", "number", "text", "vector", "nothing"]
Kind = Literal["int64", "float64", "categorical", "dense"]


def kind_of(sort: Sort, misses: bool) -> Kind:
    """The kind of column that values of a sort become, if some are missing or none."""
    if sort == "whole":
        return "float64" if misses else "int64"
    return "categorical" if sort == "text" else "dense" if sort == "vector" else "float64"


def pyarrow(what: str) -> Any:
    """The library.

    Raises
    ------
    MissingExtraError
        If it is not installed; says that ``what`` needs it.
    """
    try:
        import pyarrow as library
        import pyarrow.compute  # which does not come with it
    except ImportError as error:
        raise MissingExtraError(f"{what} needs pyarrow", fix="pip install 'squall[parquet]'") from error
    return library


def sort_of(dtype: Any, where: str) -> Sort:
    """What values of this Arrow type are: whole numbers, numbers, text, vectors of numbers or nothing.

    Raises
    ------
    DataError
        If it is no feature as it is: dates and times, nested or binary values, long decimals.
    """
    types = pyarrow("Arrow data").types
    if types.is_dictionary(dtype) or _is_text(types, dtype):
        return "text"
    if types.is_integer(dtype) or types.is_boolean(dtype):
        return "whole"
    if types.is_floating(dtype):
        return "number"
    if types.is_null(dtype):
        return "nothing"
    if types.is_decimal(dtype):
        if dtype.scale == 0 and dtype.precision <= _MAX_INT_DIGITS:
            return "whole"
        if dtype.precision <= _MAX_DIGITS:
            return "number"
        raise _refused(
            f"float64 would round decimals of {dtype.precision} digits ({dtype})",
            where,
            f"cast the column to at most {_MAX_DIGITS} digits, to float64 or to strings",
        )
    if types.is_fixed_size_list(dtype) and (
        types.is_floating(dtype.value_type) or types.is_integer(dtype.value_type)
    ):
        return "vector"
    if types.is_temporal(dtype):
        raise _refused(
            f"dates and times ({dtype}) are not features as they are",
            where,
            "turn them into numbers, such as the day of the week or seconds since a day, or leave the "
            "column out",
        )
    if types.is_nested(dtype):
        raise _refused(
            f"nested values ({dtype}) do not fit a column of one value a row",
            where,
            "flatten them; vectors of one length as a fixed_size_list of numbers; or leave the column out",
        )
    raise _refused(f"a column of type {dtype} is not supported", where, "cast it to numbers or to strings")


def _is_text(types: Any, dtype: Any) -> bool:
    views = getattr(types, "is_string_view", lambda _: False)
    return bool(types.is_string(dtype) or types.is_large_string(dtype) or views(dtype))


def _refused(what: str, where: str, fix: str) -> DataError:
    return DataError(what, where=where, fix=fix)


def arrow_table(data: Any, where: str) -> Any:
    """A pyarrow table of anything that speaks Arrow's C interface; nothing is copied.

    Raises
    ------
    MissingExtraError
        If pyarrow is not installed.
    DataError
        If it is an array rather than a table.
    """
    pa = pyarrow(f"data of type {type(data).__name__}")
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        return pa.table(data)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Expected 2D array, got one Arrow array instead: {error}",
            where=where,
            fix="give a table: pyarrow.table({'x': values})",
        ) from error


def table_columns(table: Any, names: Sequence[str] | None) -> dict[str, Column]:
    """One typed column for each of an Arrow table's own.

    Raises
    ------
    DataError
        If names come twice, or a column cannot be kept exactly as it is.
    """
    where = "a column name of X" if names is None else "feature_names"
    titles = checked_names(table.column_names if names is None else names, table.num_columns, where)
    columns: dict[str, Column] = {}
    for name, values in zip(titles, table.columns, strict=True):
        at = f"X, column {name!r}"
        kind = kind_of(sort_of(values.type, at), values.null_count > 0)
        columns[name] = arrow_column(values, kind, at)
    return columns


def arrow_column(values: Any, kind: Kind, where: str) -> Column:
    """An Arrow array (n_rows,), chunked or not, as a column of that kind.

    Raises
    ------
    DataError
        If a number would have to be rounded, or text is not UTF-8; ``where`` names the column.
    """
    pa = pyarrow("Arrow data")
    if kind == "categorical":
        return _text(pa, values, where)
    if kind == "dense":
        return _vectors(values, where)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if sort_of(values.type, where) == "whole":
        try:
            values = values.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise beyond_int64(where) from error
        if kind == "int64":
            return NumericColumn(np.ascontiguousarray(_as_numpy(values)))
        extremes = pa.compute.min_max(values).as_py()
        if max(-(extremes["min"] or 0), extremes["max"] or 0) > MAX_EXACT:
            raise would_round(where)
    return NumericColumn(np.ascontiguousarray(_as_numpy(values.cast(pa.float64()))))


def _as_numpy(values: Any) -> Any:
    """Nulls become NaN."""
    if hasattr(values, "chunks"):
        return values.to_numpy()
    return values.to_numpy(zero_copy_only=False)


def _text(pa: Any, values: Any, where: str) -> CategoricalColumn:
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode() if _is_text(pa.types, values.type) else _spelt(pa, values)
    coded = _one_chunk(pa, values)
    strings = coded.dictionary.cast(pa.large_string())
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(f"it is not UTF-8 text: {error}", where=where, fix="decode it first") from error
    codes = coded.indices.cast(pa.int32()).fill_null(-1).to_numpy(zero_copy_only=False)
    texts = strings.to_pylist()
    if None in texts:  # a dictionary may hold null
        place = np.array([-1 if t is None else i for i, t in enumerate(texts)] + [-1], dtype=np.int32)
        codes, texts = place[codes], [t or "" for t in texts]
    return CategoricalColumn.from_strings(np.ascontiguousarray(codes), texts)


def _spelt(pa: Any, values: Any) -> Any:
    """Numbers that someone wants as text."""
    return values.cast(pa.string()).dictionary_encode()


def _one_chunk(pa: Any, values: Any) -> Any:
    if not hasattr(values, "chunks"):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    if values.num_chunks == 0:
        return pa.array([], type=values.type)
    return values.unify_dictionaries().combine_chunks()


def _vectors(values: Any, where: str) -> DenseColumn:
    if values.null_count:
        raise DataError(
            "a vector is missing", where=where, fix="remove the row, or fill it with a vector of NaN"
        )
    whole = values.combine_chunks() if hasattr(values, "chunks") else values
    numbers = _as_numpy(whole.flatten())
    if numbers.dtype not in (np.float32, np.float64):
        wide = numbers.astype(np.float64)
        if numbers.dtype.kind in "iu" and np.any(np.abs(wide) >= 2.0**53):
            raise DataError("integers beyond 2**53 would be rounded", where=where, fix="give them as columns")
        numbers = wide
    return DenseColumn(np.ascontiguousarray(numbers).reshape(len(values), values.type.list_size))
