"""Matrix factorisation of ratings: what users think of items they have not rated."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from squall.config import Problems, is_auto
from squall.data.dataset import Dataset
from squall.driver.spec import JobResult
from squall.errors import DataError
from squall.estimators.base import BaseModel
from squall.estimators.columns import as_dataset
from squall.estimators.preparation import Preparation, Recipe
from squall.estimators.ratings import Catalog, RatingsPreparation, RatingsTarget, recalled_catalog
from squall.estimators.regression import determination
from squall.estimators.targets import Target
from squall.models.matrix_factorization import SCHEDULES, MatrixFactorizationModel
from squall.preprocessing.ids import IdTransform, id_columns, pair_column
from squall.protocols import Model, Objects, StrategySettings
from squall.records import ColumnSpec, CsrBlock, Float32, Float64, Int32, Int64, OptimizerSpec
from squall.worker.strategies import is_strategy

Ids = npt.NDArray[Any]


class MatrixFactorization(RegressorMixin, BaseModel):  # type: ignore[misc]
    """Matrix factorisation with biases (Koren, Bell & Volinsky 2009), trained on functions.

    A rating is taken to be r ≈ μ + b_u + b_i + p_u·q_i: the mean, what the user and the item differ from
    it, and how the user's `n_factors` tastes go with the item's qualities.  Stochastic gradient descent,
    rating by rating, on (r − r̂)² + l2 · (b_u² + b_i² + ‖p_u‖² + ‖q_i‖²) of the standardised ratings.

    Parameters
    ----------
    n_factors : int, default 20
        Length of p_u and q_i.
    epochs : int, default 10
        How often each rating is visited.
    learning_rate : float, default 0.07
        Of the first step.
    l2 : float, default 0.06
        The penalty's weight.  With more factors, or more epochs, more of it: 0.07 with 100 factors.
    init_scale : float, default 0.03
        Deviation of the factors at the start.
    batch_size : int or "auto", default "auto"
        Ratings that a worker trains on between two exchanges with the others.  ``"auto"``: 8,192 among
        all workers; the steps of several add up, so that many more at a time would diverge.
    learning_rate_schedule : "cosine" or "constant", default "cosine"
        Whether the rate falls along a half cosine to 0 at the end of the last epoch, or stays.
    target_loss : float, optional
        Stop as soon as the held-out mean squared error is that low; needs ``validation`` in ``fit``.
    early_stopping : int, optional
        Stop after this many epochs without a lower held-out loss, and keep the weights of the best one;
        needs ``validation`` in ``fit``.
    random_state : int, optional
        Seed of shuffles and of the factors at the start; default: the run's.
    strategy : ParameterServer, optional
        How several workers train one model.  Default: ``squall.ParameterServer()``, where nobody waits.

    Attributes
    ----------
    mean_ : float
        μ.
    user_bias_, item_bias_ : ndarray of shape (n_users,), (n_items,)
    user_factors_, item_factors_ : ndarray of shape (n_users, n_factors), (n_items, n_factors)
    users_, items_ : ndarray of shape (n_users,), (n_items,)
        The ids that these rows belong to.
    history_, cost_usd_, bill_, stopped_, learning_rate_, batch_size_
        See :class:`squall.estimators.base.BaseModel`.  Losses are mean squared errors, in the units of
        the ratings.

    Notes
    -----
    An id counts as its text: 7 and "7" are one user.  Who or what was not in the training data has a
    bias of 0 and no factors, so a prediction for an unknown user is what others think of the item.

    Examples
    --------
    >>> import squall
    >>> X = [["ann", "tea"], ["ann", "milk"], ["bob", "tea"], ["bob", "beer"], ["eve", "milk"]]
    >>> model = squall.MatrixFactorization(n_factors=2, random_state=0).fit(X, [5, 1, 4, 2, 2])
    >>> model.recommend("eve", n=2)[0].tolist()
    ['tea', 'beer']
    """

    _preparation: ClassVar[type[Preparation]] = RatingsPreparation

    catalog_: Catalog
    mean_: float
    user_bias_: Float32
    item_bias_: Float32
    user_factors_: Float32
    item_factors_: Float32

    def __init__(
        self,
        n_factors: int = 20,
        epochs: int = 10,
        learning_rate: float = 0.07,
        l2: float = 0.06,
        init_scale: float = 0.03,
        batch_size: int | str = "auto",
        learning_rate_schedule: str = "cosine",
        target_loss: float | None = None,
        early_stopping: int | None = None,
        random_state: int | None = None,
        strategy: StrategySettings | None = None,
    ) -> None:
        self.n_factors = n_factors
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.l2 = l2
        self.init_scale = init_scale
        self.batch_size = batch_size
        self.learning_rate_schedule = learning_rate_schedule
        self.target_loss = target_loss
        self.early_stopping = early_stopping
        self.random_state = random_state
        self.strategy = strategy

    # ------------------------------------------------------------------------------------ training

    def _check_settings(self) -> None:
        problems = Problems(type(self).__name__)
        problems.integer("n_factors", self.n_factors, 1, high=1 << 16)
        problems.integer("epochs", self.epochs, 1, high=2**31 - 1)
        problems.number("learning_rate", self.learning_rate, above=0.0)
        problems.number("l2", self.l2, low=0.0)
        problems.number("init_scale", self.init_scale, above=0.0)
        problems.integer("batch_size", self.batch_size, 1, auto=True)
        problems.choice("learning_rate_schedule", self.learning_rate_schedule, SCHEDULES)
        self._check_ending(problems)
        if self.strategy is not None and is_strategy(self.strategy) and not self.strategy.needs_tables:
            problems.add(
                f"strategy={self.strategy!r} takes means of whole models, in which a user whom one worker "
                "has would fade; choose squall.ParameterServer()"
            )
        problems.raise_if_any()

    def _recipe(self) -> Recipe:
        return Recipe(
            model=self._math,
            optimizer=OptimizerSpec("sgd", 0.0),
            learning_rate=float(self.learning_rate),
            batch_size=None if is_auto(self.batch_size) else int(self.batch_size),
            epochs=int(self.epochs),
            decay=0.0,
            warmup=0.0,
        )

    def _target(self, data: Dataset) -> Target:
        id_columns(data.columns)  # what is no ratings is told before there is a job
        return RatingsTarget(data)

    def _math(self, n_features: int, target: Target) -> Model:
        assert isinstance(target, RatingsTarget)
        catalog = target.catalog
        return MatrixFactorizationModel(
            n_users=len(catalog.users),
            n_items=len(catalog.items),
            n_factors=int(self.n_factors),
            learning_rate=float(self.learning_rate),
            l2=float(self.l2),
            schedule=str(self.learning_rate_schedule),  # type: ignore[arg-type]  # checked before
            planned=int(self.epochs) * len(catalog.items_seen),
            init_scale=float(self.init_scale),
            seed=0 if self.random_state is None else int(self.random_state),
            target_mean=target.mean,
            target_scale=target.deviation,
        )

    def _recalled(self, objects: Objects, folder: str) -> Catalog:
        return recalled_catalog(objects, folder)

    def _finish(self, result: JobResult, columns: list[ColumnSpec], classes: npt.NDArray[Any]) -> None:
        self.catalog_ = result.prepared.learned
        super()._finish(result, _columns(self.catalog_), classes)

    def _take(self, weights: Float32, classes: npt.NDArray[Any], model: Any) -> None:
        n, scale = len(self.catalog_.users), model.target_scale
        biases = weights[:-1, 0] * np.float32(scale)
        # Products of two vectors are in the units of the ratings.
        factors = weights[:-1, 1:] * np.float32(np.sqrt(scale))
        self.mean_ = float(model.target_mean)
        self.user_bias_, self.item_bias_ = biases[:n], biases[n:]
        self.user_factors_, self.item_factors_ = factors[:n], factors[n:]

    # --------------------------------------------------------------------------------- predicting

    @property
    def users_(self) -> Ids:
        """Ids of the users, by row of `user_factors_`."""
        return self.catalog_.users.values

    @property
    def items_(self) -> Ids:
        """Ids of the items, by row of `item_factors_`."""
        return self.catalog_.items.values

    def predict(self, X: Any, items: Any = None) -> Float64:
        """Ratings that users would give items: (n,).

        Parameters
        ----------
        X : array of ids (n,), or a Dataset, or an array of users and items (n, 2)
            Users, if ``items`` are given; else both.
        items : array of ids (n,), optional

        Raises
        ------
        DataError
            If there are not as many users as items.
        """
        check_is_fitted(self, "catalog_")
        catalog = self.catalog_
        if items is None:
            data = as_dataset(X).with_transform(IdTransform(catalog.users, catalog.items))
            blocks = [block.columns["ratings"] for block in data.blocks()]
        else:
            codes = [catalog.users.codes_of(X), catalog.items.codes_of(items)]
            if len(codes[0]) != len(codes[1]):
                raise DataError(
                    f"there are {len(codes[0]):,} users and {len(codes[1]):,} items",
                    where="predict",
                    fix="give one item for each user",
                )
            blocks = [pair_column(np.stack(codes, axis=1), len(catalog.users), len(catalog.items))]
        model, weights = self._parameters()
        none = np.empty(0, dtype=np.float32)
        parts = [
            model.outputs(CsrBlock(b.indptr, b.indices, None, none, None, b.width), weights)  # type: ignore[union-attr]
            for b in blocks
        ]
        return np.concatenate([none, *parts]).astype(np.float64) + self.mean_

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The coefficient of determination R² on arrays ``X, y``, or on a Dataset of ratings."""
        return determination(self, X, y, sample_weight)

    def recommend(self, user: Any, n: int = 10, *, exclude_seen: bool = True) -> tuple[Ids, Float64]:
        """The items that a user would like best, and the ratings predicted for them.

        For an unknown user these are the items that all like best, by their biases.

        Parameters
        ----------
        user : id, or array of ids (m,)
        n : int, default 10
            How many; fewer if there are not as many left.
        exclude_seen : bool, default True
            Leave out what the user has rated in the training data.

        Returns
        -------
        items, ratings : arrays of shape (n,), or (m, n) for an array of users
            Best first.  Where one of several users has fewer left than the others, the rest of the row has
            ratings of −inf, and items that say nothing.
        """
        check_is_fitted(self, "catalog_")
        self._check_count(n)
        users = self.catalog_.users.codes_of(user)
        scores = self._scores(users)
        if exclude_seen:
            for row, code in enumerate(users.tolist()):
                if code >= 0:
                    scores[row, self.catalog_.seen(code)] = -np.inf
        items, best = _best(scores, n)
        most = int(np.isfinite(best).sum(axis=1).max(initial=0))
        ids, best = self.items_[items[:, :most]], best[:, :most]
        return (ids[0], best[0]) if np.ndim(user) == 0 else (ids, best)

    def _scores(self, users: Int32) -> Float64:
        """Predictions for all items: (n_users, n_items)."""
        known = users >= 0
        scores = np.tile(self.item_bias_.astype(np.float64) + self.mean_, (len(users), 1))
        scores[known] += self.user_bias_[users[known], None]
        scores[known] += self.user_factors_[users[known]] @ self.item_factors_.T
        return scores

    def similar_items(self, item: Any, n: int = 10) -> tuple[Ids, Float64]:
        """The items whose factors point most nearly where this one's do, and the cosines.

        Raises
        ------
        DataError
            If the item is not known: nothing is known of it then.
        """
        check_is_fitted(self, "catalog_")
        self._check_count(n)
        (code,) = self.catalog_.items.codes_of(item).tolist()
        if code < 0:
            raise DataError(
                f"the item {item!r} is not in the training data",
                where="similar_items",
                fix="give one of model.items_",
            )
        lengths = np.linalg.norm(self.item_factors_, axis=1).astype(np.float64)
        cosines = self.item_factors_ @ self.item_factors_[code] / np.maximum(lengths * lengths[code], 1e-30)
        cosines[code] = -np.inf
        items, best = _best(cosines[None, :].astype(np.float64), min(n, len(cosines) - 1))
        return self.items_[items[0]], best[0]

    @staticmethod
    def _check_count(n: Any) -> None:
        problems = Problems("MatrixFactorization")
        problems.integer("n", n, 1)
        problems.raise_if_any()

    # ----------------------------------------------------------------------------- saved and loaded

    def _parameters(self) -> tuple[Model, Float32]:
        biases = np.concatenate([self.user_bias_, self.item_bias_, [0.0]])
        none = np.zeros((1, self.user_factors_.shape[1]))
        factors = np.concatenate([self.user_factors_, self.item_factors_, none])
        weights = np.column_stack([biases, factors]).astype(np.float32)
        n_users, n_items = len(self.user_bias_), len(self.item_bias_)
        return MatrixFactorizationModel(n_users, n_items, factors.shape[1], 1.0, 0.0), weights

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "user_bias": self.user_bias_,
            "item_bias": self.item_bias_,
            "user_factors": self.user_factors_,
            "item_factors": self.item_factors_,
            "mean": np.array([self.mean_]),
            **self.catalog_.tensors(),
        }

    def _labels(self) -> None:
        return None

    def _restore(self, tensors: dict[str, npt.NDArray[Any]], labels: list[Any] | None) -> None:
        self.catalog_ = Catalog.from_tensors(tensors)
        self.mean_ = float(tensors["mean"][0])
        for name, ids in (("user", self.catalog_.users), ("item", self.catalog_.items)):
            bias, factors = tensors[f"{name}_bias"], tensors[f"{name}_factors"]
            if bias.shape != (len(ids),) or factors.shape[:1] != bias.shape or factors.ndim != 2:
                raise ValueError(f"the {name}s' parameters have shapes {bias.shape}, {factors.shape}")
            setattr(self, f"{name}_bias_", bias)
            setattr(self, f"{name}_factors_", factors)


def _columns(catalog: Catalog) -> list[ColumnSpec]:
    kinds = (
        "categorical" if ids.values.dtype == object else "int64" for ids in (catalog.users, catalog.items)
    )
    return [ColumnSpec(name, kind) for name, kind in zip(("user", "item"), kinds, strict=True)]  # type: ignore[arg-type]


def _best(scores: Float64, n: int) -> tuple[Int64, Float64]:
    """Positions of the n largest of each row, in their order; of equal ones the first come first."""
    n = min(n, scores.shape[1])
    if n < scores.shape[1]:
        chosen = np.sort(np.argpartition(-scores, n - 1, axis=1)[:, :n], axis=1)
    else:
        chosen = np.tile(np.arange(n, dtype=np.int64), (len(scores), 1))
    own = np.take_along_axis(scores, chosen, axis=1)
    order = np.argsort(-own, axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1), np.take_along_axis(own, order, axis=1)
