"""What the simulation shows, and that it would notice if the core were wrong."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from squall.driver import events
from squall.driver.machine import JobMachine
from squall.records import OutcomeKind, Report
from squall.simulation import job, worker
from squall.simulation.invariants import BrokenInvariantError
from squall.simulation.job import Simulation, simulate
from squall.simulation.scenario import Change, DriverDeath, PlatformModel, Scenario, Workload

FAULTY = PlatformModel(
    lifetime_s=60.0,
    kill=0.05,
    memory=0.01,
    drop=0.02,
    lose=0.02,
    duplicate=0.05,
    throttle=0.1,
    straggle=0.05,
    hang=0.02,
    concurrency=9_999,
)


def told(simulation: Simulation) -> tuple[object, ...]:
    machine = simulation.machine
    return (simulation.time_s, simulation.n_events, machine.history, machine.attempts)


def test_a_scenario_always_runs_in_the_same_way() -> None:
    for seed in (3, 57, 141):
        assert told(simulate(Scenario.draw(seed))) == told(simulate(Scenario.draw(seed)))
    assert told(simulate(Scenario(seed=1))) != told(simulate(Scenario(seed=2)))


def test_a_job_without_faults_takes_the_time_and_the_money_that_it_should() -> None:
    scenario = Scenario(platform=PlatformModel(spread=0.0, news_s=0.0))
    simulation = simulate(scenario)
    machine, per_worker_s = simulation.machine, 2 * 2_000 / 2_000 + 0.3
    assert (machine.state, machine.reason) == ("finished", "epochs")
    assert simulation.time_s == pytest.approx(per_worker_s, rel=0.05)
    assert [record.rows for record in machine.history] == [4_000, 4_000]
    metered = sum(simulation.platform.billed_s)
    assert metered == pytest.approx(2 * per_worker_s, rel=0.05)
    assert machine.ledger.bill(simulation.time_s).gb_seconds == pytest.approx(metered * 1769 / 1024, rel=1e-3)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("kill", OutcomeKind.KILLED),
        ("memory", OutcomeKind.OUT_OF_MEMORY),
        ("drop", OutcomeKind.LOST),
        ("lose", OutcomeKind.LOST),
        ("hang", OutcomeKind.LOST),
        ("throttle", OutcomeKind.THROTTLED),
    ],
)
def test_a_fault_is_met_and_survived(fault: str, kind: OutcomeKind) -> None:
    scenario = Scenario(
        workload=Workload(n_workers=8, rows=16_000),
        platform=PlatformModel(lifetime_s=30.0, **{fault: 0.3}),
        max_restarts=9,
    )
    machine = simulate(scenario).machine
    ends = Counter(attempt.outcome.kind for attempt in machine.attempts.values() if attempt.outcome)
    assert ends[kind] and (machine.state, machine.reason) == ("finished", "epochs")


def test_functions_that_live_shortly_hand_over_to_stand_bys() -> None:
    scenario = Scenario(workload=Workload(rows=20_000), platform=PlatformModel(lifetime_s=3.0))
    machine = simulate(scenario).machine
    ends = Counter(attempt.outcome.value["end"] for attempt in machine.attempts.values() if attempt.outcome)
    assert ends["handover"] > 4 and machine.reason == "epochs"
    cold_s = scenario.platform.cold_start_s
    assert machine.status(0.0).lost_s < ends["handover"] * cold_s / 2, "successors were ready"


CHANGES = (Change(epoch=1, workers=3, memory_mb=3008), Change(epoch=2, workers=1))


@pytest.mark.parametrize("changes", [None, (), CHANGES], ids=["fixed", "asked", "changed"])
def test_a_driver_that_dies_at_any_event_is_succeeded(changes: tuple[Change, ...] | None) -> None:
    workload = Workload(epochs=3, rows=1_000)
    whole = simulate(Scenario(seed=5, workload=workload, changes=changes))
    for event in range(1, whole.n_events + 1):
        for when in ("before", "logged", "commanded"):
            for restores in (False, True):
                death = DriverDeath(event=event, when=when, restores=restores, orphans=not restores)
                scenario = Scenario(seed=5, workload=workload, deaths=(death,), changes=changes)
                machine = simulate(scenario).machine
                assert machine.reason == "epochs"
                assert machine.leg.number == (2 if changes else 0)


def test_functions_of_each_leg_have_its_memory() -> None:
    simulation = simulate(Scenario(workload=Workload(epochs=3), changes=CHANGES))
    machine, ledger = simulation.machine, simulation.machine.ledger
    by_leg = [(0, 1769), (0, 1769), (1, 3008), (1, 3008), (1, 3008), (2, 1769)]
    assert len(machine.attempts) == len(by_leg)
    metered = sum(s * mb / 1024 for s, (_, mb) in zip(simulation.platform.billed_s, by_leg, strict=True))
    assert ledger.bill(simulation.time_s).gb_seconds == pytest.approx(metered, rel=1e-3)


@pytest.mark.parametrize("n_workers", [1_000, pytest.param(5_000, marks=pytest.mark.slow)])
def test_thousands_of_workers_with_faults(n_workers: int) -> None:
    workload = Workload(n_workers=n_workers, rows=n_workers * 500, block=5, evaluate_s=0.5)
    deaths = (DriverDeath(event=3 * n_workers, when="logged"),)
    scenario = Scenario(workload=workload, platform=FAULTY, deaths=deaths, throttled_s=300.0)
    simulation = simulate(scenario)
    assert (simulation.machine.state, simulation.machine.reason) == ("finished", "epochs")
    assert len(simulation.machine.attempts) > n_workers
    assert simulation.drivers == 2


@pytest.mark.parametrize("barriers", [False, True])
def test_a_job_ends_sooner_if_stragglers_are_replaced(barriers: bool) -> None:
    workload = Workload(n_workers=8, rows=160_000, epochs=3, barriers=barriers)
    platform = PlatformModel(straggle=0.2, slowdown=8.0)
    wait, replace = (
        simulate(Scenario(seed=3, workload=workload, platform=platform, replaces_stragglers=replaces))
        for replaces in (False, True)
    )
    assert wait.machine.reason == replace.machine.reason == "epochs"
    assert len(wait.machine.attempts) == 8 < len(replace.machine.attempts)
    assert replace.time_s < 0.5 * wait.time_s


@pytest.mark.slow
def test_five_thousand_workers_meet_a_quota_of_one_thousand_with_few_refusals() -> None:
    workload = Workload(n_workers=5_000, rows=5_000 * 300, epochs=1, rows_per_s=60.0, block=1)
    scenario = Scenario(workload=workload, platform=PlatformModel(concurrency=1_000), throttled_s=60.0)
    machine = simulate(scenario).machine
    ends = Counter(attempt.outcome.kind for attempt in machine.attempts.values() if attempt.outcome)
    assert machine.reason == "epochs" and ends[OutcomeKind.RETURNED] == 5_000
    assert ends[OutcomeKind.THROTTLED] < 5_000, "all but one in five, if all were launched at once"


def test_an_event_is_as_much_work_with_thousands_of_workers() -> None:
    """Counted in calls, not in seconds."""
    few, many = calls_an_event(20), calls_an_event(1_000)
    assert few < many * 1.5 and many < few * 1.5, (few, many)


def calls_an_event(n_workers: int) -> float:
    """Calls, generators' turns among them, that the machine makes for an event that is not a tick."""
    counted = Counter[str]()

    def count(frame: FrameType, what: str, argument: Any) -> None:
        counted["calls"] += what in ("call", "c_call")

    handle = JobMachine.handle

    def handled(self: JobMachine, event: events.Event, now: float) -> list[events.Command]:
        if isinstance(event, events.Tick | events.Start):
            return handle(self, event, now)
        counted["events"] += 1
        sys.setprofile(count)
        try:
            return handle(self, event, now)
        finally:
            sys.setprofile(None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobMachine, "handle", handled)
        simulate(Scenario(workload=Workload(n_workers=n_workers, rows=n_workers * 500), platform=FAULTY))
    return counted["calls"] / counted["events"]


# ------------------------------------------------------------------- would it notice a fault of ours?


def launches_without_a_number(slot: int, attempt: int, standby: bool = False) -> events.Launch:
    return events.Launch(slot, 1, standby)


def unnumbered(**fields: Any) -> Report:
    return Report(**{**fields, "number": 0})


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        ("squall.driver.machine", "Launch", launches_without_a_number),
        (job, "reaches_out", lambda commands: False),
        (worker, "Report", unnumbered),
        ("squall.driver.ramp.Ramp", "allows", lambda ramp, now: True),
    ],
)
def test_a_fault_of_the_core_is_noticed(
    owner: Any, name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(owner, str):
        monkeypatch.setattr(f"{owner}.{name}", wrong)
    else:
        monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(BrokenInvariantError):
        for seed in range(1_000):
            simulate(Scenario.draw(seed))
