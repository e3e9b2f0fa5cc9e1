"""Faults around a platform: each kind at each point, seeded draws, and the contract all the same."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from squall import LocalBackend
from squall.errors import SettingError
from squall.functions.local import pool
from squall.functions.local.chaos import ChaosPlatform
from squall.functions.local.platform import LocalPlatform
from squall.protocols import Invocation
from squall.records import Outcome, OutcomeKind
from squall.testing import Chaos, Fault
from squall.testing.platform import WAIT_S, ClosingContract, FunctionPlatformContract, call, shape


@pytest.fixture(scope="module")
def real() -> Iterator[LocalPlatform]:
    platform = LocalPlatform()
    yield platform
    platform.close()


class TestContract(FunctionPlatformContract):
    """With every single invocation delayed, it is a platform like any other."""

    @pytest.fixture
    def platform(self, real: LocalPlatform) -> ChaosPlatform:
        return ChaosPlatform(real, Chaos(delay=1.0, points=("after",), wait="1ms"))


class TestClosing(ClosingContract):
    @pytest.fixture
    def fresh(self) -> Iterator[ChaosPlatform]:
        platform = ChaosPlatform(LocalPlatform(), Chaos(delay=1.0, points=("after",), wait="1ms"))
        yield platform
        platform.close()


# --------------------------------------------------------------------- each fault, each point


def run(real: LocalPlatform, fault: Fault, handler: str = "sleep", **event: Any) -> Invocation:
    chaos = Chaos(script=(fault,), lost_after="100ms")
    endpoint = ChaosPlatform(real, chaos).prepare(shape(handler))
    return endpoint.invoke({"slot": 0, "attempt": 1, **event})


def runs_of(invocation: Any) -> list[Outcome]:
    return [one.outcome(WAIT_S) for one in invocation._real]


def test_kill_before(real: LocalPlatform) -> None:
    invocation = run(real, Fault(do="kill"), seconds=60)
    outcome = invocation.outcome(0)
    assert (outcome.kind, outcome.signal, outcome.billed_s) == (OutcomeKind.KILLED, 9, 0.0)
    assert runs_of(invocation) == []


def test_slow_tells_the_handler_how_slow(real: LocalPlatform) -> None:
    chaos = Chaos(script=(Fault(do="slow", slot=0),), slowdown=3.0)
    platform = ChaosPlatform(real, chaos)
    endpoint = platform.prepare(shape("echo"))
    slow, not_slow = (endpoint.invoke({"slot": slot}).outcome(WAIT_S).value for slot in (0, 1))
    assert slow == {"slot": 0, "slowdown": 3.0} and not_slow == {"slot": 1}
    assert [fault.do for fault in platform.faults] == ["slow"]


def test_kill_in_flight(real: LocalPlatform) -> None:
    outcome = run(real, Fault(do="kill", when="in flight", wait="100ms"), seconds=60).outcome(WAIT_S)
    assert (outcome.kind, outcome.signal) == (OutcomeKind.KILLED, 9)
    assert outcome.billed_s < 10


def test_kill_after_is_a_lost_reply(real: LocalPlatform) -> None:
    invocation = run(real, Fault(do="kill", when="after"), seconds=0.1)
    outcome = invocation.outcome(WAIT_S)
    assert (outcome.kind, outcome.value, outcome.signal) == (OutcomeKind.KILLED, None, 9)
    assert outcome.billed_s >= 0.1, "the work was done and is paid for"
    assert [o.kind for o in runs_of(invocation)] == [OutcomeKind.RETURNED]


@pytest.mark.parametrize("when", ["before", "in flight", "after"])
def test_duplicates_run_in_environments_of_their_own(real: LocalPlatform, when: Any) -> None:
    invocation = run(real, Fault(do="duplicate", when=when, wait="50ms"), seconds=0.3)
    assert invocation.outcome(WAIT_S).kind is OutcomeKind.RETURNED
    give_up = time.monotonic() + WAIT_S
    while len(invocation._real) < 2 and time.monotonic() < give_up:  # type: ignore[attr-defined]
        time.sleep(0.01)
    pids = {o.value for o in runs_of(invocation)}
    assert len(pids) == (1 if when == "after" else 2)  # one after the other may be the same, warm one


def test_drop_before(real: LocalPlatform) -> None:
    invocation = run(real, Fault(do="drop"), seconds=0)
    with pytest.raises(TimeoutError):
        invocation.outcome(0.02)
    assert invocation.outcome(WAIT_S).kind is OutcomeKind.LOST
    assert runs_of(invocation) == []


def test_drop_in_flight_goes_on_working(real: LocalPlatform) -> None:
    invocation = run(real, Fault(do="drop", when="in flight"), seconds=0.4)
    assert invocation.outcome(WAIT_S).kind is OutcomeKind.LOST
    assert runs_of(invocation)[0].kind is OutcomeKind.RETURNED


def test_drop_after_has_worked(real: LocalPlatform) -> None:
    invocation = run(real, Fault(do="drop", when="after"), seconds=0)
    assert invocation.outcome(WAIT_S).kind is OutcomeKind.LOST
    assert invocation._real[0].outcome(0).kind is OutcomeKind.RETURNED  # type: ignore[attr-defined]


def test_lost_for_ever_ends_when_cancelled_or_closed() -> None:
    platform = ChaosPlatform(LocalPlatform(), Chaos(drop=1.0, lost_after=None))
    endpoint = platform.prepare(shape("sleep"))
    calls = [endpoint.invoke({"slot": n, "attempt": 1, "seconds": 60}) for n in range(8)]
    assert len({fault.when for fault in platform.faults}) > 1
    assert calls[0].cancel()
    assert calls[0].outcome(WAIT_S).kind is OutcomeKind.KILLED
    platform.close()
    assert {c.outcome(WAIT_S).kind for c in calls} == {OutcomeKind.KILLED}


def test_delays(real: LocalPlatform) -> None:
    for when in ("before", "after"):
        started = time.monotonic()
        invocation = run(real, Fault(do="delay", when=when, wait="300ms"), "span", seconds=0.0)  # type: ignore[arg-type]
        began, ended = invocation.outcome(WAIT_S).value
        if when == "before":
            assert began - started >= 0.3
        else:
            assert time.monotonic() - ended >= 0.3


def test_a_delayed_call_can_be_cancelled_before_it_starts(real: LocalPlatform) -> None:
    invocation = run(real, Fault(do="delay", wait="200ms"), seconds=0)
    assert invocation.cancel()
    assert invocation.outcome(0).kind is OutcomeKind.KILLED
    time.sleep(0.3)
    assert runs_of(invocation) == []


def test_throttle(real: LocalPlatform) -> None:
    refused = run(real, Fault(do="throttle"), seconds=0)
    assert refused.outcome(0).kind is OutcomeKind.THROTTLED
    assert runs_of(refused) == []
    in_flight = run(real, Fault(do="throttle", when="in flight"), seconds=0)
    assert in_flight.outcome(0).kind is OutcomeKind.THROTTLED
    assert runs_of(in_flight)[0].kind is OutcomeKind.RETURNED, "the work was done"


def test_quota(real: LocalPlatform) -> None:
    endpoint = ChaosPlatform(real, Chaos(quota=2)).prepare(shape("sleep"))
    calls = [endpoint.invoke({"seconds": 0.3}) for _ in range(5)]
    kinds = Counter(c.outcome(WAIT_S).kind for c in calls)
    assert kinds == {OutcomeKind.RETURNED: 2, OutcomeKind.THROTTLED: 3}
    assert endpoint.invoke({"seconds": 0}).outcome(WAIT_S).kind is OutcomeKind.RETURNED


# -------------------------------------------------------------------------- scripts and seeds


class Instant:
    """A platform on which every call has returned at once."""

    name = "instant"

    def prepare(self, wanted: Any) -> Any:
        self.shape = wanted
        return self

    def invoke(self, event: dict[str, Any]) -> Any:
        from squall.functions.local.chaos import _ended

        return _ended(OutcomeKind.RETURNED, "")

    def close(self) -> None:
        """Nothing to end."""


def faults(chaos: Chaos, slots: int = 40) -> list[tuple[str, str, int | None]]:
    platform = ChaosPlatform(Instant(), chaos)
    endpoint = platform.prepare(shape("echo"))
    for slot in range(slots):
        endpoint.invoke({"slot": slot, "attempt": 1})
    platform.close()
    return [(fault.do, fault.when, fault.slot) for fault in platform.faults]


MIXED = Chaos(seed=3, kill=0.1, duplicate=0.1, drop=0.1, delay=0.1, throttle=0.1, wait="1ms")


def test_draws_follow_the_seed() -> None:
    assert faults(MIXED) == faults(MIXED)
    assert faults(MIXED) != faults(Chaos(seed=4, kill=0.1, duplicate=0.1, drop=0.1, delay=0.1, throttle=0.1))
    assert {do for do, _, _ in faults(MIXED, 200)} == {"kill", "duplicate", "drop", "delay", "throttle"}
    assert len(faults(MIXED, 400)) == pytest.approx(200, abs=50)


def test_draws_do_not_depend_on_the_order_of_calls() -> None:
    def meet(order: list[int]) -> dict[int, Any]:
        platform = ChaosPlatform(Instant(), MIXED)
        endpoint = platform.prepare(shape("echo"))
        for slot in order:
            endpoint.invoke({"slot": slot, "attempt": 2})
        platform.close()
        return {fault.slot: fault for fault in platform.faults}  # type: ignore[misc]

    assert meet(list(range(30))) == meet(list(range(29, -1, -1)))


def test_limits_of_draws() -> None:
    assert len(faults(Chaos(kill=1.0, max_faults=3))) == 3
    assert {slot for _, _, slot in faults(Chaos(kill=1.0, slots=(1, 5)))} == {1, 5}
    assert {when for _, when, _ in faults(Chaos(kill=1.0, points=("after",)))} == {"after"}
    assert faults(Chaos()) == []


def test_scripts_strike_exactly() -> None:
    script = (
        Fault(do="throttle", slot=2),
        Fault(do="kill", attempt=1, times=2),
        Fault(do="drop", attempt=9),
    )
    assert [(do, slot) for do, _, slot in faults(Chaos(script=script), 6)] == [
        ("kill", None), ("kill", None), ("throttle", 2),
    ]  # fmt: skip


def test_everything_wrong_is_told_at_once() -> None:
    chaos = Chaos(
        kill=0.8, drop=0.7, delay=-1, throttle="often", points=("before", "later"), wait="soon",  # type: ignore[arg-type]
        quota=0, slots=[1], slot=3, max_faults=-1, seed=-1,  # type: ignore[arg-type]
        script=(Fault(do="delay", when="in flight"), Fault(do="klil"), Fault(do="kill", times=0), "kill"),  # type: ignore[arg-type]
    )  # fmt: skip
    with pytest.raises(SettingError) as caught:
        LocalBackend(chaos=chaos, concurrency=0)
    text = str(caught.value)
    for part in (
        "concurrency", "chaos.delay", "chaos.throttle", "add up to 1.5", "'later'", "chaos.wait",
        "chaos.quota", "chaos.slots", "chaos.attempt", "chaos.minibatch", "chaos.max_faults", "chaos.seed",
        "script[0].when", "script[1].do='klil'", 'did you mean "kill"', "script[2].times", "script[3]",
    ):  # fmt: skip
        assert part in text, part
    with pytest.raises(SettingError, match=r"kill=2.* must be a probability"):
        ChaosPlatform(Instant(), Chaos(kill=2))


def test_a_point_where_a_fault_cannot_strike_is_refused() -> None:
    with pytest.raises(SettingError, match=r"chaos.throttle can strike at before or in flight"):
        LocalBackend(chaos=Chaos(throttle=0.5, points=("after",)))


def test_the_backends_chaos_wraps_its_platform() -> None:
    assert isinstance(pool.open_platform(LocalBackend(chaos=Chaos(kill=0.5))), ChaosPlatform)
    plain = pool.open_platform(LocalBackend())
    assert isinstance(plain, LocalPlatform)
    faulty = pool.open_platform(LocalBackend(chaos=Chaos(kill=1.0, points=("before",))))
    assert call(faulty, "echo").kind is OutcomeKind.KILLED
    pool.shutdown()


def test_no_threads_stay(real: LocalPlatform) -> None:
    before = set(threading.enumerate())
    platform = ChaosPlatform(Instant(), Chaos(delay=1.0, wait="1h", points=("before",)))
    endpoint = platform.prepare(shape("echo"))
    calls = [endpoint.invoke({"slot": n}) for n in range(5)]
    platform.close()
    assert {c.outcome(0).kind for c in calls} == {OutcomeKind.KILLED}
    give_up = time.monotonic() + WAIT_S
    while set(threading.enumerate()) - before and time.monotonic() < give_up:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before
