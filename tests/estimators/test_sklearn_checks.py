"""scikit-learn's own checks of an estimator's conduct, on all of ours."""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from squall import FeatureHasher, LogisticRegression, MinMaxScaler

_SHUFFLED = (
    "minibatches of shuffled rows: a row of weight 2 moves the weights once by twice as much, a row "
    "given twice moves them twice, and each stops short of the optimum at a place of its own"
)
EXPECTED_TO_FAIL = {
    LogisticRegression: {
        "check_sample_weight_equivalence_on_dense_data": _SHUFFLED,
        "check_sample_weight_equivalence_on_sparse_data": _SHUFFLED,
    }
}


@parametrize_with_checks(
    [LogisticRegression(), MinMaxScaler(), FeatureHasher()],
    expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL.get(type(estimator), {}),
)
def test_a_check_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
