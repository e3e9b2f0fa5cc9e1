"""The job's state machine, without I/O: what it decides, for every order of events."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from squall.driver.events import (
    Cancel,
    CancelAll,
    Command,
    Ended,
    Evaluate,
    Evaluated,
    Event,
    Launch,
    Proceed,
    Release,
    Reported,
    RequestStop,
    Resumed,
    Start,
    Stop,
    StoreRestored,
    Tick,
)
from squall.driver.ledger import Ledger, load_prices
from squall.driver.limits import Limits
from squall.driver.machine import JobMachine
from squall.errors import DivergenceError, FunctionError, JobError
from squall.records import HeldOut, Outcome, OutcomeKind, Phases, Plan, Report

FINISHED = Outcome(OutcomeKind.RETURNED, {"end": "finished"}, billed_s=1.0)
HANDOVER = Outcome(OutcomeKind.RETURNED, {"end": "handover"}, billed_s=1.0)
STOPPED = Outcome(OutcomeKind.RETURNED, {"end": "stopped"}, billed_s=1.0)
ROLLED_BACK = Outcome(OutcomeKind.RETURNED, {"end": "rolled back"}, billed_s=1.0)
THROTTLED = Outcome(OutcomeKind.THROTTLED)
KILLED = Outcome(OutcomeKind.KILLED, signal=9, billed_s=1.0)


def make(
    n_slots: int = 2,
    epochs: int = 2,
    *,
    evaluates: bool = False,
    planned: bool = False,
    **limits: float | int,
) -> JobMachine:
    plan, ledger = Plan(n_slots, 1769), Ledger(load_prices("aws-lambda-us-east-1"), 1769, 0.0)
    bounds = Limits(**limits)  # type: ignore[arg-type]
    return JobMachine(plan, epochs, ledger, evaluates=evaluates, limits=bounds, planned=planned)


def report(
    slot: int,
    attempt: int = 1,
    epoch: int = 0,
    rows: int = 10,
    *,
    done: bool = True,
    ending: bool = False,
    working_s: float = 0.0,
) -> Reported:
    phases = Phases(gets=1)
    return Reported(
        Report(slot, attempt, epoch, rows, 0.5 * rows, float(rows), done, 0.5, working_s, phases, ending)
    )


def run(machine: JobMachine, *events: Event) -> list[Command]:
    """Commands that the last event gave."""
    commands: list[Command] = []
    for event in events:
        commands = machine.handle(event, now=1.0)
    return commands


def test_a_start_launches_every_slot() -> None:
    machine = make(3)
    assert run(machine, Start()) == [Launch(0, 1), Launch(1, 1), Launch(2, 1)]
    assert machine.state == "running"


def test_the_course_of_a_job() -> None:
    machine = make(2, 2)
    run(machine, Start(), report(0), report(1))
    assert [record.rows for record in machine.history] == [20]
    assert machine.history[0].loss == pytest.approx(0.5)
    run(machine, report(0, epoch=1), Ended(0, 1, FINISHED, 4), report(1, epoch=1), Ended(1, 1, FINISHED, 4))
    assert (machine.state, machine.reason) == ("finished", "epochs")
    assert [record.epoch for record in machine.history] == [1, 2]
    assert [machine.attempts[key].minibatches for key in sorted(machine.attempts)] == [4, 4]


def test_an_epoch_is_over_when_its_slowest_slot_is() -> None:
    machine = make(2, 3)
    run(machine, Start(), report(0, epoch=0), report(0, epoch=1))
    assert machine.history == []
    run(machine, report(1, epoch=0))
    assert [record.epoch for record in machine.history] == [1]


def test_a_killed_worker_is_replaced_by_a_new_attempt() -> None:
    machine = make()
    assert run(machine, Start(), Ended(1, 1, KILLED, 7)) == [Launch(1, 2)]
    assert machine.attempts[1, 1].minibatches == 7
    assert machine.attempts[1, 2].first_minibatch == 7


def test_without_restarts_a_killed_worker_fails_the_job() -> None:
    machine = make(max_restarts=0)
    commands = run(machine, Start(), Ended(1, 1, KILLED, 7))
    assert commands == [RequestStop(), CancelAll()]
    assert isinstance(machine.error, JobError)
    assert "killed by signal 9" in str(machine.error)
    assert "worker 1" in str(machine.error)


def test_deaths_in_a_row_without_progress_end_the_job() -> None:
    machine = make(1, max_restarts=2)
    assert run(machine, Start(), Ended(0, 1, KILLED, 5)) == [Launch(0, 2)]
    assert run(machine, Ended(0, 2, KILLED, 5)) == [Launch(0, 3)]
    assert run(machine, Ended(0, 3, KILLED, 5)) == [RequestStop(), CancelAll()]
    assert machine.state == "failed"


def test_progress_between_deaths_starts_the_count_again() -> None:
    machine = make(1, max_restarts=1)
    run(machine, Start())
    for attempt in range(1, 20):
        assert run(machine, Ended(0, attempt, KILLED, attempt)) == [Launch(0, attempt + 1)]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Outcome(OutcomeKind.OUT_OF_MEMORY), "ran out of memory"),
        (Outcome(OutcomeKind.TIMED_OUT), "time limit"),
        (Outcome(OutcomeKind.KILLED, signal=11), "signal 11"),
        (Outcome(OutcomeKind.EXITED, exit_code=3), "code 3"),
        (Outcome(OutcomeKind.LOST), "lost"),
    ],
)
def test_every_cause_of_death_has_its_own_words(outcome: Outcome, told: str) -> None:
    machine = make(1, max_restarts=0)
    run(machine, Start(), Ended(0, 1, outcome, 0, logs="hello\nlast line\n"))
    assert told in str(machine.error)
    assert "last line" in str(machine.error)
    assert "fix:" in str(machine.error)


def test_an_exception_inside_the_function_ends_the_job_with_its_traceback() -> None:
    machine = make()
    raised = Outcome(OutcomeKind.RAISED, error_type="ValueError", error="no", traceback="line 1\nline 2")
    run(machine, Start(), Ended(0, 1, raised, 0))
    assert isinstance(machine.error, FunctionError)
    assert "line 2" in str(machine.error) and "ValueError: no" in str(machine.error)


def test_divergence_comes_back_as_itself() -> None:
    machine = make()
    text = "the loss is not finite in epoch 2 with sgd at learning_rate=10\n  fix: use a smaller one"
    raised = Outcome(OutcomeKind.RAISED, error_type="squall.errors.DivergenceError", error=text)
    run(machine, Start(), Ended(0, 1, raised, 0))
    assert isinstance(machine.error, DivergenceError)
    assert machine.error.fix == "use a smaller one"
    assert "epoch 2" in machine.error.what


def test_a_handover_is_not_a_failure() -> None:
    machine = make(1, max_restarts=0)
    run(machine, Start())
    for attempt in range(1, 10):
        assert run(machine, Ended(0, attempt, HANDOVER, attempt * 3)) == [Launch(0, attempt + 1)]
    assert machine.state == "running"


def test_near_its_end_a_worker_gets_a_stand_by_that_is_released_by_it() -> None:
    machine = make(1)
    assert run(machine, Start(), report(0, done=False, ending=True)) == [Launch(0, 2, standby=True)]
    assert run(machine, Ended(0, 1, HANDOVER, 5)) == [Release(0, 2)], "said again, in case it could not"
    run(machine, report(0, 2), Ended(0, 2, FINISHED, 9))
    assert machine.attempts[0, 2].first_minibatch == 5


def test_a_stand_by_is_launched_once() -> None:
    machine = make(1)
    run(machine, Start(), report(0, done=False, ending=True))
    assert run(machine, report(0, done=False, ending=True)) == []


def test_a_stand_by_takes_over_when_its_predecessor_is_killed() -> None:
    machine = make(1)
    run(machine, Start(), report(0, done=False, ending=True))
    assert run(machine, Ended(0, 1, KILLED, 5)) == [Release(0, 2)]
    assert machine.state == "running"


def test_a_stand_by_that_dies_is_replaced_when_it_is_needed() -> None:
    machine = make(1)
    run(machine, Start(), report(0, done=False, ending=True))
    assert run(machine, Ended(0, 2, KILLED, 0)) == []
    assert run(machine, Ended(0, 1, HANDOVER, 5)) == [Launch(0, 3)]


def test_a_stand_by_that_is_not_needed_ends_with_its_predecessor() -> None:
    machine = make(1)
    run(machine, Start(), report(0, done=False, ending=True))
    assert run(machine, report(0, epoch=1), Ended(0, 1, FINISHED, 9)) == [Release(0, 2)]
    run(machine, Ended(0, 2, FINISHED, 9))
    assert (machine.state, machine.reason) == ("finished", "epochs")


def test_the_time_for_which_a_slot_stood_still_is_on_record() -> None:
    machine = make(1)
    run(machine, Start())
    machine.handle(report(0, done=False), now=10.0)
    machine.handle(Ended(0, 1, HANDOVER, 5), now=10.1)
    machine.handle(report(0, 2, done=False, working_s=0.5), now=11.0)
    assert machine.attempts[0, 2].lost_s == pytest.approx(0.5)
    machine.handle(Ended(0, 2, KILLED, 7), now=20.0)
    machine.handle(report(0, 3, done=False, working_s=0.25), now=20.75)
    assert machine.attempts[0, 3].lost_s == pytest.approx(0.5)
    assert machine.status(21.0).lost_s == pytest.approx(1.0)


def test_an_event_delivered_twice_does_no_harm() -> None:
    superseded = Outcome(OutcomeKind.RETURNED, {"end": "superseded"}, billed_s=1.0)
    machine = make(1, max_restarts=0)
    assert run(machine, Start(), Ended(0, 1, superseded, 0)) == [Launch(0, 2)]


def test_a_throttled_launch_is_tried_again_later() -> None:
    machine = make(1)
    assert run(machine, Start(), Ended(0, 1, Outcome(OutcomeKind.THROTTLED), 0)) == []
    assert machine.handle(Tick(), now=1.05) == []
    assert machine.handle(Tick(), now=1.11) == [Launch(0, 2)]
    assert machine.handle(Ended(0, 2, Outcome(OutcomeKind.THROTTLED), 0), now=2.0) == []
    assert machine.handle(Tick(), now=2.15) == [], "and later still the second time"
    assert machine.handle(Tick(), now=2.21) == [Launch(0, 3)]


def test_a_platform_that_refuses_for_ever_while_nothing_moves_fails_the_job() -> None:
    machine = make(2, throttled_s=60.0, silence_s=1000.0)
    throttled = Outcome(OutcomeKind.THROTTLED)
    run(machine, Start(), Ended(1, 1, throttled, 0))
    attempt, now = 1, 1.0
    while now < 100.0:  # slot 0 works: it may be why there is no room
        now += 5.0
        assert [c for c in machine.handle(Tick(), now) if isinstance(c, Launch)]
        attempt += 1
        machine.handle(report(0, done=False), now)
        assert machine.handle(Ended(1, attempt, throttled, 0), now) == []
    stuck = now
    while machine.state == "running" and now < stuck + 100.0:  # and now it waits for slot 1
        now += 5.0
        machine.handle(Tick(), now)
        attempt += 1
        machine.handle(Ended(1, attempt, throttled, 0), now)
    assert machine.state == "failed"
    assert stuck + 60.0 < now <= stuck + 66.0
    assert "refused" in str(machine.error) and "worker 1" in str(machine.error)


def test_a_stop_does_not_wait_for_a_throttled_launch() -> None:
    machine = make(1)
    run(machine, Start(), Ended(0, 1, Outcome(OutcomeKind.THROTTLED), 0), Stop("enough"))
    assert machine.state == "finished"


def test_functions_too_short_lived_to_get_anywhere_fail_the_job() -> None:
    machine = make(1, max_restarts=1)
    run(machine, Start(), Ended(0, 1, HANDOVER, 0))
    run(machine, Ended(0, 2, HANDOVER, 0))
    assert machine.state == "failed"
    assert "lifetime" in str(machine.error)


def test_news_told_twice_counts_once() -> None:
    machine = make(1)
    run(machine, Start(), Ended(0, 1, KILLED, 5))
    cost = machine.ledger.bill(1.0).invocations
    assert run(machine, Ended(0, 1, KILLED, 5)) == []
    assert machine.ledger.bill(1.0).invocations == cost


def numbered(slot: int, number: int, *, done: bool = False) -> Reported:
    told = report(slot, done=done)
    return Reported(msgspec.structs.replace(told.report, number=number))


def test_reports_that_an_earlier_driver_had_heard_count_once() -> None:
    machine = make(1)
    run(machine, Start(rows=30), numbered(0, 1), numbered(0, 2))
    run(machine, Resumed([2], restored=False), numbered(0, 1), numbered(0, 2), numbered(0, 3, done=True))
    assert machine.trained_rows == 30
    assert [record.rows for record in machine.history] == [30]


def test_a_stand_by_is_not_launched_for_work_that_is_done() -> None:
    machine = make(2, 1)
    assert run(machine, Start(), report(0, ending=True)) == []


def test_an_epoch_is_not_closed_by_workers_that_stop_in_it() -> None:
    machine = make(2, 3)
    run(machine, Start(rows=20), report(0, rows=3, done=False), Stop("enough"), Ended(0, 1, STOPPED, 1))
    run(machine, report(1, rows=10), Ended(1, 1, STOPPED, 5))
    assert [(record.rows, record.unreported_rows) for record in machine.history] == [(13, 0)]


def test_after_a_restored_store_an_epoch_is_over_when_it_has_been_visited_again() -> None:
    machine = make(2, 3)
    run(machine, Start(), report(0, epoch=0), report(1, epoch=0), report(0, epoch=1))
    run(machine, Resumed([5, 7], restored=True))  # slot 0 is back in the middle of its second epoch
    run(machine, report(1, 2, epoch=1))
    assert len(machine.history) == 1
    run(machine, report(0, 2, epoch=1))
    assert len(machine.history) == 2


def test_after_a_restored_store_a_slot_that_had_finished_need_not_report_again() -> None:
    machine = make(2, 2)
    run(machine, Start(), report(0, epoch=0), report(0, epoch=1), Ended(0, 1, FINISHED, 8))
    run(machine, Resumed([8, 2], restored=True), report(1, 2, epoch=0), report(1, 2, epoch=1))
    run(machine, Ended(1, 2, FINISHED, 8))
    assert (machine.state, machine.reason) == ("finished", "epochs")
    assert [record.epoch for record in machine.history] == [1, 2]


def test_a_successors_report_closes_the_epochs_before_it() -> None:
    # The predecessor died between its last minibatch of epoch 0 and its report.
    machine = make(1, 3)
    run(machine, Start(), report(0, epoch=0, done=False), Ended(0, 1, KILLED, 10))
    run(machine, report(0, attempt=2, epoch=1, done=False))
    assert [record.epoch for record in machine.history] == [1]


# ------------------------------------------------------------------------------------ held-out


def test_held_out_loss_lands_in_its_epoch() -> None:
    machine = make(1, 2, evaluates=True)
    assert run(machine, Start(), report(0)) == [Evaluate(0)]
    run(machine, Evaluated(0, HeldOut(0.25, 0.9, 100)))
    assert machine.history[0].validation_loss == 0.25


def test_a_restored_store_that_may_be_older_is_not_measured_as_the_newest_epoch() -> None:
    def resumed(*, restored: bool) -> tuple[JobMachine, list[Command]]:
        machine = make(1, 2, evaluates=True)
        run(machine, Start(), report(0))  # the driver dies while epoch 0 is measured
        return machine, run(machine, Resumed([5], restored=restored))

    assert Evaluate(0) in resumed(restored=False)[1]
    machine, commands = resumed(restored=True)
    assert commands == [Launch(0, 2)]
    assert run(machine, report(0, 2, epoch=1)) == [Evaluate(1)]


def test_rows_that_a_dead_worker_could_not_report_are_counted_and_marked() -> None:
    machine = make(2, 2)
    run(machine, Start(rows=20), report(0, rows=10), report(1, rows=3, done=False))
    run(machine, Ended(1, 1, KILLED, 2), report(1, 2, rows=4))
    (record,) = machine.history
    assert (record.rows, record.unreported_rows) == (20, 3)
    assert record.loss == pytest.approx(0.5), "a mean over the rows that were reported"
    run(machine, report(0, epoch=1, rows=10), report(1, 2, epoch=1, rows=10))
    assert (machine.history[1].rows, machine.history[1].unreported_rows) == (20, 0)


def test_an_epoch_of_which_nothing_was_reported_is_on_record_all_the_same() -> None:
    machine = make(1, 2)
    run(machine, Start(rows=20), Ended(0, 1, KILLED, 9), report(0, 2, epoch=1, rows=20))
    assert [(r.epoch, r.rows, r.unreported_rows) for r in machine.history] == [(1, 20, 20), (2, 20, 0)]
    assert math.isnan(machine.history[0].loss)


def test_an_epoch_that_is_broken_off_counts_what_was_reported() -> None:
    machine = make(1, 2)
    run(machine, Start(rows=20), report(0, rows=7, done=False), Stop("enough"), Ended(0, 1, STOPPED, 3))
    assert (machine.history[0].rows, machine.history[0].unreported_rows) == (7, 0)


def test_one_evaluation_at_a_time_and_always_the_newest() -> None:
    machine = make(1, 4, evaluates=True)
    run(machine, Start(), report(0, epoch=0))
    assert run(machine, report(0, epoch=1)) == []
    assert run(machine, report(0, epoch=2)) == []
    assert run(machine, Evaluated(0, HeldOut(0.3, 0.9, 100))) == [Evaluate(2)]


def test_a_job_ends_only_when_the_last_epoch_is_measured() -> None:
    machine = make(1, 1, evaluates=True)
    run(machine, Start(), report(0), Ended(0, 1, FINISHED, 3))
    assert machine.state == "finishing"
    run(machine, Evaluated(0, HeldOut(0.3, 0.9, 100)))
    assert machine.state == "finished"


def test_a_slot_without_data_does_not_hold_the_others_up() -> None:
    machine = make(2, 1)
    run(machine, Start(), Ended(1, 1, FINISHED, 0), report(0), Ended(0, 1, FINISHED, 3))
    assert machine.state == "finished"
    assert [record.rows for record in machine.history] == [10]


# --------------------------------------------------------------------------------------- stops


def test_a_stop_waits_for_the_workers_and_keeps_the_reason() -> None:
    machine = make()
    assert run(machine, Start(), report(0), Stop("stopped by the user")) == [RequestStop()]
    run(machine, Ended(0, 1, STOPPED, 3))
    assert machine.state == "stopping"
    run(machine, Ended(1, 1, STOPPED, 3))
    assert (machine.state, machine.reason) == ("finished", "stopped by the user")
    assert [record.rows for record in machine.history] == [10], "the partial epoch is on record"


def test_nobody_is_replaced_once_the_job_stops() -> None:
    machine = make(1)
    run(machine, Start(), report(0, done=False), Stop("enough"))
    assert run(machine, Ended(0, 1, KILLED, 3)) == []
    assert machine.state == "finished"


def test_workers_that_do_not_stop_are_ended() -> None:
    machine = make(1, grace_s=5.0)
    run(machine, Start(), Stop("enough"))
    assert machine.handle(Tick(), now=5.0) == []
    assert machine.handle(Tick(), now=6.5) == [CancelAll()]
    assert machine.handle(Tick(), now=7.0) == [], "once"


def test_the_deadline_stops_the_job_in_time() -> None:
    machine = make(1, deadline_s=10.0)
    run(machine, Start())
    assert machine.handle(Tick(), now=9.0) == []
    assert machine.handle(Tick(), now=9.9) == [RequestStop()]
    assert machine.reason == "deadline"


def measuring(**limits: float) -> JobMachine:
    """A machine whose training is over, and whose last model is being measured."""
    machine = make(1, 1, evaluates=True, **limits)
    run(machine, Start(), report(0), Ended(0, 1, FINISHED, 3))
    assert machine.state == "finishing"
    return machine


def test_the_deadline_holds_while_the_last_model_is_measured() -> None:
    machine = measuring(deadline_s=10.0)
    machine.handle(Tick(), now=9.99)
    assert machine.state == "finishing", "what is left of the time may be used"
    machine.handle(Tick(), now=10.01)
    assert (machine.state, machine.reason) == ("finished", "deadline")
    assert machine.history[0].validation_loss is None


def test_the_budget_holds_while_the_last_model_is_measured() -> None:
    machine = measuring(budget_usd=1e-3)
    machine.handle(Tick(), now=2.0)
    assert machine.state == "finishing"
    machine.handle(Tick(), now=3600.0)
    assert (machine.state, machine.reason) == ("finished", "budget")


def test_a_stop_ends_the_last_measurement() -> None:
    machine = measuring()
    run(machine, Stop("interrupted"))
    assert (machine.state, machine.reason) == ("finished", "interrupted")


def test_the_first_reason_is_kept_when_the_measurement_is_stopped_as_well() -> None:
    machine = make(1, 9, evaluates=True, deadline_s=10.0)
    run(machine, Start(), report(0))
    machine.handle(Stop("interrupted"), now=9.0)
    machine.handle(Ended(0, 1, STOPPED, 3), now=9.5)
    assert machine.state == "finishing"
    machine.handle(Tick(), now=10.01)
    assert (machine.state, machine.reason) == ("finished", "interrupted")


def test_the_budget_stops_the_job_before_it_is_spent() -> None:
    budget = 1e-3
    machine = make(1, budget_usd=budget)
    run(machine, Start())
    now, commands = 0.0, []
    while not commands:
        now += 0.05
        commands = machine.handle(Tick(), now)
    assert commands == [RequestStop()]
    assert machine.reason == "budget"
    assert 0.9 * budget < machine.ledger.bill(now).total_usd <= budget


def test_the_budget_has_room_for_the_records_of_the_end_and_for_a_worker_that_is_still_starting() -> None:
    def spent_when_stopped(*events: Event, later_s: float) -> float:
        machine = make(1, budget_usd=1e-4)
        run(machine, Start(), *events)
        now = 1.0
        while not machine.handle(Tick(), now):
            now += 0.01
        return machine.ledger.bill(now + later_s).total_usd

    prices = load_prices("aws-lambda-us-east-1")
    left = 1e-4 - 2 * (prices.object_put + prices.object_get)
    assert spent_when_stopped(report(0), later_s=0.25) == pytest.approx(left, rel=0.01)
    assert spent_when_stopped(later_s=0.25 + 0.35) == pytest.approx(left, rel=0.01)


def test_a_loss_that_is_good_enough_ends_the_job() -> None:
    machine = make(1, 9, evaluates=True, target_loss=0.3)
    run(machine, Start(), report(0, epoch=0), Evaluated(0, HeldOut(0.31, 0.9, 100)), report(0, epoch=1))
    assert run(machine, Evaluated(1, HeldOut(0.29, 0.9, 100))) == [RequestStop()]
    assert machine.reason == "target loss"


def test_patience_ends_the_job_and_the_best_epoch_is_known() -> None:
    machine = make(1, 9, evaluates=True, patience=2)
    run(machine, Start())
    for epoch, loss in enumerate([0.4, 0.3, 0.35]):
        assert run(machine, report(0, epoch=epoch), Evaluated(epoch, HeldOut(loss, 0.9, 100))) == [
            Proceed(epoch + 1)
        ]
    commands = run(machine, report(0, epoch=3), Evaluated(3, HeldOut(0.3, 0.9, 100)))
    assert commands == [RequestStop()]
    assert machine.reason == "early stopping"
    assert machine.best == (0.3, 1)


def test_a_stop_before_the_start_means_nothing_is_launched() -> None:
    machine = make()
    assert run(machine, Stop("enough"), Start()) == []
    assert machine.attempts == {}


# ------------------------------------------------------------------------ any order of events


class AnyCourse(RuleBasedStateMachine):
    """Whatever happens, in whatever order: one attempt a slot at a time, and an end."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = make(3, 2, evaluates=True, max_restarts=2)
        self.running: dict[int, list[int]] = {slot: [] for slot in range(3)}
        self.newest: dict[int, int] = {}
        self.position = dict.fromkeys(range(3), 0)
        self.evaluating: int | None = None
        self.now = 0.0
        self.take(Start())

    def take(self, event: Event) -> None:
        self.now += 0.01
        for command in self.machine.handle(event, self.now):
            match command:
                case Launch(slot, attempt, standby):
                    assert len(self.running[slot]) == standby, "a second attempt only stands by"
                    assert attempt == self.newest.get(slot, 0) + 1
                    self.newest[slot] = attempt
                    self.running[slot].append(attempt)
                case Release(slot, attempt):
                    assert attempt in self.running[slot]
                case Cancel(slot, attempt):  # it has been silent for too long
                    self.running[slot].remove(attempt)
                case Evaluate(epoch):
                    assert self.evaluating is None, "two evaluations at once"
                    self.evaluating = epoch
        if self.machine.ended and isinstance(event, Stop):
            self.evaluating = None  # it is given up

    slots = st.integers(0, 2)

    @rule(slot=slots, epoch=st.integers(0, 1), done=st.booleans(), ending=st.booleans())
    def reports(self, slot: int, epoch: int, done: bool, ending: bool) -> None:
        if self.running[slot]:
            self.take(report(slot, self.running[slot][0], epoch, done=done, ending=ending))

    @rule(
        slot=slots,
        progress=st.integers(0, 5),
        which=st.integers(0, 1),
        kind=st.sampled_from([FINISHED, HANDOVER, KILLED, THROTTLED]),
    )
    def ends(self, slot: int, progress: int, which: int, kind: Outcome) -> None:
        if len(self.running[slot]) > which:
            self.position[slot] += progress * (which == 0)
            self.take(Ended(slot, self.running[slot].pop(which), kind, self.position[slot]))

    @rule(seconds=st.floats(0.0, 10.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.take(Tick())

    @rule(slot=slots)
    def an_old_attempt_is_told_of_again(self, slot: int) -> None:
        gone = set(range(1, self.newest[slot] + 1)) - set(self.running[slot])
        if gone:
            self.take(Ended(slot, min(gone), KILLED, 0))

    @precondition(lambda self: self.evaluating is not None)
    @rule()
    def is_measured(self) -> None:
        epoch, self.evaluating = self.evaluating, None
        assert epoch is not None
        self.take(Evaluated(epoch, HeldOut(0.5, 0.5, 1)))

    @rule()
    def stops(self) -> None:
        self.take(Stop("enough"))

    @invariant()
    def the_books_agree(self) -> None:
        machine = self.machine
        assert [r.epoch for r in machine.history] == list(range(1, len(machine.history) + 1))
        assert len(machine.history) <= 2
        if machine.state == "finished":
            assert not any(self.running.values()) and self.evaluating is None
            assert all(a.outcome is not None for a in machine.attempts.values())
        assert machine.ledger.bill(self.now).invocations == len(machine.attempts)
        assert machine.status(self.now).cost_usd >= 0

    def teardown(self) -> None:
        """From wherever we are, the job can end."""
        for _ in range(4):
            self.time_passes(10.0)
            if self.evaluating is not None:
                self.is_measured()
            for slot, attempts in self.running.items():
                while attempts:
                    self.take(Ended(slot, attempts.pop(0), FINISHED, self.position[slot]))
        assert self.machine.ended


AnyCourse.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyCourse = AnyCourse.TestCase


def test_a_restored_store_is_noted_once_and_its_workers_succeeded_without_limit() -> None:
    machine = make(2, max_restarts=1)
    told = StoreRestored("0:a-1", "shard 0 came back")
    assert run(machine, Start(), Ended(0, 1, KILLED, 50), told) == []
    for attempt in range(2, 9):
        assert run(machine, Ended(0, attempt, ROLLED_BACK, 20)) == [Launch(0, attempt + 1)]
    run(machine, told, StoreRestored("0:a-2", "shard 0 came back again"))
    assert machine.status(1.0).notes == [
        "after 1.0 s: shard 0 came back",
        "after 1.0 s: shard 0 came back again",
    ]
    assert machine.attempts[0, 3].first_minibatch == 20, "from where the store says that the slot is"


def test_a_worker_that_falls_silent_is_given_up_and_replaced() -> None:
    machine = make(2, silence_s=30.0)
    machine.handle(Start(), 0.0)
    assert machine.handle(Tick(), 100.0) == [], "nobody has spoken yet: the platform's time limit will do"
    for at in (100.0, 101.0):
        machine.handle(report(0, rows=1, done=False), at)
        machine.handle(report(1, rows=1, done=False), at)
    machine.handle(report(1, rows=1, done=False), 120.0)
    assert machine.handle(Tick(), 130.0) == []
    assert machine.handle(Tick(), 132.0) == [Cancel(0, 1), Launch(0, 2)]
    lost = machine.attempts[0, 1]
    assert lost.outcome is not None and lost.outcome.kind is OutcomeKind.LOST
    assert machine.handle(Tick(), 133.0) == []
    # What it says or how it ends later changes nothing.
    assert machine.handle(Ended(0, 1, KILLED, 5), 134.0) == []
    machine.handle(report(0, attempt=2, epoch=1), 135.0)
    machine.handle(report(1, epoch=1), 135.0)
    machine.handle(Ended(0, 2, FINISHED, 9), 136.0)
    machine.handle(Ended(1, 1, FINISHED, 9), 136.0)
    assert machine.state == "finished"


# ---------------------------------------------------------------------------------- stragglers


def worked(slot: int, rows: int, seconds: float, attempt: int = 1, epoch: int = 0) -> Reported:
    """A report of so many rows in so many seconds of work."""
    phases = Phases(compute=seconds)
    return Reported(Report(slot, attempt, epoch, rows, 0.5 * rows, float(rows), False, 1.0, 0.8, phases))


def straggling(**limits: float) -> tuple[JobMachine, list[Command]]:
    """Three workers, the last of which is four times as slow; at 2 s that has been seen."""
    machine = make(3, 5, replaces_stragglers=True, **limits)
    machine.handle(Start(rows=30_000), 0.0)
    commands: list[Command] = []
    for second in (1, 2):
        for slot, rows in enumerate((1000, 900, 240)):
            commands += machine.handle(worked(slot, rows, 1.0), float(second))
    return machine, commands


def test_a_straggler_is_relieved_when_its_successor_is_ready() -> None:
    machine, commands = straggling()
    assert commands == [Launch(2, 2, standby=True)]
    assert machine.handle(Tick(), 2.5) == [], "it takes 0.2 s to start"
    assert machine.handle(Tick(), 2.7) == [Cancel(2, 1)]
    assert machine.handle(Ended(2, 1, KILLED, 7), 2.8) == [Release(2, 2)]
    assert machine.handle(Ended(2, 2, HANDOVER, 9), 5.0) == [Launch(2, 3)]
    assert machine.state == "running"


def test_a_straggler_that_cannot_be_ended_is_fenced_after_a_while() -> None:
    machine, _ = straggling(grace_s=2.0)
    assert machine.handle(Tick(), 4.5) == [Cancel(2, 1)]
    assert machine.handle(Tick(), 6.4) == []
    assert machine.handle(Tick(), 6.5) == [Release(2, 2)]
    assert machine.handle(Ended(2, 1, KILLED, 7), 7.0) == []


def test_a_straggler_that_ends_before_it_is_relieved_is_succeeded_at_once() -> None:
    machine, _ = straggling()
    assert machine.handle(Ended(2, 1, HANDOVER, 7), 4.2) == [Release(2, 2)]
    assert machine.handle(Tick(), 9.0) == []


def test_a_slot_in_which_every_worker_is_slow_is_let_be() -> None:
    machine, _ = straggling()
    now, launches = 4.5, 1
    for attempt in range(1, 6):
        machine.handle(Tick(), now)
        machine.handle(Ended(2, attempt, KILLED, attempt), now)
        for _ in range(4):
            now += 1.0
            for command in machine.handle(worked(2, 240, 1.0, attempt + 1), now):
                launches += isinstance(command, Launch)
        now += 1.0
        if launches == attempt:
            break
    assert launches == 2


@pytest.mark.parametrize("limits", [{}, {"replaces_stragglers": True, "rows": 1500}])
def test_nobody_is_relieved_without_that_policy_or_for_little_work(limits: dict[str, float]) -> None:
    rows = int(limits.pop("rows", 30_000))
    machine = make(3, 1, **limits)
    machine.handle(Start(rows=rows), 0.0)
    for second in range(1, 5):
        for slot, n in enumerate((1000, 900, 240)):
            assert machine.handle(worked(slot, n, 1.0), float(second)) == []


def test_a_worker_that_waits_for_others_is_no_straggler() -> None:
    machine = make(3, 5, replaces_stragglers=True)
    machine.handle(Start(rows=30_000), 0.0)
    for second in range(1, 9):
        for slot, busy_s in enumerate((0.05, 0.9, 0.9)):
            assert machine.handle(worked(slot, 100, busy_s), float(second)) == []


def test_a_worker_that_was_often_silent_for_long_is_given_longer() -> None:
    machine = make(1, silence_s=30.0)
    machine.handle(Start(), 0.0)
    for at in (10.0, 30.0, 50.0):
        machine.handle(report(0, rows=1, done=False), at)
    assert machine.handle(Tick(), 249.0) == []
    assert machine.handle(Tick(), 251.0) == [Cancel(0, 1), Launch(0, 2)]


def test_workers_wait_for_the_measurement_that_may_end_the_job() -> None:
    machine = make(1, 9, evaluates=True, patience=1)
    assert machine.epochs_of_leg == (9, 1)
    assert run(machine, Start(), report(0, epoch=0)) == [Evaluate(0)]
    assert run(machine, Evaluated(0, HeldOut(0.5, 0.9, 100))) == [Proceed(1)]
    assert run(machine, report(0, epoch=1)) == [Evaluate(1)]
    assert run(machine, Evaluated(1, HeldOut(0.6, 0.9, 100))) == [RequestStop()]
    assert make(1, 9, evaluates=False, patience=1).epochs_of_leg == (9, None)


def test_workers_that_stop_although_nobody_here_asked_them_to_end_the_job_as_stopped() -> None:
    machine = make(2, 9)
    run(machine, Start(), report(0), report(1))
    assert RequestStop() in run(machine, Ended(0, 1, STOPPED, 3))
    assert (machine.state, machine.reason) == ("stopping", "stopped from elsewhere")
    run(machine, Ended(1, 1, STOPPED, 3))
    assert machine.state == "finished"


@pytest.mark.parametrize("restored", [True, False])
def test_nobody_waits_for_a_measurement_that_a_restored_store_makes_impossible(*, restored: bool) -> None:
    machine = make(1, 9, evaluates=True, patience=2)
    assert run(machine, Start(), report(0, epoch=0)) == [Evaluate(0)]
    commands = run(machine, Resumed([3], restored))
    assert (Proceed(1) in commands, Evaluate(0) in commands) == (restored, not restored)
