"""The ramp of launches: any course of launches, starts, ends and refusals."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from squall.driver.ramp import FIRST_HOLD_S, LARGEST, LONGEST_HOLD_S, STARTS_WITHIN_S, Ramp


def launch(ramp: Ramp, wanted: int, now: float, attempt: int = 1) -> int:
    """Launch as many slots as may be; how many that are."""
    for slot in range(wanted):
        if not ramp.allows(now):
            return slot
        ramp.launched((slot, attempt), now)
    return wanted


def test_it_doubles_with_each_round_up_to_the_largest() -> None:
    ramp, rounds = Ramp(100), []
    for attempt in range(6):
        rounds.append(launch(ramp, 5_000, float(attempt), attempt))
        for slot in range(rounds[-1]):
            ramp.started((slot, attempt))
    assert rounds == [100, 200, 400, 800, LARGEST, LARGEST]


def test_a_burst_of_refusals_halves_it_once_and_holds_all_back() -> None:
    ramp = Ramp(100)
    launch(ramp, 100, 0.0)
    for slot in range(50):
        ramp.refused((slot, 1), 0.02)
    assert (ramp.width, ramp.refusals) == (50, 1)
    for slot in range(50, 100):
        ramp.ended((slot, 1))
    assert not ramp.allows(0.11)
    assert launch(ramp, 100, 0.13, attempt=2) == 50
    ramp.refused((0, 2), 0.2)
    assert (ramp.width, ramp.refusals) == (25, 2)


def test_holds_get_longer_until_somebody_starts() -> None:
    ramp, now, holds = Ramp(1), 0.0, []
    for attempt in range(9):
        launch(ramp, 1, now, attempt)
        ramp.refused((0, attempt), now)
        began = now
        while not ramp.allows(now):
            now += 0.01
        holds.append(round(now - began, 1))
    assert holds == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    launch(ramp, 1, now, 9)
    ramp.started((0, 9))
    assert ramp.refusals == 0


def test_a_launch_that_says_nothing_does_not_hold_others_back_for_ever() -> None:
    ramp = Ramp(1)
    assert launch(ramp, 2, 0.0) == 1
    assert not ramp.allows(STARTS_WITHIN_S - 0.1)
    assert ramp.allows(STARTS_WITHIN_S)


class AnyCourse(RuleBasedStateMachine):
    """Against a model that counts for itself."""

    @initialize(first=st.integers(1, 5))
    def begin(self, first: int) -> None:
        self.ramp, self.now, self.first = Ramp(first), 0.0, first
        self.under_way: dict[tuple[int, int], float] = {}
        self.n_launched = self.n_started = 0
        self.refused_at = -1.0

    @rule(wanted=st.integers(1, 20))
    def launches(self, wanted: int) -> None:
        for _ in range(wanted):
            if self.ramp.allows(self.now):
                assert self.now >= self.refused_at + FIRST_HOLD_S
                self.n_launched += 1
                self.under_way[0, self.n_launched] = self.now
                self.ramp.launched((0, self.n_launched), self.now)

    @rule(seconds=st.floats(0.0, 20.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(which=st.integers(0, 100), end=st.sampled_from(["started", "ended", "refused"]))
    def one_is_heard_of(self, which: int, end: str) -> None:
        if not self.under_way:
            return
        key = list(self.under_way)[which % len(self.under_way)]
        launched = self.under_way.pop(key)
        if end == "started":
            self.n_started += 1
            self.ramp.started(key)
        elif end == "ended":
            self.ramp.ended(key)
        else:
            before, refusals = self.ramp.width, self.ramp.refusals
            self.ramp.refused(key, self.now)
            if self.ramp.refusals == refusals:
                assert launched <= self.refused_at, "of the same burst as the last"
                return
            assert self.ramp.width == max(1, before // 2)
            assert not self.ramp.allows(self.now)
            self.refused_at = self.now

    @invariant()
    def never_more_than_it_allows(self) -> None:
        lately = sum(self.now < at + STARTS_WITHIN_S for at in self.under_way.values())
        assert lately <= max(self.ramp.width, self.most)
        self.most = lately  # (those that were launched before it was halved)
        assert 1 <= self.ramp.width <= self.first + self.n_started

    most = 0

    def teardown(self) -> None:
        """Whatever happened, more may be launched before long."""
        if hasattr(self, "ramp"):
            assert self.ramp.allows(self.now + max(LONGEST_HOLD_S, STARTS_WITHIN_S))


AnyCourse.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyCourse = AnyCourse.TestCase
