"""Binary logistic regression with scikit-learn's interface."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from squall.driver.spec import JobResult
from squall.errors import DataError
from squall.estimators.base import BaseModel
from squall.estimators.columns import aligned, as_dataset
from squall.models.logistic import LogisticModel
from squall.preprocessing.layout import FeatureLayout
from squall.records import ColumnSpec, Float32, Float64
from squall.worker.strategies import ParameterServer

_FAR_WORSE_THAN_GUESSING = 100 * float(np.log(2))  # early losses of small data are a few times that


class LogisticRegression(ClassifierMixin, BaseModel):  # type: ignore[misc]
    """Logistic regression for two classes, trained by minibatches on functions.

    Minimises mean log-loss + l1·‖w‖₁ + l2/2·‖w‖²; the intercept is not penalised.

    Parameters
    ----------
    epochs : int, default 5
        How often each row is visited.
    batch_size : int or "auto", default "auto"
        Rows of a minibatch.
    learning_rate : float or "auto", default "auto"
        ``"auto"`` tries rates on a sample; see :mod:`squall.estimators.auto`.
    optimizer : str, default "adagrad"
        ``"adagrad"`` (Duchi, Hazan & Singer 2011), ``"sgd"`` (plain gradient descent), ``"momentum"``
        (Polyak's heavy ball), ``"nesterov"``, ``"adam"`` (Kingma & Ba 2015; a feature's moments
        stand still while no minibatch has it) or ``"ftrl"`` (FTRL-Proximal, McMahan et al. 2013).
    l1, l2 : float, default 0.0
        Weights of the penalties, applied by proximal steps.
    learning_rate_schedule : "constant", "inverse" or "cosine", default "constant"
        Whether the rate stays, falls as 1 / (1 + decay · epochs done), or along a half cosine to 0
        at the end of the last epoch.  Not with ``"ftrl"``.
    decay : float, optional
        Of ``"inverse"``, and only with it; default 1.0.
    warmup : float, default 0.0
        Epochs, or a part of one, over which the rate first rises linearly to `learning_rate`; the
        schedule follows.
    momentum : float, optional
        Of ``"momentum"`` and ``"nesterov"``, and only with them; default 0.9.
    beta_1, beta_2 : float, optional
        Of ``"adam"``, and only with it: how slowly its mean and mean square of gradients change;
        default 0.9 and 0.999.
    clip_value, clip_norm : float, optional
        Largest magnitude of an element of a minibatch's gradient, and of its Euclidean norm
        (intercept included); the first is applied first.  Default: no limit.
    fit_intercept : bool, default True
        Whether to train an intercept.
    target_loss : float, optional
        Stop as soon as the held-out loss is that low; needs ``validation`` in ``fit``.
    early_stopping : int, optional
        Stop after this many epochs without a lower held-out loss, and keep the weights of the
        best one; needs ``validation`` in ``fit``.
    random_state : int, optional
        Seed of the shuffles; default: the run's.
    strategy : ParameterServer, optional
        How several workers train one model: whom they wait for, and what they send.  Default:
        ``squall.ParameterServer()``, where nobody waits.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray of shape (2,)
        The labels, sorted; probabilities have their columns in this order.
    history_, cost_usd_, bill_, stopped_, learning_rate_, batch_size_
        See :class:`squall.estimators.base.BaseModel`.

    Examples
    --------
    >>> import numpy as np, squall
    >>> X = np.array([[0.0], [0.1], [0.9], [1.0]])
    >>> model = squall.LogisticRegression(epochs=20).fit(X, ["no", "no", "yes", "yes"])
    >>> model.predict([[0.05], [0.95]]).tolist()
    ['no', 'yes']
    """

    def __init__(
        self,
        epochs: int = 5,
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        optimizer: str = "adagrad",
        l1: float = 0.0,
        l2: float = 0.0,
        fit_intercept: bool = True,
        target_loss: float | None = None,
        early_stopping: int | None = None,
        random_state: int | None = None,
        learning_rate_schedule: str = "constant",
        decay: float | None = None,
        warmup: float = 0.0,
        momentum: float | None = None,
        beta_1: float | None = None,
        beta_2: float | None = None,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        strategy: ParameterServer | None = None,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.l1 = l1
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.target_loss = target_loss
        self.early_stopping = early_stopping
        self.random_state = random_state
        self.learning_rate_schedule = learning_rate_schedule
        self.decay = decay
        self.warmup = warmup
        self.momentum = momentum
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.clip_value = clip_value
        self.clip_norm = clip_norm
        self.strategy = strategy

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def _finish(self, result: JobResult, columns: list[ColumnSpec], classes: npt.NDArray[Any]) -> None:
        super()._finish(result, columns, classes)
        loss = self.history_[-1].loss if self.history_ else 0.0
        if loss > _FAR_WORSE_THAN_GUESSING:
            warnings.warn(
                f"the model is far worse than a guess: its training loss is {loss:.3g}, and that of even "
                f"odds is 0.693; use a smaller learning_rate than {self.learning_rate_:g}, or scale the "
                "features",
                ConvergenceWarning,
                stacklevel=2,
            )

    def _math(self, n_features: int) -> LogisticModel:
        return LogisticModel(n_features, bool(self.fit_intercept))

    def _take(self, weights: Float32, classes: npt.NDArray[Any]) -> None:
        self.classes_ = classes
        self.coef_ = weights[:-1, 0].astype(np.float64)[None, :]
        self.intercept_ = weights[-1:, 0].astype(np.float64)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {"coef": self.coef_, "intercept": self.intercept_}

    def _labels(self) -> list[Any]:
        labels: list[Any] = self.classes_.tolist()
        return labels

    def _restore(self, tensors: dict[str, npt.NDArray[Any]], labels: list[Any] | None) -> None:
        self.coef_, self.intercept_ = tensors["coef"], tensors["intercept"]
        if self.coef_.shape != (1, self.n_features_in_) or self.intercept_.shape != (1,):
            raise ValueError(f"the parameters have shape {self.coef_.shape}")
        self.classes_ = np.asarray(labels)
        if self.classes_.shape != (2,) or len(set(self.classes_.tolist())) != 2:
            raise ValueError(f"the labels are not two: {labels}")

    def decision_function(self, X: Any) -> Float64:
        """Margins ``w·x + b``, of shape (n_rows,); positive means ``classes_[1]``."""
        check_is_fitted(self, "coef_")
        data = aligned(as_dataset(X), self.columns_in_, type(self).__name__)
        layout = FeatureLayout.of(list(data.columns))
        model = self._math(layout.n_features)
        weights = np.append(self.coef_[0], self.intercept_).astype(np.float32)[:, None]
        parts = [model.outputs(layout.encode(block), weights) for block in data.blocks()]
        margins = np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)
        return margins.astype(np.float64)

    def predict_proba(self, X: Any) -> Float64:
        """Probabilities of shape (n_rows, 2), columns in the order of ``classes_``."""
        margins = self.decision_function(X)
        positive = np.exp(-np.logaddexp(0.0, -margins))
        negative = np.exp(-np.logaddexp(0.0, margins))
        return np.column_stack([negative, positive])

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Labels of shape (n_rows,)."""
        positive = self.decision_function(X) > 0
        return np.asarray(self.classes_[positive.astype(np.intp)])

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy on arrays ``X, y``, or on a Dataset with labels."""
        data = as_dataset(X, y, sample_weight)
        if data.classes is None:
            raise DataError("rows without labels cannot be scored", fix="give y, or data with labels")
        truth, weights = labels_of(data)
        if weights is not None and not weights.any():
            raise DataError(
                "the weights of all rows are zero, so nothing can be measured",
                where="sample_weight",
                fix="give at least one row a weight above 0",
            )
        if not np.isin(data.classes, self.classes_).any():
            raise DataError(
                f"none of its labels ({', '.join(map(repr, np.asarray(data.classes)[:3].tolist()))}) is one "
                f"that the model knows ({', '.join(map(repr, self.classes_.tolist()))})",
                where="the data to score",
                fix="give data labelled as the training data was",
            )
        predicted = self.predict(data)
        return float(np.average(predicted == truth, weights=weights))


def labels_of(data: Any) -> tuple[npt.NDArray[Any], Float64 | None]:
    """(labels, weights or None) of all rows of a data set, in its order."""
    classes = np.asarray(data.classes)
    labels, weights = [], []
    for block in data.blocks():
        labels.append(classes[block.labels])
        if block.weights is not None:
            weights.append(block.weights)
    if not labels:
        raise DataError("there are no rows")
    return np.concatenate(labels), np.concatenate(weights) if weights else None
