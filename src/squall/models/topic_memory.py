"""What a topic model's worker remembers of each row block: the statistics that the table holds of it.

They are kept in the job's blobs, as *versions*: one for each block and epoch, written once, before its
difference to the version before is sent to the table.  An attempt that finds the version of the visit
that it is about to make takes it as it is, for its predecessor may have sent that.  So whatever dies
when, the table gets the difference of each two versions once, and its sum is that of the last ones.

Versions that this attempt has written, or read, are also at hand here as long as there is room: blocks
come in the same order in every epoch, so those that came first stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from squall import _kernels
from squall.errors import StoreError
from squall.models.documents import Taken, numbered
from squall.protocols import Blobs, Model
from squall.records import Block, Float32, Float64, Int32, Int64, Place, SharedTable, TableSpec

if TYPE_CHECKING:
    from squall.models.topics import TopicModel


class Version(NamedTuple):
    """What one visit of a row block found."""

    statistics: _kernels.Statistics  # (u, n_topics), by its distinct words
    theta: Float32  # (n, n_topics)
    told: Float64  # loss, tokens

    def encoded(self) -> bytes:
        """As a blob."""
        data: bytes = save(self._asdict())
        return data

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return self.statistics.nbytes + self.theta.nbytes + self.told.nbytes

    @staticmethod
    def decoded(data: bytes) -> Version:
        """From a blob."""
        return Version(**load(data))


class TopicMemory:
    """A topic model at work in one worker; see :meth:`squall.protocols.Remembering.at_work`.

    Parameters
    ----------
    model : TopicModel
    job : str
        Whose blobs.
    blobs : Blobs
    mean_of : int
        How many gradients the table's owner takes the mean of; they are to add up.
    room : int
        Bytes of versions that may be at hand.
    """

    def __init__(self, model: TopicModel, job: str, blobs: Blobs, mean_of: int, room: int) -> None:
        self._model, self._job, self._blobs = model, job, blobs
        self._scale = -float(mean_of)
        self._room = room
        self._at_hand: dict[tuple[int, int], tuple[int, Version]] = {}  # by block: epoch, version

    def table(self, name: str, optimizer: Any) -> TableSpec:
        """See the model."""
        return self._model.table(name, optimizer)

    def outputs(self, block: Block, weights: Float32) -> Float32:
        """See the model."""
        return self._model.outputs(block, weights)

    def loss(self, block: Block, weights: Float32) -> tuple[float, float, float | None]:
        """See the model."""
        return self._model.loss(block, weights)

    def needed_rows(self, block: Block, rows: Int32) -> tuple[Int64, Any]:
        """See the model."""
        taken = numbered(block, rows)
        return taken.words, taken

    def train_shared(
        self,
        block: Block,
        order: Int32,
        batch_size: int,
        first: int,
        count: int,
        table: SharedTable,
        progress: Int64,
    ) -> tuple[float, float, int]:
        """Minibatches in place on mapped rows; see the protocol."""
        return train_in_place(self, block, order, batch_size, first, count, table, progress)

    def gradient(
        self, block: Block, rows: Int32, handle: Any, weights: Float32, batch_size: int
    ) -> tuple[Float32, float, float]:
        """What this visit changes, with its sign changed; its loss and tokens."""
        assert block.place is not None
        return self._visit(block.place, handle, weights)

    def _visit(self, place: Place, taken: Taken, weights: Float32) -> tuple[Float32, float, float]:
        mine, before = self._known(place)
        if mine is None:
            version, gradient = self._made(taken, weights, before)
            if self._blobs.put_if_absent(self._key(place), version.encoded()):
                if place.epoch > 1:
                    # Not the one before: the table of a store that is restored may have to go back to it.
                    self._blobs.delete(self._key(place, 2))
                self._keep(place, version)
                return gradient, float(version.told[0]), float(version.told[1])
            mine, before = self._found(place)
            assert mine is not None
        self._keep(place, mine)
        old = None if before is None else before.statistics
        gradient = _kernels.topic_difference(mine.statistics, old, self._scale)
        return gradient, float(mine.told[0]), float(mine.told[1])

    def _made(self, taken: Taken, weights: Float32, before: Version | None) -> tuple[Version, Float32]:
        """This visit's version, and its difference to the one before as a gradient."""
        theta = self._model.beginning(taken) if before is None else before.theta.copy()
        old = None if before is None else before.statistics
        mass = self._model.unseen_mass(weights[-1])
        statistics, gradient, loss, tokens = _kernels.topic_update(
            taken.rows, taken.words, weights, theta, self._model.visit_settings(), mass, old, self._scale
        )
        return Version(statistics, theta, np.array([loss, tokens])), gradient

    def _known(self, place: Place) -> tuple[Version | None, Version | None]:
        """As `_found`, but without asking where what came before is at hand, or nothing did."""
        # Should this visit's version be there all the same, writing it will tell.
        if place.epoch == 0:
            return None, None
        epoch, version = self._at_hand.get((place.partition, place.start), (-1, None))
        return (None, version) if epoch == place.epoch - 1 else self._found(place)

    def _keep(self, place: Place, version: Version) -> None:
        """Have it at hand for the next visit, in place of the one before, if there is room."""
        block = place.partition, place.start
        if block in self._at_hand:
            self._room += self._at_hand.pop(block)[1].nbytes
        if version.nbytes <= self._room:
            self._room -= version.nbytes
            self._at_hand[block] = place.epoch, version

    def _found(self, place: Place) -> tuple[Version | None, Version | None]:
        """The version of this visit, if it was made before, and that of the last one."""
        mine, before = self._blobs.mget([self._key(place), self._key(place, 1)])
        if before is None and place.epoch:
            raise StoreError(
                f"the store has lost what its table holds of rows from {place.start} on in partition "
                f"{place.partition}",
                where=f"job {self._job}",
                fix="start the job again",
            )
        found = tuple(None if data is None else Version.decoded(data) for data in (mine, before))
        return found[0], found[1]

    def _key(self, place: Place, back: int = 0) -> str:
        return f"{self._job}/rows/{place.partition}/{place.start}/{place.epoch - back}"


def train_in_place(
    model: Model,
    block: Block,
    order: Int32,
    batch_size: int,
    first: int,
    count: int,
    table: SharedTable,
    progress: Int64,
) -> tuple[float, float, int]:
    """Minibatches on mapped rows, by racy adds; each is counted when it is done."""
    losses = weights = 0.0
    n_rows = 0
    for batch in range(first, first + count):
        rows = order[batch * batch_size : (batch + 1) * batch_size]
        needed, handle = model.needed_rows(block, rows)
        pulled = _kernels.table_gather(table.array, needed, table.spec.dim)
        gradient, loss, weight = model.gradient(block, rows, handle, pulled, batch_size)
        _kernels.table_add(table.array, needed, gradient, -1.0)
        _kernels.step_advance(table.step)
        _kernels.step_advance(progress)
        losses, weights, n_rows = losses + loss, weights + weight, n_rows + len(rows)
    return losses, weights, n_rows
