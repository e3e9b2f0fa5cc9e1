"""Factorisation machines with scikit-learn's interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if

from squall.config import Problems, Run
from squall.data.dataset import Dataset
from squall.errors import SettingError
from squall.estimators.classification import accuracy, checked_labels, likeliest, probabilities_of
from squall.estimators.columns import training_data
from squall.estimators.continuing import ContinuingModel, check_same_classes, known_classes, settled
from squall.estimators.regression import determination
from squall.estimators.targets import ClassTarget, NumberTarget, Target, class_weight_problem, scaling_of
from squall.models.factorization import FactorizationModel
from squall.protocols import Model
from squall.records import Float32, Float64
from squall.worker.strategies import ParameterServer

TASKS = ("classification", "regression")


def _classifies(model: Any) -> bool:
    return str(model.task) == "classification"


class FactorizationMachine(ContinuingModel):
    """Factorisation machine of second order (Rendle 2010), trained by minibatches on functions.

    Beside a weight, each feature has a vector of `n_factors` numbers; the product of two features'
    vectors is the weight of their occurring together: z = b + w·x + Σ_{i<j} xᵢ·xⱼ·⟨vᵢ, vⱼ⟩.  For
    sparse data with interactions, such as clicks.  Minimises the mean loss + l1 and l2 penalties, on
    weights and factors alike; the intercept is not penalised.

    Parameters
    ----------
    task : "classification" or "regression", default "classification"
        Whether labels are two classes, by log-loss, or numbers, by squared error of the standardised
        labels as in :class:`squall.LinearRegression`.
    n_factors : int, default 8
        Length k of each feature's vector.
    init_scale : float, default 0.05
        Deviation of the vectors' elements at the start; weights start at 0.
    epochs : int, default 5
        How often each row is visited.
    batch_size : int or "auto", default "auto"
        Rows of a minibatch.
    learning_rate : float or "auto", default "auto"
        ``"auto"`` tries rates on a sample; see :mod:`squall.estimators.auto`.
    optimizer : str, default "sgd"
        See :class:`squall.LogisticRegression`.  Optimisers that give each number a rate of its own move
        the factors of a rare feature as far as those of a frequent one, and learn its rows by heart.
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
        Of classification only.
    random_state : int, optional
        Seed of the shuffles; default: the run's.
    strategy : ParameterServer, optional
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
    coef_ : ndarray of shape (n_features,)
    factors_ : ndarray of shape (n_features, n_factors)
    intercept_ : float
    classes_ : ndarray of shape (2,)
        Of classification only: the labels, sorted.
    history_, cost_usd_, bill_, stopped_, learning_rate_, batch_size_
        See :class:`squall.estimators.base.BaseModel`.

    Examples
    --------
    >>> import numpy as np, squall
    >>> X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 20) * 2.0 - 1
    >>> y = X[:, 0] * X[:, 1] > 0  # neither column says anything by itself
    >>> squall.FactorizationMachine(epochs=20, random_state=0).fit(X, y).score(X, y)
    1.0
    """

    classes_: npt.NDArray[Any]
    _scaling: tuple[float, float] | None = None  # of the labels that it was fitted on

    def __init__(
        self,
        task: str = "classification",
        n_factors: int = 8,
        init_scale: float = 0.05,
        epochs: int = 5,
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        optimizer: str = "sgd",
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
        self.task = task
        self.n_factors = n_factors
        self.init_scale = init_scale
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

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        if _classifies(self):
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_class=False)
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    def _check_more(self, problems: Problems) -> None:
        super()._check_more(problems)
        problems.choice("task", self.task, TASKS)
        problems.integer("n_factors", self.n_factors, 1, high=1 << 16)
        problems.number("init_scale", self.init_scale, above=0.0)
        problem = class_weight_problem(self.class_weight)
        if problem:
            problems.add(problem)
        elif self.class_weight is not None and self.task == "regression":
            problems.add(f"class_weight={self.class_weight!r} has no effect with task='regression'")

    def _check_settled(self, problems: Problems) -> None:
        n_factors = self.factors_.shape[1]
        if self.n_factors != n_factors:
            problems.add(settled("n_factors", self.n_factors, n_factors))

    def _target(self, data: Dataset) -> Target:
        if not _classifies(self):
            return NumberTarget(data, centred=bool(self.fit_intercept))
        target = ClassTarget(data, self.class_weight, most=2)
        if self.warm_start and self._is_fitted:
            check_same_classes(self.classes_, target)
        return target

    def _target_of_parts(self, data: Dataset, classes: Any) -> Target:
        if not _classifies(self):
            if classes is not None:
                raise SettingError("classes have no meaning with task='regression'", where="partial_fit")
            return NumberTarget(data, centred=bool(self.fit_intercept), scaling=self._scaling)
        known = known_classes(self.classes_ if self._is_fitted else None, classes)
        return ClassTarget(data, self.class_weight, most=2, known=known)

    def _starting_weights(self, target: Target, model: Model) -> Float32:
        mean, scale = (target.mean, target.deviation) if isinstance(target, NumberTarget) else (0.0, 1.0)
        weights = np.zeros((len(self.coef_) + 1, 1 + self.factors_.shape[1]))
        weights[:-1, 0], weights[:-1, 1:] = self.coef_ / scale, self.factors_ / np.sqrt(scale)
        weights[-1, 0] = (self.intercept_ - mean) / scale if self.fit_intercept else 0.0
        return weights.astype(np.float32)

    def _math(self, n_features: int, target: Target, seed: int) -> Model:
        numbers = isinstance(target, NumberTarget)
        return FactorizationModel(
            n_features,
            int(self.n_factors),
            "squared" if numbers else "logistic",
            float(self.init_scale),
            seed,
            bool(self.fit_intercept),
            target.mean if isinstance(target, NumberTarget) else 0.0,
            target.deviation if isinstance(target, NumberTarget) else 1.0,
        )

    def _take(self, weights: Float32, classes: npt.NDArray[Any], model: Any) -> None:
        own = weights.astype(np.float64)
        if model.loss_name == "logistic":
            self.classes_ = classes
        self.coef_ = np.ascontiguousarray(own[:-1, 0]) * model.target_scale
        # Products of two vectors are in the units of the target.
        self.factors_ = np.ascontiguousarray(own[:-1, 1:]) * np.sqrt(model.target_scale)
        self.intercept_ = float(model.target_mean + own[-1, 0] * model.target_scale)
        self._scaling = (model.target_mean, model.target_scale)

    def _parameters(self) -> tuple[Model, Float32]:
        # The intercept is added in double: targets may lie far from 0.
        weights = np.zeros((len(self.coef_) + 1, 1 + self.factors_.shape[1]), dtype=np.float32)
        weights[:-1, 0], weights[:-1, 1:] = self.coef_, self.factors_
        return FactorizationModel(len(self.coef_), self.factors_.shape[1]), weights

    def _scores(self, X: Any) -> Float64:
        outputs = self._outputs(X)
        return outputs + self.intercept_

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Float64:
        """z of each row, of shape (n_rows,); positive means ``classes_[1]``."""
        return self._scores(X)

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Float64:
        """Probabilities of shape (n_rows, 2), columns in the order of ``classes_``."""
        return probabilities_of(self._scores(X))

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        *,
        sample_weight: Any = None,
        run: Run | None = None,
    ) -> Self:
        """Train one epoch on these rows; see :meth:`squall.LogisticRegression.partial_fit`.

        ``classes`` belong to classification.
        """
        data = training_data(X, y, sample_weight, type(self).__name__)
        return self._fit_part(data, classes, run)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Labels, or predictions, of shape (n_rows,)."""
        scores = self._scores(X)
        return likeliest(scores, self.classes_) if _classifies(self) else scores

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy, or the coefficient of determination R², on arrays ``X, y`` or a labelled Dataset."""
        return (accuracy if _classifies(self) else determination)(self, X, y, sample_weight)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        scaling = {} if self._scaling is None else {"scaling": np.array(self._scaling)}
        intercept = np.array([self.intercept_])
        return {"coef": self.coef_, "factors": self.factors_, "intercept": intercept, **scaling}

    def _labels(self) -> list[Any] | None:
        return self.classes_.tolist() if _classifies(self) else None

    def _restore(self, tensors: dict[str, npt.NDArray[Any]], labels: list[Any] | None) -> None:
        if _classifies(self):
            self.classes_ = checked_labels(labels)
        self.coef_, self.factors_, intercept = (tensors[name] for name in ("coef", "factors", "intercept"))
        n = self.n_features_in_
        if self.coef_.shape != (n,) or self.factors_.shape[:1] != (n,) or self.factors_.ndim != 2:
            raise ValueError(f"the parameters have shapes {self.coef_.shape}, {self.factors_.shape}")
        self.intercept_ = float(intercept[0])
        self._scaling = scaling_of(tensors)
