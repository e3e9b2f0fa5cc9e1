"""Linear regression with scikit-learn's interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squall.data.dataset import Dataset
from squall.estimators.regression import Regressor
from squall.estimators.targets import NumberTarget, Target, scaling_of
from squall.models.linear import LinearModel
from squall.protocols import Model
from squall.records import Float32
from squall.worker.strategies import ParameterServer


class LinearRegression(Regressor):
    """Least squares, trained by minibatches on functions.

    Trains on t = (y − mean) / deviation, so that learning rates mean the same for targets of any size,
    and minimises the mean of (w·x + b − t)² / 2, + l1·‖w‖₁ + l2/2·‖w‖²; the intercept is not
    penalised.  Losses in the history are of t, too: 0.5 is what the mean alone would give, and the
    coefficient of determination is 1 − 2 · loss.  Attributes and predictions are in the units of y.

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
    strategy : ParameterServer, ModelAveraging or ADMM, optional
        How several workers train one model: whom they wait for, and what they send.  Default:
        ``squall.ParameterServer()``, where nobody waits.
    warm_start : bool, default False
        Whether ``fit`` begins with the weights of the last one, on the same columns; the optimiser
        begins anew.
    callbacks : callable or list of callables, optional
        Called in this process after each epoch with its record (:class:`squall.records.HistoryRecord`) and
        the :class:`squall.Job`, or objects with a method ``on_epoch_end`` that is; True stops the training.
        They are not saved with the model.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    history_, cost_usd_, bill_, stopped_, learning_rate_, batch_size_
        See :class:`squall.estimators.base.BaseModel`.

    Examples
    --------
    >>> import numpy as np, squall
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = squall.LinearRegression(epochs=100, learning_rate_schedule="cosine").fit(X, [1, 3, 5, 7])
    >>> model.predict([[4.0]]).round(1).tolist()
    [9.0]
    """

    _scaling: tuple[float, float] | None = None  # of the labels that it was fitted on

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
        self.warm_start = warm_start
        self.callbacks = callbacks

    def _math(self, n_features: int, target: Target, seed: int) -> Model:
        assert isinstance(target, NumberTarget)
        return LinearModel(n_features, bool(self.fit_intercept), target.mean, target.deviation)

    def _target(self, data: Dataset) -> NumberTarget:
        return NumberTarget(data, centred=bool(self.fit_intercept))

    def _target_of_parts(self, data: Dataset, classes: Any) -> NumberTarget:
        return NumberTarget(data, centred=bool(self.fit_intercept), scaling=self._scaling)

    def _starting_weights(self, target: Target, model: Model) -> Float32:
        assert isinstance(target, NumberTarget)
        intercept = self.intercept_ - target.mean if self.fit_intercept else 0.0
        weights = np.append(self.coef_, intercept) / target.deviation
        return weights.astype(np.float32)[:, None]

    def _take(self, weights: Float32, classes: npt.NDArray[Any], model: Any) -> None:
        own = weights[:, 0].astype(np.float64) * model.target_scale
        self.coef_, self.intercept_ = own[:-1], float(model.target_mean + own[-1])
        self._scaling = (model.target_mean, model.target_scale)

    def _parameters(self) -> tuple[Model, Float32]:
        # The intercept is added in double, by `predict`: targets may lie far from 0.
        weights = np.append(self.coef_, 0.0).astype(np.float32)[:, None]
        return LinearModel(len(self.coef_)), weights

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        scaling = {} if self._scaling is None else {"scaling": np.array(self._scaling)}
        return {"coef": self.coef_, "intercept": np.array([self.intercept_]), **scaling}

    def _restore(self, tensors: dict[str, npt.NDArray[Any]], labels: list[Any] | None) -> None:
        self.coef_, intercept = tensors["coef"], tensors["intercept"]
        if self.coef_.shape != (self.n_features_in_,) or intercept.shape != (1,):
            raise ValueError(f"the parameters have shape {self.coef_.shape}")
        self.intercept_ = float(intercept[0])
        self._scaling = scaling_of(tensors)
