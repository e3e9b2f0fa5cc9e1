"""How good predicted ratings and recommendations are.

Ranks are taken among all items but those that the user has rated in the training data.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from squall.config import Problems
from squall.data.dataset import Dataset
from squall.errors import DataError
from squall.estimators.columns import as_dataset
from squall.estimators.ratings import Catalog
from squall.estimators.targets import check_numbers, check_weighty, labels_of
from squall.preprocessing.ids import Ids, id_columns, id_pair
from squall.records import Float64, Int32, Int64

_USERS_AT_ONCE = 256


class Recommender(Protocol):
    """What is measured here: a fitted `squall.MatrixFactorization`."""

    catalog_: Catalog

    def _best_of(self, users: Int32, n: int) -> tuple[Int64, Float64]: ...


def rmse(model: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
    """Root of the mean squared error of ``model.predict``.

    Parameters
    ----------
    model : fitted model of numbers
    X : Dataset, or array of shape (n_rows, n_features)
        Of matrix factorisation: ratings as in ``fit``.
    y, sample_weight : array of shape (n_rows,), optional
        None with a Dataset, which holds its own.
    """
    errors, weights = _errors(model, X, y, sample_weight)
    return float(np.sqrt(np.average(np.square(errors), weights=weights)))


def mae(model: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
    """Mean absolute error of ``model.predict``; parameters as of `rmse`."""
    errors, weights = _errors(model, X, y, sample_weight)
    return float(np.average(np.abs(errors), weights=weights))


def recall_at_k(
    model: Recommender, X: Any, y: Any = None, *, k: int = 10, at_least: float = -np.inf
) -> float:
    """What share of the held-out items of a user are among the ``k`` recommended; mean over users.

    Of a user with more than ``k`` held-out items, ``k`` would be all.

    Parameters
    ----------
    model : fitted MatrixFactorization
    X : Dataset, or users and items of shape (n, 2)
        Held-out ratings, of items that the users have not rated in training.
    y : array of shape (n,), optional
        Their ratings, if ``X`` holds none and ``at_least`` is given.
    k : int, default 10
        How many are recommended.
    at_least : float, optional
        Only items that a user has rated so high count as found; by default all.

    Raises
    ------
    DataError
        If nobody has rated anything that high.
    """
    ranks = _ranks(model, X, y, k, at_least)
    return float(np.mean(ranks.hits.sum(axis=1) / np.minimum(ranks.wanted, k)))


def ndcg_at_k(model: Recommender, X: Any, y: Any = None, *, k: int = 10, at_least: float = -np.inf) -> float:
    """Normalised discounted cumulative gain of the ``k`` recommended (Järvelin & Kekäläinen 2002).

    An item that is found at rank i counts 1 / log₂(i + 1); 1 is had by those who find only wanted items.
    Parameters and errors as of `recall_at_k`.
    """
    ranks = _ranks(model, X, y, k, at_least)
    discounts = 1.0 / np.log2(np.arange(k) + 2.0)
    ideal = np.cumsum(discounts)[np.minimum(ranks.wanted, k) - 1]
    return float(np.mean(ranks.hits @ discounts[: ranks.hits.shape[1]] / ideal))


class _Ranks(NamedTuple):
    """Of each user: which of the recommended are wanted (n, k), and how many items are wanted (n,)."""

    hits: npt.NDArray[np.bool_]
    wanted: Int64


def _ranks(model: Recommender, X: Any, y: Any, k: int, at_least: float) -> _Ranks:
    problems = Problems("ranking")
    problems.integer("k", k, 1)
    problems.raise_if_any()
    users, items = _wanted(model, as_dataset(X, y), at_least)
    n_items = len(model.catalog_.items)
    own, counts = np.unique(users.learnt, return_counts=True)
    codes = model.catalog_.users.codes_of(users.ids.values)
    wanted_pairs = users.learnt.astype(np.int64) * n_items + items
    wanted_pairs = wanted_pairs[items >= 0]
    hits = []
    for start in range(0, len(own), _USERS_AT_ONCE):
        chunk = own[start : start + _USERS_AT_ONCE]
        best, scores = model._best_of(codes[chunk], k)
        pairs = chunk[:, None].astype(np.int64) * n_items + best
        hits.append(np.isin(pairs, wanted_pairs) & np.isfinite(scores))
    return _Ranks(np.concatenate(hits), counts)


class _Numbered(NamedTuple):
    ids: Ids
    learnt: Int32


def _wanted(model: Recommender, data: Dataset, at_least: float) -> tuple[_Numbered, Int32]:
    """(held-out users numbered anew, for some may be unknown; the items' codes) of what is wanted."""
    names = [spec.name for spec in id_columns(data.columns)]
    ids, users, items = Ids(), [], []
    for block in data.blocks():
        columns = id_pair(block)
        users.append(ids.learn(columns[0], f"column {names[0]!r}"))
        items.append(model.catalog_.items.codes(columns[1]))
    high = np.ones(sum(map(len, users)), dtype=bool)
    if at_least > -np.inf:
        check_numbers(data, "at_least")
        high = labels_of(data)[0].astype(np.float64) >= at_least
    if not high.any():
        raise DataError("there are no held-out ratings that high", fix="lower at_least, or hold out more")
    return _Numbered(ids, np.concatenate(users)[high]), np.concatenate(items)[high]


def largest(scores: Float64, n: int) -> tuple[Int64, Float64]:
    """Positions and values of the ``n`` largest of each row, in their order; of equal ones the first."""
    n = min(n, scores.shape[1])
    if n < scores.shape[1]:
        chosen = np.sort(np.argpartition(-scores, n - 1, axis=1)[:, :n], axis=1)
    else:
        chosen = np.tile(np.arange(n, dtype=np.int64), (len(scores), 1))
    own = np.take_along_axis(scores, chosen, axis=1)
    order = np.argsort(-own, axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1), np.take_along_axis(own, order, axis=1)


def _errors(model: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Float64, Float64 | None]:
    data = as_dataset(X, y, sample_weight)
    check_numbers(data, "y")
    truth, weights = labels_of(data)
    check_weighty(weights)
    return np.asarray(model.predict(data), dtype=np.float64) - truth.astype(np.float64), weights
