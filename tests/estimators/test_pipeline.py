from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline as scikit_learns
from sklearn.preprocessing import StandardScaler

import squall
from squall import FeatureHasher, LogisticRegression, MinMaxScaler, Pipeline, make_pipeline
from squall.errors import DataError, SettingError

from .problems import numbers, people

frame, labels = people()


def new_pipeline(**settings):
    return make_pipeline(MinMaxScaler(), FeatureHasher(n_features=64), LogisticRegression(**settings))


@pytest.fixture(scope="module")
def fitted():
    return new_pipeline(epochs=20).fit(frame, labels, validation=(frame, labels))


def test_it_learns_from_numbers_and_text(fitted):
    assert fitted.score(frame, labels) > 0.85
    assert set(fitted.predict(frame)) == {"rich", "poor"}
    assert fitted.classes_.tolist() == ["poor", "rich"]


def test_the_feature_space_is_numbers_then_slots(fitted):
    assert fitted[-1].n_features_in_ == 2 + 64
    assert fitted[-1].coef_.shape == (1, 66)


def test_held_out_rows_are_transformed_too(fitted):
    probabilities = fitted.predict_proba(frame)
    expected = -np.mean(np.log(np.where(labels == "rich", probabilities[:, 1], probabilities[:, 0])))
    assert fitted.history_[-1].validation_loss == pytest.approx(expected, rel=1e-4)


def test_a_dataset_gives_the_same_model(fitted):
    data = squall.from_arrays(frame, labels)
    other = new_pipeline(epochs=20).fit(data)
    np.testing.assert_array_equal(other[-1].coef_, fitted[-1].coef_)
    np.testing.assert_array_equal(other.predict_proba(data), fitted.predict_proba(frame))
    assert other.score(data) == fitted.score(frame, labels)


def test_stages_done_by_hand_give_the_same_model(fitted):
    data = squall.from_arrays(frame, labels)
    for transformer in (MinMaxScaler(), FeatureHasher(n_features=64)):
        data = transformer.fit(data).transform(data)
    alone = LogisticRegression(epochs=20).fit(data)
    np.testing.assert_array_equal(alone.coef_, fitted[-1].coef_)


def test_values_never_seen_and_missing_ones_have_their_slots(fitted):
    new = frame.head(3).assign(job=["astronaut", None, "cook"])
    assert np.isfinite(fitted.predict_proba(new)).all()


def test_extra_columns_and_another_order_do_not_matter(fitted):
    other = frame[["height", "job", "age"]].assign(name="someone")
    np.testing.assert_array_equal(fitted.decision_function(other), fitted.decision_function(frame))


def test_a_missing_column_is_named(fitted):
    with pytest.raises(DataError, match=r"missing: 'job' \(did you mean \"jop\"\?\)"):
        fitted.predict(frame.rename(columns={"job": "jop"}))


def test_the_models_results_are_the_pipelines(fitted):
    model = fitted[-1]
    assert fitted.history_ is model.history_
    assert fitted.bill_ is model.bill_
    assert (fitted.cost_usd_, fitted.stopped_) == (model.cost_usd_, "epochs")


def test_weights_reach_the_model():
    X, y = numbers()
    twice, opposite = np.vstack([X, X]), np.append(y, 1 - y)
    weights = np.append(np.ones(300), np.zeros(300))
    pipeline = make_pipeline(MinMaxScaler(), LogisticRegression())
    assert pipeline.fit(twice, opposite, sample_weight=weights).score(X, y) > 0.75
    assert pipeline.score(twice, opposite, sample_weight=weights) == pipeline.score(X, y)


def test_a_pipeline_of_a_model_alone():
    X, y = numbers()
    alone, piped = LogisticRegression().fit(X, y), make_pipeline(LogisticRegression()).fit(X, y)
    np.testing.assert_array_equal(piped[-1].coef_, alone.coef_)


def test_nested_parameters():
    pipeline = new_pipeline()
    pipeline.set_params(featurehasher__n_features=8, logisticregression__epochs=2)
    assert pipeline.get_params()["logisticregression__epochs"] == 2
    assert pipeline.named_steps["featurehasher"].n_features == 8


def test_a_clone_has_the_parameters_and_nothing_learnt(fitted):
    twin = clone(fitted)
    assert repr(twin) == repr(fitted)
    with pytest.raises(NotFittedError):
        twin.predict(frame)


def test_grid_search_over_nested_parameters():
    X, y = numbers()
    pipeline = make_pipeline(MinMaxScaler(), LogisticRegression(epochs=2))
    grid = GridSearchCV(pipeline, {"logisticregression__l1": [0.0, 10.0]}, n_jobs=1, cv=2).fit(X, y)
    assert grid.best_params_ == {"logisticregression__l1": 0.0}


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_a_pipeline_that_is_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(new_pipeline(), method)(frame)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (
            [StandardScaler(), LogisticRegression()],
            "step 'standardscaler': StandardScaler is not a transformer",
        ),
        ([MinMaxScaler()], "step 'minmaxscaler': MinMaxScaler is not a model"),
        ([LogisticRegression(), MinMaxScaler()], "not a transformer|not a model"),
        ([MinMaxScaler(), "passthrough"], "str is not a model"),
    ],
)
def test_foreign_steps_are_refused_with_the_fix(steps, says):
    with pytest.raises(SettingError, match=rf"{says}(?s:.)*fix: use scikit-learn's own Pipeline"):
        make_pipeline(*steps).fit(frame, labels)


def test_scikit_learns_own_pipeline_mixes_its_steps_with_a_model():
    X, y = numbers()
    assert scikit_learns(StandardScaler(), LogisticRegression()).fit(X, y).score(X, y) > 0.75


def test_no_steps():
    with pytest.raises(SettingError, match="at least one step"):
        make_pipeline()
    with pytest.raises(SettingError, match="at least one step"):
        Pipeline([]).fit(frame, labels)


def test_wrong_settings_of_a_step():
    with pytest.raises(SettingError, match="FeatureHasher: n_features=0"):
        new_pipeline().set_params(featurehasher__n_features=0).fit(frame, labels)
    with pytest.raises(SettingError, match="LogisticRegression: epochs=0"):
        new_pipeline(epochs=0).fit(frame, labels)


def test_an_infinite_value_is_named():
    with pytest.raises(DataError, match="column 'height'"):
        new_pipeline().fit(frame.assign(height=np.inf), labels)


def test_a_dataset_with_labels_given_again():
    with pytest.raises(SettingError, match="a Dataset holds its own labels"):
        new_pipeline().fit(squall.from_arrays(frame, labels), labels)
