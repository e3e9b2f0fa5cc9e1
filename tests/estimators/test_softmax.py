"""Logistic regression of more than two classes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression as Reference
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import squall
from squall import LogisticRegression, ParameterServer, Run
from squall.errors import CorruptError, SettingError, StoreFullError
from squall.testing import Chaos

X, y = load_iris(return_X_y=True)
names = np.array(["setosa", "versicolor", "virginica"])[y]
pixels, digits = load_digits(return_X_y=True)
train_pixels, test_pixels, train_digits, test_digits = train_test_split(pixels, digits, random_state=0)

LONG = {"epochs": 50, "learning_rate_schedule": "cosine"}


@pytest.fixture(scope="module")
def model():
    return LogisticRegression(**LONG).fit(X, names)


@pytest.fixture(scope="module")
def of_digits():
    return LogisticRegression().fit(train_pixels, train_digits, validation=(test_pixels, test_digits))


def test_fitted_attributes(model):
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert model.score(X, names) > 0.94


def test_probabilities_add_up_and_agree_with_margins_and_predictions(model):
    probabilities, margins = model.predict_proba(X), model.decision_function(X)
    assert probabilities.shape == margins.shape == (150, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[probabilities.argmax(axis=1)])
    np.testing.assert_allclose(margins, X @ model.coef_.T + model.intercept_, atol=1e-4)
    assert model.predict_proba(X[:0]).shape == (0, 3)
    assert model.predict(X[:0]).shape == (0,)


def test_rows_of_every_sort_give_the_same_model(model):
    for rows in (sparse.csr_array(X), pd.DataFrame(X, columns=list("abcd")), squall.from_arrays(X, names)):
        labels = () if isinstance(rows, squall.Dataset) else (names,)
        other = LogisticRegression(**LONG).fit(rows, *labels)
        np.testing.assert_allclose(other.predict_proba(rows), model.predict_proba(X), atol=1e-2)


def test_it_finds_what_scikit_learn_finds():
    l2 = 0.01
    ours = LogisticRegression(epochs=300, batch_size=4, l2=l2, learning_rate_schedule="cosine").fit(X, y)
    theirs = Reference(C=1 / (len(y) * l2), tol=1e-8, max_iter=2000).fit(X, y)

    def objective(model):
        return log_loss(y, model.predict_proba(X)) + l2 / 2 * np.sum(model.coef_**2)

    assert objective(ours) <= 1.02 * objective(theirs)


def test_a_strong_l1_penalty_leaves_no_weights_and_a_weak_one_few():
    assert not np.any(LogisticRegression(l1=10.0, epochs=1).fit(X, y).coef_)
    weak = LogisticRegression(l1=0.01, batch_size=16).fit(train_pixels, train_digits)
    assert 0.2 < np.mean(weak.coef_ == 0) < 0.99
    assert weak.score(test_pixels, test_digits) > 0.93


def test_digits_by_default(of_digits):
    assert of_digits.score(test_pixels, test_digits) > 0.94
    expected = log_loss(test_digits, of_digits.predict_proba(test_pixels))
    assert of_digits.history_[-1].validation_loss == pytest.approx(expected, rel=1e-4)
    assert expected < 0.2


def test_two_fits_are_the_same_to_the_last_bit(of_digits):
    again = LogisticRegression().fit(train_pixels, train_digits)
    assert again.coef_.tobytes() == of_digits.coef_.tobytes()


@pytest.mark.parametrize("consistency", ["asp", "bsp", "ssp", "hsp"])
def test_every_consistency_learns_while_a_worker_is_killed(consistency):
    backend = squall.LocalBackend(chaos=Chaos(slot=1, attempt=1, minibatch=13))
    run = Run(workers=2, backend=backend)
    job = squall.submit(
        LogisticRegression(strategy=ParameterServer(consistency)), (train_pixels, train_digits), run=run
    )
    model = job.wait(50)
    assert model.score(test_pixels, test_digits) > 0.93
    assert [record.rows for record in model.history_] == [len(train_pixels)] * 5
    assert max(attempt.attempt for attempt in job.status().attempts) == 2


def test_a_model_comes_back(model, tmp_path):
    path = squall.save(model, tmp_path / "m")
    twin = squall.load(path)
    assert twin.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    assert twin.classes_.tolist() == model.classes_.tolist()
    data = path.read_bytes()
    path.write_bytes(data.replace(b'virginica\\"', b'versicola\\"', 1))
    with pytest.raises(CorruptError):
        squall.load(path)


def test_unseen_labels_are_wrong_predictions(model):
    assert model.score(X[:2], ["setosa", "daisy"]) == pytest.approx(0.5)


# ---------------------------------------------------------------------------------- class weights


@pytest.mark.parametrize("labels", [names, (y > 0).astype(int)], ids=["three", "two"])
def test_class_weights_are_weights_of_rows(labels):
    classes = np.unique(labels)
    given = dict(zip(classes.tolist(), [0.2, 3.0, 1.0], strict=False))
    by_class = LogisticRegression(epochs=3, class_weight=given).fit(X, labels)
    rows = np.array([given[label] for label in labels.tolist()])
    by_row = LogisticRegression(epochs=3).fit(X, labels, sample_weight=rows)
    np.testing.assert_array_equal(by_class.coef_, by_row.coef_)


def test_balanced_classes_count_the_same():
    rows = np.r_[:50, 50:60, 100:103]
    balanced = LogisticRegression(epochs=3, class_weight="balanced").fit(X[rows], names[rows])
    weights = len(rows) / (3 * np.repeat([50, 10, 3], [50, 10, 3]))
    by_row = LogisticRegression(epochs=3).fit(X[rows], names[rows], sample_weight=weights)
    np.testing.assert_allclose(balanced.coef_, by_row.coef_, rtol=1e-4)


def test_class_weights_are_saved_with_their_labels(tmp_path):
    given = {0: 0.5, 2: np.float32(2.0)}
    model = LogisticRegression(epochs=1, class_weight=given).fit(X, y)
    assert squall.load(squall.save(model, tmp_path / "m")).class_weight == {0: 0.5, 2: 2.0}


def test_a_weight_for_a_class_that_is_not_there_is_told():
    with pytest.raises(
        SettingError, match=r"classes that the data does not have: \['daisy'\](?s:.)*'setosa'"
    ):
        LogisticRegression(class_weight={"daisy": 2.0}).fit(X, names)


@pytest.mark.parametrize("value", ["even", {"setosa": -1.0}, {"setosa": "much"}, [1, 2, 3], 2.0])
def test_a_wrong_class_weight_is_told(value):
    with pytest.raises(SettingError, match=r'class_weight=.* must be None, "balanced" or a dict'):
        LogisticRegression(class_weight=value).fit(X, names)


def test_a_model_without_room_is_refused_before_its_data_is_written(monkeypatch):
    monkeypatch.setattr("squall.estimators.preparation.available_memory", lambda: 10_000)
    monkeypatch.setattr(
        "squall.estimators.preparation.write_training", lambda *_, **__: pytest.fail("written")
    )
    X = sparse.random(50, 1_000, density=0.01, random_state=0, format="csr")
    with pytest.raises(
        StoreFullError, match=r"1,001 rows of 5 weights each, and the state of adagrad, need 39 kB"
    ):
        squall.LogisticRegression().fit(X, np.arange(50) % 5)
