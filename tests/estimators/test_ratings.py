"""Matrix factorisation that goes on from what it has learned: warm starts, and ratings that come in parts."""

from __future__ import annotations

import numpy as np
import pytest

import squall
from squall import MatrixFactorization, ParameterServer, Run
from squall.errors import DataError, SettingError
from tests.estimators.test_matrix_factorization import ITEMS, SETTINGS, TEST, TRAIN, USERS, X, chosen, rmse, y

OLD = (X[:, 0] < 100) & (X[:, 1] < 60)  # the rest is of users, or items, that come later
STILL = {"learning_rate": 1e-12}


@pytest.fixture(scope="module")
def fitted():
    return MatrixFactorization(**SETTINGS).fit(X[OLD], y[OLD])


def by_id(model):
    """Parameters of users and items by their ids."""
    users = dict(
        zip(model.users_.tolist(), np.column_stack([model.user_bias_, model.user_factors_]), strict=True)
    )
    items = dict(
        zip(model.items_.tolist(), np.column_stack([model.item_bias_, model.item_factors_]), strict=True)
    )
    return users, items


def copied(model, **settings):
    twin = MatrixFactorization()
    twin.__dict__.update(model.__dict__)
    return twin.set_params(**settings)


def go_on(model, way, X, y, **run):
    return (
        model.set_params(warm_start=True).fit(X, y, **run) if way == "fit" else model.partial_fit(X, y, **run)
    )


@pytest.mark.parametrize("store", ["embedded", "tcp"])
@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_what_is_known_is_kept_and_what_is_new_begins_fresh(fitted, way, store):
    """Nearly without a step; half of the rows are of the ids that are new."""
    model = go_on(copied(fitted, epochs=1, **STILL), way, X, y, run=Run(store=store))
    assert len(model.users_) == USERS
    assert len(model.items_) == ITEMS
    assert model.users_[: len(fitted.users_)].tolist() == fitted.users_.tolist(), "codes stay"
    for before, after in zip(by_id(fitted), by_id(model), strict=True):
        for key, values in before.items():
            np.testing.assert_allclose(after[key], values, rtol=1e-5, atol=1e-6)
        fresh = np.array([values for key, values in after.items() if key not in before])
        assert np.abs(fresh[:, 0]).max() < 1e-6
        assert 0.5 < fresh[:, 1:].std() / (0.03 * np.sqrt(fitted.catalog_.scale)) < 2
    assert model.mean_ == fitted.mean_
    np.testing.assert_allclose(model.predict(X[OLD]), fitted.predict(X[OLD]), atol=1e-4)


def test_a_warm_start_goes_on(fitted):
    cold = MatrixFactorization(**SETTINGS | {"epochs": 2}).fit(X[TRAIN], y[TRAIN])
    model = copied(fitted, warm_start=True, epochs=2).fit(X[TRAIN], y[TRAIN])
    assert rmse(model) < 0.6 * rmse(cold)
    assert model.history_[0].loss < cold.history_[-1].loss


def test_parts_teach_what_is_new_and_leave_what_is_old(fitted):
    model, new = copied(fitted), ~OLD
    new[TEST] = False
    held = np.flatnonzero(~OLD[TEST])
    before = rmse(model, X[OLD], y[OLD])
    for _ in range(6):
        model.partial_fit(X[new], y[new])
        assert [record.rows for record in model.history_] == [new.sum()]
    model.set_params(learning_rate=0.1)
    for _ in range(6):
        model.partial_fit(X[new], y[new])
    assert rmse(model, X[TEST][held], y[TEST][held]) < 0.5 * rmse(fitted, X[TEST][held], y[TEST][held])
    assert rmse(model, X[OLD], y[OLD]) < before + 0.3


def test_an_automatic_rate_falls_with_visits():
    model = MatrixFactorization(4, epochs=9).fit(X[OLD], y[OLD])
    assert model.learning_rate_ == 0.07
    model.partial_fit(X[:10], y[:10])
    assert model.learning_rate_ == pytest.approx(0.07 / 3)
    assert model.set_params(learning_rate=0.02).partial_fit(X[:10], y[:10]).learning_rate_ == 0.02
    parts = MatrixFactorization(4)
    for half in (slice(0, 3_000), slice(3_000, None)):
        parts.partial_fit(X[half], y[half])
        assert parts.learning_rate_ == 0.07
    assert parts.catalog_.visits == len(X)


def test_what_was_rated_before_is_not_recommended(fitted):
    user = int(fitted.users_[0])
    first = fitted.recommend(user, n=1)[0][0]
    model = copied(fitted).partial_fit([[user, first], [user, 10_000]], [5.0, 5.0])
    rest = model.recommend(user, n=ITEMS)[0].tolist()
    rated = X[OLD][X[OLD][:, 0] == user, 1].tolist()
    assert not {first, 10_000, *rated} & set(rest)
    assert len(rest) == len(model.items_) - len(rated) - 2
    assert fitted.recommend(user, n=1)[0][0] == first, "the copy's catalog is its own"


@pytest.mark.parametrize("consistency", ["asp", "bsp", "ssp", "hsp"])
def test_every_consistency_goes_on(fitted, consistency):
    model = copied(fitted, strategy=ParameterServer(consistency), batch_size=400)
    model.partial_fit(X[OLD], y[OLD], run=Run(workers=2, store="tcp"))
    assert rmse(model, X[OLD], y[OLD]) < rmse(fitted, X[OLD], y[OLD]) + 0.05


def test_a_loaded_model_goes_on_with_the_same_bits(fitted, tmp_path):
    loaded = squall.load(squall.save(fitted, tmp_path / "m"))
    twins = [model.partial_fit(X[:500], y[:500]) for model in (loaded, copied(fitted))]
    assert twins[0].item_factors_.tobytes() == twins[1].item_factors_.tobytes()
    assert twins[0].users_.tolist() == twins[1].users_.tolist()


def test_choices_go_on_too():
    pairs, counts = chosen()
    model = MatrixFactorization(4, epochs=8, implicit=True, random_state=0).fit(pairs[:1_500], counts[:1_500])
    scale, before = model.catalog_.scale, model.score(pairs[2_500:])
    assert scale == counts[:1_500].mean()
    for _ in range(3):
        model.partial_fit(pairs[1_500:2_500], 2 * counts[1_500:2_500])
    assert model.catalog_.scale == scale
    assert model.mean_ == 0.0
    assert model.score(pairs[2_500:]) > before
    with pytest.raises(SettingError, match="implicit=False, and the fitted model to go on from has True"):
        model.set_params(implicit=False).partial_fit(pairs, counts)


def test_an_id_is_of_the_kind_it_was(fitted):
    model = copied(fitted).partial_fit([[str(fitted.users_[0]), "3"]], [1.0])
    assert len(model.users_) == len(fitted.users_), "a number is its text"
    with pytest.raises(DataError, match="ids known so far are numbers") as told:
        copied(fitted).partial_fit([["ann", "3"]], [1.0])
    assert "column" in str(told.value)


def test_settings_of_another_model_are_told(fitted):
    for change in (lambda m: m.fit(X, y), lambda m: m.partial_fit(X, y)):
        with pytest.raises(
            SettingError, match=r"n_factors=5, and the fitted model .* has 4; set n_factors=4"
        ):
            change(copied(fitted, n_factors=5, warm_start=True))
    with pytest.raises(SettingError, match="2 settings are wrong") as told:
        copied(fitted, early_stopping=1, target_loss=0.1).partial_fit(X, y)
    assert "no effect on a single epoch" in str(told.value)
    assert copied(fitted, n_factors=5).fit(X[OLD], y[OLD]).item_factors_.shape[1] == 5, "cold"


def test_callbacks_see_each_epoch_and_stop():
    seen = []
    model = MatrixFactorization(
        4, epochs=200, callbacks=lambda record, job: seen.append(record) or len(seen) == 3
    )
    model.fit(X, y)
    assert model.stopped_ == "callback"
    assert [record.epoch for record in seen[:3]] == [1, 2, 3]


def test_early_stopping_keeps_the_best():
    model = MatrixFactorization(20, epochs=300, l2=0.0, early_stopping=2, learning_rate_schedule="constant")
    model.fit(X[:1_500], y[:1_500], validation=(X[2_000:], y[2_000:]))
    losses = [record.validation_loss for record in model.history_ if record.validation_loss is not None]
    assert model.stopped_ == "early stopping"
    assert rmse(model, X[2_000:], y[2_000:]) ** 2 == pytest.approx(min(losses), rel=1e-4)
    soon = MatrixFactorization(4, epochs=300, target_loss=1e6).fit(X, y, validation=(X[:9], y[:9]))
    assert soon.stopped_ == "target loss"
