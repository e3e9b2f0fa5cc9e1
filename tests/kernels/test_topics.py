"""Statistics of topic models against the same in float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma

from squall import _kernels as kernels

ALPHA, ETA, VOCABULARY = 0.1, 0.02, 40


def problem(n_topics=5, n=12, seed=0, floats=False):
    """Documents (one of them empty), a table of their words' rows and the totals', θ to begin with."""
    draw = np.random.default_rng(seed)
    X = draw.poisson(0.5, (n, VOCABULARY)).astype(np.float32)
    X[3] = 0
    if floats:
        X *= draw.random(X.shape, dtype=np.float32)
    rows, columns = np.nonzero(X)
    indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=n))).astype(np.int64)
    block = (indptr, columns.astype(np.int32), X[rows, columns])
    words, *taken = kernels.csr_minibatch(*block, np.arange(n, dtype=np.int32), VOCABULARY)
    table = draw.gamma(0.5, 20, (VOCABULARY, n_topics)).astype(np.float32)
    pulled = np.vstack([table[words[:-1]], table.sum(axis=0)])
    theta = 0.5 + draw.gamma(1.0, 3, (n, n_topics)).astype(np.float32)
    return X[:, words[:-1]], tuple(taken), words, pulled, theta


def settings(iterations=3, tolerance=0.0, variational=False, seed=0):
    return kernels.TopicSettings(ALPHA, ETA, VOCABULARY, iterations, tolerance, seed, variational)


def oracle(X, pulled, theta, iterations, tolerance=0.0, variational=False):
    pulled, X, theta = (a.astype(np.float64) for a in (pulled, X, theta))
    known, totals = pulled[:-1] + ETA, pulled[-1] + VOCABULARY * ETA
    phi = np.exp(digamma(known) - digamma(totals)) if variational else known / totals
    used = (lambda t: np.exp(digamma(t))) if variational else (lambda t: t)
    for d in range(len(X)):
        for _ in range(iterations):
            shares = phi * used(theta[d])
            new = ALPHA + (X[d] / shares.sum(axis=1)) @ shares
            moved, theta[d] = np.abs(new - theta[d]).sum(), new
            if moved <= tolerance * new.sum():
                break
    mixed = used(theta)
    likely = mixed @ phi.T
    statistics = (X / likely).T @ mixed * phi
    return statistics, -(X * np.log(likely / mixed.sum(axis=1, keepdims=True))).sum(), theta


@pytest.mark.parametrize("n_topics", [1, 5, 8, 37])
@pytest.mark.parametrize("variational", [False, True])
@pytest.mark.parametrize("floats", [False, True])
def test_statistics_are_those_of_the_formula(n_topics, variational, floats):
    X, rows, words, pulled, theta = problem(n_topics, floats=floats)
    expected, loss, fitted = oracle(X, pulled, theta, 3, variational=variational)
    own = theta.copy()
    found, told, tokens = kernels.topic_statistics(
        rows, words, pulled, own, settings(variational=variational), 0.0, statistics=True
    )
    np.testing.assert_allclose(own, fitted, rtol=2e-5)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert (told, tokens) == (pytest.approx(loss, rel=1e-5), pytest.approx(X.sum()))
    if n_topics > 1:
        assert not np.allclose(own, theta)


def test_a_document_is_left_alone_when_it_moves_little():
    X, rows, words, pulled, theta = problem()
    for tolerance in (0.5, 0.05):
        own = theta.copy()
        kernels.topic_statistics(rows, words, pulled, own, settings(50, tolerance), 0.0, statistics=False)
        np.testing.assert_allclose(own, oracle(X, pulled, theta, 50, tolerance)[2], rtol=1e-4)


def test_statistics_are_not_made_unless_wanted_and_an_empty_document_has_the_prior():
    _, rows, words, pulled, theta = problem()
    found, *_ = kernels.topic_statistics(rows, words, pulled, theta, settings(), 0.0, statistics=False)
    assert found is None
    np.testing.assert_allclose(theta[3], ALPHA, rtol=1e-6)


def test_random_mass_is_the_same_for_every_block_and_counts_as_much_as_it_says():
    every = np.arange(VOCABULARY + 1)
    empty = (np.arange(VOCABULARY + 1), np.arange(VOCABULARY, dtype=np.int32), None)
    table = np.zeros((VOCABULARY + 1, 6), dtype=np.float32)

    def likely(words, rows, mass=800.0, seed=3):
        """P(w | k) up to a factor, from the statistics of documents of one word."""
        theta = np.ones((len(words) - 1, 6), dtype=np.float32)
        pulled = np.zeros((len(words), 6), dtype=np.float32)
        found, *_ = kernels.topic_statistics(
            rows, words, pulled, theta, settings(0, seed=seed), mass, statistics=True
        )
        return found

    whole = likely(every, empty)
    few = np.array([7, 31, 2, 40])
    some = likely(few, (np.arange(4), np.arange(3, dtype=np.int32), None))
    np.testing.assert_array_equal(some, whole[few[:-1]])
    assert not np.allclose(whole, likely(every, empty, seed=4))
    assert whole.std() > 0.05
    np.testing.assert_array_equal(likely(every, empty, mass=0.0), np.full_like(whole, 1 / 6))
    assert not table.any()


def test_what_was_withdrawn_to_below_zero_by_rounding_counts_as_none():
    _, rows, words, pulled, theta = problem()
    below, zero = pulled.copy(), pulled.copy()
    below[2], zero[2] = -1e-4, 0.0
    results = [
        kernels.topic_statistics(rows, words, table, theta.copy(), settings(), 0.0, statistics=True)[0]
        for table in (below, zero)
    ]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("scale", [1.0, -3.0])
def test_an_update_is_the_difference_of_what_is_kept(scale):
    _, rows, words, pulled, theta = problem()
    plain = kernels.topic_statistics(rows, words, pulled, theta.copy(), settings(), 0.0, statistics=True)[0]
    kept, delta, *told = kernels.topic_update(rows, words, pulled, theta.copy(), settings(), 0.0, None, scale)
    assert kept.dtype == np.uint16
    np.testing.assert_array_equal(kept.view(np.float16), plain.astype(np.float16))
    np.testing.assert_array_equal(delta[:-1], kept.view(np.float16).astype(np.float32) * np.float32(scale))
    old = np.random.default_rng(1).random(kept.shape).astype(np.float16)
    again, change, *told_again = kernels.topic_update(
        rows, words, pulled, theta.copy(), settings(), 0.0, old.view(np.uint16), scale
    )
    np.testing.assert_array_equal(again, kept)
    assert told == told_again
    expected = (kept.view(np.float16).astype(np.float32) - old.astype(np.float32)) * np.float32(scale)
    np.testing.assert_array_equal(change[:-1], expected)
    np.testing.assert_allclose(change[-1], expected.sum(axis=0, dtype=np.float64), rtol=1e-6)
    np.testing.assert_array_equal(kernels.topic_difference(kept, old.view(np.uint16), scale), change)
    np.testing.assert_array_equal(kernels.topic_difference(kept, None, scale), delta)


def test_counts_beyond_float16_are_kept_in_float32():
    _, (indptr, local, counts), words, pulled, theta = problem()
    rows = (indptr, local, counts * 1e6)
    halves = np.ones((len(words) - 1, pulled.shape[1]), dtype=np.float16)
    kept, delta, *_ = kernels.topic_update(
        rows, words, pulled, theta.copy(), settings(), 0.0, halves.view(np.uint16), 1.0
    )
    assert kept.dtype == np.float32
    assert kept.max() > 65504
    np.testing.assert_array_equal(delta[:-1], kept - 1)
    np.testing.assert_array_equal(kernels.topic_difference(kept, halves.view(np.uint16), 1.0), delta)
    small = (indptr, local, counts)
    still, *_ = kernels.topic_update(small, words, pulled, theta, settings(), 0.0, kept, 1.0)
    assert still.dtype == np.float32


def test_float16_is_numpys_whatever_the_number():
    numbers = np.arange(0x7C00, dtype=np.uint16)  # all that are finite and not below 0
    change = kernels.topic_difference(numbers[:, None].copy(), None, 1.0)
    np.testing.assert_array_equal(change[:-1, 0], numbers.view(np.float16).astype(np.float32))
    draw = np.random.default_rng(0)
    counts = np.append(10.0 ** draw.uniform(-9, 4.8, 4000), np.arange(65) * 2.0**-26).astype(np.float32)
    n = len(counts)  # documents of one word each, and one topic
    rows = (np.arange(n + 1), np.arange(n, dtype=np.int32), counts)
    given = np.arange(n + 1), np.ones((n + 1, 1), np.float32), np.ones((n, 1), np.float32), settings(0), 0.0
    plain = kernels.topic_statistics(rows, *given, statistics=True)[0]
    kept = kernels.topic_update(rows, *given, None, 1.0)[0]
    np.testing.assert_array_equal(kept.view(np.float16), plain.astype(np.float16))


def test_losses_are_exact_however_unlikely_a_word_is():
    share = (10.0 ** -np.arange(12)).astype(np.float32)
    pulled = np.append(share, np.float32(1))[:, None]
    rows = (np.array([0, 12]), np.arange(12, dtype=np.int32), np.arange(12, dtype=np.float32))
    _, loss, tokens = kernels.topic_statistics(
        rows, np.arange(13), pulled, np.ones((1, 1), np.float32), settings(0), 0.0, statistics=False
    )
    likely = (pulled[:-1, 0].astype(np.float64) + ETA) / (1 + VOCABULARY * ETA)
    assert loss == pytest.approx(-np.arange(12) @ np.log(likely), rel=1e-6)
    assert tokens == 66


def test_what_cannot_be_is_no_division_by_zero():
    _, rows, words, pulled, theta = problem(1)
    tiny = settings(variational=True)
    statistics, loss, _ = kernels.topic_statistics(
        rows, words, np.zeros_like(pulled), np.full_like(theta, 1e-3), tiny, 0.0, statistics=True
    )
    assert np.isfinite(statistics).all() and np.isfinite(loss)


def test_no_documents_and_no_words():
    settings_ = settings()
    words, totals = np.array([VOCABULARY]), np.ones((1, 3), dtype=np.float32)
    rows = (np.zeros(3, dtype=np.int64), np.empty(0, dtype=np.int32), None)
    kept, delta, loss, tokens = kernels.topic_update(
        rows, words, totals, np.ones((2, 3), dtype=np.float32), settings_, 0.0, None, 1.0
    )
    assert (kept.shape, delta.tolist(), loss, tokens) == ((0, 3), [[0.0] * 3], 0.0, 0.0)
    none = (np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32), None)
    theta = np.empty((0, 3), dtype=np.float32)
    assert kernels.topic_statistics(none, words, totals, theta, settings_, 0.0, True)[1:] == (0.0, 0.0)


def test_what_does_not_fit_is_refused():
    _, rows, words, pulled, theta = problem()
    indptr, local, counts = rows

    def call(rows=rows, words=words, pulled=pulled, theta=theta, mass=0.0, old=None):
        return kernels.topic_update(rows, words, pulled, theta, settings(), mass, old, 1.0)

    far = local.copy()
    far[5] = len(words) - 1
    with pytest.raises(IndexError, match="is not in"):
        call(rows=(indptr, far, counts))
    with pytest.raises(ValueError, match="indptr"):
        call(rows=(indptr + 1, local, counts))
    with pytest.raises(ValueError, match="theta: has shape"):
        call(theta=theta[:-1])
    with pytest.raises(ValueError, match="words: has length"):
        call(words=words[:-1])
    with pytest.raises(TypeError, match="pulled"):
        call(pulled=pulled.astype(np.float64))
    with pytest.raises(ValueError, match="old: has shape"):
        call(old=np.zeros((2, 2), dtype=np.uint16))
    with pytest.raises(ValueError, match="mass"):
        call(mass=-1.0)
    with pytest.raises(ValueError, match="rows: are 1 arrays"):
        call(rows=(theta,))
    with pytest.raises(ValueError, match="kept"):
        kernels.topic_difference(np.zeros(3, dtype=np.float32), None, 1.0)
    for wrong in ({"doc_topic_prior": 0.0}, {"topic_word_prior": -1.0}, {"n_words": 0}, {"iterations": -1}):
        fitting = {"doc_topic_prior": 1.0, "topic_word_prior": 1.0, "n_words": 1, "iterations": 1}
        with pytest.raises(ValueError, match=next(iter(wrong))):
            kernels.TopicSettings(**{**fitting, **wrong}, tolerance=0.0)
