from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import _kernels as kernels

from . import oracles

margins = st.lists(st.floats(-1e4, 1e4, width=32), max_size=40)


@given(margins, st.integers(0, 2**32 - 1), st.booleans())
def test_loss_is_the_oracles(z, seed, weighted):
    rng = np.random.default_rng(seed)
    z = np.array(z, np.float32)
    y = rng.integers(0, 2, len(z)).astype(np.float32)
    s = rng.random(len(z), np.float32) if weighted else None
    loss_sum, weight_sum = kernels.logistic_loss(z, y, s)
    exact = oracles.loss(z.astype(np.float64), y)
    weights = np.ones(len(z)) if s is None else s.astype(np.float64)
    np.testing.assert_allclose(loss_sum, weights @ exact, rtol=3e-7, atol=1e-37)
    np.testing.assert_allclose(weight_sum, weights.sum())


@given(margins)
def test_probabilities_are_the_oracles(z):
    z = np.array(z, np.float32)
    exact = oracles.sigmoid(z.astype(np.float64))
    np.testing.assert_allclose(kernels.logistic_probabilities(z), exact, rtol=1e-6, atol=1e-37)


def test_extreme_margins_stay_finite():
    z = np.array([1e4, -1e4, 3e38, -3e38], np.float32)
    p = kernels.logistic_probabilities(z)
    assert p.tolist() == [1, 0, 1, 0]
    for y in (0, 1):
        loss, _ = kernels.logistic_loss(z, np.full(4, y, np.float32), None)
        assert np.isfinite(loss)


def test_a_row_without_weight_has_no_part_even_if_infinite():
    z = np.array([np.inf, 0], np.float32)
    loss, weight = kernels.logistic_loss(z, np.zeros(2, np.float32), np.array([0, 1], np.float32))
    assert loss == pytest.approx(np.log(2))
    assert weight == 1


def test_nan_margin_is_visible():
    loss, _ = kernels.logistic_loss(np.array([np.nan], np.float32), np.ones(1, np.float32), None)
    assert np.isnan(loss)
    assert np.isnan(kernels.logistic_probabilities(np.array([np.nan], np.float32)))[0]


@pytest.mark.parametrize("label", [-1, 2, 0.5, np.nan, np.inf])
def test_other_labels_are_refused(label):
    with pytest.raises(ValueError, match=r"labels: row 1: .*0 or 1"):
        kernels.logistic_loss(np.zeros(2, np.float32), np.array([0, label], np.float32), None)


@pytest.mark.parametrize("weight", [-1, np.nan, np.inf])
def test_bad_sample_weights_are_refused(weight):
    with pytest.raises(ValueError, match="weights: row 0"):
        kernels.logistic_loss(
            np.zeros(1, np.float32), np.zeros(1, np.float32), np.array([weight], np.float32)
        )
