"""A job whose plan changes between epochs, without I/O."""

from __future__ import annotations

import pytest

from squall.driver.events import (
    Arrange,
    Arranged,
    AskPlanner,
    Command,
    Ended,
    EndLeg,
    Evaluate,
    Event,
    Launch,
    Leg,
    Planned,
    Proceed,
    Reported,
    RequestStop,
    Resumed,
    Start,
    Stop,
    Switch,
)
from squall.driver.ledger import Ledger, load_prices
from squall.driver.limits import Limits
from squall.driver.machine import JobMachine
from squall.records import Outcome, OutcomeKind, Phases, Plan, Report

FINISHED = Outcome(OutcomeKind.RETURNED, {"end": "finished"}, billed_s=1.0)
STOPPED = Outcome(OutcomeKind.RETURNED, {"end": "stopped"}, billed_s=1.0)
KILLED = Outcome(OutcomeKind.KILLED, signal=9, billed_s=1.0)
TWO, THREE = Plan(2, 1769), Plan(3, 3538)


def make(epochs: int = 3, *, evaluates: bool = False, planned: bool = True) -> JobMachine:
    ledger = Ledger(load_prices("aws-lambda-us-east-1"), TWO.memory_mb, 0.0)
    return JobMachine(TWO, epochs, ledger, evaluates=evaluates, limits=Limits(), planned=planned)


def done(slot: int, attempt: int, epoch: int) -> Reported:
    return Reported(Report(slot, attempt, epoch, 10, 5.0, 10.0, True, 0.5, 0.0, Phases()))


def run(machine: JobMachine, *events: Event) -> list[Command]:
    """Commands that the last event gave."""
    commands: list[Command] = []
    for event in events:
        commands = machine.handle(event, now=1.0)
    return commands


def at_the_first_gate(**settings: bool) -> JobMachine:
    machine = make(**settings)
    run(machine, Start(), done(0, 1, 0))
    commands = run(machine, done(1, 1, 0))
    assert commands[-1] == AskPlanner(1)
    return machine


def in_the_second_leg() -> JobMachine:
    machine = at_the_first_gate()
    run(machine, Planned(1, THREE), Ended(0, 1, FINISHED, 5), Ended(1, 1, FINISHED, 5))
    run(machine, Arranged(1))
    return machine


def test_nobody_is_asked_where_the_plan_is_fixed() -> None:
    machine = make(planned=False)
    assert run(machine, Start(), done(0, 1, 0), done(1, 1, 0)) == []
    assert machine.epochs_of_leg == (3, None)


def test_with_the_same_plan_the_workers_go_on() -> None:
    machine = at_the_first_gate()
    assert machine.epochs_of_leg == (3, 1)
    assert run(machine, Planned(1, TWO)) == [Proceed(1)]
    assert machine.epochs_of_leg == (3, 2)
    assert run(machine, done(0, 1, 1), done(1, 1, 1)) == [AskPlanner(2)]
    assert run(machine, Planned(2, TWO)) == [Proceed(2)]
    assert machine.epochs_of_leg == (3, None)
    assert run(machine, done(0, 1, 2), done(1, 1, 2)) == [], "there is nothing left to plan"
    run(machine, Ended(0, 1, FINISHED, 15), Ended(1, 1, FINISHED, 15))
    assert (machine.state, machine.reason) == ("finished", "epochs")


def test_with_another_plan_others_go_on() -> None:
    machine = at_the_first_gate()
    assert run(machine, Planned(1, THREE)) == [EndLeg(1)]
    assert machine.epochs_of_leg == (1, None)
    assert run(machine, Ended(0, 1, FINISHED, 5)) == []
    leg = Leg(1, 1, THREE)
    assert run(machine, Ended(1, 1, FINISHED, 5)) == [Arrange(leg)]
    assert run(machine, Arranged(1)) == [Switch(leg), Launch(0, 2), Launch(1, 2), Launch(2, 1)]
    assert machine.epochs_of_leg == (3, 2)
    assert machine.status(1.0).notes == [
        "after 1.0 s: from epoch 2 on 3 workers of 3,538 MB instead of 2 of 1,769 MB"
    ]
    assert run(machine, done(0, 2, 1), done(1, 2, 1), done(2, 1, 1)) == [AskPlanner(2)]
    assert [record.workers for record in machine.history] == [2, 3]


def test_the_model_is_measured_before_anybody_goes_on() -> None:
    machine = make(evaluates=True)
    assert run(machine, Start(), done(0, 1, 0), done(1, 1, 0)) == [Evaluate(0), AskPlanner(1)]


def test_memory_of_each_leg_is_billed() -> None:
    machine = at_the_first_gate()
    run(machine, Planned(1, THREE), Ended(0, 1, FINISHED, 5), Ended(1, 1, FINISHED, 5), Arranged(1))
    before = machine.ledger.bill(1.0).gb_seconds
    assert before == pytest.approx(2 * 1769 / 1024)
    run(machine, Ended(0, 2, FINISHED, 5), Ended(1, 2, FINISHED, 5), Ended(2, 1, FINISHED, 5))
    assert machine.ledger.bill(1.0).gb_seconds - before == pytest.approx(3 * 3538 / 1024)


def test_answers_that_come_twice_or_too_late_change_nothing() -> None:
    machine = at_the_first_gate()
    run(machine, Planned(1, TWO))
    assert run(machine, Planned(1, THREE)) == []
    assert run(machine, Planned(2, THREE)) == [], "nobody has asked yet: not all workers wait"
    assert run(machine, Arranged(1)) == []
    assert machine.leg == Leg(0, 0, TWO)


def test_what_is_heard_of_workers_of_a_leg_before_changes_nothing() -> None:
    machine = in_the_second_leg()
    rows = machine.trained_rows
    assert run(machine, done(0, 1, 1), done(1, 1, 1), Ended(1, 1, KILLED, 9)) == []
    assert machine.trained_rows == rows


def test_a_worker_that_dies_while_it_waits_is_replaced_and_its_successor_may_end() -> None:
    machine = at_the_first_gate()
    run(machine, Planned(1, THREE), Ended(0, 1, FINISHED, 5))
    assert run(machine, Ended(1, 1, KILLED, 5)) == [Launch(1, 2)]
    assert run(machine, Ended(1, 2, FINISHED, 5)) == [Arrange(Leg(1, 1, THREE))]


def test_a_stop_while_the_next_leg_is_made_ready_ends_the_job() -> None:
    machine = at_the_first_gate()
    run(machine, Planned(1, THREE), Ended(0, 1, FINISHED, 5), Ended(1, 1, FINISHED, 5))
    assert run(machine, Stop("enough")) == [RequestStop()]
    assert machine.state == "finished"
    assert run(machine, Arranged(1)) == []


def test_a_stop_while_the_planner_thinks_ends_the_job() -> None:
    machine = at_the_first_gate()
    assert run(machine, Stop("enough")) == [RequestStop()]
    assert run(machine, Planned(1, THREE)) == []
    run(machine, Ended(0, 1, STOPPED, 5), Ended(1, 1, STOPPED, 5))
    assert (machine.state, machine.reason) == ("finished", "enough")


def test_another_driver_asks_again() -> None:
    machine = at_the_first_gate()
    again = Resumed([5, 5], restored=False)
    assert run(machine, again) == [AskPlanner(1), Launch(0, 2), Launch(1, 2)]


def test_another_driver_keeps_to_what_the_planner_has_said() -> None:
    machine = at_the_first_gate()
    run(machine, Planned(1, THREE))
    assert run(machine, Resumed([5, 5], restored=False)) == [Launch(0, 2), Launch(1, 2)]
    assert machine.epochs_of_leg == (1, None), "those who are launched end before the epoch of others"
    run(machine, Ended(0, 2, FINISHED, 5))
    assert run(machine, Ended(1, 2, FINISHED, 5)) == [Arrange(Leg(1, 1, THREE))]


def test_another_driver_makes_the_next_leg_ready() -> None:
    machine = at_the_first_gate()
    run(machine, Planned(1, THREE), Ended(0, 1, FINISHED, 5), Ended(1, 1, FINISHED, 5))
    assert run(machine, Resumed([5, 5], restored=False)) == [Arrange(Leg(1, 1, THREE))]


def test_what_a_restored_store_has_lost_is_done_before_the_next_leg() -> None:
    machine = at_the_first_gate()
    run(machine, Planned(1, THREE), Ended(0, 1, FINISHED, 5), Ended(1, 1, FINISHED, 5))
    assert run(machine, Resumed([5, 3], restored=True)) == [Launch(1, 2)]
    assert run(machine, Ended(1, 2, FINISHED, 5)) == [Arrange(Leg(1, 1, THREE))]


def test_another_driver_goes_on_in_the_second_leg() -> None:
    machine = in_the_second_leg()
    assert run(machine, Resumed([1, 2, 3], restored=True)) == [Launch(0, 3), Launch(1, 3), Launch(2, 2)]
