"""What classifiers do alike: margins, probabilities, labels, accuracy."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin

from squall.config import Run
from squall.errors import DataError
from squall.estimators.columns import as_dataset, training_data
from squall.estimators.continuing import ContinuingModel
from squall.estimators.targets import check_weighty, labels_of
from squall.records import Float64


def probabilities_of(outputs: Float64) -> Float64:
    """Probabilities (n_rows, n_classes) of margins (n_rows,), of two classes, or (n_rows, n_classes)."""
    if outputs.ndim == 1:
        negative, positive = (np.exp(-np.logaddexp(0.0, sign * outputs)) for sign in (1.0, -1.0))
        return np.column_stack([negative, positive])
    powers = np.exp(outputs - outputs.max(axis=1, initial=-np.inf, keepdims=True))
    shares: Float64 = powers / powers.sum(axis=1, keepdims=True)
    return shares


def likeliest(outputs: Float64, classes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The label (n_rows,) that such outputs stand for."""
    codes = outputs.argmax(axis=1) if outputs.ndim == 2 else (outputs > 0).astype(np.intp)
    return np.asarray(classes[codes])


def accuracy(model: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Weighted share of rows whose label ``model.predict`` gives."""
    data = as_dataset(X, y, sample_weight)
    truth, weights = labels_of(data)
    check_weighty(weights)
    if not np.isin(truth, model.classes_).any():
        raise DataError(
            f"none of its labels ({', '.join(map(repr, np.unique(truth)[:3].tolist()))}) is one "
            f"that the model knows ({', '.join(map(repr, model.classes_[:10].tolist()))})",
            where="the data to score",
            fix="give data labelled as the training data was",
        )
    return float(np.average(model.predict(data) == truth, weights=weights))


def checked_labels(labels: list[Any] | None) -> npt.NDArray[Any]:
    """(loading) The label map.

    Raises
    ------
    ValueError
        If it is none.
    """
    classes = np.asarray(labels)
    if classes.ndim != 1 or not len(set(classes.tolist())) == len(classes) >= 2:
        raise ValueError(f"the labels are not two or more: {labels}")
    return classes


class Classifier(ClassifierMixin, ContinuingModel):  # type: ignore[misc]
    """An estimator of classes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted; probabilities have their columns in this order.
    """

    classes_: npt.NDArray[Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        *,
        sample_weight: Any = None,
        run: Run | None = None,
    ) -> Self:
        """Train one epoch on these rows, from where the last call (or ``fit``, or ``squall.load``) has ended.

        The first call settles columns, classes and an ``"auto"`` learning rate.  The optimiser goes on with
        what it knew, unless the model is that of an epoch before the last (``early_stopping``), or of a
        strategy without tables.
        ``history_``, ``bill_`` and the like are those of this call.

        Parameters
        ----------
        X, y, sample_weight, run
            As of `fit`.
        classes : array of shape (n_classes,), optional
            All labels that will ever come; needed by the first call.

        Raises
        ------
        SettingError
            Naming every setting that is wrong: so are schedules and others that look at a whole training.
        DataError
            If the rows have other columns, or labels that are not among the classes.
        JobError
            If the job failed.
        """
        data = training_data(X, y, sample_weight, type(self).__name__)
        return self._fit_part(data, classes, run)

    def decision_function(self, X: Any) -> Float64:
        """Margins (n_rows,), of which positive ones mean ``classes_[1]``; (n_rows, n_classes) of several."""
        return self._outputs(X)

    def predict_proba(self, X: Any) -> Float64:
        """Probabilities of shape (n_rows, n_classes), columns in the order of ``classes_``."""
        return probabilities_of(self._outputs(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Labels of shape (n_rows,)."""
        return likeliest(self._outputs(X), self.classes_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy on arrays ``X, y``, or on a Dataset with labels."""
        return accuracy(self, X, y, sample_weight)

    def _labels(self) -> list[Any]:
        labels: list[Any] = self.classes_.tolist()
        return labels
