"""Whatever happens to calls, every item ends once, and all of it ends."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.driver.ledger import Ledger, load_prices
from squall.driver.spec import StoppedError
from squall.errors import CallError, FunctionError
from squall.records import Outcome, OutcomeKind
from squall.workflows.events import (
    Call,
    Cancelled,
    Closed,
    Command,
    Deliver,
    Ended,
    Event,
    Fail,
    GiveUp,
    Kill,
    Launch,
    Stop,
    Submitted,
    Tick,
)
from squall.workflows.machine import MAX_CALL_BYTES, Limits, MapMachine
from squall.workflows.pace import MAX_ITEMS, Pace

RETURNED = Outcome(OutcomeKind.RETURNED, billed_s=0.1)
OUT_OF_MEMORY = Outcome(OutcomeKind.OUT_OF_MEMORY)
KILLED = Outcome(OutcomeKind.KILLED, signal=9)
LOST = Outcome(OutcomeKind.LOST)
THROTTLED = Outcome(OutcomeKind.THROTTLED)


def machine(workers: int = 2, **limits: float) -> MapMachine:
    prices = load_prices("aws-lambda-us-east-1")
    return MapMachine(Ledger(prices, 1769, 0.0), Limits(workers, **limits))  # type: ignore[arg-type]


class World:
    """Drives a machine, and holds it to what must always be true."""

    def __init__(self, core: MapMachine, workers: int) -> None:
        self.core, self.workers = core, workers
        self.now = 0.0
        self.running: dict[tuple[int, int], Call] = {}
        self.names: set[tuple[int, int]] = set()
        self.ends: Counter[int] = Counter()
        self.errors: dict[int, Exception] = {}
        self.called: Counter[int] = Counter()
        self.killed: list[tuple[int, int]] = []

    def do(self, event: Event, after: float = 0.0) -> list[Command]:
        self.now += after
        commands = self.core.handle(event, self.now)
        for command in commands:
            match command:
                case Launch(call):
                    self._launched(call)
                case Deliver(item):
                    self.ends[item] += 1
                case Fail(item, error):
                    self.ends[item] += 1
                    self.errors[item] = error
                case Kill(call) | GiveUp(call):
                    self.killed.append(call.key)
        assert max(self.ends.values(), default=1) == 1, "an item ended twice"
        return commands

    def _launched(self, call: Call) -> None:
        assert call.key not in self.names, "two calls of one name: their results would be mixed up"
        assert call.items and list(call.items) == sorted(set(call.items)) and call.slot == call.items[0]
        open_ = {item for other in self.running.values() for item in other.items}
        assert not open_ & set(call.items), "an item is called twice at once"
        assert not set(call.items) & set(self.ends), "an item that has ended is called again"
        self.names.add(call.key)
        self.running[call.key] = call
        self.called.update(call.items)
        assert len(self.running) <= self.workers

    def end(self, call: Call, outcome: Outcome, values: set[int], raised: set[int]) -> None:
        del self.running[call.key]
        self.do(Ended(call, outcome, frozenset(values), frozenset(raised), 0.01), after=0.02)


@st.composite
def fates(draw: st.DrawFn) -> tuple[Outcome, float, float]:
    """How a call ends, what share of its items is stored by then, and what share of those raised."""
    signal = draw(st.sampled_from([9, 11, 14]))
    kind = draw(st.sampled_from([k for k in OutcomeKind if k is not OutcomeKind.RAISED]))
    stored = 0.0 if kind is OutcomeKind.THROTTLED else draw(st.floats(0, 1))
    return Outcome(kind, signal=signal, billed_s=0.02), stored, draw(st.floats(0, 1))


@settings(max_examples=100, deadline=None)
@given(
    groups=st.lists(
        st.tuples(st.integers(0, 40), st.one_of(st.none(), st.integers(1, 50))), min_size=1, max_size=4
    ),
    workers=st.integers(1, 5),
    retries=st.integers(0, 2),
    fate=st.lists(fates(), min_size=1, max_size=60),
    cancelled=st.sets(st.integers(0, 60), max_size=8),
    choice=st.randoms(use_true_random=False),
)
def test_every_item_ends_once(groups, workers, retries, fate, cancelled, choice) -> None:  # type: ignore[no-untyped-def]
    world = World(machine(workers, retries=retries, lease_s=1e9), workers)
    first = 0
    for count, chunksize in groups:
        world.do(Submitted(first, (10,) * count, chunksize))
        first += count
    dropped = {item for item in cancelled if item < first}
    fate = list(fate)
    for _ in range(100_000):
        if dropped and choice.random() < 0.1:
            item = dropped.pop()
            world.ends[item] = world.ends[item] or 1
            world.do(Cancelled((item,)))
        if not world.running:
            if len(world.ends) == first:
                break
            world.do(Tick(), after=6.0)
            continue
        call = choice.choice(list(world.running.values()))
        outcome, share, bad = fate.pop() if fate else (RETURNED, 1.0, 0.0)
        stored = call.items[: round(share * len(call.items))]
        raised = set(stored[: round(bad * len(stored))])
        world.end(call, outcome, set(stored) - raised, raised)
    world.do(Closed())
    assert world.core.ended and world.core.is_idle
    assert len(world.ends) == first, "each item ended"
    assert all(isinstance(error, CallError) for error in world.errors.values())
    assert world.core.status(world.now).failed >= len(world.errors)


def test_one_bad_item_costs_its_neighbours_one_more_call_at_most() -> None:
    world = World(machine(1), 1)
    world.do(Submitted(0, (1,) * 100, 100))
    (call,) = world.running.values()
    world.end(call, OUT_OF_MEMORY, set(range(10)), set())  # item 42 dies, ten were stored by then
    (again,) = world.running.values()
    assert again.careful and again.items == tuple(range(10, 100))
    world.end(again, OUT_OF_MEMORY, set(range(10, 42)), set())
    assert list(world.errors) == [42]
    assert world.errors[42].outcome == "out of memory"  # type: ignore[attr-defined]
    (last,) = world.running.values()
    assert last.items == tuple(range(43, 100))
    world.end(last, RETURNED, set(last.items), set())
    assert max(world.called.values()) == 3 and len(world.ends) == 100


@pytest.mark.parametrize(("outcome", "calls"), [(KILLED, 4), (LOST, 4), (OUT_OF_MEMORY, 2)])
def test_losses_are_not_retries(outcome: Outcome, calls: int) -> None:
    world = World(machine(1, retries=1), 1)
    world.do(Submitted(0, (1,), None))
    while world.running:
        (call,) = world.running.values()
        world.end(call, outcome, set(), set())
        world.do(Tick(), after=6.0)
    assert world.called[0] == calls
    assert isinstance(world.errors[0], CallError)


def test_what_raised_is_called_again_and_then_delivered() -> None:
    world = World(machine(1, retries=2), 1)
    world.do(Submitted(0, (1, 1), 2))
    for expected in ((0, 1), (0,), (0,)):
        (call,) = world.running.values()
        assert call.items == expected
        world.end(call, RETURNED, set(call.items) - {0}, {0})
        world.do(Tick(), after=6.0)
    assert world.called == {0: 3, 1: 1} and set(world.ends) == {0, 1} and not world.errors
    assert world.core.status(0.0).failed == 1


def test_a_function_that_ends_for_want_of_time_is_followed_by_another() -> None:
    world = World(machine(1), 1)
    world.do(Submitted(0, (1,) * 10, 10))
    (call,) = world.running.values()
    world.end(call, RETURNED, {0, 1, 2}, set())
    (call,) = world.running.values()
    assert call.items == tuple(range(3, 10)) and not call.careful


def test_refusals_make_it_ask_for_less_and_later() -> None:
    world = World(machine(8), 8)
    world.do(Submitted(0, (1,) * 8, 1))
    assert len(world.running) == 8
    for call in list(world.running.values())[:4]:
        world.end(call, THROTTLED, set(), set())
    assert len(world.running) == 4, "not before a pause"
    world.do(Tick(), after=60.0)
    assert len(world.running) == 4, "nor more at once than were let through"
    for call in list(world.running.values()):
        world.end(call, RETURNED, set(call.items), set())
    assert len(world.running) == 4 and len(world.ends) == 4


def test_refusals_without_end_are_told() -> None:
    world = World(machine(1), 1)
    world.do(Submitted(0, (1,), 1))
    while world.running:
        (call,) = world.running.values()
        world.end(call, THROTTLED, set(), set())
        world.do(Tick(), after=6.0)
    assert "refused by its platform" in str(world.errors[0])


@pytest.mark.parametrize(
    ("name", "limits"), [("deadline", {"deadline_s": 5.0}), ("budget", {"budget_usd": 1e-4})]
)
def test_limits_end_it_in_time(name: str, limits: dict[str, float]) -> None:
    world = World(machine(2, **limits), 2)
    world.do(Submitted(0, (1,) * 10, 1))
    while not world.core.reason:
        world.do(Tick(), after=0.05)
    assert world.now <= 5.0
    assert world.core.ledger.bill(world.now).total_usd <= 1.01e-4 if name == "budget" else True
    assert len(world.errors) == 10 and len(world.killed) == 2
    assert all(isinstance(error, StoppedError) and error.reason == name for error in world.errors.values())
    world.do(Submitted(10, (1, 1), 1))
    assert len(world.errors) == 12, "what comes later fails at once"


def test_what_cannot_go_on_anywhere_ends_the_job_at_once() -> None:
    world = World(machine(2), 2)
    world.do(Submitted(0, (1,) * 10, 1))
    call = next(iter(world.running.values()))
    error = Outcome(OutcomeKind.RAISED, error_type="squall.errors.SettingError", error="Python 3.9")
    world.end(call, error, set(), set())
    assert len(world.errors) == 10 and isinstance(world.errors[5], FunctionError)


def test_a_call_of_which_nothing_is_heard_is_given_up_once() -> None:
    world = World(machine(1, lease_s=10.0), 1)
    world.do(Submitted(0, (1,), 1))
    (call,) = world.running.values()
    assert world.do(Tick(), after=11.0) == [GiveUp(call)]
    assert world.do(Tick(), after=11.0) == []
    world.end(call, LOST, {0}, set())
    assert world.ends == {0: 1}, "what it had stored counts"
    assert world.core.handle(Ended(call, KILLED), world.now) == [], "its late end is no news"


def test_a_call_is_killed_when_all_its_items_are_cancelled() -> None:
    world = World(machine(1), 1)
    world.do(Submitted(0, (1,) * 4, 2))
    (call,) = world.running.values()
    assert world.do(Cancelled((0,))) == []
    assert Kill(call) in world.do(Cancelled((1,)))
    world.end(call, KILLED, set(), set())
    assert [c.items for c in world.running.values()] == [(2, 3)]


def test_stopping_twice_is_stopping_once() -> None:
    world = World(machine(1), 1)
    world.do(Submitted(0, (1,) * 3, 1))
    assert world.do(Stop("cancelled"))
    assert world.do(Stop("interrupted")) == []
    assert world.core.reason == "cancelled"


def test_calls_are_cut_by_bytes_too() -> None:
    world = World(machine(1), 1)
    world.do(Submitted(0, (MAX_CALL_BYTES // 2, MAX_CALL_BYTES // 2, 1, 2 * MAX_CALL_BYTES, 5), 10))
    cut = []
    while world.running:
        (call,) = world.running.values()
        cut.append(call.items)
        world.end(call, RETURNED, set(call.items), set())
    assert cut == [(0, 1), (2,), (3,), (4,)]


@given(
    item_s=st.floats(0, 100),
    overhead_s=st.floats(0, 10),
    left=st.integers(1, 10**6),
    workers=st.integers(1, 64),
)
def test_chunks_are_fair_and_bounded(item_s: float, overhead_s: float, left: int, workers: int) -> None:
    pace = Pace()
    assert pace.items(left, workers) == 1, "nothing is known yet"
    pace.measured(10, 10 * item_s, 10 * item_s + overhead_s)
    count = pace.items(left, workers)
    assert 1 <= count <= min(left, MAX_ITEMS)
    assert count == 1 or (count * item_s <= 5.0 + 1e-6 and count <= -(-left // (2 * workers)))


def test_a_thousand_quick_items_take_few_calls_and_slow_ones_one_each() -> None:
    for item_s, most in ((1e-5, 40), (1.0, 1000)):
        world = World(machine(1), 1)
        world.do(Submitted(0, (10,) * 1000, None))
        while world.running:
            call = next(iter(world.running.values()))
            del world.running[call.key]
            event = Ended(call, RETURNED, frozenset(call.items), frozenset(), item_s * len(call.items))
            world.do(event, after=0.002 + item_s * len(call.items))
        assert len(world.names) <= most
        assert item_s < 1.0 or len(world.names) == 1000


def test_nothing_waits_for_an_item_that_was_cancelled_before_its_next_call() -> None:
    world = World(machine(1), 1)
    world.do(Submitted(0, (10,), None))
    (call,) = world.running.values()
    world.end(call, Outcome(OutcomeKind.THROTTLED), set(), set())
    assert not world.core.is_idle
    world.do(Cancelled((0,)))
    assert world.core.is_idle
