"""Ten thousand small jobs with faults, on the real core: each ends, and no invariant is broken.

A seed that breaks one is kept as a file in ``kept``, whatever becomes of the way scenarios are drawn::

    >>> print(msgspec.json.encode(Scenario.draw(seed)).decode())
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from squall.simulation.job import simulate
from squall.simulation.scenario import KINDS, Scenario

SCHEDULES, QUICK, BATCH = 10_000, 1_000, 500
KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))


FIRSTS = [
    pytest.param(first, marks=pytest.mark.slow if first >= QUICK else ())
    for first in range(0, SCHEDULES, BATCH)
]


@pytest.mark.parametrize("first", FIRSTS)
def test_schedules(first: int) -> None:
    for seed in range(first, first + BATCH):
        simulate(Scenario.draw(seed))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_scenarios_that_once_failed(path: Path) -> None:
    simulate(msgspec.json.decode(path.read_bytes(), type=Scenario))


def test_the_schedules_meet_every_fault_and_every_end() -> None:
    drawn = [Scenario.draw(seed) for seed in range(BATCH)]
    for kind in (*KINDS, "fail"):
        assert any(getattr(scenario.platform, kind) for scenario in drawn), kind
    deaths = [death for scenario in drawn for death in scenario.deaths]
    assert {death.when for death in deaths} == {"before", "logged", "commanded"}
    assert {(death.restores, death.orphans) for death in deaths} == {
        (restores, orphans) for restores in (False, True) for orphans in (False, True)
    }
    ends = [simulate(scenario) for scenario in drawn]
    reasons = {end.machine.reason for end in ends}
    assert reasons >= {"epochs", "deadline", "budget", "stopped by the user"}
    assert {end.machine.state for end in ends} == {"finished", "failed"}
    assert {end.drivers for end in ends} == {1, 2, 3}
    assert {end.machine.leg.number for end in ends} == {0, 1, 2}
