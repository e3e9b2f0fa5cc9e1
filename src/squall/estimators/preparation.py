"""Client-side preparation of a job: from raw rows to training partitions, and their evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from squall.config import STORES, Run
from squall.data.dataset import Dataset
from squall.data.iterator import Deal, n_minibatches
from squall.data.objects import ObjectStore
from squall.data.partitions import read_training
from squall.data.starting import write_beginning
from squall.data.training import manifest_key, write_training
from squall.driver.spec import Prepared
from squall.errors import DataError, SettingError, StoreFullError
from squall.estimators.auto import choose_batch_size, choose_learning_rate
from squall.estimators.columns import aligned, as_dataset
from squall.estimators.predecessors import Predecessor
from squall.estimators.targets import Target
from squall.estimators.transformers import BaseTransformer
from squall.preprocessing.layout import FeatureLayout
from squall.protocols import Model
from squall.records import (
    Bill,
    Block,
    ColumnSpec,
    DenseBlock,
    Float32,
    HeldOut,
    OptimizerSpec,
    RawBlock,
    TrainingManifest,
)
from squall.store.memory import available_memory
from squall.store.table import table_stride
from squall.units import format_size


@dataclass(frozen=True)
class Recipe:
    """What to train: the mathematics for a width, a target and a seed, and settings; None means "auto"."""

    model: Callable[[int, Target, int], Model]
    optimizer: OptimizerSpec  # its rate, and what depends on the length of the run, are filled in here
    learning_rate: float | None
    batch_size: int | None
    epochs: int
    decay: float  # of an inverse schedule, per epoch
    warmup: float  # epochs
    auto_batch_size: Callable[[int, int], int] = lambda rows, workers: choose_batch_size(rows)
    grouped: bool = False  # rows of one first feature stay together
    blocks_stay: bool = False  # minibatches are the same rows in every epoch, and stay with their slots


@dataclass(frozen=True)
class HeldOutRows:
    """Encoded held-out rows in an object store."""

    objects: ObjectStore
    manifest: TrainingManifest
    model: Model

    def evaluate(self, weights: Float32, check: Callable[[], None]) -> HeldOut:
        """Quality at these weights, partition by partition; ``check`` may end it."""
        parts = []
        for info in self.manifest.partitions:
            check()
            parts.append(self.model.loss(read_training(self.objects, info), weights))
        losses, sizes, rights = zip(*parts, strict=True)
        weight = sum(sizes)
        if not weight:
            raise DataError("all held-out rows have weight 0, so nothing can be measured", where="validation")
        accuracy = None if None in rights else sum(rights) / weight
        return HeldOut(sum(losses) / weight, accuracy, self.manifest.rows)


def validation_prefix(folder: str) -> str:
    """Where a job's held-out partitions are."""
    return f"{folder}/validation"


class Preparation:
    """Client-side preparation of one job: from raw rows to training partitions.

    ``describe`` is called when all transformers are fitted; what it gives goes with the job.
    With a ``run``, large data is looked at by its functions.  With a ``predecessor`` the model begins
    with its weights.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Dataset,
        target: Target,
        held_out: Dataset | None,
        before: Sequence[BaseTransformer],
        n_workers: int,
        seed: int,
        *,
        describe: Callable[[], Any] = lambda: None,
        together: bool = False,
        apart: bool = False,
        minibatches: bool = True,
        run: Run | None = None,
        predecessor: Predecessor | None = None,
    ) -> None:
        self._recipe, self._data, self._target, self._held_out = recipe, data, target, held_out
        self._before, self._n_workers, self._seed = before, n_workers, seed
        self._describe, self._run, self._predecessor = describe, run, predecessor
        self._together = together  # one step of the model takes a minibatch of every worker
        self._apart = apart  # each worker counts its own steps
        self._minibatches = minibatches  # otherwise no optimiser is used
        self.columns: list[ColumnSpec] = []
        self._spent: list[Bill] = []

    def prepare(self, objects: ObjectStore, prefix: str, check: Callable[[], None]) -> Prepared:
        """Fit the transformers, write training and held-out partitions."""
        recipe, data, held_out, target = self._recipe, self._data, self._held_out, self._target
        target.learn(data, check)
        data, held_out = self._transformed(data, held_out, check)
        self.columns = list(data.columns)
        if self._predecessor is not None:
            self._predecessor.check_columns(self.columns, target)
        layout = FeatureLayout.of(self.columns)
        self._check_room(recipe.model(layout.n_features, target, self._seed))
        training = f"{prefix}/train"
        rows = _checked_weights(_encoded(target.training(data, data.blocks(self._seed)), layout, check))
        stay = self._batch_size(data.n_rows) if recipe.blocks_stay else 0
        manifest = write_training(
            rows, objects, training, self._seed, grouped=recipe.grouped, block_rows=stay
        )
        # Targets may learn from what was written.
        self._model = recipe.model(layout.n_features, target, self._seed)
        sample = read_training(objects, manifest.partitions[0])
        if self._minibatches and not recipe.blocks_stay:
            _warn_of_scales(sample)
        if held_out is not None:
            blocks = target.held_out(held_out, aligned(held_out, self.columns, "the model").blocks())
            rows = _encoded(blocks, layout, check)
            manifest_of_rest = write_training(rows, objects, validation_prefix(prefix), self._seed)
            self._rows = HeldOutRows(objects, manifest_of_rest, self._model)
        optimizer = self._optimizer(manifest, sample)
        return Prepared(
            training=manifest_key(training),
            model=self._model,
            optimizer=optimizer,
            initial=self._write_beginning(objects, prefix, optimizer),
            batch_size=self._batch_size(data.n_rows),
            rows=manifest.rows,
            fitting=self._describe(),
            learned=target.keep(objects, prefix),
            spent=tuple(self._spent),
        )

    def _check_room(self, model: Model) -> None:
        """Refuse a model that has no room before its data is encoded and functions are launched."""
        rate = self._recipe.learning_rate or 1.0  # of no account here, if it is yet to be found
        optimizer = msgspec.structs.replace(self._recipe.optimizer, learning_rate=rate)
        table = model.table("job/model", optimizer)
        here = self._run is None or self._run.store in STORES
        size = 4 * table.rows * (table_stride(table) if here else table.dim)
        room = available_memory()
        if room is None or size <= room:
            return
        kept = f", and the state of {table.optimizer.name}," if here else ""
        raise StoreFullError(
            f"{table.rows:,} rows of {table.dim:,} weights each{kept} need {format_size(size)}, and only "
            f"{format_size(room)} of memory is left",
            where="the model",
            fix="use fewer features (squall.FeatureHasher(n_features=…)), fewer classes or factors, or an "
            'optimiser with less state, such as "sgd"',
        )

    def _transformed(
        self, data: Dataset, held_out: Dataset | None, check: Callable[[], None]
    ) -> tuple[Dataset, Dataset | None]:
        """Training and held-out rows as features, after the transformers, which are fitted on the way."""
        for transformer in self._before:
            transformer.fit_on(data, self._run)
            self._spent += [] if transformer.bill_ is None else [transformer.bill_]
            data = transformer.transform(data)
            held_out = None if held_out is None else transformer.transform(held_out)
            check()
        target = self._target
        return target.features(data), None if held_out is None else target.features(held_out)

    def _write_beginning(self, objects: ObjectStore, prefix: str, optimizer: OptimizerSpec) -> str | None:
        if self._predecessor is None:
            return None
        key = f"{prefix}/initial"
        write_beginning(objects, key, self._predecessor.begin(self._target, self._model, optimizer))
        return key

    def _optimizer(self, manifest: TrainingManifest, sample: Block) -> OptimizerSpec:
        recipe, spec, rate = self._recipe, self._recipe.optimizer, self._recipe.learning_rate
        batch_size = self._batch_size(manifest.rows) * (self._n_workers if self._together else 1)
        # The paper's beta of 1 is for gradients of single rows; ours are means of a minibatch.
        spec = msgspec.structs.replace(spec, beta=spec.beta / batch_size)
        if not self._minibatches:
            return msgspec.structs.replace(spec, learning_rate=1.0)
        if rate is None:
            begin = None
            if self._predecessor is not None:
                begin = self._predecessor.begin(self._target, self._model, spec).weights
            rate = choose_learning_rate(
                self._model,
                sample,
                spec,
                n_rows=manifest.rows,
                batch_size=batch_size,
                epochs=recipe.epochs,
                seed=self._seed,
                weights=begin,
            )
        a_epoch = self._steps_an_epoch(manifest)
        return msgspec.structs.replace(
            spec,
            learning_rate=rate,
            steps=recipe.epochs * a_epoch,
            decay=recipe.decay / a_epoch,
            warmup=round(recipe.warmup * a_epoch),
        )

    def _steps_an_epoch(self, manifest: TrainingManifest) -> int:
        batch_size, n_workers = self._batch_size(manifest.rows), self._n_workers
        if not (self._together or self._apart):
            # Row blocks are whole numbers of minibatches, but for the last of a partition.
            return sum(n_minibatches(p.rows, batch_size) for p in manifest.partitions)
        return max(Deal.of(manifest, n_workers, batch_size, self._seed).minibatches(0))

    def _batch_size(self, n_rows: int) -> int:
        """As asked, but no more than a worker has: a step is divided by it."""
        largest = max(1, -(-n_rows // self._n_workers))
        asked = self._recipe.batch_size
        return min(self._recipe.auto_batch_size(n_rows, self._n_workers) if asked is None else asked, largest)

    def evaluate(self, weights: Float32, check: Callable[[], None]) -> HeldOut:
        """Held-out quality at these weights; ``check`` may end it."""
        return self._rows.evaluate(weights, check)


def as_validation(validation: Any) -> Dataset:
    """Held-out rows as a data set, with labels.

    Raises
    ------
    SettingError, DataError
        If it is neither a Dataset nor a pair (X, y), or has no labels or rows.
    """
    if isinstance(validation, Dataset):
        data = validation
    elif isinstance(validation, (tuple, list)) and len(validation) == 2:
        data = as_dataset(validation[0], validation[1])
    else:
        raise SettingError(
            f"validation must be a Dataset or a pair (X, y), not {type(validation).__name__}",
            where="fit",
        )
    if data.label is None or not data.n_rows:
        raise DataError("held-out rows need labels, and at least one row", where="validation")
    return data


_FAR_APART = 1_000.0


def _warn_of_scales(sample: Block) -> None:
    """Say so if dense features differ so much in size that no learning rate suits them all."""
    if not isinstance(sample, DenseBlock):
        return
    largest = np.abs(sample.features).max(axis=0, initial=0.0)
    used = largest[largest > 0]
    if len(used) and used.max() > _FAR_APART * max(1.0, float(used.min())):
        warnings.warn(
            f"the features differ in size by up to {used.max() / used.min():,.0f} times, and minibatch "
            "descent learns little from such data; scale them, for example with squall.MinMaxScaler()",
            stacklevel=2,
        )


_LEAST_WEIGHT = 1e-8


def _encoded(blocks: Iterator[RawBlock], layout: FeatureLayout, check: Callable[[], None]) -> Iterator[Block]:
    """Rows in the feature space."""
    for raw in blocks:
        check()
        yield layout.encode(raw)


def _checked_weights(blocks: Iterator[Block]) -> Iterator[Block]:
    """The rows; not all may be without weight."""
    weighty = False
    for block in blocks:
        weighty = weighty or block.weights is None or bool((block.weights > _LEAST_WEIGHT).any())
        yield block
    if not weighty:
        raise DataError(
            "the weights of all training rows are zero, or so small that optimisers would see no gradients",
            where="sample_weight",
            fix="give weights around 1",
        )
