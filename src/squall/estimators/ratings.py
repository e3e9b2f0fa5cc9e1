"""From ratings to training partitions: ids become codes, and who has rated what is kept."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from squall.data.dataset import Dataset
from squall.errors import DataError, StoreError
from squall.estimators.targets import Blocks, Check, NumberTarget, Target, check_numbers, decoded_labels
from squall.preprocessing.ids import Ids, IdTransform, id_columns, id_pair
from squall.protocols import Objects
from squall.records import Float64, Int32, Int64, RawBlock


@dataclass(frozen=True)
class Catalog:
    """What is known of ratings: ids, who has rated what, and what ratings were scaled by.

    The items that a user has rated are ``items_seen[ends[u] : ends[u + 1]]``, ascending, each once.
    """

    users: Ids
    items: Ids
    ends: Int64  # (n_users + 1,)
    items_seen: Int32  # (n_pairs,)
    implicit: bool = False  # whether they were choices, of which `scale` is the mean
    mean: float = 0.0
    scale: float = 1.0
    visits: int = 0  # of ratings by all trainings

    @property
    def visits_each(self) -> float:
        """How often a rating has been visited, on average."""
        return self.visits / max(1, len(self.items_seen))

    def seen(self, user: int) -> Int32:
        """Codes of the items that a user has rated."""
        return self.items_seen[self.ends[user] : self.ends[user + 1]]

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """All of it as arrays of numbers."""
        numbers = np.array([float(self.implicit), self.mean, self.scale, float(self.visits)])
        rest: dict[str, npt.NDArray[Any]] = {
            "seen_ends": self.ends,
            "seen_items": self.items_seen,
            "numbers": numbers,
        }
        return {**self.users.tensors("user"), **self.items.tensors("item"), **rest}

    @classmethod
    def from_tensors(cls, tensors: dict[str, npt.NDArray[Any]]) -> Self:
        """What `tensors` gave."""
        users, items = (Ids.from_tensors(name, tensors) for name in ("user", "item"))
        implicit, mean, scale, visits = tensors["numbers"].tolist()
        seen = tensors["seen_ends"], tensors["seen_items"]
        return cls(users, items, *seen, bool(implicit), mean, scale, int(visits))


class _IdTarget(Target):
    """Rows are of users and items, whose ids are learned; those ``known`` keep their codes.

    Attributes
    ----------
    catalog : Catalog
        What is known after `learn`.
    planned : int
        Ratings to be visited in all.
    rate : float
        The learning rate to begin with.
    """

    catalog: Catalog
    planned: int
    _implicit = False  # whether they are choices

    def __init__(self, rate: float, epochs: int, known: Catalog | None) -> None:
        self.rate, self._epochs, self._known = rate, epochs, known

    def features(self, data: Dataset) -> Dataset:
        """The rows as pairs of codes."""
        return data.with_transform(IdTransform(self.catalog.users, self.catalog.items))

    def keep(self, objects: Objects, folder: str) -> Catalog:
        """The catalog."""
        objects.put(_catalog_key(folder), save(self.catalog.tensors()))
        return self.catalog

    def _learn_ids(self, data: Dataset, check: Check, mean: float, scale: float) -> None:
        """One pass over ratings.  Memory: 12 bytes a rating, and the ids."""
        known = self._known
        users, items = (Ids(), Ids()) if known is None else (known.users.copy(), known.items.copy())
        names = [spec.name for spec in id_columns(data.columns)]
        pairs = [] if known is None else [_pairs(known)]
        self.planned = self._epochs * data.n_rows
        for block in data.blocks():
            check()
            codes = [
                ids.learn(column, f"column {name!r}")
                for ids, column, name in zip((users, items), id_pair(block), names, strict=True)
            ]
            pairs.append((codes[0], codes[1]))
        rated_by, rated = (np.concatenate(codes) for codes in zip(*pairs, strict=True))
        different = np.unique(rated_by * np.int64(len(items)) + rated)
        counts = np.bincount(different // len(items), minlength=len(users))
        ends = np.append(0, np.cumsum(counts)).astype(np.int64)
        seen = (different % len(items)).astype(np.int32)
        visits = self.planned + (0 if known is None else known.visits)
        self.catalog = Catalog(users, items, ends, seen, self._implicit, mean, scale, visits)


def _pairs(catalog: Catalog) -> tuple[Int32, Int32]:
    users = np.arange(len(catalog.users), dtype=np.int32)
    return np.repeat(users, np.diff(catalog.ends)), catalog.items_seen


class RatingsTarget(_IdTarget, NumberTarget):
    """Ratings are numbers; beside their mean and deviation, who has rated what is learned.

    Parameters
    ----------
    data : Dataset
        The data to train on.
    rate : float
        The learning rate to begin with.
    epochs : int
        How often.
    known : Catalog, optional
        What is known from before; ratings are then scaled as they were.
    """

    def __init__(self, data: Dataset, rate: float, epochs: int, known: Catalog | None = None) -> None:
        _IdTarget.__init__(self, rate, epochs, known)
        NumberTarget.__init__(self, data, scaling=None if known is None else (known.mean, known.scale))

    def learn(self, data: Dataset, check: Check) -> None:
        """Take all of these, in two passes."""
        NumberTarget.learn(self, data, check)
        self._learn_ids(data, check, self.mean, self.deviation)


class ChoicesTarget(_IdTarget):
    """Ratings, or counts, say how sure it is that a user has chosen an item (Hu, Koren & Volinsky 2008).

    A model trains on 1 for what was chosen (0 where the rating is 0) with the weight 1 + α·r / r̄, r̄
    being the mean rating; weights are then divided by the mean of those.  Without ratings all are 1.

    Parameters
    ----------
    data : Dataset
        The data to train on.
    rate : float
        The learning rate to begin with.
    epochs : int
        How often.
    alpha : float
        α.
    known : Catalog, optional
        What is known from before, r̄ too.

    Raises
    ------
    DataError
        If the ratings are text.
    """

    classes: npt.NDArray[Any] = np.empty(0)
    mean, deviation = 0.0, 1.0

    _implicit = True

    def __init__(
        self, data: Dataset, rate: float, epochs: int, alpha: float, known: Catalog | None = None
    ) -> None:
        super().__init__(rate, epochs, known)
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
        self._mean = total / n if self._known is None else self._known.scale
        self._learn_ids(data, check, 0.0, self._mean)

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


def recalled_catalog(objects: Objects, folder: str) -> Catalog:
    """The catalog that a target has put into a job's folder.

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
