"""`Dataset.iter_batches`: rows as arrays of one size, from any place on, epoch after epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from squall.config import Problems
from squall.data.export import block_arrays
from squall.data.mixing import Placed
from squall.data.rows import cut_blocks, slice_raw
from squall.data.seeds import rng, seed_from
from squall.data.view import View
from squall.errors import SettingError
from squall.records import RawBlock

_EPOCH = 7  # first part of the keys of these draws

Batch = tuple[Any, np.ndarray[Any, Any] | None]


class Position(NamedTuple):
    """Which row of a data set's batches comes next; as JSON a list, which is taken back as it is.

    ``partition`` counts partitions in the order of the epoch, and ``row`` rows behind the first of that
    partition, or of the 64 MB that are shuffled together from it on.
    """

    epoch: int
    partition: int
    row: int
    batch_size: int
    seed: int | None  # None if rows are not shuffled
    data: str  # the data set's key


class Batches(Iterator[Batch]):
    """Batches ``(X, y)``, each asked for once; what `squall.Dataset.iter_batches` gives."""

    def __init__(self, data: View, batch_size: int, epochs: int, seed: int | None, start: Place) -> None:
        self._data, self._batch_size, self._epochs, self._seed = data, batch_size, epochs, seed
        self._place = start
        self._n_partitions = len(data.partitions())
        self._waiting: deque[Placed] = deque()  # blocks that were read and are not all given
        self._given = 0  # rows of the first of them
        self._batches = self._all()

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        return next(self._batches)

    @property
    def position(self) -> Position:
        """Where the rows begin that have not been given; ``iter_batches(…, start=…)`` goes on there.

        Of arrays in memory a checksum is made the first time that it is asked for.
        """
        return Position(*self._place, self._batch_size, self._seed, self._data.key())

    def _all(self) -> Iterator[Batch]:
        begin = self._place
        for epoch in range(begin.epoch, self._epochs):
            blocks = self._blocks(begin if epoch == begin.epoch else Place(epoch))
            for block in cut_blocks(blocks, self._batch_size):
                self._note(epoch, block.n_rows)
                yield block_arrays(self._data, block)

    def _blocks(self, begin: Place) -> Iterator[RawBlock]:
        """The rows of an epoch, from a place on."""
        data = self._data
        if self._seed is not None:
            data = data.shuffled(int(rng(_EPOCH, self._seed, begin.epoch).integers(2**63)))
        skip = begin.row
        for placed in data.placed_blocks(begin.partition):
            if placed.first == begin.partition and begin.row >= placed.n_rows:
                raise _unfit([f"partition {begin.partition} of epoch {begin.epoch} has no row {begin.row:,}"])
            skipped = min(skip, placed.block.n_rows)
            skip -= skipped
            if skipped < placed.block.n_rows:
                block = slice_raw(placed.block, skipped, placed.block.n_rows) if skipped else placed.block
                self._waiting.append(placed._replace(row=placed.row + skipped, block=block))
                yield block

    def _note(self, epoch: int, n_rows: int) -> None:
        """So many more rows of an epoch are given."""
        self._given += n_rows
        place = self._place
        while self._waiting and self._given >= self._waiting[0].block.n_rows:
            done = self._waiting.popleft()
            self._given -= done.block.n_rows
            place = _behind(epoch, done, done.block.n_rows)
        if self._given:
            place = _behind(epoch, self._waiting[0], self._given)
        self._place = Place(epoch + 1) if place.partition == self._n_partitions else place


class Place(NamedTuple):
    """The first three fields of a `Position`."""

    epoch: int
    partition: int = 0
    row: int = 0


def _behind(epoch: int, placed: Placed, n_rows: int) -> Place:
    """The place behind some rows of a block."""
    row = placed.row + n_rows
    return Place(epoch, placed.stop) if row == placed.n_rows else Place(epoch, placed.first, row)


def batches_of(
    data: View, batch_size: Any, epochs: Any, shuffle: Any, random_state: Any, start: Any
) -> Batches:
    """The batches that were asked for; parameters and errors are those of `squall.Dataset.iter_batches`."""
    problems = Problems("iter_batches")
    problems.integer("batch_size", batch_size, 1)
    problems.integer("epochs", epochs, 0)
    problems.boolean("shuffle", shuffle)
    if random_state is not None and shuffle is False:
        problems.add("random_state has no effect with shuffle=False")
    found = None
    if start is not None:
        try:
            found = msgspec.convert(list(start) if isinstance(start, tuple) else start, Position)
        except msgspec.ValidationError:
            problems.add(f"start={start!r} is not the position of batches")
    problems.raise_if_any()
    if found is None:
        return Batches(data, batch_size, epochs, seed_from(random_state) if shuffle else None, Place(0))
    seed = seed_from(found.seed if random_state is None else random_state) if shuffle else None
    wrong = _differences(data, found, batch_size, seed) or _beyond(data, found, epochs)
    if wrong:
        raise _unfit(wrong)
    return Batches(data, batch_size, epochs, seed, Place(found.epoch, found.partition, found.row))


def _differences(data: View, found: Position, batch_size: int, seed: int | None) -> list[str]:
    wrong = []
    if found.data != data.key():
        wrong.append("it is of a data set with other rows or transforms")
    if found.batch_size != batch_size:
        wrong.append(f"it is of batch_size={found.batch_size}, not {batch_size}")
    if found.seed is None and seed is not None:
        wrong.append("it is of batches that are not shuffled")
    elif found.seed is not None and seed is None:
        wrong.append("it is of batches with shuffle=True")
    elif found.seed != seed:
        wrong.append(f"it is of random_state={found.seed}, not {seed}")
    return wrong


def _beyond(data: View, found: Position, epochs: int) -> list[str]:
    n_partitions = len(data.partitions())
    if min(found.epoch, found.partition, found.row) < 0:
        return ["no part of it can be negative"]
    if found.epoch > epochs or (found.epoch == epochs and (found.partition or found.row)):
        return [f"it is in epoch {found.epoch}, beyond the end of epochs={epochs}"]
    if found.partition >= max(1, n_partitions):
        return [f"it is in partition {found.partition}, and there are {n_partitions}"]
    return []


def _unfit(wrong: list[str]) -> SettingError:
    return SettingError(
        f"the position does not fit: {'; '.join(wrong)}",
        where="iter_batches: start",
        fix="give the position of batches of the same data set, and the settings that they had",
    )
