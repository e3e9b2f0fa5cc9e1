"""Learning from a data set: one map-reduce for each fitted transform, over all transforms before it."""

from __future__ import annotations

from functools import reduce
from typing import Any, TypeVar

from squall.data.dataset import Dataset
from squall.preprocessing.columns import Statistics

Fitted = TypeVar("Fitted")


def learned(data: Dataset, statistics: Statistics[Any, Fitted]) -> Fitted:
    """What ``statistics`` give for all rows of the data set: one pass, one partition in memory.

    Raises
    ------
    DataError
        If values do not fit.
    """
    return statistics.finish(reduce(statistics.merge, map(statistics.partial, data.blocks())))
