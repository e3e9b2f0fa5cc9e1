from __future__ import annotations

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression as Reference
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags

import squall
from squall import LogisticRegression, Run
from squall.data.objects import ObjectStore
from squall.errors import DataError, DivergenceError, SettingError
from squall.estimators.preparation import Preparation
from squall.estimators.targets import ClassTarget

from .problems import numbers

X, y = numbers()


@pytest.fixture(scope="module")
def model():
    return LogisticRegression().fit(X, y)


# ------------------------------------------------------------------------------- what it takes


@pytest.mark.parametrize(
    "rows",
    [X.astype(np.float32), np.asfortranarray(X), X.tolist(), sparse.csr_array(X), sparse.coo_matrix(X)],
    ids=["float32", "fortran", "list", "csr", "coo"],
)
def test_rows_of_every_sort_give_the_same_model(rows, model):
    other = LogisticRegression().fit(rows, y)
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-3)
    np.testing.assert_allclose(other.predict_proba(rows), model.predict_proba(X), atol=1e-3)


def test_a_data_frame_gives_the_same_model(model):
    frame = pd.DataFrame(X, columns=list("abc"), index=range(1000, 1300))
    other = LogisticRegression().fit(frame, pd.Series(y, name="label"))
    np.testing.assert_array_equal(other.coef_, model.coef_)
    np.testing.assert_array_equal(other.predict(frame), model.predict(X))


def test_a_dataset_gives_the_same_model(model):
    other = LogisticRegression().fit(squall.from_arrays(X, y))
    np.testing.assert_array_equal(other.coef_, model.coef_)
    np.testing.assert_array_equal(other.predict(squall.from_arrays(X)), model.predict(X))


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"])[y],
        np.array(["no", "yes"], dtype=object)[y],
        [["no", "yes"][code] for code in y],
        2 * y - 1,
        y + 1,
        y.astype(bool),
        y.astype(float),
        pd.Categorical(np.array(["no", "yes"])[y]),
    ],
    ids=["text", "objects", "list", "-1 and 1", "1 and 2", "bool", "float", "category"],
)
def test_labels_of_every_sort(labels, model):
    other = LogisticRegression().fit(X, labels)
    values = np.asarray(labels).ravel()
    assert other.classes_.tolist() == np.unique(values).tolist()
    predicted = other.predict(X)
    assert predicted.dtype == values.dtype
    np.testing.assert_array_equal(predicted == other.classes_[1], model.predict(X) == 1)
    np.testing.assert_array_equal(other.coef_, model.coef_)


# ---------------------------------------------------------------------------------- what it is


def test_fitted_attributes(model):
    assert model.coef_.shape == (1, 3)
    assert model.intercept_.shape == (1,)
    assert model.coef_.dtype == model.intercept_.dtype == np.float64
    assert model.n_features_in_ == 3
    assert model.n_iter_ == 5
    assert model.stopped_ == "epochs"
    assert 0.001 <= model.learning_rate_ <= 10
    assert model.batch_size_ == 4


def test_fit_returns_the_model_itself():
    model = LogisticRegression(epochs=1)
    assert model.fit(X, y) is model


def test_probabilities_add_up_and_agree_with_margins_and_predictions(model):
    probabilities, margins = model.predict_proba(X), model.decision_function(X)
    assert probabilities.shape == (300, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-margins)), rtol=1e-6)
    np.testing.assert_array_equal(model.predict(X), (probabilities[:, 1] > 0.5).astype(int))
    np.testing.assert_allclose(margins, X @ model.coef_[0] + model.intercept_, atol=1e-5)


def test_probabilities_of_extreme_rows_are_finite(model):
    extreme = model.predict_proba(np.array([[1e30, 0, 0], [-1e30, 0, 0]]))
    np.testing.assert_array_equal(extreme, [[0, 1], [1, 0]])


def test_score_is_the_accuracy(model):
    assert model.score(X, y) == np.mean(model.predict(X) == y)
    assert model.score(squall.from_arrays(X, y)) == model.score(X, y)


def test_score_takes_weights(model):
    weights = (model.predict(X) == y).astype(float)
    assert model.score(X, y, sample_weight=weights) == 1


def test_no_rows_no_predictions(model):
    assert model.predict(X[:0]).shape == (0,)
    assert model.predict_proba(X[:0]).shape == (0, 2)


def test_it_finds_what_scikit_learn_finds():
    l2 = 0.01
    ours = LogisticRegression(epochs=30, l2=l2).fit(X, y)
    theirs = Reference(C=1 / (len(y) * l2), tol=1e-8).fit(X, y)

    def objective(model):
        return log_loss(y, model.predict_proba(X)) + l2 / 2 * np.sum(model.coef_**2)

    assert objective(ours) <= 1.02 * objective(theirs)


def test_without_an_intercept():
    model = LogisticRegression(fit_intercept=False, epochs=1).fit(X, y)
    assert model.intercept_.tolist() == [0]


def test_a_strong_l1_penalty_leaves_no_weights():
    assert not np.any(LogisticRegression(l1=10.0, epochs=1).fit(X, y).coef_)


def test_sgd_learns_too():
    assert LogisticRegression(optimizer="sgd").fit(X, y).score(X, y) > 0.75


@pytest.mark.parametrize("batch_size", [1, 300, 10**12, 2**70])
def test_minibatches_of_any_size(batch_size):
    model = LogisticRegression(batch_size=batch_size, epochs=1).fit(X, y)
    assert model.history_[0].rows == 300


def test_two_fits_are_the_same_to_the_last_bit():
    models = [LogisticRegression(random_state=7).fit(X, y, run=Run(workers=1)) for _ in range(2)]
    assert models[0].coef_.tobytes() == models[1].coef_.tobytes()
    assert models[0].intercept_.tobytes() == models[1].intercept_.tobytes()


def test_the_seed_matters_and_the_runs_is_the_default():
    mine = LogisticRegression(random_state=7, epochs=1).fit(X, y)
    runs = LogisticRegression(epochs=1).fit(X, y, run=Run(random_state=7))
    other = LogisticRegression(random_state=8, epochs=1).fit(X, y)
    np.testing.assert_array_equal(mine.coef_, runs.coef_)
    assert np.any(mine.coef_ != other.coef_)


def test_a_second_fit_begins_anew():
    model = LogisticRegression(epochs=2).fit(X, y)
    first = model.coef_
    model.set_params(epochs=1).fit(X, y)
    assert len(model.history_) == 1
    np.testing.assert_array_equal(model.fit(X, y).set_params(epochs=2).fit(X, y).coef_, first)


def test_two_workers_see_every_row_once_an_epoch():
    model = LogisticRegression().fit(X, y, run=Run(workers=2))
    assert [record.rows for record in model.history_] == [300] * 5
    assert model.score(X, y) > 0.75


# ------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_rows_of_weight_zero_are_ignored(kind):
    more = np.vstack([X, 50 * X])
    labels = np.append(y, 1 - y)  # the added rows say the opposite
    weights = np.append(np.ones(300), np.zeros(300))
    model = LogisticRegression().fit(kind(more), labels, sample_weight=weights)
    assert model.score(X, y) > 0.75
    assert model.history_[-1].loss < np.log(2)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (np.zeros(300), "weights of all training rows are zero"),
        (np.full(300, 1e-9), r"are zero, or so small(?s:.)*fix: give weights around 1"),
        (np.full(300, 1e39), r"the weight 1e\+39 is beyond 1e\+16(?s:.)*fix: give weights around 1"),
        (np.where(y == 1, 1.0, 1.1e16), r"the weight 1.1e\+16 is beyond 1e\+16"),
    ],
)
def test_weights_that_nothing_can_be_learned_with(weights, says):
    with pytest.raises(DataError, match=says):
        LogisticRegression().fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("scale", [1e16, 2e-8])
def test_one_scale_of_all_weights_hardly_matters_to_adagrad(model, scale):
    other = LogisticRegression().fit(X, y, sample_weight=np.full(300, scale))
    assert other.score(X, y) == pytest.approx(model.score(X, y), abs=0.02)


def test_weights_of_zero_measure_nothing(model):
    with pytest.raises(DataError, match="sample_weight: the weights of all rows are zero"):
        model.score(X, y, sample_weight=np.zeros(300))


def test_a_column_vector_of_labels_is_flattened_with_scikit_learns_warning(model):
    with pytest.warns(DataConversionWarning, match=r"A column-vector y was passed") as caught:
        other = LogisticRegression().fit(X, y[:, None])
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(other.coef_, model.coef_)


# ------------------------------------------------------------------------------- scikit-learn's


def test_clone_and_parameters():
    model = LogisticRegression(epochs=3, l2=0.5, optimizer="sgd")
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert twin.set_params(l1=1.0).l1 == 1.0
    assert model.l1 == 0.0


def test_parameters_are_not_touched_before_or_by_fit():
    model = LogisticRegression(epochs=np.int64(1), batch_size="auto", random_state=None)
    before = model.get_params()
    model.fit(X, y)
    assert model.get_params() == before


def test_tags_say_what_it_takes():
    tags = get_tags(LogisticRegression())
    assert tags.estimator_type == "classifier"
    assert (tags.classifier_tags.multi_class, tags.input_tags.sparse) == (True, True)


def test_repr_shows_what_was_set():
    assert repr(LogisticRegression(epochs=3)) == "LogisticRegression(epochs=3)"


def test_grid_search():
    grid = GridSearchCV(LogisticRegression(epochs=2), {"l1": [0.0, 10.0]}, n_jobs=1, cv=2).fit(X, y)
    assert grid.best_params_ == {"l1": 0.0}
    assert grid.best_estimator_.score(X, y) > 0.75


# -------------------------------------------------------------------------------------- history


def test_history_has_a_record_an_epoch():
    history = LogisticRegression(epochs=4).fit(X, y).history_
    assert [record.epoch for record in history] == [1, 2, 3, 4]
    assert [record.rows for record in history] == [300] * 4
    for field in ("time_s", "cost_usd"):
        values = [getattr(record, field) for record in history]
        assert values == sorted(values)
        assert values[0] > 0
    assert history[-1].loss < history[0].loss
    assert all(record.validation_loss is None for record in history)


def test_the_bill_adds_up(model):
    bill = model.bill_
    items = [bill.compute_usd, bill.requests_usd, bill.store_usd, bill.objects_usd]
    assert all(item >= 0 for item in items)
    assert bill.compute_usd > 0
    assert model.cost_usd_ == pytest.approx(sum(items), rel=1e-12)
    assert bill.invocations == 1


# ---------------------------------------------------------------------------------- held-out rows


@pytest.mark.parametrize("form", ["pair", "list", "dataset"])
def test_held_out_rows_are_measured(form):
    Z, z = numbers(100, seed=1)
    held_out = {"pair": (Z, z), "list": [Z, z], "dataset": squall.from_arrays(Z, z)}[form]
    model = LogisticRegression().fit(X, y, validation=held_out)
    assert model.history_[-1].validation_loss == pytest.approx(log_loss(z, model.predict_proba(Z)), rel=1e-4)


def test_held_out_labels_need_not_all_occur():
    held_out = (X[y == 1], np.full(int(y.sum()), "yes"))
    model = LogisticRegression().fit(X, np.array(["no", "yes"])[y], validation=held_out)
    expected = -np.mean(np.log(model.predict_proba(X[y == 1])[:, 1]))
    assert model.history_[-1].validation_loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("validation", "error", "says"),
    [
        ((X, y + 1), DataError, r"validation: .*labels that the training data has not: \[2\]"),
        ((X, y.astype(str)), DataError, r"labels that the training data has not: \['0', '1'\]"),
        ((X[:, :2], y), DataError, "X has 2 features, but the model is expecting 3"),
        ((X, None), DataError, "validation: held-out rows need labels"),
        ((X[:0], y[:0]), DataError, "at least one row"),
        ((X, y[:-1]), DataError, "inconsistent numbers of samples"),
        ((X * np.nan, y), DataError, "missing value"),
        ((X, y, y), SettingError, r"validation must be a Dataset or a pair \(X, y\), not tuple"),
        (0.2, SettingError, "not float"),
    ],
)
def test_held_out_rows_that_cannot_be_used(validation, error, says):
    with pytest.raises(error, match=says):
        LogisticRegression().fit(X, y, validation=validation)


def test_held_out_rows_without_weight_cannot_be_measured():
    held_out = squall.from_arrays(X, y, weights=np.zeros(300))
    with pytest.raises(DataError, match="validation: all held-out rows have weight 0"):
        LogisticRegression().fit(X, y, validation=held_out)


# --------------------------------------------------------------------------------------- errors


def test_all_wrong_settings_are_told_at_once():
    model = LogisticRegression(
        epochs=0, batch_size=0, learning_rate=-1, optimizer="adagrd", l1="a", l2=-1.0, fit_intercept=None,
        random_state=-1, learning_rate_schedule="cosin", decay=-1, warmup=-0.5, momentum=1.0, beta_1="b",
        beta_2=-0.1, clip_value=0, clip_norm=-2.0, target_loss=0, early_stopping=0, strategy="bsp",
        class_weight="even", warm_start=1, callbacks=3,
    )  # fmt: skip
    with pytest.raises(SettingError) as caught:
        model.fit(X, y)
    text = str(caught.value)
    assert text.startswith("LogisticRegression: 22 settings are wrong:\n")
    known = "sgd, momentum, nesterov, adagrad, adam, ftrl"
    assert f"optimizer='adagrd' is unknown; choose from {known} (did you mean \"adagrad\"?)" in text
    assert "learning_rate_schedule='cosin' is unknown" in text
    assert 'did you mean "cosine"?' in text
    assert 'learning_rate=-1 must be "auto" or a finite number above 0' in text
    for name in model.get_params():
        assert f"- {name}=" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", True), ("epochs", 1.5), ("epochs", None), ("batch_size", "big"), ("batch_size", 2.0),
        ("learning_rate", 0), ("learning_rate", float("nan")), ("learning_rate", np.array([0.1, 0.2])),
        ("learning_rate", 10**400), ("l1", float("inf")), ("l2", None), ("optimizer", None),
        ("optimizer", ["sgd"]), ("fit_intercept", 1), ("random_state", 0.5),
        ("optimizer", np.array(["sgd", "adam"])), ("learning_rate_schedule", np.array(["cosine"])),
        ("warmup", "1"), ("warmup", float("nan")), ("clip_norm", 0), ("clip_value", "big"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(name, value):
    with pytest.raises(SettingError, match=f"^LogisticRegression: {name}="):
        LogisticRegression(**{name: value}).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"momentum": 0.9}, "momentum=0.9 has no effect with optimizer='adagrad'; leave it None, or choose "
                            'optimizer="momentum" or optimizer="nesterov"'),
        ({"optimizer": "momentum", "beta_1": 0.9}, "beta_1=0.9 has no effect with optimizer='momentum'"),
        ({"beta_2": 0.9}, "beta_2=0.9 has no effect with optimizer='adagrad'"),
        ({"decay": 1.0}, "decay=1.0 has no effect with learning_rate_schedule='constant'"),
        ({"warmup": 6}, "warmup=6 is longer than the training, epochs=5"),
        ({"optimizer": "ftrl", "warmup": 0.5}, 'optimizer="ftrl" takes learning_rate_schedule="constant"'),
        ({"optimizer": "ftrl", "learning_rate_schedule": "cosine"}, 'optimizer="ftrl" takes'),
    ],
)  # fmt: skip
def test_settings_that_would_have_no_effect_are_refused(settings, says):
    with pytest.raises(SettingError) as caught:
        LogisticRegression(**settings).fit(X, y)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "momentum", "momentum": 0.5, "learning_rate_schedule": "cosine", "warmup": 0.5},
        {"optimizer": "nesterov", "l2": 1e-4, "clip_norm": 0.5},
        {"optimizer": "adam", "beta_1": 0.8, "beta_2": 0.99, "l1": 1e-4, "warmup": 1},
        {"optimizer": "ftrl", "l1": 1e-3, "clip_value": 1.0},
        {"optimizer": "sgd", "learning_rate_schedule": "inverse", "decay": 0.1},
    ],
    ids=lambda settings: settings["optimizer"],
)
def test_every_optimiser_learns_and_is_saved(settings, model, tmp_path):
    chosen = LogisticRegression(epochs=15, **settings).fit(X, y)
    assert chosen.score(X, y) > model.score(X, y) - 0.02
    assert chosen.history_[-1].loss < chosen.history_[0].loss
    loaded = squall.load(squall.save(chosen, tmp_path / "m"))
    assert loaded.get_params() == chosen.get_params()


def test_a_schedule_reaches_the_rows_of_all_epochs():
    """With a cosine the last epochs hardly move the weights; the first half moves them as far as ever."""
    slow = {"optimizer": "sgd", "learning_rate": 0.3, "batch_size": 8}
    short, long = (
        LogisticRegression(epochs=n, learning_rate_schedule="cosine", **slow).fit(X, y) for n in (1, 40)
    )
    assert np.abs(long.coef_).max() > 2 * np.abs(short.coef_).max()
    still = LogisticRegression(epochs=1, warmup=1, **slow).fit(X, y)
    full = LogisticRegression(epochs=1, **slow).fit(X, y)
    assert np.abs(still.coef_).max() < np.abs(full.coef_).max()


def test_conditional_settings_can_be_searched():
    grid = [{"optimizer": ["sgd"]}, {"optimizer": ["momentum"], "momentum": [0.5, 0.9]}]
    search = GridSearchCV(LogisticRegression(epochs=3), grid, cv=2, error_score="raise").fit(X, y)
    assert len(search.cv_results_["params"]) == 3


def with_value(value):
    rows = X.copy()
    rows[17, 1] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "labels", "says"),
    [
        (X, np.zeros(300), "labels of two classes at least, and there is 1 class: 0.0"),
        (X, np.linspace(0, 1, 300), "Unknown label type: continuous. There are 300: 0.0, 0.003"),
        (X, None, r"requires y to be passed(?s:.)*pass the labels: fit\(X, y\)"),
        (squall.from_arrays(X), None, "no labels(?s:.)*pass y to fit"),
        (X, y[:-1], "X has 300 rows and y has 299"),
        (X, np.where(y == 0, np.nan, 1.0), "label of row .* is nan"),
        (with_value(np.nan), y, "feature 1: .*1 missing value"),
        (with_value(np.inf), y, "feature 1: .*the value inf"),
        (with_value(1e39), y, r"feature 1: .*the value 1e\+39"),
        (sparse.csr_array(with_value(np.nan)), y, "feature 1: .*1 missing value"),
        (X[:0], y[:0], "no rows to fit on"),
        (X[:, :0], y, r"X: 0 feature\(s\) \(shape=\(300, 0\)\)"),
        (X[0], y, "Expected 2D array, got 1D array"),
        (pd.DataFrame({"a": X[:, 0], "t": "text"}), y, r"hold text: 't'(?s:.)*FeatureHasher"),
        (pd.DataFrame({"a": with_value(np.nan)[:, 1]}), y, "column 'a': .*missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_data_that_cannot_be_trained_on(rows, labels, says):
    with pytest.raises(DataError, match=says):
        LogisticRegression().fit(rows, labels)


@pytest.mark.parametrize("more", [{"y": y}, {"sample_weight": np.ones(300)}])
def test_a_dataset_has_its_own_labels_and_weights(more):
    with pytest.raises(SettingError, match=r"a Dataset holds its own labels"):
        LogisticRegression().fit(squall.from_arrays(X, y), **more)


def test_all_rows_on_one_side_of_a_split_may_have_one_label():
    data = squall.from_arrays(np.arange(4.0)[:, None], [0, 0, 0, 1])
    train, test = data.split(test=1, random_state=next(s for s in range(99) if is_one(data, s)))
    assert test.to_arrays()[1].tolist() == [1]
    with pytest.raises(DataError, match=r"all training rows have the label .*0"):
        LogisticRegression().fit(train)


def is_one(data, seed):
    return data.split(test=1, random_state=seed)[1].to_arrays()[1][0] == 1


def test_the_run_must_be_a_run():
    with pytest.raises(SettingError, match=r"run must be a squall.Run, not str(?s:.)*fix:"):
        LogisticRegression().fit(X, y, run="local")


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_a_model_that_is_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(LogisticRegression(), method)(X)


def test_another_number_of_columns_is_refused(model):
    with pytest.raises(ValueError, match="X has 2 features, but LogisticRegression is expecting 3"):
        model.predict(X[:, :2])


def test_rows_without_labels_cannot_be_scored(model):
    with pytest.raises(DataError, match=r"cannot be scored(?s:.)*give y"):
        model.score(X)


@pytest.fixture(scope="module")
def frames():
    frame = pd.DataFrame(X, columns=["age", "height", "weight"])
    return frame, LogisticRegression(epochs=1).fit(frame, y)


def test_columns_are_found_by_name(frames):
    frame, model = frames
    mixed = frame[["weight", "age", "height"]].assign(name="someone")
    np.testing.assert_array_equal(model.predict(mixed), model.predict(frame))


def test_integers_will_do_where_fractions_were(frames):
    frame, model = frames
    whole = frame.round()
    np.testing.assert_array_equal(model.predict(whole.astype(int)), model.predict(whole))


def test_a_missing_column_is_named_with_what_may_be_meant(frames):
    frame, model = frames
    with pytest.raises(DataError, match=r"missing: 'height' \(did you mean \"heigth\"\?\)"):
        model.predict(frame.rename(columns={"height": "heigth"}))


def test_text_where_numbers_were_is_refused_by_name(frames):
    frame, model = frames
    with pytest.raises(DataError, match="column 'age': it is categorical here and was float64 in fit"):
        model.predict(frame.assign(age="old"))


def test_a_matrix_where_named_columns_were_is_refused_in_these_words(frames, model):
    frame, named = frames
    with pytest.raises(DataError, match=r"a matrix here, and named columns in fit(?s:.)*'age', 'height'"):
        named.predict(X)
    with pytest.raises(DataError, match=r"named columns here, and a matrix in fit(?s:.)*X\.to_numpy\(\)"):
        model.predict(frame)


@pytest.mark.parametrize("scale", [1, 1e10])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_divergence_names_learning_rate_and_epoch_and_the_next_fit_works(kind, scale):
    model = LogisticRegression(learning_rate=1e38 / scale, optimizer="sgd")
    rows = kind(1e3 * scale * X)
    with pytest.raises(DivergenceError, match=r"in epoch \d with sgd at learning_rate=1e\+\d+\n  fix: use"):
        model.fit(rows, y, validation=(rows, y))
    assert not hasattr(model, "coef_")
    assert model.set_params(learning_rate="auto").fit(X, y).score(X, y) > 0.75


# -------------------------------------------------------------------------------------- threads


def test_fit_in_a_thread(model):
    fitted = []
    thread = threading.Thread(target=lambda: fitted.append(LogisticRegression().fit(X, y)))
    thread.start()
    thread.join(30)
    np.testing.assert_array_equal(fitted[0].coef_, model.coef_)


def test_fits_at_the_same_time_do_not_mix(model):
    problems = [(X, y), (X, 1 - y), (X[:, :2], y), (2 * X, y)]
    alone = [LogisticRegression().fit(*problem).coef_ for problem in problems]
    with ThreadPoolExecutor(4) as threads:
        together = threads.map(lambda problem: LogisticRegression().fit(*problem).coef_, problems)
        for ours, expected in zip(together, alone, strict=True):
            np.testing.assert_array_equal(ours, expected)


# ---------------------------------------------------------------------------------- strategies


def test_one_worker_in_step_is_one_worker():
    alone, *others = (
        LogisticRegression(epochs=3, strategy=strategy, learning_rate=0.1).fit(X, y)
        for strategy in (None, squall.ParameterServer("bsp"), squall.ParameterServer("ssp", staleness=1))
    )
    for other in others:
        np.testing.assert_allclose(other.coef_, alone.coef_, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "optimizer", ["adagrad", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sgd", "ftrl"))]
)
def test_in_step_a_penalty_weighs_what_it_does_alone(optimizer):
    settings = {"epochs": 100, "l2": 0.1, "optimizer": optimizer, "learning_rate": 0.1, "batch_size": 16}
    alone = LogisticRegression(**settings).fit(X, y)
    together = LogisticRegression(**settings, strategy=squall.ParameterServer("bsp"))
    together.fit(X, y, run=Run(workers=2))
    np.testing.assert_allclose(together.coef_, alone.coef_, rtol=0.1, atol=0.02)


def test_a_schedule_ends_with_training_also_in_step():
    settings = {"epochs": 4, "learning_rate_schedule": "cosine", "batch_size": 8, "learning_rate": 0.5}
    model = LogisticRegression(**settings, strategy=squall.ParameterServer("bsp"))
    data = squall.from_arrays(X, y)
    plan = Preparation(model._recipe(), data, ClassTarget(data), None, (), n_workers=3, seed=0, together=True)
    with tempfile.TemporaryDirectory() as folder:
        optimizer = plan.prepare(ObjectStore(folder), "job", lambda: None).optimizer
    assert optimizer.steps == 4 * -(-len(X) // (3 * 8)), "steps of three minibatches each"


def test_a_model_worse_than_a_guess_is_told():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(400, 5))
    y = draw.random(400) < 0.5
    with pytest.warns(ConvergenceWarning, match="far worse than a guess"):
        LogisticRegression(learning_rate=1e6, optimizer="sgd", random_state=0).fit(X, y)
