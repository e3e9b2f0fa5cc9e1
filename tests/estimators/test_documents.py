"""Topics that are gone on from: warm starts, and documents that come in parts; and words by their names."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import squall
from squall import LatentDirichletAllocation, ParameterServer, Run
from squall.errors import DataError, SettingError
from tests.estimators.test_topics import TOPICS, WORDS, X, held_out, matched

ETA = 0.02


@pytest.fixture(scope="module")
def fitted():
    return LatentDirichletAllocation(TOPICS, epochs=10, random_state=1).fit(X[:200])


def copied(model, **settings):
    twin = LatentDirichletAllocation()
    twin.__dict__.update(model.__dict__)
    return twin.set_params(**settings)


def counts(model):
    return (model.components_ - ETA).sum(axis=0)


@pytest.mark.parametrize("store", ["embedded", "tcp"])
def test_a_warm_start_is_of_the_new_documents_alone(fitted, store):
    model = copied(fitted, warm_start=True, epochs=2).fit(X[200:], run=Run(store=store))
    np.testing.assert_allclose(counts(model), X[200:].sum(axis=0), rtol=2e-3)
    assert sorted(matched(model)) == [0, 1, 2, 3]
    likeness = np.corrcoef(np.vstack([fitted.topics_, model.topics_]))[:TOPICS, TOPICS:]
    assert (np.diag(likeness) > 0.9).all(), "topics keep their numbers"
    cold = LatentDirichletAllocation(TOPICS, epochs=2, random_state=1).fit(X[200:])
    assert model.history_[0].loss < cold.history_[0].loss
    assert model.perplexity(held_out) < cold.perplexity(held_out)


@pytest.mark.parametrize("consistency", ["asp", "bsp", "ssp", "hsp"])
def test_parts_add_their_documents(fitted, consistency):
    model = copied(fitted, strategy=ParameterServer(consistency))
    before = model.components_
    with Run(workers=2, store="tcp"):
        model.partial_fit(X[200:300]).partial_fit(X[300:])
    assert (model.components_ > before - 1e-2).all(), "what was counted keeps its topic"
    np.testing.assert_allclose(counts(model), X.sum(axis=0), rtol=2e-3)
    assert model._fitted.documents == len(X)
    assert model.perplexity(held_out) < fitted.perplexity(held_out) * 1.02
    assert sorted(matched(model)) == [0, 1, 2, 3]


def test_parts_alone_find_topics():
    model = LatentDirichletAllocation(TOPICS, random_state=1)
    for start in range(0, 400, 100):
        assert model.partial_fit(X[start : start + 100]) is model
    np.testing.assert_allclose(counts(model), X.sum(axis=0), rtol=2e-3)
    assert model.perplexity(held_out) < 0.6 * WORDS
    assert [record.rows for record in model.history_] == [100]


def online_oracle(parts, batch, decay=0.7, offset=10.0):
    """The rule of Hoffman, Blei & Bach (2010) for λ, with γ by one topic: then only sums matter."""
    total, step, seen = np.zeros(WORDS), 0, 0
    for part in parts:
        seen += len(part)
        if total.sum():
            total *= seen / (seen - len(part))
        for start in range(0, len(part), batch):
            rows = part[start : start + batch]
            rate = (offset + 1 + step) ** -decay
            total = (1 - rate) * total + rate * seen / len(rows) * rows.sum(axis=0)
            step += 1
    return total, step


def test_online_steps_go_on_from_call_to_call(tmp_path):
    alike = np.repeat(X[:1], 200, axis=0)  # so that it does not matter which documents make a minibatch
    parts = [alike[:60], 2 * alike[:100], alike[:40]]
    model = LatentDirichletAllocation(1, method="online", batch_size=20)
    for part in parts[:2]:
        model.partial_fit(part)
    model = squall.load(squall.save(model, tmp_path / "m")).partial_fit(parts[2])
    expected, steps = online_oracle(parts, 20)
    assert model._n_steps == steps == 10
    np.testing.assert_allclose(model.components_[0] - ETA, expected, rtol=1e-3)
    again = model.set_params(warm_start=True, epochs=2).fit(alike[:40])
    assert again._n_steps == 14


def test_a_warm_online_start_is_more_epochs():
    """To the last step the same as one training of as many epochs, but for the order of the documents."""
    alike = np.repeat(X[:1], 60, axis=0)
    settings = {"method": "online", "batch_size": 20, "random_state": 0}
    warm = LatentDirichletAllocation(3, epochs=2, warm_start=True, **settings).fit(alike).fit(alike)
    whole = LatentDirichletAllocation(3, epochs=4, **settings).fit(alike)
    np.testing.assert_allclose(warm.components_, whole.components_, rtol=1e-3)


def test_methods_can_be_changed(fitted):
    online = copied(fitted, method="online", warm_start=True, epochs=2).fit(X)
    assert sorted(matched(online)) == [0, 1, 2, 3]
    assert sorted(matched(online.set_params(method="cvb0").fit(X))) == [0, 1, 2, 3]


def read(path, lines):
    path.write_text("\n".join(lines))
    return squall.read_text(path, documents="line")


PETS = ["cat dog cat pet", "sun moon sun star"] * 30
ZOO = ["ape dog cat ape", "zebu moon sun zebu"] * 30


def test_new_words_are_added_and_known_ones_found_by_name(tmp_path):
    pets, zoo = read(tmp_path / "a", PETS), read(tmp_path / "b", ZOO)
    for way in ("partial_fit", "fit"):
        model = LatentDirichletAllocation(2, epochs=10, warm_start=True, random_state=0).fit(pets)
        getattr(model, way)(zoo)
        assert model.words_ == ["cat", "dog", "moon", "pet", "star", "sun", "ape", "zebu"]
        assert model.n_features_in_ == 8
        kept = [60, 30, 30, 30, 30, 60, 0, 0] if way == "partial_fit" else 0
        np.testing.assert_allclose(counts(model), np.add(kept, [30, 30, 30, 0, 0, 30, 60, 60]), atol=0.5)
        cat, sun = model.components_[:, 0].argmax(), model.components_[:, 5].argmax()
        assert model.components_[:, 6].argmax() == cat != sun == model.components_[:, 7].argmax()
        model.partial_fit(pets)
        assert len(model.words_) == 8


def test_data_of_another_vocabulary_is_read_by_name(tmp_path):
    pets, zoo = read(tmp_path / "a", PETS), read(tmp_path / "b", ZOO)
    model = LatentDirichletAllocation(2, epochs=10, random_state=0).fit(pets, validation=zoo)
    assert model.history_[-1].validation_loss == pytest.approx(-model.score(zoo), rel=1e-4)
    known = squall.read_text(tmp_path / "b", documents="line", vocabulary=model.words_)
    np.testing.assert_array_equal(model.transform(zoo), model.transform(known))
    cat = model.components_[:, 0].argmax()
    assert model.transform(zoo).argmax(axis=1).tolist() == [cat, 1 - cat] * 30
    strangers = read(tmp_path / "c", ["gnu emu gnu", "gnu emu emu"] * 3)
    np.testing.assert_allclose(model.transform(strangers), 0.5, rtol=1e-5)


def test_other_models_and_data_are_refused(fitted, tmp_path):
    with pytest.raises(SettingError, match=r"n_components=3, and the fitted model .* has 4"):
        copied(fitted, n_components=3).partial_fit(X)
    with pytest.raises(SettingError, match=r"n_components=3, and the fitted model .* has 4"):
        copied(fitted, n_components=3, warm_start=True).fit(X)
    with pytest.raises(DataError, match="X has 39 features, but LatentDirichletAllocation is expecting 40"):
        copied(fitted).partial_fit(X[:, 1:])
    named = LatentDirichletAllocation(2).fit(read(tmp_path / "a", PETS))
    with pytest.raises(DataError, match="X has 9 features, but LatentDirichletAllocation is expecting 6"):
        named.partial_fit(sparse.csr_array(np.ones((2, 9))))
    with pytest.raises(DataError, match="Negative values"):
        copied(fitted).partial_fit(-X)
    with pytest.raises(DataError, match="no words in any"):
        copied(fitted).partial_fit(np.zeros((2, WORDS)))
    with pytest.raises(SettingError, match="2 settings are wrong"):
        copied(fitted, early_stopping=1, target_loss=0.1).partial_fit(X)
    with pytest.raises(SettingError, match=r"callbacks=3(?s:.)*warm_start='yes'"):
        copied(fitted, warm_start="yes", callbacks=3).fit(X)
    with pytest.raises(SettingError, match="keeps no table of topics"):
        copied(fitted, strategy=squall.ModelAveraging()).fit(X)


def test_a_loaded_model_goes_on_with_the_same_bits(fitted, tmp_path):
    loaded = squall.load(squall.save(fitted, tmp_path / "m"))
    twins = [model.partial_fit(X[200:]) for model in (loaded, copied(fitted))]
    assert twins[0].components_.tobytes() == twins[1].components_.tobytes()


def test_callbacks_see_each_epoch_and_stop():
    seen = []

    def watch(record, job):
        seen.append(record.epoch)
        return len(seen) == 3

    model = LatentDirichletAllocation(2, epochs=300, callbacks=[watch]).fit(X)
    assert seen[:3] == [1, 2, 3]
    assert model.stopped_ == "callback"
