"""scikit-learn's tools at work on Squall's estimators: search, validation, pipelines, saving."""

from __future__ import annotations

import pickle
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import FeatureUnion
from sklearn.pipeline import Pipeline as TheirPipeline
from sklearn.pipeline import make_pipeline as their_make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import squall
from squall import FeatureHasher, LogisticRegression, MinMaxScaler, make_pipeline

from .problems import numbers, people

X, y = numbers()
table = pd.DataFrame(X, columns=["a", "b", "c"])
frame, labels = people()
GRID = {"minmaxscaler__feature_range": [(0, 1), (-1, 1)], "logisticregression__epochs": [1, 3]}


@pytest.mark.parametrize("build", [make_pipeline, their_make_pipeline])
def test_nested_parameters_are_set_and_cloned(build):
    pipeline = build(MinMaxScaler(), LogisticRegression())
    pipeline.set_params(logisticregression__epochs=2, minmaxscaler__feature_range=(0, 2))
    fitted = pipeline.fit(X, y)
    assert len(fitted.steps[-1][1].history_) == 2
    twin = clone(fitted)
    assert twin.get_params()["logisticregression__epochs"] == 2
    assert not hasattr(twin.steps[-1][1], "coef_")
    np.testing.assert_array_equal(twin.fit(X, y).predict_proba(X), fitted.predict_proba(X))
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        pipeline.set_params(logisticregression__epoch=2)


@pytest.mark.parametrize("build", [make_pipeline, their_make_pipeline])
def test_a_grid_over_nested_parameters(build):
    search = GridSearchCV(build(MinMaxScaler(), LogisticRegression()), GRID, cv=3, error_score="raise")
    search.fit(X, y)
    assert len(search.cv_results_["params"]) == 4
    best = clone(search.estimator).set_params(**search.best_params_)
    assert search.best_score_ == pytest.approx(cross_val_score(best, X, y, cv=3).mean())
    np.testing.assert_array_equal(search.predict(X), best.fit(X, y).predict(X))


SEARCH = """
import numpy, sys
from sklearn.model_selection import GridSearchCV
import squall

X = numpy.random.default_rng(0).normal(size=(200, 3))
model = squall.make_pipeline(squall.MinMaxScaler(), squall.LogisticRegression())
grid = {"logisticregression__epochs": [1, 3]}
search = GridSearchCV(model, grid, cv=2, n_jobs=int(sys.argv[1]), error_score="raise").fit(X, X[:, 0] > 0)
print(search.cv_results_["mean_test_score"].tolist(), search.best_params_)
"""


@pytest.mark.slow  # three processes load scikit-learn
@pytest.mark.timeout(180)
def test_a_grid_in_two_processes_finds_what_one_finds(tmp_path):
    script = tmp_path / "search.py"
    script.write_text(SEARCH)
    found = []
    for n_jobs in ("1", "2"):
        # Returns only when all that joblib and Squall started has let go of the output.
        command = [sys.executable, "-W", "error", script, n_jobs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        found.append(done.stdout)
    assert found[0] == found[1]
    assert "logisticregression__epochs" in found[0]


def test_cross_validation_with_text_weights_and_another_score():
    pipeline = make_pipeline(MinMaxScaler(), FeatureHasher(64), LogisticRegression())
    weights = {"sample_weight": np.ones(len(labels))}
    assert cross_val_score(pipeline, frame, labels, cv=3, params=weights).mean() > 0.8
    assert cross_val_score(pipeline, frame, labels, cv=3, scoring="roc_auc").mean() > 0.9
    assert cross_val_predict(pipeline, frame, labels, cv=3, method="predict_proba").shape == (300, 2)


def test_an_error_in_a_fold_is_told_as_it_is():
    with pytest.raises(squall.SquallError, match=r'optimizer=.* \(did you mean "adagrad"\?\)'):
        cross_val_score(LogisticRegression(optimizer="adagrat"), X, y, error_score="raise")


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibration(method):
    calibrated = CalibratedClassifierCV(LogisticRegression(), method=method, cv=3).fit(table, y)
    assert calibrated.score(table, y) == pytest.approx(LogisticRegression().fit(X, y).score(X, y), abs=0.03)
    np.testing.assert_allclose(calibrated.predict_proba(table).sum(axis=1), 1)


@pytest.mark.parametrize("rows", [X, table], ids=["array", "frame"])
def test_their_pipeline_and_their_scaler(rows):
    model = TheirPipeline([("scale", StandardScaler()), ("model", LogisticRegression(random_state=1))])
    scaled = StandardScaler().fit_transform(X)
    by_hand = LogisticRegression(random_state=1).fit(scaled, y)
    np.testing.assert_array_equal(model.fit(rows, y).predict_proba(rows), by_hand.predict_proba(scaled))


def test_their_column_transformer_with_a_frame():
    columns = make_column_transformer(
        (MinMaxScaler(), make_column_selector(dtype_include="number")), (FeatureHasher(32), ["job"])
    )
    theirs = their_make_pipeline(columns, LogisticRegression()).fit(frame, labels)
    ours = make_pipeline(MinMaxScaler(), FeatureHasher(32), LogisticRegression()).fit(frame, labels)
    assert columns.get_feature_names_out()[:3].tolist() == [
        "minmaxscaler__age", "minmaxscaler__height", "featurehasher__hashed_0"
    ]  # fmt: skip
    np.testing.assert_allclose(theirs.predict_proba(frame), ours.predict_proba(frame), rtol=1e-5)


def test_their_column_transformer_with_an_array_and_their_encoder():
    rows = frame[["age", "height", "job"]].fillna({"job": "none"}).to_numpy(dtype=object)
    columns = ColumnTransformer([("n", MinMaxScaler(), [0, 1]), ("t", OneHotEncoder(), [2])])
    model = their_make_pipeline(columns, LogisticRegression()).fit(rows, labels)
    assert columns.get_feature_names_out()[:2].tolist() == ["n__x0", "n__x1"]
    assert model.score(rows, labels) > 0.8


def test_their_union_of_ours():
    union = FeatureUnion([("unit", MinMaxScaler()), ("same", FunctionTransformer())])
    np.testing.assert_array_equal(union.fit_transform(X), np.hstack([MinMaxScaler().fit_transform(X), X]))


def test_names_of_features():
    scaler = MinMaxScaler().fit(table)
    assert scaler.feature_names_in_.tolist() == scaler.get_feature_names_out().tolist() == ["a", "b", "c"]
    assert LogisticRegression(epochs=1).fit(table, y).feature_names_in_.tolist() == ["a", "b", "c"]
    bare = MinMaxScaler().fit(X)
    assert not hasattr(bare, "feature_names_in_")
    assert bare.get_feature_names_out().tolist() == ["x0", "x1", "x2"]
    hasher = FeatureHasher(2).fit(frame)
    assert hasher.feature_names_in_.tolist() == ["age", "job", "height"]
    assert hasher.get_feature_names_out().tolist() == ["age", "height", "hashed_0", "hashed_1"]
    pipeline = make_pipeline(MinMaxScaler(), FeatureHasher(2), LogisticRegression(epochs=1)).fit(
        frame, labels
    )
    assert pipeline.feature_names_in_.tolist() == ["age", "job", "height"]
    assert pipeline[-1].n_features_in_ == 4
    assert not hasattr(pipeline[-1], "feature_names_in_")  # a column of many slots has one name


def test_output_in_pandas():
    scaler = MinMaxScaler().set_output(transform="pandas").fit(table.to_numpy())
    out = scaler.transform(X)
    assert out.columns.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(out, MinMaxScaler().fit_transform(X))
    shuffled = table.sample(frac=1, random_state=0)
    pd.testing.assert_index_equal(scaler.fit_transform(shuffled).index, shuffled.index)
    with pytest.raises(ValueError, match="scipy sparse"):
        FeatureHasher(4).set_output(transform="pandas").fit_transform(frame)


def test_a_dataset_stays_one_whatever_the_output():
    with sklearn.config_context(transform_output="pandas"):
        model = make_pipeline(MinMaxScaler(), FeatureHasher(64), LogisticRegression(epochs=1))
        out = model.fit(frame, labels)[0].transform(squall.from_arrays(frame))
        assert model.predict(frame).shape == (300,)
    assert isinstance(out, squall.Dataset)


@pytest.mark.parametrize("save", ["joblib", "pickle"])
def test_a_fitted_model_can_be_pickled(save, tmp_path):
    model = make_pipeline(MinMaxScaler(), FeatureHasher(64), LogisticRegression(epochs=2)).fit(frame, labels)
    if save == "joblib":
        joblib.dump(model, tmp_path / "m")
        twin = joblib.load(tmp_path / "m")
    else:
        twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_proba(frame), model.predict_proba(frame))
    assert repr(twin.history_) == repr(model.history_) and twin.bill_ == model.bill_


SETTINGS = {"epochs": np.int32(2), "batch_size": np.uint16(32), "learning_rate": np.float32(0.25)} | {
    "l1": np.float64(0), "l2": 0, "fit_intercept": np.True_, "warmup": np.float16(0.5),
    "random_state": np.int64(3), "learning_rate_schedule": np.str_("cosine"), "clip_norm": np.float32(8),
}  # fmt: skip


def test_numpy_scalars_are_settings_like_any():
    plain = {name: value if value == 0 else value.item() for name, value in SETTINGS.items()}
    one, two = LogisticRegression(**SETTINGS).fit(X, y), LogisticRegression(**plain).fit(X, y)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_all_wrong_settings_are_told_in_fit_and_not_before():
    wrong = LogisticRegression(epochs=2.0, learning_rate=True, l2="0", fit_intercept=1, optimizer="addam")
    with pytest.raises(ValueError, match="5 settings are wrong") as caught:
        wrong.fit(X, y)
    told = str(caught.value)
    for part in ("epochs=2.0", "learning_rate=True", "l2='0'", "fit_intercept=1", 'did you mean "adam"?'):
        assert part in told


def test_nothing_is_printed_where_nobody_looks(capfd):
    LogisticRegression(epochs=1).fit(X, y)
    assert capfd.readouterr() == ("", "")


def test_the_history_and_the_bill_are_tables():
    model = LogisticRegression(epochs=3).fit(X, y, validation=(X, y))
    title, *lines = repr(model.history_).splitlines()
    assert title.split() == ["epoch", "loss", "held-out", "loss", "rows", "workers", "time", "cost"]
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert f"{model.history_[-1].validation_loss:.4f}" in lines[-1]
    assert len({len(line) for line in [title, *lines]}) == 1
    assert isinstance(model.history_, list) and model.history_[0].epoch == 1
    bill = repr(model.bill_)
    assert "requests (1 invocations)" in bill and squall.units.format_money(model.cost_usd_) in bill
