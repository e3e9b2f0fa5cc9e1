"""Bringing a user's data to the columns that a model was fitted on."""

from __future__ import annotations

from typing import Any

from squall.config import did_you_mean
from squall.data.arrays import from_arrays
from squall.data.dataset import Dataset
from squall.errors import DataError, SettingError
from squall.records import ColumnSpec


def as_dataset(X: Any, y: Any = None, sample_weight: Any = None) -> Dataset:
    """``X`` itself if it is a data set, else a data set that refers to the arrays.

    Raises
    ------
    SettingError
        If labels or weights come with a data set, which holds its own.
    """
    if not isinstance(X, Dataset):
        return from_arrays(X, y, weights=sample_weight)
    if y is not None or sample_weight is not None:
        raise SettingError(
            "a Dataset holds its own labels and weights, so y and sample_weight cannot be given with it",
            fix="pass the Dataset alone, or arrays X and y",
        )
    return X


def aligned(data: Dataset, fitted: list[ColumnSpec]) -> Dataset:
    """The columns of ``data`` that the model knows, in its order; others are left out.

    Raises
    ------
    DataError
        If a column is missing or of another kind than in fit.
    """
    have = {c.name: c for c in data.columns}
    missing = [c.name for c in fitted if c.name not in have]
    if missing:
        _check_matrix_or_names(data.columns, fitted)
        hint = did_you_mean(missing[0], have.keys() - {c.name for c in fitted})
        raise DataError(
            f"{len(missing)} column(s) that the model was fitted on are missing: "
            f"{', '.join(map(repr, missing[:5]))}{' …' if len(missing) > 5 else ''}{hint}",
            fix="give data with the same columns as in fit",
        )
    for spec in fitted:
        _check_kind(have[spec.name], spec)
    names = [c.name for c in fitted]
    return data if names == list(have) else data.select(names)


def _check_matrix_or_names(found: list[ColumnSpec], fitted: list[ColumnSpec]) -> None:
    """Refuse a bare matrix where columns have names, and the reverse, in words that say so."""
    have, had = _is_matrix(found), _is_matrix(fitted)
    if have == had:
        return
    here, in_fit = ("a matrix" if matrix else "named columns" for matrix in (have, had))
    raise DataError(
        f"{here} here, and {in_fit} in fit",
        where="X",
        fix="give the matrix alone, such as X.to_numpy() of a DataFrame"
        if had
        else f"give a DataFrame with the columns of fit: {', '.join(repr(c.name) for c in fitted[:5])}"
        + (" …" if len(fitted) > 5 else ""),
    )


def _is_matrix(columns: list[ColumnSpec]) -> bool:
    return len(columns) == 1 and columns[0].kind in ("dense", "sparse")


def _check_kind(found: ColumnSpec, fitted: ColumnSpec) -> None:
    if found.width != fitted.width:
        raise DataError(
            f"X has {found.width} features, but the model was fitted on {fitted.width} features",
            fix="give data with the same columns as in fit",
        )
    kinds = {found.kind, fitted.kind}
    if len(kinds) == 1 or kinds == {"int64", "float64"} or kinds == {"dense", "sparse"}:
        return
    raise DataError(
        f"it is {found.kind} here and was {fitted.kind} in fit",
        where=f"column {found.name!r}",
        fix=f"read the data with categorical=[{found.name!r}]"
        if fitted.kind == "categorical"
        else "give data with the same columns as in fit",
    )
