"""Logistic regression, of two classes and of more, with scikit-learn's interface."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from squall.config import Problems
from squall.data.dataset import Dataset
from squall.driver.spec import JobResult
from squall.estimators.classification import Classifier, checked_labels
from squall.estimators.continuing import check_same_classes, known_classes
from squall.estimators.targets import ClassTarget, Target, class_weight_problem
from squall.models.logistic import LogisticModel
from squall.models.softmax import SoftmaxModel
from squall.protocols import Model
from squall.records import ColumnSpec, Float32
from squall.worker.strategies import ParameterServer

_FAR_WORSE_THAN_GUESSING = 100  # times as high a loss; early ones of small data are a few times that


class LogisticRegression(Classifier):
    """Logistic regression, trained by minibatches on functions; of more than two classes, softmax regression.

    Minimises mean log-loss + l1·‖w‖₁ + l2/2·‖w‖²; the intercept is not penalised.  The mean is over
    rows, each counted by its weight and its class's.

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
    class_weight : dict, "balanced" or None, default None
        What rows of each class count, by label (1 where it names none), times their own weight.
        ``"balanced"``: all classes together count as much as each other.  Held-out rows keep their own.
    random_state : int, optional
        Seed of the shuffles; default: the run's.
    strategy : ParameterServer, ModelAveraging or ADMM, optional
        How several workers train one model: whom they wait for, and what they send.  Default:
        ``squall.ParameterServer()``, where nobody waits.
    warm_start : bool, default False
        Whether ``fit`` begins with the weights of the last one, on the same columns and classes; the
        optimiser begins anew.
    callbacks : callable or list of callables, optional
        Called in this process after each epoch with its record (:class:`squall.records.HistoryRecord`) and
        the :class:`squall.Job`, or objects with a method ``on_epoch_end`` that is; True stops the training.
        They are not saved with the model.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features), or (n_classes, n_features) of more than two classes
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
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
        class_weight: Any = None,
        warm_start: bool = False,
        callbacks: Any = None,
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
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.callbacks = callbacks

    def _check_more(self, problems: Problems) -> None:
        super()._check_more(problems)
        problem = class_weight_problem(self.class_weight)
        if problem:
            problems.add(problem)

    def _finish(self, result: JobResult, columns: list[ColumnSpec], classes: npt.NDArray[Any]) -> None:
        super()._finish(result, columns, classes)
        loss, guess = self.history_[-1].loss if self.history_ else 0.0, float(np.log(len(classes)))
        if loss > _FAR_WORSE_THAN_GUESSING * guess:
            warnings.warn(
                f"the model is far worse than a guess: its training loss is {loss:.3g}, and that of even "
                f"odds is {guess:.3f}; use a smaller learning_rate than {self.learning_rate_}, or scale "
                "the features",
                ConvergenceWarning,
                stacklevel=2,
            )

    def _target(self, data: Dataset) -> ClassTarget:
        target = ClassTarget(data, self.class_weight)
        if self.warm_start and self._is_fitted:
            check_same_classes(self.classes_, target)
        return target

    def _target_of_parts(self, data: Dataset, classes: Any) -> ClassTarget:
        known = known_classes(self.classes_ if self._is_fitted else None, classes)
        return ClassTarget(data, self.class_weight, known=known)

    def _starting_weights(self, target: Target, model: Model) -> Float32:
        weights = self._parameters()[1]
        if not self.fit_intercept:
            weights[-1] = 0.0
        return weights

    def _math(self, n_features: int, target: Target, seed: int) -> Model:
        return _model(n_features, len(target.classes), fit_intercept=bool(self.fit_intercept))

    def _take(self, weights: Float32, classes: npt.NDArray[Any], model: Any) -> None:
        self.classes_ = classes
        self.coef_ = np.ascontiguousarray(weights[:-1].T, dtype=np.float64)
        self.intercept_ = weights[-1].astype(np.float64)

    def _parameters(self) -> tuple[Model, Float32]:
        weights = np.vstack([self.coef_.T, self.intercept_])
        # Whatever was set since, these are the intercepts that were fitted: 0 where there were none.
        model = _model(len(weights) - 1, len(self.classes_), fit_intercept=True)
        return model, np.ascontiguousarray(weights, dtype=np.float32)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {"coef": self.coef_, "intercept": self.intercept_}

    def _restore(self, tensors: dict[str, npt.NDArray[Any]], labels: list[Any] | None) -> None:
        self.classes_ = checked_labels(labels)
        self.coef_, self.intercept_ = tensors["coef"], tensors["intercept"]
        rows = 1 if len(self.classes_) == 2 else len(self.classes_)
        if self.coef_.shape != (rows, self.n_features_in_) or self.intercept_.shape != (rows,):
            raise ValueError(f"the parameters have shape {self.coef_.shape}")


def _model(n_features: int, n_classes: int, *, fit_intercept: bool) -> Model:
    if n_classes == 2:
        return LogisticModel(n_features, fit_intercept)
    return SoftmaxModel(n_features, n_classes, fit_intercept)
