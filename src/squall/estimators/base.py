"""What all of Squall's estimators do alike: prepare, submit, wait, show, take the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from squall.config import Problems, Run, current_run, is_auto, is_integer
from squall.data.dataset import Dataset
from squall.driver.job import Job
from squall.driver.spec import JobResult, JobSpec
from squall.errors import SettingError
from squall.estimators.columns import as_dataset
from squall.estimators.preparation import Preparation, Recipe, as_validation
from squall.estimators.progress import wait_showing_progress
from squall.estimators.transformers import BaseTransformer
from squall.optim import CODES
from squall.records import Bill, ColumnSpec, Float32, HistoryRecord


class BaseModel(BaseEstimator):  # type: ignore[misc]
    """An estimator trained by a job.

    A subclass gives ``_math`` (its mathematics) and ``_take`` (weights → attributes).

    Attributes
    ----------
    history_ : list of HistoryRecord
        One record an epoch.
    cost_usd_ : float
        What the job cost, or would have cost at the run's prices.
    bill_ : Bill
        The same by item.
    stopped_ : str
        Why training ended: ``"epochs"``, ``"target loss"``, ``"early stopping"``,
        ``"deadline"``, ``"budget"``, ``"stopped by the user"`` or ``"interrupted"``.
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
        held_out = None if validation is None else as_validation(validation)
        if held_out is None and (self.target_loss is not None or self.early_stopping is not None):
            raise SettingError(
                "target_loss and early_stopping look at the held-out loss, and there are no held-out rows",
                where=type(self).__name__,
                fix="give fit some: fit(train, validation=test)",
            )
        n_workers = run.resolve_workers(data.n_rows)
        plan = Preparation(self._recipe(), data, held_out, before, n_workers, self._seed(run))
        spec = JobSpec(
            run=run,
            n_workers=n_workers,
            epochs=int(self.epochs),
            seed=self._seed(run),
            strategy={"type": "parameter_server", "consistency": "asp"},
            prepare=plan.prepare,
            evaluate=None if held_out is None else plan.evaluate,
            target_loss=None if self.target_loss is None else float(self.target_loss),
            patience=None if self.early_stopping is None else int(self.early_stopping),
        )

        def finish(ended: JobResult) -> Any:
            self._finish(ended, plan)
            return self if result is None else result()

        return Job(spec, finish)

    def _finish(self, result: JobResult, plan: Preparation) -> None:
        self.columns_in_ = plan.columns
        self.n_features_in_ = sum(c.width for c in plan.columns)
        self.history_ = result.history
        self.bill_ = result.bill
        self.cost_usd_ = result.bill.total_usd
        self.stopped_ = result.status.reason
        self.n_iter_ = len(result.history)
        self._take(result.weights, plan.classes)

    def _recipe(self) -> Recipe:
        return Recipe(
            model=self._math,
            optimizer=self.optimizer,
            epochs=int(self.epochs),
            learning_rate=None if is_auto(self.learning_rate) else float(self.learning_rate),
            batch_size=None if is_auto(self.batch_size) else int(self.batch_size),
            l1=float(self.l1),
            l2=float(self.l2),
        )

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
        if self.target_loss is not None:
            problems.number("target_loss", self.target_loss, above=0.0)
        if self.early_stopping is not None:
            problems.integer("early_stopping", self.early_stopping, 1)
        problems.raise_if_any()

    target_loss: float | None
    early_stopping: int | None
    optimizer: str
    batch_size: int | str
    learning_rate: float | str
    l1: float
    l2: float
    fit_intercept: bool


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
