"""Pipelines that take data sets as well as arrays, and train on functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from sklearn.pipeline import Pipeline as _SklearnPipeline
from sklearn.pipeline import _name_estimators
from sklearn.utils.metaestimators import available_if

from squall.config import Run
from squall.data.dataset import Dataset
from squall.driver.job import Job
from squall.errors import SettingError
from squall.estimators.base import BaseModel
from squall.estimators.columns import as_dataset, training_data
from squall.estimators.progress import wait_showing_progress
from squall.estimators.transformers import BaseTransformer


def _final_has(method: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(self._final_estimator, method)


class Pipeline(_SklearnPipeline):  # type: ignore[misc]
    """scikit-learn's pipeline for steps of Squall, on a Dataset or on arrays.

    ``fit`` takes ``validation`` and transforms it too; fitted transforms are fused into one
    pass over the rows.  The last step's ``history_``, ``cost_usd_``, ``bill_`` and
    ``stopped_`` can be read from the pipeline.
    """

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        validation: Any = None,
        run: Run | None = None,
    ) -> Self:
        """Fit all steps; parameters and errors as :meth:`squall.LogisticRegression.fit`."""
        data = training_data(X, y, sample_weight, type(self).__name__)
        wait_showing_progress(self._start(data, validation, run))
        return self

    def _start(
        self, data: Dataset, validation: Any, run: Run | None, tags: dict[str, str] | None = None
    ) -> Job[Any]:
        transformers, model = self._parts()
        return model._start(data, validation, run, transformers, whole=self, tags=tags)

    def _parts(self) -> tuple[list[BaseTransformer], BaseModel]:
        if not self.steps:
            raise SettingError("a pipeline needs at least one step", where="Pipeline")
        *first, (_, model) = self.steps
        for name, step in self.steps:
            wanted = BaseModel if step is model else BaseTransformer
            if not isinstance(step, wanted):
                raise SettingError(
                    f"{type(step).__name__} is not a {'model' if step is model else 'transformer'} of Squall",
                    where=f"step {name!r}",
                    fix="use scikit-learn's own Pipeline to mix its steps with a Squall model, on arrays",
                )
        return [step for _, step in first], model

    @available_if(_final_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Any:
        """Labels for rows, transformed first."""
        return super().predict(as_dataset(X))

    @available_if(_final_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Probabilities for rows, transformed first."""
        return super().predict_proba(as_dataset(X))

    @available_if(_final_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Margins for rows, transformed first."""
        return super().decision_function(as_dataset(X))

    @available_if(_final_has("score"))  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The model's score on arrays ``X, y`` or on a Dataset with labels."""
        data = as_dataset(X, y, sample_weight)
        for _, transformer in self.steps[:-1]:
            data = transformer.transform(data)
        return float(self.steps[-1][1].score(data))

    def plot(self, *args: Any, **settings: Any) -> Any:
        """Draw the model's training; see :meth:`squall.LogisticRegression.plot`."""
        return self.steps[-1][1].plot(*args, **settings)

    @property
    def history_(self) -> Any:
        """Epochs of the model's training."""
        return self.steps[-1][1].history_

    @property
    def cost_usd_(self) -> float:
        """What training cost, or would have cost."""
        return float(self.steps[-1][1].cost_usd_)

    @property
    def bill_(self) -> Any:
        """The same by item."""
        return self.steps[-1][1].bill_

    @property
    def stopped_(self) -> str:
        """Why training ended."""
        return str(self.steps[-1][1].stopped_)


def make_pipeline(*steps: Any) -> Pipeline:
    """A :class:`Pipeline` of these steps, named by their classes."""
    if not steps:
        raise SettingError("a pipeline needs at least one step", where="make_pipeline")
    return Pipeline(_name_estimators(steps))
