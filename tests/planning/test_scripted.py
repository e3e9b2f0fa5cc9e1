"""The planner that does what it has been told beforehand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import squall
from squall.errors import SettingError
from squall.records import Plan, Situation


def asked(planner: squall.ScriptedPlanner, epoch: int) -> Plan:
    plan = Plan(2, 1769)
    return planner.next_plan(Situation(plan, epoch, 9, 100, [], 1.0, 0.0, None, None))


def test_it_changes_what_it_was_told_to_and_leaves_the_rest() -> None:
    planner = squall.ScriptedPlanner({1: 4, 2: (None, "2GB"), 3: (8, 512 << 20)})
    assert [asked(planner, epoch) for epoch in (1, 2, 3, 4)] == [
        Plan(4, 1769),
        Plan(2, 2048),
        Plan(8, 512),
        Plan(2, 1769),
    ]


def test_it_is_plain_data() -> None:
    planner = squall.ScriptedPlanner({1: 4, 2: (None, "2GB")})
    plain = msgspec.json.decode(msgspec.json.encode(planner))
    assert msgspec.convert(plain, squall.ScriptedPlanner, strict=False) == planner


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ([(1, 2)], "must be a dict"),
        ({0: 2}, "from 1 on"),
        ({"one": 2}, "from 1 on"),
        ({1: 0}, "workers after epoch 1=0"),
        ({1: (2, "many")}, "memory after epoch 1"),
        ({1: (2, "1MB")}, "below 128MB"),
        ({1: (2, "2GB", 3)}, "must be workers or"),
    ],
)
def test_what_is_wrong_is_told(after: Any, told: str) -> None:
    with pytest.raises(SettingError, match=told):
        squall.ScriptedPlanner(after)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        squall.ScriptedPlanner({0: 2, 1: -1})
    assert "from 1 on" in str(caught.value) and "epoch 1=-1" in str(caught.value)
