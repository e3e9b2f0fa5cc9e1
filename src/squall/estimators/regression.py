"""What regressors do alike: predictions that are numbers, and how good they are."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from squall.config import Run
from squall.errors import DataError
from squall.estimators.columns import as_dataset, training_data
from squall.estimators.continuing import ContinuingModel
from squall.estimators.targets import check_weighty, labels_of
from squall.records import Float64


def determination(model: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """The coefficient of determination of ``model.predict``, R²."""
    data = as_dataset(X, y, sample_weight)
    truth, weights = labels_of(data)
    check_weighty(weights)
    if truth.dtype.kind not in "biuf":
        raise DataError(f"its labels are text, such as {truth.tolist()[0]!r}, and predictions are numbers")
    return float(r2_score(truth.astype(np.float64), model.predict(data), sample_weight=weights))


class Regressor(RegressorMixin, ContinuingModel):  # type: ignore[misc]
    """An estimator of numbers, with weights ``coef_`` and an ``intercept_`` in the units of these."""

    coef_: npt.NDArray[np.float64]
    intercept_: float

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def partial_fit(
        self, X: Any, y: Any = None, *, sample_weight: Any = None, run: Run | None = None
    ) -> Self:
        """Train one epoch on these rows, from where the last call (or ``fit``, or ``squall.load``) has ended.

        The first call settles columns, an ``"auto"`` learning rate, and mean and deviation by which labels
        are standardised.  Otherwise as :meth:`squall.LogisticRegression.partial_fit`.
        """
        data = training_data(X, y, sample_weight, type(self).__name__)
        return self._fit_part(data, None, run)

    def predict(self, X: Any) -> Float64:
        """Predictions of shape (n_rows,)."""
        outputs = self._outputs(X)
        return outputs + self.intercept_

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The coefficient of determination R² on arrays ``X, y``, or on a Dataset with labels."""
        return determination(self, X, y, sample_weight)

    def _labels(self) -> None:
        return None
