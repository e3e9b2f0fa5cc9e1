"""What all of Squall's estimators do alike: prepare, submit, wait, show, take the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Self

import msgspec
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from squall.config import (
    Problems,
    Run,
    checked_run,
    did_you_mean,
    has_tables,
    is_auto,
    is_integer,
    is_number,
    masked,
    names_its_settings,
)
from squall.data.dataset import Dataset
from squall.driver.job import Job
from squall.driver.spec import JobResult, JobSpec
from squall.errors import SettingError
from squall.estimators.callbacks import as_calls, callback_problem
from squall.estimators.columns import ColumnsMixin, aligned, as_dataset, check_not_empty, training_data
from squall.estimators.convergence import warn_unless_converged
from squall.estimators.history import History
from squall.estimators.pictures import plot_losses
from squall.estimators.plain import describe_fitting
from squall.estimators.predecessors import Part, Predecessor
from squall.estimators.preparation import Preparation, Recipe, as_validation
from squall.estimators.progress import wait_showing_progress
from squall.estimators.targets import Target
from squall.estimators.transformers import BaseTransformer
from squall.optim import CODES
from squall.optim.schedules import SCHEDULES
from squall.planning.foresight import foresight
from squall.preprocessing.layout import FeatureLayout
from squall.protocols import Model, Objects, StrategySettings
from squall.records import Bill, ColumnSpec, DenseBlock, Float32, Float64, OptimizerSpec
from squall.worker.strategies import ParameterServer, is_strategy, strategy_problem


class BaseModel(ColumnsMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator trained by a job.

    A subclass says how labels are to be understood (``_target``), gives its mathematics (``_math``), turns
    weights into attributes (``_take``) and back (``_parameters``).

    Attributes
    ----------
    history_ : list of HistoryRecord
        One record an epoch; shown as a table.
    cost_usd_ : float
        What the job cost, or would have cost at the run's prices.
    bill_ : Bill
        The same by item.
    stopped_ : str
        Why training ended: ``"epochs"``, ``"target loss"``, ``"early stopping"``,
        ``"converged"``, ``"deadline"``, ``"budget"``, ``"callback"``, ``"stopped by the user"`` or
        ``"interrupted"``.
    converged_ : bool
        Only of strategies that solve to a tolerance (`ADMM`): whether they did.
    learning_rate_, batch_size_ : float, int
        Those that were used, where ``"auto"`` was asked for; None where there are no minibatches (`ADMM`).
    """

    history_: History
    bill_: Bill
    cost_usd_: float
    stopped_: str
    learning_rate_: float | None
    batch_size_: int | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            names_its_settings(cls)

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
        data = training_data(X, y, sample_weight, type(self).__name__)
        wait_showing_progress(self._start(data, validation, run))
        return self

    def _start(
        self,
        data: Dataset,
        validation: Any,
        run: Run | None,
        before: Sequence[BaseTransformer] = (),
        whole: Any = None,
        tags: dict[str, str] | None = None,
        part: Part | None = None,
    ) -> Job[Any]:
        """Submit the job that fits ``before`` and then this model, in place.

        The job's result is ``whole``, by default this model.  With a ``part`` it is one epoch of more.
        """
        self._check_settings()
        run = checked_run(run, "fit")
        strategy = ParameterServer() if self.strategy is None else self.strategy
        n_workers = run.resolve_workers(data.n_rows)
        _check_run(strategy, run, n_workers)
        if part is not None and strategy.whole_shares:
            raise SettingError(
                f"with {strategy!r} a fit solves for all its rows, and would forget those before",
                where=f"{type(self).__name__}.partial_fit",
                fix="use fit with warm_start=True on all rows, or another strategy",
            )
        check_not_empty(data)
        held_out = None if validation is None else self._held_out(validation)
        if held_out is None and (self.target_loss is not None or self.early_stopping is not None):
            raise SettingError(
                "target_loss and early_stopping look at the held-out loss, and there are no held-out rows",
                where=type(self).__name__,
                fix="give fit some: fit(train, validation=test)",
            )
        whole = self if whole is None else whole
        target = self._target(data) if part is None else part.target
        recipe = self._recipe()
        if part is not None and part.learning_rate is not None:
            recipe = replace(recipe, learning_rate=part.learning_rate)
        epochs = strategy.epochs(int(self.epochs)) if part is None else 1
        seed = (self._seed(run) + (0 if part is None else part.number)) % _SEEDS
        plan = Preparation(
            recipe,
            data,
            target,
            held_out,
            before,
            n_workers,
            seed,
            describe=lambda: describe_fitting(whole, plan.columns, target.classes),
            together=strategy.synchronous and strategy.needs_tables,
            apart=not strategy.needs_tables,
            minibatches=not strategy.whole_shares,
            run=run,
            predecessor=self._predecessor() if part is None else part.predecessor,
        )
        spec = JobSpec(
            run=run,
            n_workers=n_workers,
            epochs=epochs,
            seed=seed,
            strategy=msgspec.to_builtins(strategy),
            prepare=plan.prepare,
            evaluate=None if held_out is None else plan.evaluate,
            target_loss=None if self.target_loss is None else float(self.target_loss),
            project=foresight(run, n_workers, epochs, strategy),
            patience=None if self.early_stopping is None else int(self.early_stopping),
            tags=tags or {},
            callbacks=as_calls(self._callbacks),
            keeps_state=self._keeps_state,
        )

        def finish(ended: JobResult) -> Any:
            self._finish(ended, plan.columns, target.classes)
            return whole

        return Job(spec, finish)

    def _finish(self, result: JobResult, columns: list[ColumnSpec], classes: np.ndarray[Any, Any]) -> None:
        self.columns_in_ = columns
        self.history_ = History(result.history)
        self.bill_ = result.bill
        self.cost_usd_ = result.bill.total_usd
        self.stopped_ = result.status.reason
        self.n_iter_ = len(result.history)
        whole = self.strategy is not None and self.strategy.whole_shares
        self.learning_rate_ = None if whole else result.prepared.optimizer.learning_rate
        self.batch_size_ = None if whole else result.prepared.batch_size
        self._take(result.weights, classes, result.prepared.model)
        solver = self.history_[-1].solver if self.history_ else None
        if solver is not None:
            self.converged_ = solver.converged
            warn_unless_converged(self.history_, self.stopped_)

    def _recipe(self) -> Recipe:
        return Recipe(
            model=self._math,
            optimizer=OptimizerSpec(
                name=str(self.optimizer),  # type: ignore[arg-type]  # checked before
                learning_rate=0.0,
                l1=float(self.l1),
                l2=float(self.l2),
                momentum=_or(self.momentum, MOMENTUM),
                beta_1=_or(self.beta_1, BETA_1),
                beta_2=_or(self.beta_2, BETA_2),
                schedule=str(self.learning_rate_schedule),  # type: ignore[arg-type]
                clip_value=None if self.clip_value is None else float(self.clip_value),
                clip_norm=None if self.clip_norm is None else float(self.clip_norm),
            ),
            learning_rate=self._rate,
            batch_size=None if is_auto(self.batch_size) else int(self.batch_size),
            epochs=int(self.epochs),
            decay=_or(self.decay, DECAY),
            warmup=float(self.warmup),
        )

    @property
    def _rate(self) -> float | None:
        """None for one that is to be tried out, where steps are made at all."""
        if not is_auto(self.learning_rate):
            return float(self.learning_rate)
        return 0.0 if self.strategy is not None and self.strategy.whole_shares else None

    def _seed(self, run: Run) -> int:
        return int(run.random_state if self.random_state is None else self.random_state)

    def plot(self, kind: str = "loss", *, against: Any = ("time", "rows", "cost"), ax: Any = None) -> Any:
        """Draw the training: losses against time, rows and dollars (needs ``squall[plot]``).

        Parameters
        ----------
        kind : str, default "loss"
            What to draw; a topic model also has ``"topics"``: the likeliest words of its largest topics.
        against : str or list of str
            ``"time"``, ``"rows"``, ``"cost"``, ``"epochs"``: a panel for each.
        ax : matplotlib Axes, optional
            Where to draw, if ``against`` is one of these; default: a new figure.

        Returns
        -------
        Axes, or a list of them
            A notebook shows their figure; elsewhere use ``matplotlib.pyplot.show()``, or
            ``axes.figure.savefig``.

        Raises
        ------
        SettingError
            If a setting is unknown.
        DataError
            If no epoch has ended.
        MissingExtraError
            If matplotlib is not installed.
        """
        check_is_fitted(self, "columns_in_")
        pictures = self._pictures()
        if kind not in pictures:
            raise SettingError(
                f"kind={kind!r} is unknown; choose from {', '.join(pictures)}{did_you_mean(kind, pictures)}",
                where=f"{type(self).__name__}.plot",
            )
        return pictures[kind](against, ax)

    def _pictures(self) -> dict[str, Callable[[Any, Any], Any]]:
        """What `plot` can draw, by kind: functions of its ``against`` and ``ax``."""
        return {"loss": lambda against, ax: plot_losses(self.history_, against, ax)}

    # -------------------------------------------------------------------------- for subclasses

    epochs: int
    random_state: int | None

    _keeps_state = False  # whether to keep what the optimiser knows at the end

    def _predecessor(self) -> Predecessor | None:
        """The fitted model with whose weights a fit begins, if any."""
        return None

    def _target(self, data: Dataset) -> Target:
        """What the labels of ``data`` mean to this model.

        Raises
        ------
        DataError
            If it cannot be trained on them.
        """
        raise NotImplementedError

    def _held_out(self, validation: Any) -> Dataset:
        """Held-out rows as a data set; errors as :func:`as_validation`."""
        return as_validation(validation)

    def _math(self, n_features: int, target: Target, seed: int) -> Model:
        """The model's mathematics; ``seed`` is of what it draws itself."""
        raise NotImplementedError

    def _take(self, weights: Float32, classes: np.ndarray[Any, Any], model: Any) -> None:
        """Set the fitted attributes from the table's weights; ``model`` is what `_math` gave."""
        raise NotImplementedError

    def _parameters(self) -> tuple[Model, Float32]:
        """The fitted model as mathematics, and its table's weights."""
        raise NotImplementedError

    def _outputs(self, X: Any) -> Float64:
        """What the fitted model says of each row; see :meth:`squall.protocols.Model.outputs`."""
        check_is_fitted(self, "columns_in_")
        data = aligned(as_dataset(X), self.columns_in_, type(self).__name__)
        layout = FeatureLayout.of(list(data.columns))
        model, weights = self._parameters()
        none = DenseBlock(np.empty((0, layout.n_features), np.float32), np.empty(0, np.float32), None)
        parts = [model.outputs(layout.encode(block), weights) for block in data.blocks()]
        return np.concatenate([model.outputs(none, weights), *parts]).astype(np.float64)

    def _recalled(self, objects: Objects, folder: str) -> Any:
        """(resuming) What :meth:`Target.keep` has put into the job's folder."""
        return None

    def _tensors(self) -> dict[str, np.ndarray[Any, Any]]:
        """(saving) The fitted arrays by name."""
        raise NotImplementedError

    def _labels(self) -> list[Any] | None:
        """(saving) The label map, if labels are classes."""
        raise NotImplementedError

    def _restore(self, tensors: dict[str, np.ndarray[Any, Any]], labels: list[Any] | None) -> None:
        """(loading) Set the fitted attributes from `_tensors` and `_labels`; ``columns_in_`` is set.

        Raises
        ------
        ValueError
            If they are not of a fitted model.
        """
        raise NotImplementedError

    def _check_settings(self) -> None:
        problems = Problems(type(self).__name__)
        problems.integer("epochs", self.epochs, 1, high=2**31 - 1)
        problems.choice("optimizer", self.optimizer, CODES)
        problems.integer("batch_size", self.batch_size, 1, auto=True)
        problems.number("learning_rate", self.learning_rate, above=0.0, auto=True)
        problems.number("l1", self.l1, low=0.0)
        problems.number("l2", self.l2, low=0.0)
        self._check_optimizer(problems)
        self._check_schedule(problems)
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            problems.add(f"fit_intercept={self.fit_intercept!r} must be True or False")
        self._check_ending(problems)
        self._check_more(problems)
        problems.raise_if_any()

    def _check_ending(self, problems: Problems) -> None:
        """Settings that have to do with no optimiser."""
        if self.random_state is not None and (not is_integer(self.random_state) or self.random_state < 0):
            problems.add(f"random_state={self.random_state!r} must be None or an integer of at least 0")
        if is_strategy(self.strategy):
            assert self.strategy is not None
            for problem in self.strategy.conflicts(type(self).__name__, self.get_params(deep=False)):
                problems.add(problem)
        elif self.strategy is not None:
            problems.add(strategy_problem(self.strategy))
        if self.target_loss is not None:
            problems.number("target_loss", self.target_loss, above=0.0)
        if self.early_stopping is not None:
            problems.integer("early_stopping", self.early_stopping, 1)
        if (wrong := callback_problem(self._callbacks)) is not None:
            problems.add(wrong)

    @property
    def _callbacks(self) -> Any:
        return getattr(self, "callbacks", None)  # not all models have the setting

    def _check_more(self, problems: Problems) -> None:
        """Settings that only a subclass has."""

    strategy: StrategySettings | None
    target_loss: float | None
    early_stopping: int | None

    def _check_optimizer(self, problems: Problems) -> None:
        for name, users in USED_BY.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not is_number(value) or not 0.0 <= value < 1.0:
                problems.add(f"{name}={value!r} must be a number of at least 0 and below 1")
            if _is_other(self.optimizer, users, CODES):
                problems.add(_no_effect(name, value, "optimizer", self.optimizer, users))
        for name in ("clip_value", "clip_norm"):
            if getattr(self, name) is not None:
                problems.number(name, getattr(self, name), above=0.0)

    def _check_schedule(self, problems: Problems) -> None:
        schedule, warmup, decay = self.learning_rate_schedule, self.warmup, self.decay
        problems.choice("learning_rate_schedule", schedule, SCHEDULES)
        problems.number("warmup", warmup, low=0.0)
        warms_up = is_number(warmup) and warmup > 0
        if warms_up and is_integer(self.epochs) and warmup > self.epochs:
            problems.add(f"warmup={warmup!r} is longer than the training, epochs={self.epochs!r}")
        if decay is not None:
            problems.number("decay", decay, low=0.0)
            if _is_other(schedule, ("inverse",), SCHEDULES):
                problems.add(_no_effect("decay", decay, "learning_rate_schedule", schedule, ("inverse",)))
        varies = warms_up or _is_other(schedule, ("constant",), SCHEDULES)
        if varies and isinstance(self.optimizer, str) and self.optimizer == "ftrl":
            problems.add(
                'optimizer="ftrl" takes learning_rate_schedule="constant" and warmup=0 only: its weights '
                "follow from sums over all steps, which are of one rate"
            )

    optimizer: str
    batch_size: int | str
    learning_rate: float | str
    learning_rate_schedule: str
    decay: float | None
    warmup: float
    momentum: float | None
    beta_1: float | None
    beta_2: float | None
    clip_value: float | None
    clip_norm: float | None
    l1: float
    l2: float
    fit_intercept: bool


MOMENTUM, BETA_1, BETA_2, DECAY = 0.9, 0.9, 0.999, 1.0
"""What None stands for in the settings of that name."""

_SEEDS = 1 << 63

USED_BY = {"momentum": ("momentum", "nesterov"), "beta_1": ("adam",), "beta_2": ("adam",)}
"""Settings that only some optimisers use."""


def _or(value: float | None, default: float) -> float:
    return default if value is None else float(value)


def _is_other(value: Any, users: Collection[str], known: Collection[str]) -> bool:
    return isinstance(value, str) and value in known and value not in users


def _no_effect(name: str, value: Any, what: str, chosen: str, users: Collection[str]) -> str:
    fitting = " or ".join(f'{what}="{user}"' for user in users)
    return f"{name}={value!r} has no effect with {what}={chosen!r}; leave it None, or choose {fitting}"


def _check_run(strategy: StrategySettings, run: Run, n_workers: int) -> None:
    """What a strategy needs of the store and the backend, or workers would wait for ever."""
    problems, name = Problems("fit"), repr(strategy)
    if strategy.needs_tables and not has_tables(run.store):
        problems.add(
            f"{name} keeps the model in tables of parameters, which store={masked(run.store)} has not; use "
            'store="embedded", "tcp" or what `squall store serve` runs, or strategy=squall.ModelAveraging()'
        )
    room = run.resolve_backend().concurrency
    if strategy.waits_for_all and room is not None and room < n_workers:
        problems.add(
            f"with {name} all {n_workers} workers run at the same time, and the backend runs {room}; use "
            f"Run(workers={room}), a larger concurrency, or a strategy where nobody waits"
        )
    problems.raise_if_any()
