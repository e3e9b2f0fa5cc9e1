"""Matrix factorisation on ratings with planted tastes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import squall
from squall import MatrixFactorization, ParameterServer, Run
from squall.errors import DataError, SettingError
from squall.testing import Chaos

USERS, ITEMS = 120, 80


def planted(n=6_000, seed=0):
    """Pairs of different (user, item), and ratings that follow from two planted factors."""
    draw = np.random.default_rng(seed)
    p, q = draw.normal(size=(USERS, 2)), draw.normal(size=(ITEMS, 2))
    b, c = 0.5 * draw.normal(size=USERS), 0.5 * draw.normal(size=ITEMS)
    u, i = np.divmod(draw.permutation(USERS * ITEMS)[:n], ITEMS)
    ratings = 3 + b[u] + c[i] + (p[u] * q[i]).sum(axis=1) + 0.1 * draw.normal(size=n)
    return np.column_stack([u, i]), ratings


X, y = planted()
TEST, TRAIN = slice(0, 1_000), slice(1_000, None)
SETTINGS = {"n_factors": 4, "epochs": 40, "learning_rate": 0.1, "l2": 0.01, "random_state": 0}


def rmse(model, X=X[TEST], y=y[TEST]):
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


@pytest.fixture(scope="module")
def model():
    return MatrixFactorization(**SETTINGS).fit(X[TRAIN], y[TRAIN], validation=(X[TEST], y[TEST]))


def test_errors_are_measured(model):
    errors = model.predict(X[TEST]) - y[TEST]
    held_out = squall.from_arrays(pd.DataFrame(X[TEST], columns=["user", "item"]), y[TEST])
    assert squall.rmse(model, held_out) == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert squall.mae(model, X[TEST], y[TEST]) == pytest.approx(np.abs(errors).mean())


def test_ranks_are_measured(model):
    """Against a loop over users, with what is counted written out."""
    recalls, gains = [], []
    pairs, ratings = np.vstack([X[TEST], [[-7, 3]]]), np.append(y[TEST], 9.0)
    for user in np.unique(pairs[:, 0]).tolist():
        own = (pairs[:, 0] == user) & (ratings >= 4.0)
        wanted = set(pairs[own, 1].tolist())
        if not wanted:
            continue
        found = [item in wanted for item in model.recommend(user, n=5)[0].tolist()]
        recalls.append(sum(found) / min(5, len(wanted)))
        ideal = sum(1 / np.log2(i + 2) for i in range(min(5, len(wanted))))
        gains.append(sum(hit / np.log2(i + 2) for i, hit in enumerate(found)) / ideal)
    assert squall.recall_at_k(model, pairs, ratings, k=5, at_least=4.0) == pytest.approx(np.mean(recalls))
    assert squall.ndcg_at_k(model, pairs, ratings, k=5, at_least=4.0) == pytest.approx(np.mean(gains))
    assert np.mean(recalls) > 0.5, "what they like best is found"
    with pytest.raises(DataError, match="there are no held-out ratings that high"):
        squall.recall_at_k(model, X[TEST], y[TEST], at_least=1e9)
    with pytest.raises(SettingError, match="k=0 must be"):
        squall.ndcg_at_k(model, X[TEST], k=0)


def chosen(n=3_000, seed=1):
    """Choices by planted tastes: half the items are for half the users; and counts of them."""
    draw = np.random.default_rng(seed)
    likes = (np.arange(USERS)[:, None] % 2) == (np.arange(ITEMS) % 2)
    pairs = np.argwhere(likes | (draw.random((USERS, ITEMS)) < 0.05))
    return draw.permutation(pairs)[:n], draw.integers(1, 6, n).astype(float)


@pytest.mark.parametrize("strategy", [None, ParameterServer("bsp")])
def test_choices_without_ratings(strategy):
    pairs, counts = chosen()
    train, test = pairs[:2_500], pairs[2_500:]
    model = MatrixFactorization(4, epochs=15, implicit=True, strategy=strategy, random_state=0)
    model.fit(train, validation=(test, counts[2_500:]), run=Run(workers=1 if strategy is None else 2))
    popular = np.argsort(-np.bincount(train[:, 1], minlength=ITEMS), kind="stable")
    by_chance = []
    for user in np.unique(test[:, 0]).tolist():
        seen = set(train[train[:, 0] == user, 1].tolist())
        best = [item for item in popular.tolist() if item not in seen][:10]
        wanted = set(test[test[:, 0] == user, 1].tolist())
        by_chance.append(len(wanted & set(best)) / min(10, len(wanted)))
    assert model.score(test) > 1.5 * np.mean(by_chance)
    assert [record.rows for record in model.history_] == [2_500] * 15
    assert model.history_[-1].loss < model.history_[0].loss
    if strategy is not None:  # else the first measurement may come some epochs late, when it is as good
        assert model.history_[-1].validation_loss < model.history_[0].validation_loss
    liked = model.predict(test).mean()
    assert 0.3 < liked < 1.2
    assert model.predict(test[:, 0], ITEMS - 1 - test[:, 1]).mean() < liked / 2, "the others' items"


def test_sure_choices_count_more():
    pairs, _ = chosen()
    often = np.where(pairs[:, 1] % 3 == 0, 9.0, 1.0)
    settings = {"n_factors": 1, "implicit": True, "random_state": 0, "l2": 0.1}
    plain = MatrixFactorization(**settings, alpha=0.0).fit(pairs, often)
    sure = MatrixFactorization(**settings, alpha=3.0).fit(pairs, often)
    third = plain.items_ % 3 == 0
    gain = sure.item_bias_ - plain.item_bias_
    assert gain[third].mean() > gain[~third].mean() + 0.05


def test_what_is_no_choice_is_told():
    for ratings, says in (([1.0, -1.0], "a rating is -1"), ([0.0, 0.0], "nobody has chosen anything")):
        with pytest.raises(DataError, match=says):
            MatrixFactorization(implicit=True).fit([[0, 1], [1, 0]], ratings)
    with pytest.raises(SettingError, match=r"alpha=2.0 has no effect(?s:.)*n_negatives=3 has no effect"):
        MatrixFactorization(alpha=2.0, n_negatives=3).fit(X, y)


def test_what_is_planted_is_found(model):
    assert rmse(model) < 0.25 < 0.8 < rmse(MatrixFactorization(1, 1).fit(X[TRAIN], y[TRAIN]))
    assert model.score(X[TEST], y[TEST]) > 0.97
    assert model.history_[-1].validation_loss == pytest.approx(rmse(model) ** 2, rel=1e-4)


def test_predictions_are_the_formula(model):
    assert model.users_.dtype == model.items_.dtype == np.int64
    u = np.searchsorted(model.users_, X[TEST, 0], sorter=(by := np.argsort(model.users_)))
    i = np.searchsorted(model.items_, X[TEST, 1], sorter=(of := np.argsort(model.items_)))
    u, i = by[u], of[i]
    product = (model.user_factors_[u] * model.item_factors_[i]).sum(axis=1)
    expected = model.mean_ + model.user_bias_[u] + model.item_bias_[i] + product
    np.testing.assert_allclose(model.predict(X[TEST]), expected, atol=1e-5)
    assert model.user_factors_.shape == (USERS, 4)
    assert model.mean_ == pytest.approx(y[TRAIN].mean())


def test_all_ways_to_name_ratings_are_the_same(model):
    expected = model.predict(X[TEST]).tolist()
    users, items = X[TEST].T
    assert model.predict(users, items).tolist() == expected
    assert model.predict(users.astype(str), items.tolist()).tolist() == expected, "a number is its text"
    assert model.predict(X[TEST].astype(float)).tolist() == expected
    assert (
        model.predict(squall.from_arrays(pd.DataFrame(X[TEST], columns=["who", "what"]))).tolist() == expected
    )
    frame = pd.DataFrame({"item": items.astype(str), "user": users.astype(str)})
    assert model.predict(frame).tolist() == expected, "columns of these names, in any order"


def test_two_fits_are_the_same_to_the_last_bit_and_the_seed_matters(model):
    again = MatrixFactorization(**SETTINGS).fit(X[TRAIN], y[TRAIN])
    assert again.item_factors_.tobytes() == model.item_factors_.tobytes()
    other = MatrixFactorization(**SETTINGS | {"random_state": 1}).fit(X[TRAIN], y[TRAIN])
    assert not np.allclose(other.item_factors_, model.item_factors_)


def test_unknown_users_and_items_are_judged_by_what_is_known(model):
    item = model.items_[7]
    predicted = model.predict(["nobody", model.users_[3], -1], [item, "nothing", 10**9])
    expected = [model.mean_ + model.item_bias_[7], model.mean_ + model.user_bias_[3], model.mean_]
    assert predicted == pytest.approx(expected)
    liked, ratings = model.recommend("nobody", n=3)
    best = np.argsort(-model.item_bias_, kind="stable")[:3]
    assert liked.tolist() == model.items_[best].tolist()
    assert ratings == pytest.approx(model.mean_ + model.item_bias_[best])


def test_recommendations_are_the_best_that_were_not_rated(model):
    user = int(X[TRAIN][0, 0])
    seen = set(X[TRAIN][X[TRAIN][:, 0] == user, 1].tolist())
    rest = [item for item in range(ITEMS) if item not in seen]
    predicted = model.predict([user] * len(rest), rest)
    order = np.argsort(-predicted)[:5]
    items, ratings = model.recommend(user, n=5)
    assert items.tolist() == [rest[i] for i in order]
    assert ratings == pytest.approx(predicted[order], abs=1e-5)
    assert len(model.recommend(user, n=ITEMS)[0]) == len(rest)
    assert len(model.recommend(user, n=ITEMS, exclude_seen=False)[0]) == ITEMS
    several, scores = model.recommend([user, "nobody"], n=5)
    assert several.shape == scores.shape == (2, 5)
    assert several[0].tolist() == items.tolist()


def test_similar_items_point_the_same_way(model):
    item = model.items_[0]
    similar, cosines = model.similar_items(item, n=4)
    unit = model.item_factors_ / np.linalg.norm(model.item_factors_, axis=1, keepdims=True)
    expected = unit @ unit[0]
    assert item not in similar
    assert cosines == pytest.approx(np.sort(np.delete(expected, 0))[::-1][:4], abs=1e-5)
    with pytest.raises(DataError, match="the item 'nothing' is not in the training data"):
        model.similar_items("nothing")


@pytest.mark.parametrize("consistency", ["asp", "bsp", "ssp", "hsp"])
def test_every_consistency_learns_while_a_worker_is_killed(consistency):
    backend = squall.LocalBackend(chaos=Chaos(slot=1, attempt=1, minibatch=30))
    model = MatrixFactorization(**SETTINGS, batch_size=400, strategy=ParameterServer(consistency))
    model.fit(X[TRAIN], y[TRAIN], run=Run(workers=2, backend=backend))
    assert rmse(model) < 0.25
    assert [record.rows for record in model.history_] == [5_000] * 40


def test_bsp_gives_the_same_bits_whatever_happens():
    fits = [
        MatrixFactorization(**SETTINGS, batch_size=400, strategy=ParameterServer("bsp")).fit(
            X[TRAIN], y[TRAIN], run=Run(workers=2, store=store, backend=squall.LocalBackend(chaos=chaos))
        )
        for store, chaos in (("embedded", None), ("tcp", Chaos(slot=0, attempt=1, minibatch=77)))
    ]
    assert fits[0].item_factors_.tobytes() == fits[1].item_factors_.tobytes()


def test_it_comes_back(model, tmp_path):
    twin = squall.load(squall.save(model, tmp_path / "m"))
    assert twin.get_params() == model.get_params()
    assert twin.predict(X).tolist() == model.predict(X).tolist()
    assert twin.recommend(5)[0].tolist() == model.recommend(5)[0].tolist()
    assert twin.users_.tolist() == model.users_.tolist()


def test_a_file_of_ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    lines = ["user,item,rating", *(f"u{u},ï{i},{r:.3f}" for (u, i), r in zip(X, y, strict=True))]
    path.write_text("\n".join(lines))
    train, test = squall.read_ratings(path).split(test=0.2, random_state=0)
    model = MatrixFactorization(**SETTINGS).fit(train, validation=test)
    assert model.score(test) > 0.97
    twin = squall.load(squall.save(model, tmp_path / "m"))
    items, _ = twin.recommend("u3", n=2)
    assert items.tolist() == model.recommend("u3", n=2)[0].tolist()
    assert all(item.startswith("ï") for item in items)


def test_one_user_or_one_item_or_one_rating():
    ratings = np.arange(1.0, 6.0)
    for pairs in ([[0, i] for i in range(5)], [[u, 0] for u in range(5)]):
        model = MatrixFactorization(2, epochs=200, l2=0.0).fit(pairs, ratings)
        assert np.abs(model.predict(pairs) - ratings).max() < 0.6
    alone = MatrixFactorization(2).fit([["ann", "tea"]], [4.0])
    assert alone.predict(["ann", "bob"], ["tea", "tea"]) == pytest.approx([4.0, 4.0], abs=0.01)
    items, ratings = alone.recommend("ann")
    assert len(items) == len(ratings) == 0, "all there is has been rated"
    assert alone.recommend("bob")[0].tolist() == ["tea"]
    assert len(alone.similar_items("tea")[0]) == 0


def test_ratings_of_the_same_pair_count_each_and_weights_as_repetitions():
    twice = MatrixFactorization(2, random_state=0).fit([[0, 0], [0, 0], [1, 1]], [1.0, 3.0, 5.0])
    assert twice.mean_ == pytest.approx(3.0)
    weighted = MatrixFactorization(2).fit([[0, 0], [1, 1]], [1.0, 5.0], sample_weight=[3.0, 1.0])
    assert weighted.mean_ == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("X", "y", "says"),
    [
        ([[0, 1], [1, 0]], ["good", "bad"], "these are text: 'bad', 'good'"),
        ([[0, 1], [1, 0]], [1.0, np.nan], "NaN"),
        ([[0, 1], [1, 0]], None, "requires y to be passed"),
        ([[0], [1]], [1.0, 2.0], "there are no columns of users and items"),
        (pd.DataFrame({"a": [1], "b": [2], "c": [3]}), [1.0], "no columns of users and items.*'a', 'b', 'c'"),
        ([[0.5, 1], [1, 0]], [1.0, 2.0], "an id is a number with a fraction"),
        ([[np.nan, 1], [1, 0]], [1.0, 2.0], "an id is missing"),
        ([["ann", None], ["bob", "tea"]], [1.0, 2.0], "an id is missing"),
        (np.empty((0, 2)), [], "there are no rows"),
    ],
)
def test_what_cannot_be_trained_on_is_told(X, y, says):
    with pytest.raises(DataError, match=says):
        MatrixFactorization().fit(X, y)


def test_wrong_settings_are_told_all_at_once():
    wrong = MatrixFactorization(
        n_factors=0, epochs=0, learning_rate=-1, l2=-1, init_scale=0, batch_size=0,
        learning_rate_schedule="linear", random_state=-1, early_stopping=0, implicit="yes", alpha=-1,
        n_negatives=0, warm_start="yes", callbacks=3,
    )  # fmt: skip
    with pytest.raises(SettingError) as told:
        wrong.fit(X, y)
    for name in wrong.get_params():
        assert name in ("target_loss", "strategy") or f"{name}=" in str(told.value), name


def test_a_strategy_of_means_is_refused():
    with pytest.raises(SettingError, match=r"strategy=ModelAveraging.* takes means of whole models"):
        MatrixFactorization(strategy=squall.ModelAveraging()).fit(X, y)


def test_no_transformer_comes_before_it():
    with pytest.raises(SettingError, match=r"ids are taken as they are(?s:.)*leave out the steps"):
        squall.make_pipeline(squall.MaxAbsScaler(), MatrixFactorization()).fit(X, y)


def test_held_out_rows_need_ratings(model):
    with pytest.raises(DataError, match="held-out rows need labels, and at least one row"):
        MatrixFactorization().fit(X, y, validation=(np.empty((0, 2)), []))
    strangers = MatrixFactorization(epochs=1).fit(X, y, validation=([["x", "y"]], [3.0]))
    error = strangers.mean_ - 3.0
    assert strangers.history_[-1].validation_loss == pytest.approx(error**2, rel=1e-3)


def test_it_diverges_with_a_word():
    with pytest.raises(squall.SquallError, match=r"loss is not finite.*learning_rate=30"):
        MatrixFactorization(learning_rate=30.0).fit(X, y)
