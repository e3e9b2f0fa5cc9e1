"""Linear regression."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import is_regressor
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso, Ridge
from sklearn.linear_model import LinearRegression as Reference

import squall
from squall import LinearRegression, ParameterServer, Run
from squall.errors import DataError, SettingError
from squall.testing import Chaos

X, y = load_diabetes(return_X_y=True)
X = X / X.std(axis=0)
LONG = {"epochs": 100, "learning_rate_schedule": "cosine"}


@pytest.fixture(scope="module")
def model():
    return LinearRegression(**LONG).fit(X, y, validation=(X, y))


def many(n=12_000, seed=0):
    """Rows whose targets are all different, and far from 0."""
    draw = np.random.default_rng(seed)
    rows, weights = draw.normal(size=(n, 5)), np.array([3.0, -2.0, 1.0, 0.0, 0.5])
    return rows, 1e6 + 1e3 * (rows @ weights + draw.normal(size=n) / 10)


def test_it_finds_what_scikit_learn_finds(model):
    assert is_regressor(model)
    best = Reference().fit(X, y)
    assert model.score(X, y) == pytest.approx(best.score(X, y), abs=2e-3)
    assert model.coef_.shape == (10,)
    assert model.intercept_ == pytest.approx(best.intercept_, rel=0.01)


def test_losses_are_those_of_standardised_targets(model):
    assert model.history_[0].loss < 0.5
    assert 1 - 2 * model.history_[-1].validation_loss == pytest.approx(model.score(X, y), abs=1e-4)


def test_l2_is_that_of_ridge_regression():
    ours, theirs = LinearRegression(l2=0.1, **LONG).fit(X, y), Ridge(alpha=0.1 * len(y)).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.5)


def test_l1_is_that_of_the_lasso_for_standardised_targets():
    ours = LinearRegression(l1=0.1, **LONG).fit(X, y)
    theirs = Lasso(alpha=0.1 * y.std()).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1.0)
    assert np.mean(np.abs(ours.coef_) < 1e-2) >= 0.3


def test_targets_that_are_all_different_and_far_from_zero():
    rows, targets = many()
    model = LinearRegression().fit(rows, targets)
    np.testing.assert_allclose(model.coef_, [3000, -2000, 1000, 0, 500], atol=60)
    assert model.intercept_ == pytest.approx(1e6, abs=60)
    assert model.score(rows, targets) > 0.99


@pytest.mark.parametrize("consistency", ["asp", "bsp", "ssp", "hsp"])
def test_every_consistency_learns_while_a_worker_is_killed(consistency):
    rows, targets = many()
    backend = squall.LocalBackend(chaos=Chaos(slot=1, attempt=1, minibatch=40))
    model = LinearRegression(strategy=ParameterServer(consistency)).fit(
        rows, targets, run=Run(workers=2, backend=backend)
    )
    assert model.score(rows, targets) > 0.98
    assert [record.rows for record in model.history_] == [12_000] * 5


def test_rows_of_every_sort_give_the_same_model(model):
    for rows in (sparse.csr_array(X), pd.DataFrame(X), squall.from_arrays(X, y)):
        labels = () if isinstance(rows, squall.Dataset) else (y,)
        np.testing.assert_allclose(
            LinearRegression(**LONG).fit(rows, *labels).predict(rows), model.predict(X), rtol=0.02
        )


def test_a_file_whose_targets_are_numbers(tmp_path):
    rows, targets = many()
    frame = pd.DataFrame(rows, columns=list("abcde")).assign(price=targets)
    frame.to_csv(tmp_path / "f.csv", index=False)
    data = squall.read_csv(tmp_path / "f.csv", label="price", storage=str(tmp_path / "s"))
    train, test = data.split(test=0.2, random_state=0)
    model = LinearRegression().fit(train, validation=test)
    assert model.score(test) > 0.99
    assert 1 - 2 * model.history_[-1].validation_loss == pytest.approx(model.score(test), abs=1e-3)


def test_without_an_intercept():
    rows, targets = many()
    model = LinearRegression(fit_intercept=False, **LONG).fit(rows, targets - 1e6)
    assert model.intercept_ == 0
    np.testing.assert_allclose(model.coef_, [3000, -2000, 1000, 0, 500], atol=30)


def test_targets_that_are_all_alike_are_predicted():
    model = LinearRegression(epochs=1).fit(X, np.full(len(X), 7.5))
    np.testing.assert_allclose(model.predict(X), 7.5, atol=1e-5)


def test_weights_count(model):
    more, targets = np.vstack([X, X]), np.append(y, -y)
    weighted = LinearRegression(**LONG).fit(more, targets, sample_weight=np.repeat([1.0, 0.0], len(y)))
    assert weighted.score(X, y) == pytest.approx(model.score(X, y), abs=5e-3)


def test_a_model_comes_back(model, tmp_path):
    twin = squall.load(squall.save(model, tmp_path / "m"))
    assert isinstance(twin, LinearRegression)
    assert twin.predict(X).tobytes() == model.predict(X).tobytes()
    assert twin.get_params() == model.get_params()


def test_early_stopping_keeps_the_best():
    settings = {"epochs": 60, "early_stopping": 3, "learning_rate": 1.0, "batch_size": 8}
    model = LinearRegression(**settings).fit(X[:100], y[:100], validation=(X[100:], y[100:]))
    assert model.stopped_ == "early stopping"
    best = min(r.validation_loss for r in model.history_ if r.validation_loss is not None)
    deviation = y[:100].std()
    own = np.mean(np.square(model.predict(X[100:]) - y[100:])) / deviation**2 / 2
    assert own == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.where(y > 100, "much", "little"), "regression needs labels that are numbers, and these are text"),
        (np.where(y > 340, np.nan, y), "NaN, infinity or missing labels"),
        (None, "requires y to be passed"),
    ],
)
def test_labels_that_are_no_numbers(labels, says):
    with pytest.raises(DataError, match=says):
        LinearRegression().fit(X, labels)


def test_text_cannot_be_scored(model):
    with pytest.raises(DataError, match="its labels are text, such as 'a'"):
        model.score(X[:2], ["a", "b"])


def test_numbers_are_no_classes():
    rows, targets = many()
    with pytest.raises(DataError, match="Unknown label type: continuous"):
        squall.LogisticRegression().fit(rows, targets)


def test_wrong_settings_are_told():
    with pytest.raises(SettingError, match="LinearRegression: epochs=0"):
        LinearRegression(epochs=0).fit(X, y)
