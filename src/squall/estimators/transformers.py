"""Transformers with scikit-learn's interface, on data sets and on arrays.

Each says which columns it touches; the others pass.  On a :class:`squall.Dataset` a
transform is noted and applied when the rows are read; on arrays it is applied at once.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from squall.config import Problems, is_number, names_its_settings
from squall.data.dataset import Dataset
from squall.errors import DataError
from squall.estimators.columns import ColumnsMixin, aligned, as_dataset, check_not_empty
from squall.preprocessing import minmax
from squall.preprocessing.hashing import HashTransform
from squall.preprocessing.transforms import Transform


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
    """What Squall's transformers have in common; a subclass gives ``_fit``."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            names_its_settings(cls)

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
        data = as_dataset(X)
        check_not_empty(data)
        self.transform_ = self._fit(data)
        self.columns_in_ = list(data.columns)
        return self

    def _fit(self, data: Dataset) -> Transform:
        raise NotImplementedError

    def transform(self, X: Any) -> Any:
        """Transformed rows: a Dataset from a Dataset, else arrays (a DataFrame if it can be one)."""
        check_is_fitted(self, "transform_")
        # A Dataset stays one whatever `set_output` says: it is no container of arrays to convert.
        return self._noted(X) if isinstance(X, Dataset) else super().transform(X)


class MinMaxScaler(BaseTransformer):
    """Scale every numeric column to a range (0 to 1 unless set), as scikit-learn does.

    Categorical columns pass untouched.  A constant column becomes the range's lower end;
    missing values stay missing.

    Parameters
    ----------
    feature_range : (float, float), default (0.0, 1.0)
        Where the smallest and the largest value seen in ``fit`` go.
    """

    def __init__(self, feature_range: tuple[float, float] = (0.0, 1.0)) -> None:
        self.feature_range = feature_range

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags

    def _fit(self, data: Dataset) -> Transform:
        problems = Problems("MinMaxScaler")
        pair = self.feature_range
        numbers = isinstance(pair, (tuple, list)) and len(pair) == 2 and all(map(is_number, pair))
        if not numbers or pair[0] >= pair[1]:
            problems.add(f"feature_range={pair!r} must be two numbers, the smaller first")
        problems.raise_if_any()
        for column in data.columns:
            if column.kind == "sparse":
                raise DataError(
                    "it is sparse, and min-max scaling would fill its zeros",
                    where=f"column {column.name!r}",
                    fix="leave MinMaxScaler out, or put it before FeatureHasher",
                )
        states = [minmax.partial(block) for block in data.blocks()]
        return minmax.finish(reduce(minmax.merge, states), (float(pair[0]), float(pair[1])))


class FeatureHasher(BaseTransformer):
    """Hash every categorical column into one sparse column of fixed width.

    Columns of numbers pass untouched, and so does data that has no others.
    A value's slot is the MurmurHash3 of ``column=value``, the same on every machine, so
    nothing is learned and values never seen in ``fit`` have their slot too.

    Parameters
    ----------
    n_features : int, default 2**18
        Number of slots.
    """

    transform_: HashTransform

    def __init__(self, n_features: int = 2**18) -> None:
        self.n_features = n_features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Names of the columns after ``transform``: those that pass, then one for each slot."""
        names = iter(super().get_feature_names_out(input_features))
        out = []
        for column in self.columns_in_:
            own = [next(names) for _ in range(column.width)]
            out += [] if column.name in self.transform_.columns else own
        if self.transform_.columns:
            out += [f"{self.transform_.output}_{slot}" for slot in range(self.transform_.n_features)]
        return np.array(out, dtype=object)

    def _check_settings(self) -> None:
        problems = Problems("FeatureHasher")
        problems.integer("n_features", self.n_features, 1, high=2**31 - 1)
        problems.raise_if_any()

    def _fit(self, data: Dataset) -> Transform:
        self._check_settings()
        names = [c.name for c in data.columns if c.kind == "categorical"]
        taken, output = {c.name for c in data.columns}, "hashed"
        while output in taken:
            output += "_"
        return HashTransform(names, int(self.n_features), output)
