"""Transformers that scale numbers: to a range, to unit variance, by the largest magnitude, by TF-IDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from squall.config import Problems, is_number
from squall.errors import DataError
from squall.estimators.transformers import BaseTransformer
from squall.preprocessing.columns import Statistics
from squall.preprocessing.minmax import MinMaxStatistics
from squall.preprocessing.scaling import MaxAbsStatistics, StandardStatistics
from squall.preprocessing.tfidf import TfidfStatistics
from squall.preprocessing.transforms import Transform
from squall.records import ColumnSpec

_NUMBERS = ("int64", "float64", "dense", "sparse")


class MinMaxScaler(BaseTransformer):
    """Scale every numeric column to a range (0 to 1 unless set), as scikit-learn does.

    Categorical columns pass untouched.  A constant column becomes the range's lower end;
    missing values stay missing.

    Parameters
    ----------
    feature_range : (float, float), default (0.0, 1.0)
        Where the smallest and the largest value seen in ``fit`` go.
    columns : sequence of str, optional
        Which columns to scale; default: all that are numbers.
    """

    _kinds: ClassVar[tuple[str, ...]] = _NUMBERS

    def __init__(
        self, feature_range: tuple[float, float] = (0.0, 1.0), columns: Sequence[str] | None = None
    ) -> None:
        self.feature_range = feature_range
        self.columns = columns

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def _find_problems(self, problems: Problems) -> None:
        pair = self.feature_range
        numbers = isinstance(pair, (tuple, list)) and len(pair) == 2 and all(map(is_number, pair))
        if not numbers or pair[0] >= pair[1]:
            problems.add(f"feature_range={pair!r} must be two numbers, the smaller first")

    def _statistics(self, columns: list[ColumnSpec]) -> Statistics[Any, Transform]:
        touched = self._touched(columns)
        _refuse_sparse(touched, "min-max scaling", "leave MinMaxScaler out, or put it before FeatureHasher")
        low, high = map(float, self.feature_range)
        return MinMaxStatistics(tuple(c.name for c in touched), (low, high))


class StandardScaler(BaseTransformer):
    """Scale every numeric column to mean 0 and variance 1, as scikit-learn does.

    Categorical columns pass untouched.  A constant column becomes 0; missing values stay missing.
    Sparse columns can be scaled ``with_mean=False`` only.

    Parameters
    ----------
    with_mean : bool, default True
        Whether to subtract the mean.
    with_std : bool, default True
        Whether to divide by the (population's) standard deviation.
    columns : sequence of str, optional
        Which columns to scale; default: all that are numbers.
    """

    _kinds: ClassVar[tuple[str, ...]] = _NUMBERS

    def __init__(
        self, with_mean: bool = True, with_std: bool = True, columns: Sequence[str] | None = None
    ) -> None:
        self.with_mean = with_mean
        self.with_std = with_std
        self.columns = columns

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.with_mean
        return tags

    def _find_problems(self, problems: Problems) -> None:
        for name in ("with_mean", "with_std"):
            problems.boolean(name, getattr(self, name))

    def _statistics(self, columns: list[ColumnSpec]) -> Statistics[Any, Transform]:
        touched = self._touched(columns)
        if self.with_mean:
            _refuse_sparse(touched, "centring", "use StandardScaler(with_mean=False), or MaxAbsScaler()")
        names = tuple(c.name for c in touched)
        return StandardStatistics(names, bool(self.with_mean), bool(self.with_std))


class MaxAbsScaler(BaseTransformer):
    """Divide every numeric column by its largest magnitude, as scikit-learn does; sparse ones too.

    Categorical columns pass untouched.  A column of zeros stays; missing values stay missing.

    Parameters
    ----------
    columns : sequence of str, optional
        Which columns to scale; default: all that are numbers.
    """

    _kinds: ClassVar[tuple[str, ...]] = _NUMBERS

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self.columns = columns

    def _statistics(self, columns: list[ColumnSpec]) -> Statistics[Any, Transform]:
        return MaxAbsStatistics(tuple(c.name for c in self._touched(columns)))


class TfidfTransformer(BaseTransformer):
    """Weigh counts of terms by how few rows have them, as scikit-learn does.

    It is for matrices, sparse or dense, of a term a feature; each is weighed and normalised by
    itself.  Columns with one number, and text, pass untouched.

    Parameters
    ----------
    norm : "l2", "l1" or None, default "l2"
        What each row is divided by.
    use_idf : bool, default True
        Whether to weigh by the inverse document frequency.
    smooth_idf : bool, default True
        Whether to count one more row, which has every term.
    sublinear_tf : bool, default False
        Whether a count is dampened to ``1 + ln(count)``.
    columns : sequence of str, optional
        Which columns to weigh; default: all matrices.
    """

    _kinds: ClassVar[tuple[str, ...]] = ("dense", "sparse")

    def __init__(
        self,
        norm: str | None = "l2",
        use_idf: bool = True,
        smooth_idf: bool = True,
        sublinear_tf: bool = False,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.norm = norm
        self.use_idf = use_idf
        self.smooth_idf = smooth_idf
        self.sublinear_tf = sublinear_tf
        self.columns = columns

    def _find_problems(self, problems: Problems) -> None:
        if self.norm is not None:
            problems.choice("norm", self.norm, ["l1", "l2"])
        for name in ("use_idf", "smooth_idf", "sublinear_tf"):
            problems.boolean(name, getattr(self, name))

    def _statistics(self, columns: list[ColumnSpec]) -> Statistics[Any, Transform]:
        norm: Any = self.norm
        return TfidfStatistics(
            tuple(c.name for c in self._touched(columns)),
            norm,
            bool(self.use_idf),
            bool(self.smooth_idf),
            bool(self.sublinear_tf),
        )


def _refuse_sparse(columns: list[ColumnSpec], doing: str, fix: str) -> None:
    for column in columns:
        if column.kind == "sparse":
            raise DataError(
                f"it is sparse, and {doing} would fill its zeros", where=f"column {column.name!r}", fix=fix
            )
