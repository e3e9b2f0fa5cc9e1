"""Labels to codes and back: one sorted label map for each data set.

Numbers of which there are too many different ones to be classes stay numbers, without a map.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from squall.data.text import check_storable
from squall.errors import DataError
from squall.records import Float64, Int32

MAX_CLASSES = 10_000
LabelKind = Literal["auto", "classes", "numbers"]
LABEL_KINDS: tuple[LabelKind, ...] = ("auto", "classes", "numbers")
"""What labels may be said to be; "auto": classes, but for numbers that are too many different ones."""

_FEW = 1 << 16

Classes = npt.NDArray[Any]  # (n_classes,) sorted: numbers as numbers, strings as text


def encode_labels(
    y: Any, n_rows: int, where: str = "y", kind: LabelKind = "auto"
) -> tuple[Classes | None, Int32 | Float64]:
    """(sorted distinct labels, code of each row) of a NumPy array, list or pandas Series.

    Labels that are no classes (`are_numbers`) are (None, the numbers).  A column vector is flattened, as
    scikit-learn does.

    Raises
    ------
    DataError
        If the length is not ``n_rows``, a label is missing or not finite, labels are of
        mixed or unusable types, not of the kind that was asked for, there are more than 10,000
        different texts, or numbers that float64 would round.
    """
    values = _one_dimension(y, where)
    if len(values) != n_rows:
        raise DataError(
            f"X has {n_rows:,} rows and y has {len(values):,} labels: inconsistent numbers of samples",
            where=where,
            fix="give one label for each row",
        )
    _refuse_missing(y, values, where)
    values = _usable(values, where)
    classes, codes = _distinct(values)
    if are_numbers(kind, len(classes), values.dtype.kind in "biuf", where):
        return None, exact_numbers(values, where)
    check_storable((label for label in classes.tolist() if isinstance(label, str)), where)
    return classes, codes


def _distinct(values: npt.NDArray[Any]) -> tuple[Classes, Int32]:
    """Sorted distinct values, and the number of each value among them."""
    if values.dtype.kind in "iu" and len(values):
        # Whole numbers close together are counted rather than sorted, ten times as fast.
        low, high = int(values.min()), int(values.max())
        if high - low < _FEW:
            places = (values - values.dtype.type(low)).astype(np.int32)
            used = np.flatnonzero(np.bincount(places, minlength=high - low + 1))
            code = np.zeros(high - low + 1, dtype=np.int32)
            code[used] = np.arange(len(used), dtype=np.int32)
            return used.astype(values.dtype) + values.dtype.type(low), code[places]
    classes, codes = np.unique(values, return_inverse=True)
    return classes, codes.astype(np.int32)


def exact_numbers(values: npt.NDArray[Any], where: str) -> Float64:
    """Labels that are numbers, as float64.

    Raises
    ------
    DataError
        If one of them would be rounded.
    """
    numbers = values.astype(np.float64)
    if values.dtype.kind in "iu" and np.any(np.abs(numbers) > 2.0**53):
        raise DataError(
            "labels are integers beyond 2**53, which would be rounded",
            where=where,
            fix="is this an identifier? If not, give it as float64",
        )
    return numbers


def are_numbers(kind: LabelKind, n_different: int, numeric: bool, where: str) -> bool:
    """Whether labels stay numbers, without a map: as asked, or because they are too many to be classes.

    Raises
    ------
    DataError
        If they are to be numbers and are not, or to be classes (or text) and are too many.
    """
    if kind == "numbers" and not numeric:
        raise DataError(
            "the labels are to be numbers, and are text", where=where, fix='leave label_kind="numbers" out'
        )
    if kind == "numbers" or (kind == "auto" and numeric and n_different > MAX_CLASSES):
        return True
    check_class_count(n_different, where)
    return False


def check_class_count(n: int, where: str) -> None:
    """Refuse more distinct labels than classification can mean."""
    if n > MAX_CLASSES:
        raise DataError(
            f"there are more than {MAX_CLASSES:,} different labels",
            where=where,
            fix='a label is a class: is this an identifier? Quantities are read with label_kind="numbers",'
            " or put into classes first",
        )


def sorted_classes(texts: list[str], numeric: bool, integer: bool) -> tuple[Classes, Int32]:
    """(label map, class of each text) for distinct labels as they stand in a file.

    Texts of one number (``1`` and ``01``) share a class.
    """
    values: list[Any] = list(texts)
    if numeric:
        values = [int(text) for text in texts] if integer else [float(text) for text in texts]
    classes = np.array(sorted(set(values)))
    code = {value: i for i, value in enumerate(classes.tolist())}
    return classes, np.array([code[value] for value in values], dtype=np.int32)


def _one_dimension(y: Any, where: str) -> npt.NDArray[Any]:
    try:
        values = np.asarray(y)
    except ValueError as error:
        raise DataError("labels are nested lists of different lengths", where=where) from error
    if values.ndim == 2 and values.shape[1] == 1:
        return values.ravel()
    if values.ndim != 1:
        raise DataError(
            f"y should be a 1d array, got an array of shape {values.shape} instead",
            where=where,
            fix="give one label for each row",
        )
    return values


def _refuse_missing(y: Any, values: npt.NDArray[Any], where: str) -> None:
    if hasattr(y, "isna"):  # pandas knows all its sorts of missing values
        missing = np.asarray(y.isna()).ravel()
    elif values.dtype.kind == "f":
        missing = ~np.isfinite(values)
    elif values.dtype.kind == "O":
        missing = np.array([v is None or (isinstance(v, float) and v != v) for v in values], dtype=bool)
    else:
        return
    if missing.any():
        row = int(missing.argmax())
        raise DataError(
            f"the label of row {row:,} is {values[row]}: Input y contains NaN, infinity or missing labels",
            where=where,
            fix="remove the rows without a label",
        )


def _usable(values: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    if values.dtype.kind in "biufUT":
        return values
    if values.dtype.kind == "S":
        return values.astype(np.str_)
    if values.dtype.kind == "O":
        if all(isinstance(v, str) for v in values):
            return values
        if all(isinstance(v, int | float | np.number | np.bool_) for v in values):
            return np.array(values.tolist())
    raise DataError(
        f"labels of type {values.dtype} (or of mixed types) cannot be classes",
        where=where,
        fix="give numbers, strings or booleans, all of one type",
    )
