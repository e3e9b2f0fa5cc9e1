"""Model averaging: each worker trains a model of its own, and now and then all go on from their mean."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np

from squall.config import NamedSettings, Problems, is_integer
from squall.models import model_from_dict
from squall.protocols import Model, Store, Strategy
from squall.records import Block, Float32, Int32, Registration, Steps, TableContents, WorkerTask
from squall.store.table import ParameterTable
from squall.worker.keeping import (
    SPEAKER,
    Arrays,
    Keeper,
    latest,
    packed,
    shown,
    start_key,
    unpacked,
)
from squall.worker.rounds import Meeting, Rounds

KEEP_S = 5.0
"""Seconds of work after which a worker keeps what it has, also between two meetings."""


class ModelAveraging(
    msgspec.Struct, metaclass=NamedSettings, frozen=True, tag="model_averaging", repr_omit_defaults=True
):
    """Minibatch descent on a model of each worker's own; all models meet, and go on from their mean.

    The mean is weighted by the rows that each has seen since the last meeting (Zinkevich et al. 2010;
    McMahan et al. 2017).  Nothing but models travels, and only when they meet, so any store will do,
    an object store too; the bits of the result are always the same for as many workers.  The optimiser's
    state (AdaGrad's sums, velocities) stays with each worker: averaged are the weights alone.

    Parameters
    ----------
    every : int or "epoch", default "epoch"
        After how many of a worker's minibatches the models meet; also at the end of each epoch.

    Raises
    ------
    SettingError
        If it is neither.

    Examples
    --------
    >>> import squall
    >>> squall.LogisticRegression(strategy=squall.ModelAveraging(every=100)).strategy
    ModelAveraging(every=100)
    """

    every: int | str = "epoch"

    needs_tables = False
    synchronous = True
    waits_for_all = True
    whole_shares = False
    updates_in_place = False
    replaces_stragglers = False

    def __post_init__(self) -> None:
        problems = Problems("ModelAveraging")
        if isinstance(self.every, str):
            problems.choice("every", self.every, ("epoch",))
        elif not is_integer(self.every) or self.every < 1:
            problems.add(f'every={self.every!r} must be "epoch" or a number of minibatches of at least 1')
        problems.raise_if_any()
        if not isinstance(self.every, str):  # NumPy's numbers are not plain data
            msgspec.structs.force_setattr(self, "every", int(self.every))

    def epochs(self, asked: int) -> int:
        """See :class:`squall.protocols.StrategySettings`: as many as are asked for."""
        return asked

    def conflicts(self, estimator: str, settings: dict[str, Any]) -> list[str]:
        """See :class:`squall.protocols.StrategySettings`."""
        if settings.get("optimizer") == "ftrl":
            return [
                'optimizer="ftrl" does not go with ModelAveraging: its weights follow from sums of each '
                'worker\'s own, so that a mean would be forgotten; choose another, such as "adagrad"'
            ]
        return []

    def open(self, store: Store, task: WorkerTask, source: WorkerTask | None) -> None:
        """See :class:`squall.protocols.StrategySettings`.

        Another job's model moves with the step, and the optimiser's state, of its first worker.
        """
        kept = None if source is None else latest(store, source)
        if kept is not None:
            store.blobs.put(start_key(task.job), packed(kept[1]))

    def begin(self, store: Store, task: WorkerTask, contents: TableContents) -> None:
        """See :class:`squall.protocols.StrategySettings`: what each worker begins with."""
        arrays: Arrays = {"array": contents.array, "step": np.array([contents.step], dtype=np.int64)}
        store.blobs.put(start_key(task.job), packed(arrays))

    def weights(self, store: Store, task: WorkerTask) -> Float32 | None:
        """See :class:`squall.protocols.StrategySettings`: what came of the last meeting."""
        spec = model_from_dict(task.model).table(task.table, task.optimizer)
        weights = shown(store, task)
        if weights is None:
            start = store.blobs.get(start_key(task.job))
            return None if start is None else np.ascontiguousarray(unpacked(start)["array"][:, : spec.dim])
        return weights.reshape(spec.rows, spec.dim)

    def bind(
        self,
        task: WorkerTask,
        model: Model,
        store: Store,
        interrupted: Callable[[], bool],
        minibatches: Callable[[int], Sequence[int]],
    ) -> Strategy:
        """See :class:`squall.protocols.StrategySettings`."""
        every = None if isinstance(self.every, str) else self.every
        return AveragedUpdates(task, model, store, interrupted, minibatches, every)


@dataclass(slots=True)
class _Place:
    """Where a slot is in an epoch."""

    epoch: int
    met: int = 0  # rounds of the epoch that it has taken over
    trained: int = 0  # minibatches of the epoch that its own model has had
    round_rows: int = 0  # rows since the last round
    rows: int = 0  # those, with their losses, that have not been told of
    loss_sum: float = 0.0
    weight_sum: float = 0.0


class AveragedUpdates:
    """Updates of a model of this worker's own, which meets the others' every so often.

    A round is over for this slot when it has taken the mean over and kept it.  Until then its last
    minibatch counts as not done, so that whoever goes on comes back to it.

    Parameters
    ----------
    task, model, store, interrupted, minibatches
        See :meth:`squall.protocols.StrategySettings.bind`.
    every : int or None
        Minibatches between two rounds; None for as many as an epoch has.
    """

    def __init__(
        self,
        task: WorkerTask,
        model: Model,
        store: Store,
        interrupted: Callable[[], bool],
        minibatches: Callable[[int], Sequence[int]],
        every: int | None,
    ) -> None:
        self._task, self._model, self._every, self._counts_of = task, model, every, minibatches
        self._blobs = store.blobs
        self._table = ParameterTable.private(model.table(task.table, task.optimizer), 1)
        self._rounds, self._keeper = Rounds(task, store, interrupted), Keeper(task, store)
        self._done = 0  # minibatches that need not be done again once the state is kept
        self._last_round = ""
        self._untold: tuple[float, ...] = (0, 0.0, 0.0)  # rows that are kept, their losses and weights
        self._enter(task.first_epoch)

    # ----------------------------------------------------------------------- the seam's methods

    def resume(self, registration: Registration) -> int:
        """Go on from what was kept last, or from the model with which the job begins."""
        taken = self._keeper.taken_over(registration)
        if taken is None:
            start = self._blobs.get(start_key(self._task.job))
            if start is not None:
                self._set(unpacked(start))
            return 0
        kept, arrays = taken
        self._set(arrays)
        place = _Place(**{name: value for name, value in kept.facts.items() if name != "before"})
        self._enter(place.epoch)
        self._place, self._done, self._last_round = place, kept.minibatches, kept.round
        if kept.facts["before"]:
            self._forget(kept.facts["before"])  # if the predecessor died before it could
        return self._done

    def start_epoch(self, epoch: int) -> bool:
        """Nothing to wait for: the models have met at the end of the epoch before."""
        if epoch != self._place.epoch:
            self._enter(epoch)
        return True

    def step(self, block: Block, order: Int32, batch_size: int, first: int, count: int) -> Steps:
        """One kernel call for the minibatches up to the next round, then the round, and so on."""
        before, done = self._used(), 0
        while done < count:
            due = self._due - self._place.trained
            if due > 0:
                n = min(due, count - done)
                loss = self._train(block, order, batch_size, first + done, n)
                if not math.isfinite(loss):
                    return Steps(done, 0, loss, 0.0)
                done += n
                if n < due:
                    self._done += n
                    break
                self._done += n - 1  # the last one counts when the round is over
                done -= 1
            if not self._meet(batch_size):
                break
            done += 1
        if time.monotonic() - self._keeper.kept_at > KEEP_S:
            self._keep("")
        return self._told(done, before)

    def finish(self) -> bool:
        """The models have met after the last minibatch."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """All of the model is kept in a blob; this names it."""
        return self._keeper.put(self._done, self._last_round, self._facts(""), self._arrays())

    # ------------------------------------------------------------------------------------ rounds

    def _enter(self, epoch: int) -> None:
        self._place = _Place(epoch)
        self._counts = list(self._counts_of(epoch))
        longest = max(self._counts)
        self._round = self._every or longest  # minibatches of a round
        self._n_rounds = -(-longest // self._round)

    @property
    def _due(self) -> int:
        """Minibatches of the epoch after which the present round is due for this slot."""
        return min((self._place.met + 1) * self._round, self._counts[self._task.slot])

    def _train(self, block: Block, order: Int32, batch_size: int, first: int, count: int) -> float:
        loss, weight, rows = self._model.train_shared(
            block, order, batch_size, first, count, self._table.shared, np.zeros(1, dtype=np.int64)
        )
        place = self._place
        place.trained += count
        place.rows += rows
        place.round_rows += rows
        place.loss_sum += loss
        place.weight_sum += weight
        return loss

    def _meet(self, batch_size: int) -> bool:
        """Take part in the rounds that are due: in more than one if others have more minibatches left.

        Whoever has none left brings nothing but zeros: a round is complete when all have been there.
        """
        place, n = self._place, sum(count > 0 for count in self._counts)
        while True:
            number = f"{place.epoch}-{place.met + 1}"
            at_most = min(self._round, max(self._counts) - place.met * self._round) * batch_size
            brought = self._contribution(place.round_rows / at_most)
            result = self._rounds.meet(Meeting(number), [brought], n)
            if result is None:
                return False
            over = place.met + 1 == self._n_rounds or place.trained < self._counts[self._task.slot]
            self._take_over(number, result[0], over=over)
            if over:
                return True

    def _contribution(self, share: float) -> Float32:
        """The model times its share of the most rows that a slot can have, and that share."""
        spec = self._table.spec
        brought = np.zeros(spec.rows * spec.dim + 1, dtype=np.float32)
        if share:
            np.multiply(self._table.pull().reshape(-1), np.float32(share), out=brought[:-1])
            brought[-1] = share
        return brought

    def _take_over(self, number: str, result: Any, *, over: bool) -> None:
        spec, place, before = self._table.spec, self._place, self._last_round
        mean = (result[:-1] / result[-1]).reshape(spec.rows, spec.dim)
        self._table.replace(mean)
        place.met, place.round_rows, self._last_round = place.met + 1, 0, number
        self._done += over
        if self._task.slot == SPEAKER:
            self._rounds.show(number, mean)
        self._keep(before)
        if before:
            self._forget(before)

    def _forget(self, number: str) -> None:
        """A round that is over for all: the next one is complete."""
        if self._task.slot == SPEAKER:
            self._rounds.forget(Meeting(number))

    # ------------------------------------------------------------------------------------- state

    def _keep(self, before: str) -> None:
        """Keep all but the rows that are told of now; should this worker die before, nobody tells of them."""
        place = self._place
        told = place.rows, place.loss_sum, place.weight_sum
        place.rows, place.loss_sum, place.weight_sum = 0, 0.0, 0.0
        self._keeper.keep(self._done, self._last_round, self._facts(before), self._arrays())
        self._untold = tuple(a + b for a, b in zip(self._untold, told, strict=True))

    def _facts(self, before: str) -> dict[str, Any]:
        return asdict(self._place) | {"before": before}

    def _arrays(self) -> dict[str, Any]:
        table = self._table.shared
        return {"array": table.array, "step": table.step}

    def _set(self, arrays: dict[str, Any]) -> None:
        table = self._table.shared
        table.array[:], table.step[:] = arrays["array"], arrays["step"]

    def _used(self) -> tuple[float, float, int, int]:
        rounds, keeper = self._rounds, self._keeper
        return (
            rounds.push_s + keeper.seconds,
            rounds.wait_s,
            rounds.bytes_in,
            rounds.bytes_out + keeper.bytes_out,
        )

    def _told(self, done: int, before: tuple[float, float, int, int]) -> Steps:
        push_s, wait_s, bytes_in, bytes_out = (
            now - then for now, then in zip(self._used(), before, strict=True)
        )
        (rows, loss_sum, weight_sum), self._untold = self._untold, (0, 0.0, 0.0)
        return Steps(
            done,
            int(rows),
            loss_sum,
            weight_sum,
            push_s=push_s,
            wait_s=wait_s,
            bytes_in=int(bytes_in),
            bytes_out=int(bytes_out),
        )
