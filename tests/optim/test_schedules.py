from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.optim import kernel_rule
from squall.optim.schedules import SCHEDULES, levels
from squall.records import OptimizerSpec


def paces(**settings):
    """The multiplier of each planned step."""
    spec = OptimizerSpec("sgd", 0.1, **settings)
    found, span = levels(spec)
    return np.repeat(found, span)[: spec.steps]


def test_a_constant_rate_needs_no_levels():
    assert levels(OptimizerSpec("sgd", 0.1, steps=100)) == (None, 1)


def test_inverse():
    np.testing.assert_allclose(paces(schedule="inverse", decay=0.5, steps=4), [1, 2 / 3, 1 / 2, 2 / 5])


def test_cosine_falls_to_zero():
    pace = paces(schedule="cosine", steps=1000)
    assert pace[0] == 1
    assert pace[500] == pytest.approx(0.5)
    assert pace[-1] < 1e-5
    assert (np.diff(pace) < 0).all()


def test_warm_up_comes_before_any_schedule():
    np.testing.assert_allclose(paces(warmup=4, steps=6), [0.25, 0.5, 0.75, 1, 1, 1])
    pace = paces(schedule="cosine", warmup=4, steps=8)
    np.testing.assert_allclose(pace[3:], [1, 1, (1 + np.sqrt(0.5)) / 2, 0.5, (1 - np.sqrt(0.5)) / 2])
    assert paces(schedule="cosine", warmup=8, steps=8)[-1] == 1  # nothing is left for the cosine


@given(st.sampled_from(SCHEDULES), st.integers(1, 10**7), st.floats(0, 1), st.floats(0, 1))
def test_many_steps_share_few_levels(schedule, steps, share, decay):
    spec = OptimizerSpec("sgd", 0.1, schedule=schedule, warmup=int(share * steps), steps=steps, decay=decay)
    found, span = levels(spec)
    kernel_rule(spec)  # it is content with them
    if found is not None:
        assert len(found) <= 4096
        assert len(found) * span >= steps > (len(found) - 1) * span
        assert ((found >= 0) & (found <= 1)).all()


def test_a_level_has_the_rate_of_its_middle():
    few, many = (paces(schedule="cosine", warmup=n // 10, steps=n) for n in (4000, 40_000))
    np.testing.assert_allclose(few, many[5::10], atol=2e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "cosine"},
        {"warmup": 3},
        {"warmup": -1, "steps": 9},
        {"schedule": "inverse", "decay": -1.0, "steps": 2},
    ],
)
def test_what_a_schedule_needs(settings):
    with pytest.raises(ValueError, match=r"steps: is 0|warmup, decay"):
        levels(OptimizerSpec("sgd", 0.1, **settings))
