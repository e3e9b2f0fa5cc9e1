"""Bringing a user's data to the columns that a model was fitted on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import DataConversionWarning

from squall.config import did_you_mean
from squall.data.arrays import from_arrays
from squall.data.dataset import Dataset
from squall.errors import DataError, SettingError
from squall.records import ColumnSpec


class ColumnsMixin:
    """What scikit-learn asks of anything fitted, as it follows from the columns seen in ``fit``.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Only where every feature has a name: not of a bare matrix.
    """

    columns_in_: list[ColumnSpec]

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in ``fit``."""
        return sum(c.width for c in self.columns_in_)

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Names of the features seen in ``fit``."""
        names = [c.name for c in self.columns_in_]
        # A table of Python objects has columns "0", "1", …, which are numbers and no names.
        numbered = names == [str(i) for i in range(len(names))]
        if numbered or any(c.kind in ("dense", "sparse") for c in self.columns_in_):
            raise AttributeError("the features seen in fit have no names")
        return np.array(names, dtype=object)


def training_data(X: Any, y: Any, sample_weight: Any, who: str) -> Dataset:
    """What ``fit`` of the estimator ``who`` was given, as a data set.

    Raises
    ------
    DataError
        If arrays come without labels.
    SettingError
        As `as_dataset`.
    """
    if y is None and not isinstance(X, Dataset):
        raise DataError(
            f"{who} requires y to be passed, but the target y is None", fix="pass the labels: fit(X, y)"
        )
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; it is taken as y.ravel()",
            DataConversionWarning,
            stacklevel=3,
        )
    return as_dataset(X, y, sample_weight)


def check_not_empty(data: Dataset) -> None:
    """Refuse data that nothing can be learned from.

    Raises
    ------
    DataError
        If there are no rows, or no features.
    """
    if not any(c.width for c in data.columns):
        raise DataError(
            f"0 feature(s) (shape=({data.n_rows}, 0)) while a minimum of 1 is required: there is nothing to "
            "learn from",
            where="X",
            fix="keep at least one feature column",
        )
    if not data.n_rows:
        raise DataError("there are no rows to fit on", fix="check the data set, or the split, given to fit")


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


def aligned(data: Dataset, fitted: list[ColumnSpec], who: str) -> Dataset:
    """The columns of ``data`` that the estimator ``who`` knows, in its order; others are left out.

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
            f"{len(missing)} column(s) that {who} was fitted on are missing: "
            f"{', '.join(map(repr, missing[:5]))}{' …' if len(missing) > 5 else ''}{hint}",
            fix="give data with the same columns as in fit",
        )
    for spec in fitted:
        _check_kind(have[spec.name], spec, who)
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


def _check_kind(found: ColumnSpec, fitted: ColumnSpec, who: str) -> None:
    if found.width != fitted.width:
        raise DataError(
            f"X has {found.width} features, but {who} is expecting {fitted.width} features as input",
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
