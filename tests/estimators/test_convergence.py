"""How many rounds are told to be left, by how residuals fell."""

from __future__ import annotations

import pytest

from squall.estimators.convergence import rounds_to_go
from squall.records import SolverRound


def rounds(residuals: list[float], enough: float = 1e-6) -> list[SolverRound]:
    return [SolverRound(1.0, r, r / 2, 1.0, 2.0, enough, converged=False) for r in residuals]


def test_residuals_that_fall_evenly_are_followed_to_the_end() -> None:
    fallen = [10.0**-k for k in range(12)]
    for n in (4, 5, 6):
        assert rounds_to_go(rounds(fallen[:n], enough=0.99e-6)) == 8 - n
    assert rounds_to_go(rounds(fallen[:8])) == 1, "it has not said that it converged"


def test_only_the_last_half_counts() -> None:
    assert rounds_to_go(rounds([1.0, 1e-3, 1e-3, 1e-3, 5e-4, 2.5e-4], enough=1e-4)) == 2


@pytest.mark.parametrize(
    "residuals", [[1.0, 0.1, 0.01], [1.0, 1.0, 1.0, 1.0], [1.0, 0.5, 0.6, 0.7], [0.0] * 5]
)
def test_what_does_not_fall_has_no_end(residuals: list[float]) -> None:
    assert rounds_to_go(rounds(residuals)) is None
