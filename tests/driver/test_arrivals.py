"""The order in which a job's machine hears of what happens."""

from __future__ import annotations

import msgspec
import pytest

from squall.driver.arrivals import Arrivals, Arrived, Pauses
from squall.driver.events import Ended, Reported, StoreRestored, Tick
from squall.records import Outcome, OutcomeKind
from squall.testing.stores import report_of

HANDOVER = Outcome(OutcomeKind.RETURNED, {"end": "handover", "reports": 2}, billed_s=1.0)
KILLED = Outcome(OutcomeKind.KILLED, signal=9, billed_s=1.0)


def arrivals() -> Arrivals:
    return Arrivals(lambda slot: 10 + slot)


def test_the_first_looks_follow_at_once_and_then_there_are_ten_a_second() -> None:
    pauses, now, looks = Pauses(), 100.0, []
    beat = [report_of(1, 4)]
    for _ in range(60):
        looks.append(now)
        now += pauses.after(beat, now) + 0.001
    assert looks[19] - looks[0] == pytest.approx(0.019)
    assert looks[59] - looks[20] == pytest.approx(39 / 10, rel=0.1)
    looks = [now + 10.0]  # and after a rest again
    for _ in range(19):
        looks.append(looks[-1] + pauses.after(beat, looks[-1]))
    assert looks[19] == looks[0]


def test_nothing_that_something_hangs_on_is_waited_for() -> None:
    pauses, beat = Pauses(), report_of(1, 4)
    news = [msgspec.structs.replace(beat, epoch_done=True), msgspec.structs.replace(beat, ending=True)]
    for _ in range(50):
        pauses.after([beat], 100.0)
        assert pauses.after([beat, news[0]], 100.0) == pauses.after([news[1]], 100.0) == 0.0
    assert pauses.after([beat], 100.0) > 0


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
