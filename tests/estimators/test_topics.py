"""Topic models with scikit-learn's interface."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import squall
from squall import LatentDirichletAllocation, ParameterServer, Run
from squall.errors import DataError, SettingError

TOPICS, WORDS = 4, 40


def planted(n=500, length=40, seed=0):
    """Documents of few of four topics, each with ten words of its own.

    (Of the first seed, two topics are taken for one: the likelihood has more maxima than one.)
    """
    draw = np.random.default_rng(seed)
    topics = np.zeros((TOPICS, WORDS))
    for k in range(TOPICS):
        topics[k, 10 * k : 10 * (k + 1)] = draw.dirichlet(np.ones(10))
    shares = draw.dirichlet(np.full(TOPICS, 0.1), n)
    mixed = shares @ topics
    return np.array([draw.multinomial(length, p / p.sum()) for p in mixed]), topics, shares


every, topics, shares = planted(seed=1)
X, held_out, shares = every[:400], every[400:], shares[:400]


def matched(model):
    """For each planted topic the learned one that is most like it."""
    return np.argmax(topics @ model.topics_.T / np.linalg.norm(model.topics_, axis=1), axis=1)


@pytest.fixture(scope="module")
def lda():
    return LatentDirichletAllocation(TOPICS, epochs=10, random_state=0).fit(X)


def test_planted_topics_are_found(lda):
    found = matched(lda)
    assert sorted(found) == [0, 1, 2, 3]
    assert np.abs(lda.topics_[found] - topics).sum(axis=1).max() < 0.2
    assert np.abs(lda.transform(X)[:, found] - shares).sum(axis=1).mean() < 0.15
    for k, words in enumerate(lda.top_words(5)):
        planted_words = {str(10 * found.tolist().index(k) + i) for i in range(10)}
        assert set(words) <= planted_words


def test_fitted_attributes(lda):
    assert lda.components_.shape == lda.topics_.shape == (TOPICS, WORDS)
    np.testing.assert_allclose(lda.components_.sum(), X.sum() + 0.02 * TOPICS * WORDS, rtol=1e-4)
    np.testing.assert_allclose(lda.topics_.sum(axis=1), 1)
    np.testing.assert_allclose(lda.transform(X).sum(axis=1), 1, rtol=1e-5)
    assert (lda.components_ > 0).all()
    assert lda.words_ == []
    assert lda.batch_size_ == 25
    assert lda.get_feature_names_out().tolist() == [f"latentdirichletallocation{k}" for k in range(TOPICS)]
    losses = [record.loss for record in lda.history_]
    assert losses[0] > losses[-1] > 0


def test_the_same_to_the_last_bit_in_every_form(lda):
    dense, csr = X.astype(np.float64), sparse.csr_array(X)
    for data in (dense, csr, squall.from_arrays(csr)):
        other = clone(lda).fit(data)
        np.testing.assert_array_equal(other.components_, lda.components_)
        np.testing.assert_array_equal(other.transform(data), lda.transform(X))
    assert not np.array_equal(clone(lda).set_params(random_state=1).fit(X).components_, lda.components_)
    np.testing.assert_array_equal(clone(lda).fit_transform(X), lda.transform(X))


def test_online_variational_bayes_finds_them_too(lda):
    other = LatentDirichletAllocation(TOPICS, method="online", epochs=20, random_state=1).fit(X)
    assert sorted(matched(other)) == [0, 1, 2, 3]
    assert lda.perplexity(X) < other.perplexity(X) < lda.perplexity(X) * 1.3


def test_perplexity_is_of_tokens_not_seen(lda):
    bound = np.exp(-(held_out * np.log(lda.transform(held_out) @ lda.topics_)).sum() / held_out.sum())
    assert bound < lda.perplexity(held_out) < 1.2 * bound < 0.6 * WORDS
    assert lda.score(held_out) == pytest.approx(-np.log(lda.perplexity(held_out)))
    half = lda.perplexity(held_out / 2)  # weights that are no whole numbers
    assert half == pytest.approx(lda.perplexity(held_out), rel=0.2)


def test_held_out_documents_are_measured_and_training_stops(lda):
    model = LatentDirichletAllocation(TOPICS, epochs=200, early_stopping=2, random_state=0)
    model.fit(X, validation=held_out)
    assert model.stopped_ == "early stopping"
    losses = [record.validation_loss for record in model.history_]
    assert np.exp(min(losses)) == pytest.approx(model.perplexity(held_out), rel=1e-4)
    data = squall.from_arrays(held_out)
    fast = LatentDirichletAllocation(TOPICS, epochs=200, target_loss=3.0).fit(X, validation=data)
    assert fast.stopped_ == "target loss"


def test_words_are_those_of_the_dictionary(tmp_path):
    (tmp_path / "a.txt").write_text("cat dog cat pet\n" * 30 + "sun moon sun star\n" * 30)
    data = squall.read_text(tmp_path / "a.txt", documents="line")
    model = LatentDirichletAllocation(2, epochs=10, random_state=0).fit(data)
    assert model.words_ == ["cat", "dog", "moon", "pet", "star", "sun"]
    assert sorted(model.top_words(1)) == [["cat"], ["sun"]]
    loaded = squall.load(squall.save(model, tmp_path / "m"))
    assert loaded.words_ == model.words_
    np.testing.assert_array_equal(loaded.transform(data), model.transform(data))
    assert loaded.perplexity(data) == model.perplexity(data)
    assert loaded.get_params() == model.get_params()
    job = squall.submit(LatentDirichletAllocation(2, random_state=0), data)
    assert job.wait().words_ == model.words_


def test_names_of_columns_are_words():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X[:, :3], columns=["tea", "tin", "toe"])
    model = LatentDirichletAllocation(2).fit(frame)
    assert {word for topic in model.top_words() for word in topic} == {"tea", "tin", "toe"}
    assert model.feature_names_in_.tolist() == ["tea", "tin", "toe"]
    assert LatentDirichletAllocation(2).fit(frame.to_numpy()).words_ == []


def test_unusual_documents():
    empty = np.vstack([X[:50], np.zeros((3, WORDS))])
    model = LatentDirichletAllocation(3, random_state=0).fit(empty)
    np.testing.assert_allclose(model.transform(empty)[-1], 1 / 3, rtol=1e-5)
    assert model.components_.sum() == pytest.approx(X[:50].sum() + 0.02 * 3 * WORDS, rel=1e-4)

    one = LatentDirichletAllocation(3).fit(X[:1])
    assert one.transform(X[:1]).shape == (1, 3)
    assert one.components_.sum() == pytest.approx(X[:1].sum() + 0.02 * 3 * WORDS, rel=1e-3)

    word = LatentDirichletAllocation(2).fit(np.array([[3], [4]]))
    np.testing.assert_allclose(word.topics_, 1)
    assert word.perplexity([[7]]) == pytest.approx(1)

    many = LatentDirichletAllocation(20).fit(X[:2])
    assert np.isfinite(many.components_).all()

    unseen = X[:100].copy()
    unseen[:, :20] = 0
    model = LatentDirichletAllocation(2, random_state=0).fit(unseen)
    new = np.zeros((1, WORDS))
    new[0, 3] = 5
    np.testing.assert_allclose(model.transform(new).sum(axis=1), 1, rtol=1e-5)
    assert np.isfinite(model.perplexity(new))
    assert model.transform(sparse.csr_array((0, WORDS))).shape == (0, 2)


def test_counts_may_be_weights_or_huge():
    halves = LatentDirichletAllocation(TOPICS, epochs=10, random_state=0).fit(X / 3)
    assert sorted(matched(halves)) == [0, 1, 2, 3]
    huge = LatentDirichletAllocation(TOPICS, epochs=3, random_state=0).fit(X * 1e5)
    assert huge.components_.sum() == pytest.approx(X.sum() * 1e5, rel=1e-3)


def test_what_is_no_count_is_refused(lda):
    with pytest.raises(DataError, match=r"Negative values in data(?s:.)*-1"):
        LatentDirichletAllocation(2).fit(np.array([[1, -1]]))
    with pytest.raises(DataError, match="Negative values"):
        lda.transform(-X)
    with pytest.raises(DataError, match="Negative values"):
        lda.fit(X, validation=-X)
    with pytest.raises(DataError, match="missing value"):
        LatentDirichletAllocation(2).fit(np.array([[1, np.nan]]))
    with pytest.raises(DataError, match="no words in any"):
        LatentDirichletAllocation(2).fit(np.zeros((3, 4)))
    with pytest.raises(DataError, match="no document has two tokens"):
        lda.score(np.eye(3, WORDS))
    with pytest.raises(NotFittedError):
        LatentDirichletAllocation().transform(X)


def test_all_wrong_settings_are_told_at_once():
    wrong = LatentDirichletAllocation(
        0, doc_topic_prior=0, topic_word_prior=-1, method="gibbs", epochs=0, batch_size=0,
        max_doc_update_iter=0, mean_change_tol=-1, early_stopping=0, random_state=-1, strategy="bsp",
    )  # fmt: skip
    with pytest.raises(SettingError) as told:
        wrong.fit(X)
    for name in ("n_components", "doc_topic_prior", "topic_word_prior", "method", "epochs", "batch_size",
                 "max_doc_update_iter", "mean_change_tol", "early_stopping", "random_state",
                 "strategy"):  # fmt: skip
        assert name in str(told.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learning_decay": 0.7}, 'has no effect with method="cvb0"'),
        ({"strategy": ParameterServer(compression="float16")}, "compression='float16'"),
        ({"strategy": ParameterServer(filter="top-k")}, "filter='top-k'"),
        ({"early_stopping": 1}, "no held-out rows"),
    ],
)
def test_settings_that_do_not_go_together(settings, said):
    with pytest.raises(SettingError, match=said):
        LatentDirichletAllocation(2, **settings).fit(X)


def test_a_plan_that_changes_is_refused():
    with pytest.raises(SettingError, match="each of them owns documents"):
        LatentDirichletAllocation(2).fit(X, run=Run(plan=squall.ScriptedPlanner({1: 2})))


def test_a_pipeline_ends_with_it():
    data = squall.from_arrays(sparse.csr_array(X))
    pipeline = squall.make_pipeline(LatentDirichletAllocation(2, random_state=0)).fit(data)
    assert pipeline.history_[-1].loss > 0
