"""Factorisation machines."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags

import squall
from squall import FactorizationMachine, LinearRegression, LogisticRegression, ParameterServer, Run
from squall.errors import DataError, SettingError
from squall.testing import Chaos
from squall.testing.clicks import ClickSource, clicks


def planted(n=8_000, width=30, seed=0):
    """Rows of ones, and numbers that follow from planted factors, with a little noise."""
    draw = np.random.default_rng(seed)
    factors = 0.5 * draw.normal(size=(width, 3))
    weights = draw.normal(size=width)
    X = (draw.random((n, width)) < 0.3).astype(float)
    pairs = np.square(X @ factors).sum(axis=1) / 2 - (X @ np.square(factors)).sum(axis=1) / 2
    return X, X @ weights + pairs + 0.1 * draw.normal(size=n)


X, y = planted()
labels = np.where(y > np.median(y), "yes", "no")


@pytest.fixture(scope="module")
def numbers():
    return FactorizationMachine(task="regression", epochs=10).fit(X, y)


@pytest.fixture(scope="module")
def classes():
    return FactorizationMachine(epochs=10).fit(X, labels)


def test_what_pairs_do_is_found(numbers, classes):
    assert numbers.score(X, y) > 0.99 > 0.9 > LinearRegression(epochs=10).fit(X, y).score(X, y)
    assert classes.score(X, labels) > LogisticRegression(epochs=10).fit(X, labels).score(X, labels) + 0.05


def test_fitted_attributes(numbers, classes):
    assert is_regressor(numbers) and not is_classifier(numbers)
    assert is_classifier(classes) and not is_regressor(classes)
    assert not get_tags(classes).classifier_tags.multi_class
    for model in (numbers, classes):
        assert model.coef_.shape == (30,)
        assert model.factors_.shape == (30, 8)
        assert isinstance(model.intercept_, float)
    assert classes.classes_.tolist() == ["no", "yes"]
    assert not hasattr(numbers, "classes_")
    assert not hasattr(numbers, "predict_proba")


def test_predictions_are_the_formula(numbers, classes):
    for model, predicted in ((numbers, numbers.predict(X)), (classes, classes.decision_function(X))):
        v = model.factors_
        pairs = (np.square(X @ v).sum(axis=1) - (np.square(X) @ np.square(v)).sum(axis=1)) / 2
        np.testing.assert_allclose(
            predicted, X @ model.coef_ + pairs + model.intercept_, rtol=1e-4, atol=1e-3
        )
    probabilities = classes.predict_proba(X)
    np.testing.assert_allclose(
        probabilities[:, 1], 1 / (1 + np.exp(-classes.decision_function(X))), rtol=1e-9
    )
    np.testing.assert_array_equal(classes.predict(X), classes.classes_[probabilities.argmax(axis=1)])


def test_dense_and_sparse_rows_give_the_same(numbers):
    other = FactorizationMachine(task="regression", epochs=10).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(other.predict(X), numbers.predict(X), atol=0.05)


def test_two_fits_are_the_same_to_the_last_bit_and_the_seed_matters(numbers):
    again = FactorizationMachine(task="regression", epochs=10).fit(X, y)
    assert again.factors_.tobytes() == numbers.factors_.tobytes()
    other = FactorizationMachine(task="regression", epochs=10, random_state=1).fit(X, y)
    assert not np.allclose(other.factors_, numbers.factors_)


@pytest.mark.parametrize("consistency", ["asp", "bsp", "ssp", "hsp"])
def test_every_consistency_learns_while_a_worker_is_killed(consistency):
    backend = squall.LocalBackend(chaos=Chaos(slot=1, attempt=1, minibatch=30))
    strategy = ParameterServer(consistency)
    model = FactorizationMachine(task="regression", epochs=10, strategy=strategy)
    model.fit(X, y, run=Run(workers=2, backend=backend))
    assert model.score(X, y) > 0.97
    assert [record.rows for record in model.history_] == [len(X)] * 10


@pytest.mark.slow
def test_clicks_with_planted_interactions():
    """Of what the best model is better than a linear one, a fifth is found in three passes."""
    rows, labels = clicks(220_000, seed=1, interactions=1.0).to_arrays()
    train = squall.from_arrays(rows[20_000:], labels[20_000:])
    test = squall.from_arrays(rows[:20_000], labels[:20_000])
    run = Run(workers=2)
    machine = FactorizationMachine(n_factors=4, epochs=3).fit(train, validation=test, run=run)
    linear = LogisticRegression(epochs=3).fit(train, validation=test, run=run)
    best = ClickSource(100_000, 1, interactions=1.0).make(0).best_loss()
    found, without = (model.history_[-1].validation_loss for model in (machine, linear))
    assert best < found < without - (without - best) / 5


def test_models_come_back(numbers, classes, tmp_path):
    for model in (numbers, classes):
        twin = squall.load(squall.save(model, tmp_path / "m"))
        assert twin.get_params() == model.get_params()
        assert twin.predict(X).tolist() == model.predict(X).tolist()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"task": "ranking"}, "task='ranking' is unknown; choose from classification, regression"),
        ({"n_factors": 0}, "n_factors=0 must be"),
        ({"init_scale": 0.0}, "init_scale=0.0 must be"),
        ({"task": "regression", "class_weight": "balanced"}, "class_weight='balanced' has no effect"),
    ],
)
def test_wrong_settings_are_told(settings, says):
    with pytest.raises(SettingError, match=says):
        FactorizationMachine(**settings).fit(X, y)


def test_more_than_two_classes_are_refused():
    with pytest.raises(DataError, match=r"Only binary classification is supported(?s:.)*LogisticRegression"):
        FactorizationMachine().fit(X, np.arange(len(X)) % 3)


def test_balanced_classes():
    few = np.where(y > np.quantile(y, 0.95), 1, 0)
    balanced = FactorizationMachine(class_weight="balanced").fit(X, few)
    assert np.mean(balanced.predict(X)) > 1.1 * np.mean(few)
