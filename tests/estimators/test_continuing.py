"""Fits that begin with what a model has learned: warm_start and partial_fit."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import squall
from squall import FactorizationMachine, LinearRegression, LogisticRegression
from squall.driver.measuring import Measurer
from squall.errors import CorruptError, DataError, SettingError
from squall.models.linear import LinearModel
from squall.records import DenseBlock, OptimizerSpec, Stamp
from squall.store.table import ParameterTable
from tests.estimators.problems import numbers

X, y = numbers()
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
AMOUNTS = 1_000.0 + 20.0 * X[:, 0] - 5.0 * X[:, 1]
MODELS = [
    (LogisticRegression, {}, y),
    (LogisticRegression, {}, THREE),
    (LinearRegression, {}, AMOUNTS),
    (FactorizationMachine, {}, y),
    (FactorizationMachine, {"task": "regression"}, AMOUNTS),
]
IDS = ["binary", "softmax", "linear", "fm", "fm of numbers"]


def learned(model):
    return {name: value for name, value in vars(model).items() if name in ("coef_", "intercept_", "factors_")}


def as_scores(model):
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


# ------------------------------------------------------------------------------------ warm start


@pytest.mark.parametrize(("kind", "settings", "labels"), MODELS, ids=IDS)
def test_a_warm_start_begins_with_the_fitted_weights(kind, settings, labels):
    model = kind(warm_start=True, random_state=0, **settings).fit(X, labels)
    before = {name: np.copy(value) for name, value in learned(model).items()}
    model.set_params(optimizer="sgd", learning_rate=1e-12).fit(X, labels)
    for name, value in learned(model).items():
        np.testing.assert_allclose(value, before[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("store", ["embedded", "tcp"])
@pytest.mark.parametrize("optimizer", ["adagrad", "ftrl"])
def test_weights_reach_every_store_and_optimizer(store, optimizer):
    model = LogisticRegression(epochs=4, warm_start=True, optimizer=optimizer, learning_rate=0.1)
    cold = model.fit(X, THREE).history_
    with squall.Run(store=store, workers=2):
        model.fit(X, THREE)
    assert model.history_[0].loss < (cold[0].loss + cold[-1].loss) / 2


def test_a_strategy_without_tables_begins_warm_too():
    model = LogisticRegression(epochs=2, warm_start=True, learning_rate=0.1).fit(X, THREE)
    cold = model.history_
    model.set_params(strategy=squall.ModelAveraging())
    with squall.Run(workers=2):
        assert model.fit(X, THREE).history_[0].loss < (cold[0].loss + cold[-1].loss) / 2
        before = model.score(X, THREE)
        model.partial_fit(X, THREE)
    assert model._optimizer_state is None
    assert model.score(X, THREE) >= before - 0.02


def test_without_warm_start_each_fit_begins_anew():
    model = LogisticRegression(random_state=0).fit(X, y)
    first = model.coef_
    assert np.array_equal(model.fit(X, y).coef_, first)


def test_labels_of_other_size_are_met_in_their_own_units():
    model = LinearRegression(warm_start=True).fit(X, AMOUNTS)
    before = model.predict(X)
    model.set_params(optimizer="sgd", learning_rate=1e-12).fit(X, 3.0 * AMOUNTS)
    np.testing.assert_allclose(model.predict(X), before, rtol=1e-4)


def test_a_warm_start_refuses_other_columns_and_classes():
    model = LogisticRegression(warm_start=True).fit(X, y)
    with pytest.raises(DataError, match="X has 2 features, but LogisticRegression is expecting 3"):
        model.fit(X[:, :2], y)
    with pytest.raises(DataError, match=r"the classes are 0, 1, 2, and the model .* has 0, 1"):
        model.fit(X, THREE)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = LogisticRegression(warm_start=True).fit(frame, y)
    with pytest.raises(
        DataError, match="columns are 'b', 'a', 'c', and LogisticRegression was fitted on 'a'"
    ):
        model.fit(frame[["b", "a", "c"]], y)


def test_a_submitted_copy_begins_warm_and_a_clone_does_not():
    model = squall.make_pipeline(squall.MinMaxScaler(), LogisticRegression(warm_start=True, random_state=0))
    model.fit(X, y)
    cold = model.history_
    before = model.steps[-1][1].coef_
    assert squall.submit(model, (X, y)).wait().history_[0].loss < cold[0].loss - 0.01
    assert model.steps[-1][1].coef_ is before
    assert squall.submit(clone(model), (X, y)).wait().history_[0].loss == pytest.approx(cold[0].loss)


# ----------------------------------------------------------------------------------- partial fits


def adagrad_oracle(batches, rate):
    weights, squares = np.zeros(4), np.zeros(4)
    for rows, labels in batches:
        rows = np.column_stack([rows, np.ones(len(rows))])
        gradient = rows.T @ (1 / (1 + np.exp(-rows @ weights)) - labels) / len(rows)
        squares += gradient**2
        weights -= rate * gradient / np.sqrt(squares)
    return weights


@pytest.mark.parametrize("store", ["embedded", "tcp"])
def test_the_optimizer_goes_on_from_call_to_call(store):
    batches = [(X[i : i + 100], y[i : i + 100]) for i in (0, 100, 200)]
    model = LogisticRegression(learning_rate=0.3, batch_size=100)
    with squall.Run(store=store):
        for rows, labels in batches:
            assert model.partial_fit(rows, labels, classes=[0, 1]) is model
    expected = adagrad_oracle(batches, 0.3)
    np.testing.assert_allclose([*model.coef_[0], *model.intercept_], expected, rtol=1e-4)
    assert model.n_iter_ == 1


@pytest.mark.parametrize("optimizer", ["adam", "ftrl", "momentum"])
def test_parts_are_steps_of_one_table(optimizer):
    """Each call is one minibatch here; labels are in the units that the first call has found."""
    halves = [(X[:150], AMOUNTS[:150]), (X[150:], AMOUNTS[150:])] * 2
    model = LinearRegression(optimizer=optimizer, learning_rate=0.02, batch_size=150, l2=0.01)
    for rows, labels in halves:
        model.partial_fit(rows, labels)
    mean, deviation = model._scaling
    assert mean == pytest.approx(AMOUNTS[:150].mean())
    assert deviation == pytest.approx(AMOUNTS[:150].std())
    beta = OptimizerSpec("ftrl", 0.02).beta / 150
    spec = msgspec.convert(
        {"name": optimizer, "learning_rate": 0.02, "l2": 0.01, "beta": beta, "steps": 5}, OptimizerSpec
    )
    oracle = LinearModel(3)
    table = ParameterTable.private(oracle.table("job/model", spec), 1)
    for step, (rows, labels) in enumerate(halves):
        scaled = ((labels - mean) / deviation).astype(np.float32)
        block = DenseBlock(rows.astype(np.float32), scaled, None)
        order = np.arange(150, dtype=np.int32)
        needed, handle = oracle.needed_rows(block, order)
        gradient = oracle.gradient(block, order, handle, table.pull(needed), 150)[0]
        table.push(needed, gradient, Stamp(0, 0, step))
    expected = table.pull()[:, 0] * deviation
    np.testing.assert_allclose(model.coef_, expected[:-1], rtol=2e-3)  # Adam divides small by small
    assert model.intercept_ == pytest.approx(mean + expected[-1], abs=0.05)  # its gradients begin at 0


@pytest.mark.parametrize(("kind", "settings", "labels"), MODELS, ids=IDS)
def test_parts_after_a_fit_improve_on_it(kind, settings, labels):
    model = kind(epochs=2, random_state=0, **settings).fit(X, labels)
    rate, before = model.learning_rate_, model.score(X, labels)
    for _ in range(5):
        model.partial_fit(X, labels)
    assert model.learning_rate_ == rate
    assert model.score(X, labels) >= before - 0.01


def test_all_classes_are_named_first_and_need_not_come():
    model = LogisticRegression()
    with pytest.raises(SettingError, match="classes must be passed on the first call to partial_fit"):
        model.partial_fit(X, y)
    model.partial_fit(X[y == 1], np.full(np.sum(y == 1), "b"), classes=["c", "a", "b"])
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert (model.predict(X) == "b").all()
    with pytest.raises(DataError, match=r"none of the model's classes: \['d'\]"):
        model.partial_fit(X, np.full(300, "d"))
    with pytest.raises(SettingError, match="not the same as on last call"):
        model.partial_fit(X, np.full(300, "a"), classes=["a", "b"])
    with pytest.raises(SettingError, match="not two or more"):
        LogisticRegression().partial_fit(X, y, classes=[1])
    with pytest.raises(DataError, match="Only binary"):
        FactorizationMachine().partial_fit(X, y, classes=[0, 1, 2])


def test_settings_of_a_whole_training_are_refused_at_once():
    model = LogisticRegression(
        learning_rate_schedule="cosine", early_stopping=2, target_loss=0.1, class_weight="balanced"
    )
    with pytest.raises(SettingError, match="4 settings are wrong"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(SettingError, match="warm_start='yes' must be True or False"):
        LogisticRegression(warm_start="yes").fit(X, y)
    machine = FactorizationMachine(n_factors=2, epochs=1, warm_start=True).fit(X, y).set_params(n_factors=3)
    for fit in (machine.fit, machine.partial_fit):
        with pytest.raises(SettingError, match="n_factors=3, and the fitted model to go on from has 2"):
            fit(X, y)
    with pytest.raises(SettingError, match="no meaning"):
        FactorizationMachine(task="regression").partial_fit(X, AMOUNTS, classes=[0, 1])


def test_weights_of_classes_count_in_parts():
    even = LogisticRegression(random_state=0).partial_fit(X, y, classes=[0, 1])
    rare = LogisticRegression(random_state=0, class_weight={1: 20.0}).partial_fit(X, y, classes=[0, 1])
    assert rare.predict(X).mean() > even.predict(X).mean()


def test_a_loaded_model_goes_on_in_the_units_of_its_labels(tmp_path):
    model = LinearRegression(epochs=20).fit(X, AMOUNTS)
    loaded = squall.load(squall.save(model, tmp_path / "m"))
    loaded.partial_fit(X[:30], AMOUNTS[:30])
    assert loaded._scaling == model._scaling
    assert loaded.score(X, AMOUNTS) > 0.9


@pytest.mark.parametrize(
    ("at", "optimizer", "l2"),
    [(0, "adam", 0.0), (1, "ftrl", 0.01), (2, "nesterov", 0.01), (3, "adagrad", 0.01), (4, "adam", 0.01)],
)
def test_two_epochs_and_a_part_are_three_epochs_also_after_a_load(at, optimizer, l2, tmp_path):
    kind, settings, labels = MODELS[at]
    whole = kind(epochs=3, batch_size=300, learning_rate=0.05, optimizer=optimizer, l2=l2, **settings)
    parts = clone(whole).set_params(epochs=2).fit(X, labels)
    loaded = squall.load(squall.save(parts, tmp_path / "m"))
    before = learned(parts)
    whole.fit(X, labels)
    for model in (parts, loaded):
        model.partial_fit(X, labels)
        for name, value in learned(whole).items():
            size = np.abs(value - before[name]).max()
            np.testing.assert_allclose(learned(model)[name], value, atol=1e-3 * size, err_msg=name)


def test_a_state_of_another_shape_is_not_loaded(tmp_path):
    model = LogisticRegression(epochs=1).fit(X, y)
    state = model._optimizer_state
    model._optimizer_state = replace(state, values=state.values[1:])
    with pytest.raises(CorruptError, match=r"the optimiser's state has shape \(3, 1\)"):
        squall.load(squall.save(model, tmp_path / "m"))


@pytest.mark.parametrize(("factor", "kept"), [(1.0, True), (0.5, False)])
def test_the_state_is_kept_unless_an_epoch_before_the_last_was_the_best(factor, kept, monkeypatch):
    found = Measurer.best

    def best(self, like):
        """Which epoch was the best depends on when each was measured."""
        self._objects.put(self._key, (np.float32(factor) * like).tobytes())
        return found(self, like)

    monkeypatch.setattr(Measurer, "best", best)
    model = LogisticRegression(epochs=1, early_stopping=1, learning_rate=0.1).fit(X, y, validation=(X, y))
    assert (model._optimizer_state is not None) is kept
