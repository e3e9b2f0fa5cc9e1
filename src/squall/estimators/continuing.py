"""Fits that begin with what a model has learned: ``warm_start`` and ``partial_fit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from squall.config import Problems, Run, is_auto
from squall.data.dataset import Dataset
from squall.data.starting import Beginning
from squall.driver.spec import JobResult
from squall.errors import DataError, SettingError
from squall.estimators.base import BaseModel
from squall.estimators.predecessors import Part, Predecessor, check_same_columns
from squall.estimators.progress import wait_showing_progress
from squall.estimators.targets import ClassTarget, Target
from squall.optim import is_lazy
from squall.protocols import Model
from squall.records import ColumnSpec, Float32, OptimizerSpec


@dataclass(frozen=True)
class OptimizerState:
    """What an optimiser knew when a training ended: (rows, state columns), and its step."""

    optimizer: OptimizerSpec
    values: Float32
    step: int

    def fits(self, optimizer: OptimizerSpec) -> bool:
        """Whether training can go on with it by this optimiser: the same columns mean the same."""
        mine = self.optimizer
        return (mine.name, is_lazy(mine)) == (optimizer.name, is_lazy(optimizer))

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """(saving) Its arrays by name."""
        return {"optimizer_state": self.values, "optimizer_step": np.array([self.step])}

    @classmethod
    def from_tensors(cls, optimizer: OptimizerSpec, tensors: dict[str, npt.NDArray[Any]], rows: int) -> Self:
        """(loading) What `tensors` gave; ValueError if it is not of a table of so many rows."""
        values, step = tensors["optimizer_state"], int(tensors["optimizer_step"][0])
        if values.dtype != np.float32 or values.ndim != 2 or len(values) != rows or step < 0:
            raise ValueError(f"the optimiser's state has shape {values.shape}, at step {step}")
        return cls(optimizer, values, step)


class ContinuingModel(BaseModel):
    """A model of weights with which another training can begin.

    A subclass turns its fitted attributes into the table's weights (``_starting_weights``) and says
    what labels mean to it while it is fitted in parts (``_target_of_parts``).
    """

    warm_start: bool
    _optimizer_state: OptimizerState | None = None
    _n_parts = 0  # calls of partial_fit so far
    _keeps_state = True

    def _starting_weights(self, target: Target, model: Model) -> Float32:
        """The fitted weights (rows, dim) in the table of ``model``, for labels in the units of ``target``."""
        raise NotImplementedError

    def _target_of_parts(self, data: Dataset, classes: Any) -> Target:
        """What labels of ``data`` mean, as the first call has settled it, which may be this one."""
        raise NotImplementedError

    @property
    def _is_fitted(self) -> bool:
        return hasattr(self, "columns_in_")

    # ------------------------------------------------------------------------------ warm start

    def _predecessor(self) -> Predecessor | None:
        return self._as_predecessor(goes_on=False) if self.warm_start and self._is_fitted else None

    def _as_predecessor(self, *, goes_on: bool) -> Predecessor:
        kept = self._optimizer_state if goes_on else None

        def begin(target: Target, model: Model, optimizer: OptimizerSpec) -> Beginning:
            weights = self._starting_weights(target, model)
            if kept is None or not kept.fits(optimizer):
                return Beginning(weights)
            return Beginning(weights, kept.values, kept.step)

        return Predecessor(begin, self._check_columns)

    def _check_columns(self, columns: list[ColumnSpec], target: Target) -> None:
        """Raise `DataError` if a training on these columns cannot begin with this model."""
        check_same_columns(columns, self.columns_in_, type(self).__name__)

    def _check_more(self, problems: Problems) -> None:
        problems.boolean("warm_start", self.warm_start)
        if self.warm_start is True and self._is_fitted:
            self._check_settled(problems)

    def _check_settled(self, problems: Problems) -> None:
        """Note settings that the fitted parameters have settled, and which are others now."""

    def _finish(self, result: JobResult, columns: list[ColumnSpec], classes: npt.NDArray[Any]) -> None:
        super()._finish(result, columns, classes)
        self._optimizer_state = None
        if result.contents is not None:
            state = np.ascontiguousarray(result.contents.array[:, result.weights.shape[1] :])
            self._optimizer_state = OptimizerState(result.prepared.optimizer, state, result.contents.step)

    # ------------------------------------------------------------------------------ partial fits

    def _fit_part(self, data: Dataset, classes: Any, run: Run | None) -> Self:
        """One epoch over these rows, from where the last fit has ended."""
        self._check_fits_in_parts()
        part = Part(
            self._as_predecessor(goes_on=True) if self._is_fitted else None,
            self._target_of_parts(data, classes),
            self._rate_found,
            self._n_parts,
        )
        wait_showing_progress(self._start(data, None, run, part=part))
        self._n_parts += 1
        return self

    @property
    def _rate_found(self) -> float | None:
        """The rate that the first part has found, if that is what to go by."""
        return self.learning_rate_ if self._is_fitted and is_auto(self.learning_rate) else None

    def _check_fits_in_parts(self) -> None:
        """Refuse settings that look at a whole training, of whose length nobody knows here."""
        self._check_settings()
        problems = Problems(f"{type(self).__name__}.partial_fit")
        if self._is_fitted:
            self._check_settled(problems)
        for name in ("target_loss", "early_stopping"):
            if getattr(self, name) is not None:
                problems.add(f"{name}={getattr(self, name)!r} has no effect on a single epoch; leave it None")
        self._check_parts(problems)
        problems.raise_if_any()

    def _check_parts(self, problems: Problems) -> None:
        """Note settings of the model's own that have no meaning for a part."""
        if self.learning_rate_schedule != "constant" or self.warmup:
            problems.add(
                f"learning_rate_schedule={self.learning_rate_schedule!r} and warmup={self.warmup!r} are "
                'for a training of known length; use "constant" and 0'
            )
        if isinstance(getattr(self, "class_weight", None), str):
            problems.add(
                'class_weight="balanced" counts all rows, which are not here yet; give a dict of weights'
            )


def settled(name: str, value: Any, fitted: Any) -> str:
    """What is wrong with a setting that is another than that of the fitted model."""
    return (
        f"{name}={value!r}, and the fitted model to go on from has {fitted!r}; set {name}={fitted!r}, or "
        "begin anew with a clone"
    )


def known_classes(fitted: npt.NDArray[Any] | None, given: Any) -> npt.NDArray[Any]:
    """The classes of a model that is fitted in parts, from the first call's ``classes``.

    Raises
    ------
    SettingError
        If there are none, or others than before.
    """
    if fitted is None and given is None:
        raise SettingError(
            "classes must be passed on the first call to partial_fit.",
            where="partial_fit",
            fix="give all labels that will ever come: partial_fit(X, y, classes=numpy.unique(y_of_all))",
        )
    if given is None:
        assert fitted is not None
        return fitted
    classes = np.unique(np.asarray(given))
    if fitted is not None:
        if not np.array_equal(classes, fitted):
            raise SettingError(
                f"`classes={given!r}` is not the same as on last call to partial_fit, was: {fitted!r}",
                where="partial_fit",
                fix="leave classes out after the first call, or begin anew with a clone",
            )
        return fitted
    if len(classes) < 2:
        raise SettingError(
            f"classes={given!r} are not two or more",
            where="partial_fit",
            fix="give all labels that will come",
        )
    return classes


def check_same_classes(fitted: npt.NDArray[Any], target: ClassTarget) -> None:
    """Refuse to begin with a model of other classes.

    Raises
    ------
    DataError
        If they are others.
    """
    if not np.array_equal(fitted, target.classes):
        had, has = (", ".join(map(repr, c[:10].tolist())) for c in (fitted, target.classes))
        raise DataError(
            f"the classes are {has}, and the model that warm_start=True begins with has {had}",
            where="y",
            fix="give rows of the same classes, or begin anew with warm_start=False",
        )
