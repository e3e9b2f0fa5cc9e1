"""Learning from a data set: one map-reduce for each fitted transform, over all transforms before it.

Partitions are taken in groups that depend on the data set alone, and groups are merged in order, so
what is learned is the same to the last bit wherever the groups are looked at.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Generic, NamedTuple, TypeVar

from squall.config import Run, is_isolated
from squall.data.dataset import Dataset
from squall.data.portable import PartialStatistics, Portable, portable, statistics_of
from squall.preprocessing.columns import Statistics
from squall.records import Bill
from squall.registry import MAPS

Fitted = TypeVar("Fitted")


class Learned(NamedTuple, Generic[Fitted]):
    """What was learned, and what functions cost that were asked for it, if any were."""

    fitted: Fitted
    bill: Bill | None


GROUP = 8
"""Partitions (of about 10 MB) of a group: one item of a map, and one result on its way back."""

LARGE_BYTES = 256_000_000
"""Data that is stored in as much is looked at by functions; for less, starting them takes longer."""


def learned(data: Dataset, statistics: Statistics[Any, Fitted], run: Run | None = None) -> Learned[Fitted]:
    """What ``statistics`` give for all rows of the data set: one pass, one partition in memory.

    With a ``run`` of several workers, large data that functions can reach is looked at by them, and they
    have a bill.  Not where a deadline or a budget is set: those are for training, which follows.

    Raises
    ------
    DataError
        If values do not fit.
    """
    numbers = data.partitions()
    groups = [numbers[i : i + GROUP] for i in range(0, len(numbers), GROUP)]
    there = None if run is None else _for_functions(data, run)
    if there is None or run is None:
        states = (statistics_of(data, statistics, group) for group in groups)
        return Learned(statistics.finish(reduce(statistics.merge, states)), None)
    mapped = MAPS.load("functions")(PartialStatistics(there, statistics), groups, run=run)
    merged = reduce(statistics.merge, (future.result() for future in mapped))
    mapped.job.join()  # then its bill is complete
    return Learned(statistics.finish(merged), mapped.bill)


def _for_functions(data: Dataset, run: Run) -> Portable | None:
    """The data set for functions; None where this process had better look at it itself."""
    if run.deadline is not None or run.budget is not None or run.resolve_workers(data.n_rows) < 2:
        return None
    there = portable(data)
    if there is None or sum(p.bytes for p in there.manifest.partitions) < LARGE_BYTES:
        return None
    on_disk = there.url.startswith("file:")
    return None if on_disk and is_isolated(run.resolve_backend()) else there
