"""The synthetic clicks: reproducible, heavy-tailed, learnable down to a known loss."""

from __future__ import annotations

import numpy as np

from squall.testing.clicks import FIELDS, N_FEATURES, ClickSource, clicks


def test_the_same_seed_makes_the_same_rows() -> None:
    first, second = (ClickSource(1000, seed=3).make(0) for _ in range(2))
    assert np.array_equal(first.indices, second.indices)
    assert np.array_equal(first.labels, second.labels)
    assert not np.array_equal(first.labels, ClickSource(1000, seed=4).make(0).labels)


def test_rows_are_made_part_by_part() -> None:
    data = clicks(2500, part_rows=1000)
    assert [block.n_rows for block in data.blocks()] == [1000, 1000, 500]
    assert data.n_rows == 2500


def test_slots_are_within_the_space_and_the_tails_are_heavy() -> None:
    rows = ClickSource(100_000, seed=0).make(0)
    assert rows.indices.shape == (100_000, FIELDS)
    assert rows.indices.min() >= 0 and rows.indices.max() < N_FEATURES
    counts = np.bincount(rows.indices.reshape(-1), minlength=N_FEATURES)
    assert (counts > 0).sum() > 200_000, "many slots are touched"
    assert np.sort(counts)[-200:].sum() > 0.2 * counts.sum(), "and few are touched often"


def test_the_planted_model_is_better_than_the_base_rate() -> None:
    rows = ClickSource(100_000, seed=0).make(0)
    rate = rows.labels.mean()
    base = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    assert 0.1 < rate < 0.5
    assert rows.best_loss() < 0.93 * base
