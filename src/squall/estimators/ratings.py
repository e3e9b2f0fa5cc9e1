"""From ratings to training partitions: ids become codes, and who has rated what is kept."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from squall.data.dataset import Dataset
from squall.data.objects import ObjectStore
from squall.driver.spec import Prepared
from squall.errors import DataError, SettingError, StoreError
from squall.estimators.preparation import Preparation
from squall.estimators.targets import Blocks, Check, NumberTarget, check_numbers, decoded_labels
from squall.preprocessing.ids import Ids, IdTransform, id_columns, id_pair
from squall.protocols import Objects
from squall.records import Float64, Int32, Int64, RawBlock

IN_FLIGHT = 8_192
"""Ratings that all workers together train on at a time, between two exchanges; many more would diverge."""


@dataclass(frozen=True)
class Catalog:
    """Ids, and the items that each user has rated: ``items_seen[ends[u] : ends[u + 1]]``, ascending."""

    users: Ids
    items: Ids
    ends: Int64  # (n_users + 1,)
    items_seen: Int32  # (n_ratings,)

    def seen(self, user: int) -> Int32:
        """Codes of the items that a user has rated."""
        return self.items_seen[self.ends[user] : self.ends[user + 1]]

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """All of it as arrays of numbers."""
        seen: dict[str, npt.NDArray[Any]] = {"seen_ends": self.ends, "seen_items": self.items_seen}
        return {**self.users.tensors("user"), **self.items.tensors("item"), **seen}

    @classmethod
    def from_tensors(cls, tensors: dict[str, npt.NDArray[Any]]) -> Self:
        """What `tensors` gave."""
        users, items = (Ids.from_tensors(name, tensors) for name in ("user", "item"))
        return cls(users, items, tensors["seen_ends"], tensors["seen_items"])


def learn_catalog(data: Dataset, check: Check) -> Catalog:
    """One pass over ratings.  Memory: 8 bytes a rating, and the ids."""
    users, items = Ids(), Ids()
    names = [spec.name for spec in id_columns(data.columns)]
    pairs = []
    for block in data.blocks():
        check()
        columns = id_pair(block)
        pairs.append(
            [
                ids.learn(column, f"column {name!r}")
                for ids, column, name in zip((users, items), columns, names, strict=True)
            ]
        )
    rated_by, rated = (np.concatenate(codes) for codes in zip(*pairs, strict=True))
    counts = np.bincount(rated_by, minlength=len(users))
    pairs_sorted = np.sort(rated_by.astype(np.int64) * len(items) + rated)  # much faster than np.lexsort
    seen = (pairs_sorted % max(1, len(items))).astype(np.int32)
    return Catalog(users, items, np.append(0, np.cumsum(counts)).astype(np.int64), seen)


class RatingsTarget(NumberTarget):
    """Ratings are numbers; beside their mean and deviation, who has rated what is learned."""

    catalog: Catalog

    def learn(self, data: Dataset, check: Check) -> None:
        """Take all of these, in two passes."""
        super().learn(data, check)
        self.catalog = learn_catalog(data, check)


class ChoicesTarget:
    """Ratings, or counts, say how sure it is that a user has chosen an item (Hu, Koren & Volinsky 2008).

    A model trains on 1 for what was chosen (0 where the rating is 0) with the weight 1 + α·r / r̄, r̄
    being the mean rating; weights are then divided by the mean of those.  Without ratings all are 1.

    Parameters
    ----------
    data : Dataset
        The data to train on.
    alpha : float
        α.

    Raises
    ------
    DataError
        If the ratings are text.
    """

    classes: npt.NDArray[Any] = np.empty(0)
    catalog: Catalog
    mean, deviation = 0.0, 1.0

    def __init__(self, data: Dataset, alpha: float) -> None:
        if data.label is not None:
            check_numbers(data, f"label {data.label!r}")
        self._alpha, self._mean = alpha, 1.0

    def learn(self, data: Dataset, check: Check) -> None:
        """Take the mean rating, and who has rated what, in two passes."""
        total, n = 0.0, 0
        for block in data.blocks():
            check()
            total += float(_choices(data, block).sum())
            n += block.n_rows
        if not total:
            raise DataError("all ratings are 0: nobody has chosen anything", where=f"label {data.label!r}")
        self._mean = total / n
        self.catalog = learn_catalog(data, check)

    @property
    def negative_weight(self) -> float:
        """What a pair counts that was not chosen."""
        return 1.0 / (1.0 + self._alpha)

    def training(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The rows as 1 or 0, with their weights."""
        for block in blocks:
            ratings = _choices(data, block)
            weights = (1.0 + self._alpha * ratings / self._mean) * self.negative_weight
            if block.weights is not None:
                weights *= block.weights
            yield dataclasses.replace(block, labels=(ratings > 0).astype(np.float64), weights=weights)

    def held_out(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The same for the blocks of a held-out data set."""
        return self.training(data, blocks)


def _choices(data: Dataset, block: RawBlock) -> Float64:
    if block.labels is None:
        return np.ones(block.n_rows)
    ratings = decoded_labels(data, block).astype(np.float64)
    if len(ratings) and not ratings.min() >= 0:
        raise DataError(
            f"a rating is {ratings.min():g}; with implicit=True ratings say how sure a choice is, from 0 on",
            where=f"label {data.label!r}",
            fix="give counts, or 1 for each choice, and leave out what was disliked",
        )
    return ratings


class RatingsPreparation(Preparation):
    """Training rows are pairs of codes, and a user's ratings stay together.

    So what workers exchange of users is little: a minibatch has few of them.
    """

    grouped: ClassVar[bool] = True
    _target: RatingsTarget | ChoicesTarget

    def prepare(self, objects: ObjectStore, prefix: str, check: Check) -> Prepared:
        """As of any model; the catalog goes into the job's folder, for whoever resumes it."""
        if self._before:
            raise SettingError(
                f"ids are taken as they are, and {type(self._before[0]).__name__} would change them",
                where="make_pipeline",
                fix="leave out the steps before squall.MatrixFactorization",
            )
        prepared = super().prepare(objects, prefix, check)
        catalog = self._target.catalog
        objects.put(_catalog_key(prefix), save(catalog.tensors()))
        return dataclasses.replace(prepared, learned=catalog)

    def _transformed(
        self, data: Dataset, held_out: Dataset | None, check: Check
    ) -> tuple[Dataset, Dataset | None]:
        transform = IdTransform(self._target.catalog.users, self._target.catalog.items)
        return data.with_transform(transform), None if held_out is None else held_out.with_transform(
            transform
        )

    def _auto_batch_size(self, n_rows: int) -> int:
        return max(1, IN_FLIGHT // self._n_workers)


def recalled_catalog(objects: Objects, folder: str) -> Catalog:
    """The catalog that `RatingsPreparation` put into a job's folder.

    Raises
    ------
    StoreError
        If it is not there.
    """
    key = _catalog_key(folder)
    data = objects.find(key)
    if data is None:
        raise StoreError("the ids of the job's ratings are not there", where=key, fix="start the job again")
    return Catalog.from_tensors(load(bytes(data)))


def _catalog_key(folder: str) -> str:
    return f"{folder}/catalog.safetensors"
