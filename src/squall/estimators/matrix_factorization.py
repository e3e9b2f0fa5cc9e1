"""Matrix factorisation of ratings: what users think of items they have not rated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from squall.config import Problems, Run, is_auto
from squall.data.dataset import Dataset
from squall.driver.job import Job
from squall.driver.spec import JobResult
from squall.errors import DataError, SettingError
from squall.estimators.columns import as_dataset, training_data
from squall.estimators.continuing import ContinuingModel, settled
from squall.estimators.predecessors import Part
from squall.estimators.preparation import Recipe
from squall.estimators.ranking import largest, recall_at_k
from squall.estimators.ratings import Catalog, ChoicesTarget, RatingsTarget, recalled_catalog
from squall.estimators.regression import determination
from squall.estimators.targets import Target
from squall.estimators.transformers import BaseTransformer
from squall.models.matrix_factorization import SCHEDULES, MatrixFactorizationModel
from squall.preprocessing.ids import IdTransform, id_columns, pair_column
from squall.protocols import Model, Objects, StrategySettings
from squall.records import ColumnSpec, CsrBlock, Float32, Float64, Int32, Int64, OptimizerSpec
from squall.store.initial import initial_values
from squall.worker.strategies import is_strategy

Ids = npt.NDArray[Any]

ALPHA, N_NEGATIVES = 1.0, 8
"""What None stands for in the settings of that name."""

IN_FLIGHT = 8_192
"""Ratings that all workers together train on at a time, between two exchanges; many more would diverge."""


class MatrixFactorization(RegressorMixin, ContinuingModel):  # type: ignore[misc]
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
    learning_rate : float or "auto", default "auto"
        Of the first step.  ``"auto"``: 0.07, or 0.1 if `implicit`.
    l2 : float or "auto", default "auto"
        The penalty's weight.  ``"auto"``: 0.06, or 0.01 if `implicit`.
    implicit : bool, default False
        Whether ratings are no opinions but say what was chosen: views, plays, purchases (Hu, Koren &
        Volinsky 2008).  What is predicted is then how likely a choice is, about from 0 to 1.  Each choice
        is set against items drawn at random that its user has not chosen.
    alpha : float, optional
        Of `implicit`, and only with it: a choice of rating r counts 1 + alpha · r / mean rating, what was
        not chosen 1; default 1.0.
    n_negatives : int, optional
        Of `implicit`, and only with it: items that are drawn for each choice; default 8.
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
    warm_start : bool, default False
        Whether ``fit`` begins with the biases and factors that the last one has found.  New users and items
        begin as usual, ids that do not come any more are kept, and so is how ratings were scaled.
    callbacks : callable or list of callables, optional
        Called after each epoch; see :class:`squall.LogisticRegression`.

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

    _keeps_state = False  # plain descent knows nothing

    catalog_: Catalog
    user_bias_: Float32
    item_bias_: Float32
    user_factors_: Float32
    item_factors_: Float32

    def __init__(
        self,
        n_factors: int = 20,
        epochs: int = 10,
        learning_rate: float | str = "auto",
        l2: float | str = "auto",
        implicit: bool = False,
        alpha: float | None = None,
        n_negatives: int | None = None,
        init_scale: float = 0.03,
        batch_size: int | str = "auto",
        learning_rate_schedule: str = "cosine",
        target_loss: float | None = None,
        early_stopping: int | None = None,
        random_state: int | None = None,
        strategy: StrategySettings | None = None,
        warm_start: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.n_factors = n_factors
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.l2 = l2  # type: ignore[assignment]  # of other models it is a number only
        self.implicit = implicit
        self.alpha = alpha
        self.n_negatives = n_negatives
        self.init_scale = init_scale
        self.batch_size = batch_size
        self.learning_rate_schedule = learning_rate_schedule
        self.target_loss = target_loss
        self.early_stopping = early_stopping
        self.random_state = random_state
        self.strategy = strategy
        self.warm_start = warm_start
        self.callbacks = callbacks

    # ------------------------------------------------------------------------------------ training

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
        X : Dataset, or array, list, DataFrame of shape (n_ratings, 2)
            Users and items: numbers or text.  A Dataset is as from `squall.read_ratings`: with columns
            ``user`` and ``item``, or two columns in all.
        y : array of shape (n_ratings,)
            Ratings; none with a Dataset, which holds its own.  With `implicit` they may be left out.
        sample_weight : array of shape (n_ratings,), optional
            How much each rating counts.
        validation : Dataset or (X, y), optional
            Held-out ratings, measured while training goes on.
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
        super().fit(X, self._ratings(X, y), sample_weight=sample_weight, validation=validation, run=run)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, sample_weight: Any = None, run: Run | None = None
    ) -> Self:
        """Train one epoch on these ratings alone, from where the last call (or ``fit``, or a load) has ended.

        Users and items that are new begin as in ``fit``; of the others only those that these ratings are of
        change.  Ratings are scaled as in the first call, so `mean_` stays.  The learning rate follows its
        schedule within the call; an ``"auto"`` one is divided by the root of how often ratings have been
        visited so far, on average.  ``history_``, ``bill_`` and the like are those of this call.

        Parameters
        ----------
        X, y, sample_weight, run
            As of `fit`.

        Raises
        ------
        SettingError
            Naming every setting that is wrong; `n_factors` and `implicit` have to be those of the model.
        DataError
            If the data cannot be trained on; ids have to be of the kind they were: numbers or text.
        JobError
            If the job failed.
        """
        data = training_data(X, self._ratings(X, y), sample_weight, type(self).__name__)
        return self._fit_part(data, None, run)

    def _ratings(self, X: Any, y: Any) -> Any:
        return np.ones(len(X)) if self.implicit and y is None and not isinstance(X, Dataset) else y

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
        if before:
            raise SettingError(
                f"ids are taken as they are, and {type(before[0]).__name__} would change them",
                where="make_pipeline",
                fix="leave out the steps before squall.MatrixFactorization",
            )
        return super()._start(data, validation, run, before, whole, tags, part)

    def _check_settings(self) -> None:
        problems = Problems(type(self).__name__)
        problems.integer("n_factors", self.n_factors, 1, high=1 << 16)
        problems.integer("epochs", self.epochs, 1, high=2**31 - 1)
        problems.number("learning_rate", self.learning_rate, above=0.0, auto=True)
        problems.number("l2", self.l2, low=0.0, auto=True)
        problems.boolean("implicit", self.implicit)
        self._check_implicit(problems)
        problems.number("init_scale", self.init_scale, above=0.0)
        problems.integer("batch_size", self.batch_size, 1, auto=True)
        problems.choice("learning_rate_schedule", self.learning_rate_schedule, SCHEDULES)
        self._check_ending(problems)
        self._check_more(problems)
        if self.strategy is not None and is_strategy(self.strategy) and not self.strategy.needs_tables:
            problems.add(
                f"strategy={self.strategy!r} takes means of whole models, in which a user whom one worker "
                "has would fade; choose squall.ParameterServer()"
            )
        problems.raise_if_any()

    def _check_implicit(self, problems: Problems) -> None:
        if self.alpha is not None:
            problems.number("alpha", self.alpha, low=0.0)
        if self.n_negatives is not None:
            problems.integer("n_negatives", self.n_negatives, 1, high=1 << 16)
        for name in ("alpha", "n_negatives"):
            if getattr(self, name) is not None and self.implicit is False:
                problems.add(f"{name}={getattr(self, name)!r} has no effect without implicit=True")

    def _check_settled(self, problems: Problems) -> None:
        n_factors = self.item_factors_.shape[1]
        if self.n_factors != n_factors:
            problems.add(settled("n_factors", self.n_factors, n_factors))
        if bool(self.implicit) != self.catalog_.implicit:
            problems.add(settled("implicit", self.implicit, self.catalog_.implicit))

    def _check_parts(self, problems: Problems) -> None:
        """All go with parts: each call is a training of one epoch."""

    def _check_columns(self, columns: list[ColumnSpec], target: Target) -> None:
        """There is a feature for each id, and ids may be new."""

    def _recipe(self) -> Recipe:
        return Recipe(
            model=self._math,
            optimizer=OptimizerSpec("sgd", 0.0),
            learning_rate=self._rate,
            batch_size=None if is_auto(self.batch_size) else int(self.batch_size),
            epochs=int(self.epochs),
            decay=0.0,
            warmup=0.0,
            auto_batch_size=lambda rows, workers: max(1, IN_FLIGHT // workers),
            grouped=True,  # a minibatch has few users, so that little of them is exchanged
        )

    @property
    def _rate(self) -> float:
        return _default(self.learning_rate, 0.1 if self.implicit else 0.07)

    @property
    def _rate_found(self) -> float | None:
        """Of a part: what has been visited often is not to be moved by much any more."""
        if not (self._is_fitted and is_auto(self.learning_rate)):
            return None
        return self._rate / float(np.sqrt(max(1.0, self.catalog_.visits_each)))

    def _target(self, data: Dataset) -> Target:
        known = self.catalog_ if self.warm_start and self._is_fitted else None
        return self._target_of(data, self._rate, int(self.epochs), known)

    def _target_of_parts(self, data: Dataset, classes: Any) -> Target:
        known = self.catalog_ if self._is_fitted else None
        return self._target_of(data, self._rate_found or self._rate, 1, known)

    def _target_of(self, data: Dataset, rate: float, epochs: int, known: Catalog | None) -> Target:
        id_columns(data.columns)  # what is no ratings is told before there is a job
        if not self.implicit:
            return RatingsTarget(data, rate, epochs, known)
        return ChoicesTarget(data, rate, epochs, ALPHA if self.alpha is None else float(self.alpha), known)

    def _starting_weights(self, target: Target, model: Model) -> Float32:
        assert isinstance(target, RatingsTarget | ChoicesTarget)
        table = model.table("job/model", OptimizerSpec("sgd", target.rate))
        assert table.initial is not None
        weights = initial_values(table.initial, np.arange(table.rows), table.dim)
        weights[-1] = 0.0  # no part of this training is done
        scale = target.deviation
        known = (
            (0, self.user_bias_, self.user_factors_),
            (len(target.catalog.users), self.item_bias_, self.item_factors_),
        )
        for start, biases, factors in known:
            rows = slice(start, start + len(biases))
            weights[rows, 0], weights[rows, 1:] = biases / scale, factors / np.sqrt(scale)
        return weights

    def _math(self, n_features: int, target: Target, seed: int) -> Model:
        assert isinstance(target, RatingsTarget | ChoicesTarget)
        catalog, negatives = target.catalog, 0
        if self.implicit:
            negatives = N_NEGATIVES if self.n_negatives is None else int(self.n_negatives)
        return MatrixFactorizationModel(
            n_users=len(catalog.users),
            n_items=len(catalog.items),
            n_factors=int(self.n_factors),
            learning_rate=target.rate,
            l2=_default(self.l2, 0.01 if self.implicit else 0.06),
            schedule=str(self.learning_rate_schedule),  # type: ignore[arg-type]  # checked before
            planned=target.planned,
            init_scale=float(self.init_scale),
            seed=seed,
            target_mean=target.mean,
            target_scale=target.deviation,
            n_negatives=negatives,
            negative_weight=target.negative_weight if isinstance(target, ChoicesTarget) else 1.0,
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
        self.user_bias_, self.item_bias_ = biases[:n], biases[n:]
        self.user_factors_, self.item_factors_ = factors[:n], factors[n:]

    # --------------------------------------------------------------------------------- predicting

    @property
    def mean_(self) -> float:
        """What the ratings are on average; 0 if they are choices."""
        return self.catalog_.mean

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
        """The coefficient of determination R² on arrays ``X, y``, or on a Dataset of ratings.

        With `implicit`: `squall.recall_at_k` of 10, where weights have no part.
        """
        if self.implicit:
            return recall_at_k(self, X, y)
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
        items, best = self._best_of(self.catalog_.users.codes_of(user), n, exclude_seen=exclude_seen)
        most = int(np.isfinite(best).sum(axis=1).max(initial=0))
        ids, best = self.items_[items[:, :most]], best[:, :most]
        return (ids[0], best[0]) if np.ndim(user) == 0 else (ids, best)

    def _best_of(self, users: Int32, n: int, *, exclude_seen: bool = True) -> tuple[Int64, Float64]:
        """Codes of the best items of each user's code, and predictions; −inf for what does not count."""
        scores = self._scores(users)
        if exclude_seen:
            for row, code in enumerate(users.tolist()):
                if code >= 0:
                    scores[row, self.catalog_.seen(code)] = -np.inf
        return largest(scores, n)

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
        items, best = largest(cosines[None, :].astype(np.float64), min(n, len(cosines) - 1))
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
            **self.catalog_.tensors(),
        }

    def _labels(self) -> None:
        return None

    def _restore(self, tensors: dict[str, npt.NDArray[Any]], labels: list[Any] | None) -> None:
        self.catalog_ = Catalog.from_tensors(tensors)
        for name, ids in (("user", self.catalog_.users), ("item", self.catalog_.items)):
            bias, factors = tensors[f"{name}_bias"], tensors[f"{name}_factors"]
            if bias.shape != (len(ids),) or factors.shape[:1] != bias.shape or factors.ndim != 2:
                raise ValueError(f"the {name}s' parameters have shapes {bias.shape}, {factors.shape}")
            setattr(self, f"{name}_bias_", bias)
            setattr(self, f"{name}_factors_", factors)


def _default(value: Any, auto: float) -> float:
    return auto if is_auto(value) else float(value)


def _columns(catalog: Catalog) -> list[ColumnSpec]:
    kinds = (
        "categorical" if ids.values.dtype == object else "int64" for ids in (catalog.users, catalog.items)
    )
    return [ColumnSpec(name, kind) for name, kind in zip(("user", "item"), kinds, strict=True)]  # type: ignore[arg-type]
