"""Transformers that make one sparse column of many: of text by hash or by category, of numbers by bin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from squall.config import Problems, Run, did_you_mean, is_integer, is_number
from squall.data.dataset import Dataset
from squall.estimators.transformers import SlotTransformer, free_name
from squall.preprocessing.binning import BinStatistics
from squall.preprocessing.columns import Statistics
from squall.preprocessing.hashing import HashTransform
from squall.preprocessing.onehot import OneHotStatistics
from squall.preprocessing.transforms import Transform
from squall.records import ColumnSpec

_MAX_BINS = 65_535


class FeatureHasher(SlotTransformer):
    """Hash every categorical column into one sparse column of fixed width.

    Columns of numbers pass untouched, and so does data that has no others.
    A value's slot is the MurmurHash3 of ``column=value``, the same on every machine, so
    nothing is learned and values never seen in ``fit`` have their slot too.

    Parameters
    ----------
    n_features : int, default 2**18
        Number of slots.
    crosses : sequence of sequences of str, default ()
        Columns whose values are also hashed together, such as ``[("city", "weekday")]``: a linear
        model then learns what a pair means.  They must be among the hashed columns.
    alternate_sign : bool, default False
        Whether an entry is 1 or −1 by another hash, so that values which meet in one slot cancel
        on average; worth it where slots are few.
    columns : sequence of str, optional
        Which columns to hash; default: all that are categorical.
    """

    _kinds: ClassVar[tuple[str, ...]] = ("categorical",)

    def __init__(
        self,
        n_features: int = 2**18,
        crosses: Sequence[Sequence[str]] = (),
        alternate_sign: bool = False,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.n_features = n_features
        self.crosses = crosses
        self.alternate_sign = alternate_sign
        self.columns = columns

    def _find_problems(self, problems: Problems) -> None:
        problems.integer("n_features", self.n_features, 1, high=2**31 - 1)
        problems.boolean("alternate_sign", self.alternate_sign)
        listed = isinstance(self.crosses, (list, tuple))
        if not listed or not all(map(_is_cross, self.crosses)):
            problems.add(f'crosses={self.crosses!r} must be groups of columns, such as [("city", "weekday")]')

    def _fit(self, data: Dataset, run: Run | None) -> Transform:
        self._check_settings()
        names = [c.name for c in self._touched(data.columns)]
        crosses = [list(cross) for cross in self.crosses]
        problems = Problems(type(self).__name__)
        for name in dict.fromkeys(name for cross in crosses for name in cross if name not in names):
            problems.add(f"crosses: {name!r} is not a column that is hashed{did_you_mean(name, names)}")
        problems.raise_if_any()
        output = free_name("hashed", data.columns)
        return HashTransform(names, int(self.n_features), output, crosses, bool(self.alternate_sign))


class OneHotEncoder(SlotTransformer):
    """Give every category of every categorical column a slot, as scikit-learn does.

    Columns of numbers pass untouched.  Categories are sorted; a missing value is a category of
    its own.  For columns of more than some thousand categories, hash.

    Parameters
    ----------
    handle_unknown : "ignore", "error" or "infrequent", default "ignore"
        What a category is that ``fit`` did not see: no slot at all, an error, or one of the
        infrequent ones (if there are such).
    min_frequency : int or float, optional
        Categories that turn up in fewer rows (below 1: in a smaller share of them) share one slot.
    columns : sequence of str, optional
        Which columns to encode; default: all that are categorical.
    """

    _kinds: ClassVar[tuple[str, ...]] = ("categorical",)

    def __init__(
        self,
        handle_unknown: str = "ignore",
        min_frequency: float | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.handle_unknown = handle_unknown
        self.min_frequency = min_frequency
        self.columns = columns

    def _find_problems(self, problems: Problems) -> None:
        problems.choice("handle_unknown", self.handle_unknown, ["ignore", "error", "infrequent"])
        least = self.min_frequency
        if least is not None and not (
            (is_integer(least) and least >= 1) or (is_number(least) and 0 < least < 1)
        ):
            problems.add(f"min_frequency={least!r} must be a number of rows, or a share of them below 1")

    def _statistics(self, columns: list[ColumnSpec]) -> Statistics[Any, Transform]:
        unknown: Any = self.handle_unknown
        least = self.min_frequency
        if least is not None:
            least = int(least) if is_integer(least) else float(least)
        names = tuple(c.name for c in self._touched(columns))
        return OneHotStatistics(names, free_name("onehot", columns), unknown, least)


class QuantileBinner(SlotTransformer):
    """Cut every column of numbers into bins of about as many rows each.

    Categorical and sparse columns pass untouched.  Up to 4096 rows the edges are the quantiles
    themselves (as of scikit-learn's KBinsDiscretizer); of more, each is wrong by less than 0.5 % of
    the rows, usually by a tenth of that.  A missing value is in no bin.

    Parameters
    ----------
    n_bins : int, default 32
        Bins; fewer where many values are equal.
    encode : "onehot" or "ordinal", default "onehot"
        One sparse column with a slot for each bin, or the bins' numbers in place of the values.
    columns : sequence of str, optional
        Which columns to cut; default: all that are numbers and not sparse.
    """

    _kinds: ClassVar[tuple[str, ...]] = ("int64", "float64", "dense")

    def __init__(
        self, n_bins: int = 32, encode: str = "onehot", columns: Sequence[str] | None = None
    ) -> None:
        self.n_bins = n_bins
        self.encode = encode
        self.columns = columns

    def _find_problems(self, problems: Problems) -> None:
        problems.integer("n_bins", self.n_bins, 2, high=_MAX_BINS)
        problems.choice("encode", self.encode, ["onehot", "ordinal"])

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the columns after ``transform``."""
        if getattr(getattr(self, "transform_", None), "encode", "") == "ordinal":
            return super(SlotTransformer, self).get_feature_names_out(input_features)
        return super().get_feature_names_out(input_features)

    def _statistics(self, columns: list[ColumnSpec]) -> Statistics[Any, Transform]:
        encode: Any = self.encode
        names = tuple(c.name for c in self._touched(columns))
        return BinStatistics(names, free_name("binned", columns), int(self.n_bins), encode)


def _is_cross(cross: Any) -> bool:
    names = isinstance(cross, (list, tuple)) and all(isinstance(name, str) for name in cross)
    return names and len(cross) >= 2 and len(set(cross)) == len(cross)
