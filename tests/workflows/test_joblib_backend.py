"""joblib and scikit-learn on functions: the same results as without."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import joblib
import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

import squall
from squall.errors import StoreError

delayed = joblib.delayed


@pytest.fixture(autouse=True)
def on_squall() -> Iterator[None]:
    squall.register_joblib()
    with squall.Run(workers=2):
        with joblib.parallel_config(backend="squall"):
            yield


def test_results_come_in_order_from_other_processes() -> None:
    assert joblib.Parallel(n_jobs=2)(delayed(pow)(n, 2) for n in range(50)) == [n * n for n in range(50)]
    assert os.getpid() not in joblib.Parallel(n_jobs=-1)(delayed(os.getpid)() for _ in range(4))


def test_a_generator_of_results() -> None:
    results = joblib.Parallel(n_jobs=2, return_as="generator")(delayed(abs)(-n) for n in range(10))
    assert list(results) == list(range(10))


def test_an_exception_ends_the_others_and_arrives() -> None:
    def task(n: int) -> int:
        if n == 0:
            raise StoreError("on purpose")
        time.sleep(60)
        return n

    with pytest.raises(StoreError, match="on purpose"):
        joblib.Parallel(n_jobs=2)(delayed(task)(n) for n in range(4))
    assert joblib.Parallel(n_jobs=2)(delayed(abs)(n) for n in (-1, -2)) == [1, 2]


def test_tasks_of_tasks_are_done_in_turn() -> None:
    def inner(n: int) -> list[int]:
        return joblib.Parallel(n_jobs=2)(delayed(abs)(-k) for k in range(n))

    assert joblib.Parallel(n_jobs=2)(delayed(inner)(n) for n in (1, 3)) == [[0], [0, 1, 2]]


def test_grid_search_finds_the_same_as_without() -> None:
    X, y = make_classification(300, 8, random_state=0)
    grid = {"max_depth": [1, 3, 5], "min_samples_leaf": [1, 5]}
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), grid, cv=3)
    on_functions = search.set_params(n_jobs=2).fit(X, y)
    scores, best = on_functions.cv_results_["mean_test_score"], on_functions.best_params_
    with joblib.parallel_config(backend="sequential"):
        alone = search.set_params(n_jobs=1).fit(X, y)
    assert best == alone.best_params_
    assert np.array_equal(scores, alone.cv_results_["mean_test_score"])


def test_a_forest_that_asks_for_threads_is_the_same_as_without() -> None:
    X, y = make_classification(200, 6, random_state=0)
    forests = [RandomForestClassifier(8, random_state=0, n_jobs=n).fit(X, y) for n in (2, 1)]
    assert np.array_equal(forests[0].predict_proba(X), forests[1].predict_proba(X))


def test_a_run_can_be_given_by_name() -> None:
    run = squall.Run(workers=3)
    with joblib.parallel_config(backend="squall", run=run, n_jobs=-1):
        assert joblib.effective_n_jobs() == 3
        assert joblib.Parallel()(delayed(abs)(n) for n in (-1, 2)) == [1, 2]
