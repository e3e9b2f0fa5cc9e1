"""The order in which a job's machine hears of what happens."""

from __future__ import annotations

from squall.driver.arrivals import Arrivals, Arrived
from squall.driver.events import Ended, Reported, StoreRestored, Tick
from squall.records import Outcome, OutcomeKind
from squall.testing.store import report_of

HANDOVER = Outcome(OutcomeKind.RETURNED, {"end": "handover", "reports": 2}, billed_s=1.0)
KILLED = Outcome(OutcomeKind.KILLED, signal=9, billed_s=1.0)


def arrivals() -> Arrivals:
    return Arrivals(lambda slot: 10 + slot)


def test_an_end_waits_for_all_that_its_worker_had_reported() -> None:
    inbox, first, second = arrivals(), report_of(1, 4), report_of(1, 4)
    assert inbox.take(Ended(1, 4, HANDOVER, 0)) == []
    assert inbox.take(Arrived([first])) == [Reported(first)]
    assert inbox.take(Tick()) == [Tick()]
    assert inbox.take(Arrived([second])) == [Reported(second), Ended(1, 4, HANDOVER, 11)]
    assert inbox.take(Tick()) == [Tick()]


def test_the_end_of_one_who_died_waits_for_nothing() -> None:
    assert arrivals().take(Ended(0, 1, KILLED, 0)) == [Ended(0, 1, KILLED, 10)]


def test_nothing_is_waited_for_after_the_store_may_have_lost_reports() -> None:
    inbox, restored = arrivals(), StoreRestored("0:a-1", "shard 0 came back")
    assert inbox.take(Ended(0, 4, HANDOVER, 0)) == []
    assert inbox.take(restored) == [restored, Ended(0, 4, HANDOVER, 10)]
    assert inbox.take(Ended(1, 4, HANDOVER, 0)) == [Ended(1, 4, HANDOVER, 11)]
