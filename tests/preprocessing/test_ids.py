"""Ids and their codes."""

from __future__ import annotations

import numpy as np
import pytest

from squall.preprocessing.ids import Ids, distinct
from squall.records import NumericColumn


@pytest.mark.parametrize("spread", [1, 50, 10**6, 2**62])
@pytest.mark.parametrize("n", [0, 1, 300])
def test_different_numbers_are_found_close_together_or_far_apart(spread: int, n: int) -> None:
    numbers = np.random.default_rng(n).integers(-spread, spread, n)
    for found, expected in zip(distinct(numbers), np.unique(numbers, return_inverse=True), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_codes_of_numbers_that_are_no_ids() -> None:
    ids = Ids()
    assert ids.learn(NumericColumn(np.array([7.0, -2.0, 7.0])), "x").tolist() == [1, 0, 1]
    asked = np.array([-2.0, 7.5, np.nan, np.inf, 7.0, 3.0, 2.0**60])
    assert ids.codes(NumericColumn(asked)).tolist() == [0, -1, -1, -1, 1, -1, -1]
    assert ids.codes(NumericColumn(asked[[4, 5, 0]])).tolist() == [1, -1, 0]
    assert ids.codes(NumericColumn(np.array([7, 8], dtype=np.int64))).tolist() == [1, -1]
