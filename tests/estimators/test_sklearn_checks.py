"""scikit-learn's own checks of an estimator's conduct, on all of ours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from squall import (
    FactorizationMachine,
    FeatureHasher,
    Imputer,
    LatentDirichletAllocation,
    LinearRegression,
    LogisticRegression,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    Pipeline,
    QuantileBinner,
    StandardScaler,
    TfidfTransformer,
    make_pipeline,
)

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"
_SHUFFLED = (
    "minibatches of shuffled rows: a row of weight 2 moves the weights once by twice as much, a row "
    "given twice moves them twice, and each stops short of the optimum at a place of its own"
)
_UNSCALED = (
    "products of two features of size 20, whose rows weigh 1,000: with one rate for all numbers the "
    "intercept is far from where it would have to be after five epochs"
)
_IN_PLACE = "as scikit-learn's own, it fits its steps themselves, and steps are a parameter"
_OF_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": _SHUFFLED,
    "check_sample_weight_equivalence_on_sparse_data": _SHUFFLED,
}
EXPECTED_TO_FAIL = {
    LogisticRegression: _OF_WEIGHTS,
    LinearRegression: _OF_WEIGHTS,
    FactorizationMachine: {**_OF_WEIGHTS, "check_class_weight_classifiers": _UNSCALED},
    Pipeline: {
        "check_sample_weight_equivalence_on_dense_data": _SHUFFLED,
        "check_estimators_overwrite_params": _IN_PLACE,
    },
}


@parametrize_with_checks(
    [
        LogisticRegression(),
        LinearRegression(),
        FactorizationMachine(),
        FactorizationMachine(task="regression"),
        LatentDirichletAllocation(),
        MinMaxScaler(),
        StandardScaler(),
        MaxAbsScaler(),
        Imputer(),
        QuantileBinner(),
        OneHotEncoder(),
        FeatureHasher(),
        TfidfTransformer(),
        make_pipeline(MinMaxScaler(), LogisticRegression()),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL.get(type(estimator), {}),
)
def test_a_check_of_scikit_learn(
    estimator: Any, check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # they leave mapped files until the very end
    check(estimator)


def test_the_page_tells_which_are_expected_to_fail() -> None:
    page = PAGE.read_text()
    for name in {name for names in EXPECTED_TO_FAIL.values() for name in names}:
        assert f"`{name}`" in page
