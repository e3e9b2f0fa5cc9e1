"""Filters and encodings: what they let through, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.records import Int64
from squall.worker.compression import Compression, Compressor

FILTERS = [(None, 0.0), ("threshold", 0.5), ("significance", 2.0), ("top-k", 0.3)]
ENCODINGS = [None, "float16", "int8"]


def rows_of(*numbers: int) -> Int64:
    return np.array(numbers, dtype=np.int64)


def column(*values: float) -> Any:
    return np.array(values, dtype=np.float32)[:, None]


@settings(deadline=None)
@given(st.data(), st.sampled_from(FILTERS), st.sampled_from(ENCODINGS), st.integers(1, 3))
def test_what_goes_out_and_what_is_held_back_add_up(
    data: Any, chosen: tuple[Any, float], encoding: Any, dim: int
) -> None:
    compressor = Compressor(Compression(*chosen, encoding), 20, dim)
    draw = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    given_, sent = np.zeros((20, dim)), np.zeros((20, dim))
    for step in range(data.draw(st.integers(1, 12))):
        rows = np.sort(draw.permutation(20)[: draw.integers(0, 20)])
        gradient = draw.normal(size=(len(rows), dim)).astype(np.float32)
        weights = draw.normal(size=(len(rows), dim)).astype(np.float32)
        update = compressor.compress(rows, gradient, weights, step)
        assert set(update.rows.tolist()) <= set(rows.tolist())
        given_[rows] += gradient
        sent[update.rows] += update.decoded()
        if data.draw(st.booleans()):  # a hand-over
            state = compressor.state_dict()
            compressor = Compressor(Compression(*chosen, encoding), 20, dim)
            compressor.load_state_dict(state)
    rest = compressor.rest()
    if rest is not None:
        sent[rest.rows] += rest.decoded()
    np.testing.assert_allclose(sent, given_, rtol=1e-4, atol=1e-5)


def test_threshold() -> None:
    compressor = Compressor(Compression("threshold", 1.0), 5, 1)
    zeros = column(0, 0, 0)
    first = compressor.compress(rows_of(0, 2, 4), column(0.6, -2.0, 1.0), zeros, 0)
    assert (first.rows.tolist(), first.values.tolist()) == ([2], [[-2.0]])
    second = compressor.compress(rows_of(0, 2, 4), column(0.6, -0.5, -1.0), zeros, 1)
    assert (second.rows.tolist(), second.values.tolist()) == ([0], [[pytest.approx(1.2)]])


def test_significance_is_relative_and_gets_finer_with_time() -> None:
    compressor = Compressor(Compression("significance", 0.8), 3, 1)
    weights = column(1.0, -10.0, 0.0)
    update = compressor.compress(rows_of(0, 1, 2), column(1.0, 1.0, 1e-6), weights, 0)
    assert update.rows.tolist() == [0, 2], "a weight of 0 is changed by anything"
    assert compressor.compress(rows_of(1), column(0.0), weights[1:2], 15).rows.tolist() == []
    assert compressor.compress(rows_of(1), column(0.0), weights[1:2], 99).rows.tolist() == [1]


def test_top_k_sends_the_largest() -> None:
    compressor = Compressor(Compression("top-k", 0.5), 9, 1)
    update = compressor.compress(rows_of(1, 3, 5, 7), column(0.1, -4.0, 3.0, 0.2), column(0, 0, 0, 0), 0)
    assert (update.rows.tolist(), update.values[:, 0].tolist()) == ([3, 5], [-4.0, 3.0])
    assert len(compressor.compress(rows_of(8), column(0.5), column(0), 0).rows) == 1, "one at least"


def test_everything_filtered_is_an_empty_update() -> None:
    compressor = Compressor(Compression("threshold", 9.0, "int8"), 5, 2)
    update = compressor.compress(rows_of(1), np.ones((1, 2), np.float32), np.ones((1, 2), np.float32), 0)
    assert update.values.shape == (0, 2)
    assert update.decoded().shape == (0, 2)


@pytest.mark.parametrize(("encoding", "size"), [("float16", 2), ("int8", 1)])
def test_encodings_round_and_remember(encoding: str, size: int) -> None:
    compressor = Compressor(Compression(None, 0.0, encoding), 2, 1)
    values, sent = column(1.0, 1 / 300), np.zeros((2, 1))
    for _ in range(100):
        update = compressor.compress(rows_of(0, 1), values, values, 0)
        assert update.values.nbytes == 2 * size
        sent += update.decoded()
    np.testing.assert_allclose(sent, 100 * values, rtol=0.02)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_large_and_tiny_values(encoding: Any) -> None:
    compressor = Compressor(Compression(None, 0.0, encoding), 2, 1)
    update = compressor.compress(rows_of(0, 1), column(1e6, 1e-40), column(0, 0), 0)
    assert np.isfinite(update.decoded()).all()
    assert update.decoded()[0, 0] >= 60_000
