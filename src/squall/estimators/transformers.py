"""Transformers with scikit-learn's interface, on data sets and on arrays.

Each says which columns it touches; the others pass.  On a :class:`squall.Dataset` a
transform is noted and applied when the rows are read; on arrays it is applied at once.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from squall.config import Problems, Run, current_run, did_you_mean, names_its_settings
from squall.data.dataset import Dataset
from squall.estimators.columns import ColumnsMixin, aligned, as_dataset, check_not_empty
from squall.estimators.statistics import learned
from squall.preprocessing.columns import Statistics
from squall.preprocessing.transforms import Transform
from squall.records import Bill, ColumnSpec


class _ArrayTransformer(ColumnsMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The part whose output scikit-learn's ``set_output`` may turn into a DataFrame."""

    transform_: Transform

    def transform(self, X: Any) -> Any:
        result = self._noted(as_dataset(X))
        if hasattr(X, "iloc") and all(c.width == 1 and c.kind != "sparse" for c in result.columns):
            return result.to_pandas().set_index(X.index)
        return result.to_arrays()[0]

    def _noted(self, data: Dataset) -> Dataset:
        return aligned(data, self.columns_in_, type(self).__name__).with_transform(self.transform_)


class BaseTransformer(_ArrayTransformer, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """What Squall's transformers have in common.

    A subclass says which kinds of columns it touches, gives ``_statistics``, and has a setting
    ``columns``: names, or None for all of those kinds.

    Attributes
    ----------
    bill_ : Bill or None
        What functions cost (locally: would cost) that looked at the rows in `fit`; None if none did.
    """

    _kinds: ClassVar[tuple[str, ...]] = ()
    columns: Any

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            names_its_settings(cls)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # What a transformer is not for, it lets pass.
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the columns that this transformer touches; ``y`` is not used.

        Parameters
        ----------
        X : Dataset, or array, sparse matrix, DataFrame of shape (n_rows, n_columns)

        Raises
        ------
        SettingError, DataError
            If a setting or the data does not fit.
        """
        return self.fit_on(as_dataset(X), current_run())

    def fit_on(self, data: Dataset, run: Run | None) -> Self:
        """`fit`, where large data is looked at by the functions of a run."""
        check_not_empty(data)
        self.bill_: Bill | None = None
        self.transform_ = self._fit(data, run)
        self.columns_in_ = list(data.columns)
        return self

    def _fit(self, data: Dataset, run: Run | None) -> Transform:
        self._check_settings()
        found = learned(data, self._statistics(data.columns), run)
        self.bill_ = found.bill
        return found.fitted

    def _check_settings(self) -> None:
        """Raise one SettingError that names all wrong settings."""
        problems = Problems(type(self).__name__)
        self._find_problems(problems)
        if self.columns is not None and not _are_names(self.columns):
            problems.add(f"columns={self.columns!r} must be names of columns, or None for all it is for")
        problems.raise_if_any()

    def _find_problems(self, problems: Problems) -> None:
        """Note what is wrong with the settings, but for ``columns``."""

    def _statistics(self, columns: list[ColumnSpec]) -> Statistics[Any, Transform]:
        raise NotImplementedError

    def _touched(self, columns: list[ColumnSpec], kinds: tuple[str, ...] | None = None) -> list[ColumnSpec]:
        """Those of the columns that this transformer is for, in their order.

        Raises
        ------
        SettingError
            If ``columns`` names one that is not there, or of a kind that it is not for.
        """
        kinds = self._kinds if kinds is None else kinds
        if self.columns is None:
            return [c for c in columns if c.kind in kinds]
        problems = Problems(type(self).__name__)
        have = {c.name: c for c in columns}
        for name in self.columns:
            if name not in have:
                problems.add(f"columns: there is no column {name!r}{did_you_mean(name, list(have))}")
            elif have[name].kind not in kinds:
                problems.add(f"columns: {name!r} is {have[name].kind}, and it is for {', '.join(kinds)}")
        problems.raise_if_any()
        return [c for c in columns if c.name in self.columns]

    def transform(self, X: Any) -> Any:
        """Transformed rows: a Dataset from a Dataset, else arrays (a DataFrame if it can be one)."""
        check_is_fitted(self, "transform_")
        # A Dataset stays one whatever `set_output` says: it is no container of arrays to convert.
        return self._noted(X) if isinstance(X, Dataset) else super().transform(X)


class SlotTransformer(BaseTransformer):
    """A transformer that makes one sparse column out of those it touches."""

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Names of the columns after ``transform``: those that pass, then one for each slot."""
        check_is_fitted(self, "transform_")
        names = iter(super().get_feature_names_out(input_features))
        transform: Any = self.transform_
        out: list[str] = []
        for column in self.columns_in_:
            own = [next(names) for _ in range(column.width)]
            out += [] if column.name in transform.columns else own
        return np.array(out + (transform.slot_names() if transform.columns else []), dtype=object)


def free_name(wanted: str, columns: list[ColumnSpec]) -> str:
    """``wanted``, with underscores behind it until no column is named so."""
    taken = {c.name for c in columns}
    while wanted in taken:
        wanted += "_"
    return wanted


def _are_names(columns: Any) -> bool:
    listed = isinstance(columns, (list, tuple)) and all(isinstance(name, str) for name in columns)
    return listed and len(set(columns)) == len(columns)
