"""A data set as plain data, so that a function can read its rows where they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

from squall.data.dataset import Dataset
from squall.data.objects import ObjectStore
from squall.data.selection import Selection
from squall.data.sources import StoredSource
from squall.preprocessing.columns import Statistics
from squall.protocols import BlockTransform
from squall.records import Manifest


class Portable(NamedTuple):
    """A stored data set: where, what, which rows of it, and what is done to them."""

    url: str
    manifest: Manifest
    selection: Selection
    transforms: tuple[BlockTransform, ...]

    def open(self) -> Dataset:
        """The data set, in any process that reaches the store."""
        return Dataset(StoredSource(ObjectStore(self.url), self.manifest), self.selection, self.transforms)


def portable(data: Dataset) -> Portable | None:
    """``data`` as plain data; None if its rows are not all in one object store."""
    source = data._source
    if not isinstance(source, StoredSource):
        return None
    return Portable(source.store.url, source.manifest, data._selection, data._transforms)


def statistics_of(data: Dataset, statistics: Statistics[Any, Any], partitions: Iterable[int]) -> Any:
    """Statistics of the rows of these partitions, merged in their order."""
    return reduce(statistics.merge, (statistics.partial(data.partition(number)) for number in partitions))


class PartialStatistics(NamedTuple):
    """`statistics_of`, as a function to be called elsewhere."""

    data: Portable
    statistics: Statistics[Any, Any]

    def __call__(self, partitions: list[int]) -> Any:
        """Statistics of these partitions."""
        return statistics_of(self.data.open(), self.statistics, partitions)
