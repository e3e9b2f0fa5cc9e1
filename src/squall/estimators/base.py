"""What all of Squall's estimators do alike: prepare, submit, wait, show, take the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from squall.config import Problems, Run, current_run, is_auto, is_integer
from squall.data.dataset import Dataset
from squall.data.objects import ObjectStore
from squall.data.partitions import read_training
from squall.data.training import manifest_key, write_training
from squall.driver.job import Job
from squall.driver.spec import JobResult, JobSpec, Prepared
from squall.errors import DataError, SettingError
from squall.estimators.auto import BATCH_SIZE, RowNorms
from squall.estimators.columns import aligned, as_dataset
from squall.estimators.progress import wait_showing_progress
from squall.estimators.transformers import BaseTransformer
from squall.optim import CODES
from squall.preprocessing.layout import FeatureLayout
from squall.records import (
    Bill,
    Block,
    ColumnSpec,
    Float32,
    HeldOut,
    HistoryRecord,
    Int64,
    OptimizerSpec,
    RawBlock,
)


class BaseModel(BaseEstimator):  # type: ignore[misc]
    """An estimator trained by a job.

    A subclass sets ``_model_class`` (its mathematics) and ``_take`` (weights → attributes).

    Attributes
    ----------
    history_ : list of HistoryRecord
        One record an epoch.
    cost_usd_ : float
        What the job cost, or would have cost at the run's prices.
    bill_ : Bill
        The same by item.
    stopped_ : str
        Why training ended: ``"epochs"``, ``"deadline"``, ``"budget"``, ``"interrupted"`` …
    """

    history_: list[HistoryRecord]
    bill_: Bill
    cost_usd_: float
    stopped_: str
    columns_in_: list[ColumnSpec]

    # ------------------------------------------------------------------------------ scikit-learn

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        validation: Any = None,
        run: Run | None = None,
    ) -> Self:
        """Train, show progress where someone looks, and return ``self``.

        Parameters
        ----------
        X : Dataset, or array, sparse matrix, DataFrame of shape (n_rows, n_features)
        y : array of shape (n_rows,)
            Labels; none with a Dataset, which holds its own.
        sample_weight : array of shape (n_rows,), optional
            How much each row counts.
        validation : Dataset or (X, y), optional
            Held-out rows, measured while training goes on.
        run : Run, optional
            Default: the ``with squall.Run(…)`` around the call.

        Raises
        ------
        SettingError
            Naming every setting that is wrong.
        DataError
            If the data cannot be trained on.
        JobError
            If the job failed.
        """
        data = as_dataset(X, y, sample_weight)
        wait_showing_progress(self._start(data, validation, run))
        return self

    def _start(
        self,
        data: Dataset,
        validation: Any,
        run: Run | None,
        before: Sequence[BaseTransformer] = (),
        result: Callable[[], Any] | None = None,
    ) -> Job[Any]:
        """Submit the job that fits ``before`` and then this model, in place.

        The job's result is ``result()``, by default this model.
        """
        self._check_settings()
        run = _checked_run(run)
        held_out = None if validation is None else _as_validation(validation)
        n_workers = run.resolve_workers(data.n_rows)
        plan = _Preparation(self, data, held_out, before, n_workers, self._seed(run))
        spec = JobSpec(
            run=run,
            n_workers=n_workers,
            epochs=int(self.epochs),
            seed=self._seed(run),
            strategy={"type": "parameter_server", "consistency": "asp"},
            prepare=plan.prepare,
            evaluate=None if held_out is None else plan.evaluate,
        )

        def finish(ended: JobResult) -> Any:
            self._finish(ended, plan)
            return self if result is None else result()

        return Job(spec, finish)

    def _finish(self, result: JobResult, plan: _Preparation) -> None:
        self.columns_in_ = plan.columns
        self.n_features_in_ = sum(c.width for c in plan.columns)
        self.history_ = result.history
        self.bill_ = result.bill
        self.cost_usd_ = result.bill.total_usd
        self.stopped_ = result.status.reason
        self.n_iter_ = len(result.history)
        self._take(result.weights, plan.classes)

    def _seed(self, run: Run) -> int:
        return int(run.random_state if self.random_state is None else self.random_state)

    # -------------------------------------------------------------------------- for subclasses

    epochs: int
    random_state: int | None

    def _take(self, weights: Float32, classes: np.ndarray[Any, Any]) -> None:
        """Set the fitted attributes from the table's weights."""
        raise NotImplementedError

    def _math(self, n_features: int) -> Any:
        """The model's mathematics (:class:`squall.protocols.Model`)."""
        raise NotImplementedError

    def _check_settings(self) -> None:
        problems = Problems(type(self).__name__)
        problems.integer("epochs", self.epochs, 1)
        problems.choice("optimizer", self.optimizer, CODES)
        problems.integer("batch_size", self.batch_size, 1, auto=True)
        problems.number("learning_rate", self.learning_rate, above=0.0, auto=True)
        problems.number("l1", self.l1, low=0.0)
        problems.number("l2", self.l2, low=0.0)
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            problems.add(f"fit_intercept={self.fit_intercept!r} must be True or False")
        if self.random_state is not None and (not is_integer(self.random_state) or self.random_state < 0):
            problems.add(f"random_state={self.random_state!r} must be None or an integer of at least 0")
        problems.raise_if_any()

    optimizer: str
    batch_size: int | str
    learning_rate: float | str
    l1: float
    l2: float
    fit_intercept: bool


class _Preparation:
    """Client-side preparation of one job: from raw rows to training partitions."""

    def __init__(
        self,
        estimator: BaseModel,
        data: Dataset,
        held_out: Dataset | None,
        before: Sequence[BaseTransformer],
        n_workers: int,
        seed: int,
    ) -> None:
        self._estimator, self._data, self._held_out = estimator, data, held_out
        self._before, self._n_workers, self._seed = before, n_workers, seed
        self.columns: list[ColumnSpec] = []
        self.classes: np.ndarray[Any, Any] = np.empty(0)

    def prepare(self, objects: ObjectStore, prefix: str, check: Callable[[], None]) -> Prepared:
        """Fit the transformers, write training and held-out partitions."""
        estimator, data, held_out = self._estimator, self._data, self._held_out
        self.classes = _two_classes(data)
        for transformer in self._before:
            transformer.fit(data)
            data = transformer.transform(data)
            held_out = None if held_out is None else transformer.transform(held_out)
            check()
        self.columns = list(data.columns)
        layout = FeatureLayout.of(self.columns)
        norms = RowNorms()
        training = f"{prefix}/train"
        rows = _encoded(data.blocks(), layout, self.classes, norms, check)
        write_training(rows, objects, training, self._seed)
        self._objects, self._model = objects, estimator._math(layout.n_features)
        if held_out is not None:
            codes = _codes(held_out, self.classes)
            blocks = _relabelled(aligned(held_out, self.columns).blocks(), codes)
            rows = _encoded(blocks, layout, None, None, check)
            self._validation = write_training(rows, objects, f"{prefix}/validation", self._seed)
        rate, size = estimator.learning_rate, estimator.batch_size
        # A step is divided by the batch size, so that must not exceed what a worker has.
        largest = max(1, -(-data.n_rows // self._n_workers))
        optimizer = OptimizerSpec(
            name=estimator.optimizer,  # type: ignore[arg-type]  # checked in _check_settings
            learning_rate=norms.learning_rate(estimator.optimizer) if is_auto(rate) else float(rate),
            l1=float(estimator.l1),
            l2=float(estimator.l2),
        )
        return Prepared(
            training=manifest_key(training),
            model=self._model,
            optimizer=optimizer,
            batch_size=min(BATCH_SIZE if is_auto(size) else int(size), largest),
        )

    def evaluate(self, weights: Float32) -> HeldOut:
        """Held-out quality at these weights, partition by partition."""
        loss = weight = right = 0.0
        for info in self._validation.partitions:
            block = read_training(self._objects, info)
            part = self._model.loss(block, weights)
            loss, weight, right = loss + part[0], weight + part[1], right + part[2]
        if not weight:
            raise DataError("all held-out rows have weight 0, so nothing can be measured", where="validation")
        return HeldOut(loss / weight, right / weight, self._validation.rows)


def _checked_run(run: Run | None) -> Run:
    if run is None:
        return current_run()
    if not isinstance(run, Run):
        raise SettingError(
            f"run must be a squall.Run, not {type(run).__name__}",
            where="fit",
            fix='write run=squall.Run(backend="local", …)',
        )
    return run


def _as_validation(validation: Any) -> Dataset:
    if isinstance(validation, Dataset):
        data = validation
    elif isinstance(validation, (tuple, list)) and len(validation) == 2:
        data = as_dataset(validation[0], validation[1])
    else:
        raise SettingError(
            f"validation must be a Dataset or a pair (X, y), not {type(validation).__name__}",
            where="fit",
        )
    if data.classes is None or not data.n_rows:
        raise DataError("held-out rows need labels, and at least one row", where="validation")
    return data


def _two_classes(data: Dataset) -> np.ndarray[Any, Any]:
    """The label map of a binary problem, sorted."""
    if data.classes is None:
        raise DataError(
            "the training data has no labels", fix="name the label column when reading, or pass y to fit"
        )
    if not data.n_rows:
        raise DataError("there are no rows to train on", fix="check the data set, or the split, given to fit")
    classes = np.asarray(data.classes)
    if len(classes) != 2:
        listed = ", ".join(map(repr, classes[:5].tolist())) + (" …" if len(classes) > 5 else "")
        raise DataError(
            f"logistic regression needs labels of two classes, and there is {len(classes)} class: {listed}"
            if len(classes) == 1
            else f"logistic regression needs labels of two classes, and there are {len(classes)}: {listed}",
            where=f"label {data.label!r}" if data.label else "labels",
        )
    return classes


def _codes(data: Dataset, classes: np.ndarray[Any, Any]) -> Int64:
    """Translation of the data set's label codes into those of the model."""
    assert data.classes is not None
    known = {value: code for code, value in enumerate(classes.tolist())}
    theirs = np.asarray(data.classes).tolist()
    unknown = [value for value in theirs if value not in known]
    if unknown:
        raise DataError(
            f"the held-out rows have labels that the training data has not: {unknown[:5]}", where="validation"
        )
    return np.array([known[value] for value in theirs], dtype=np.int64)


def _relabelled(blocks: Iterator[RawBlock], codes: Int64) -> Iterator[RawBlock]:
    for block in blocks:
        assert block.labels is not None
        labels = codes[block.labels].astype(np.int32)
        yield RawBlock(block.n_rows, block.columns, labels, block.weights)


def _encoded(
    blocks: Iterator[RawBlock],
    layout: FeatureLayout,
    classes: np.ndarray[Any, Any] | None,
    norms: RowNorms | None,
    check: Callable[[], None],
) -> Iterator[Block]:
    """Rows in the feature space; with ``classes``, both must turn up."""
    seen: set[int] = set()
    for raw in blocks:
        check()
        block = layout.encode(raw)
        if norms is not None:
            norms.add(block)
        if classes is not None and len(seen) < len(classes) and raw.labels is not None:
            seen.update(np.unique(raw.labels).tolist())
        yield block
    if classes is not None and len(seen) == 1:
        raise DataError(
            f"all training rows have the label {classes[seen.pop()]!r}; two classes are needed",
            fix="check the split, or the label column",
        )


def submit(model: Any, train: Any, *, validation: Any = None, run: Run | None = None) -> Job[Any]:
    """Start training a clone of ``model`` in the background, and return at once.

    Parameters
    ----------
    model : estimator or pipeline of Squall
        Not changed; ``job.wait()`` gives the fitted clone.
    train : Dataset or (X, y)
    validation : Dataset or (X, y), optional
    run : Run, optional
        Default: the ``with squall.Run(…)`` around the call.

    Returns
    -------
    Job
        With ``wait``, ``stop``, ``status``, ``logs`` and ``cost``.
    """
    if isinstance(model, type) or not hasattr(model, "_start"):
        shown = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise SettingError(
            f"{shown} is not a model of Squall",
            where="submit",
            fix="give an estimator such as squall.LogisticRegression(), or a pipeline that ends with one",
        )
    if not isinstance(train, Dataset) and not (isinstance(train, (tuple, list)) and len(train) == 2):
        raise SettingError("train must be a Dataset or a pair (X, y)", where="submit")
    data = train if isinstance(train, Dataset) else as_dataset(*train)
    job: Job[Any] = clone(model)._start(data, validation, run)
    return job
