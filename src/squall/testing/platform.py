"""What every `squall.protocols.FunctionPlatform` must do, as tests for pytest.

To test a platform, derive from `FunctionPlatformContract` in a test module and override the
``platform`` fixture::

    @pytest.fixture(scope="module")
    def shared():
        platform = MyPlatform()
        yield platform
        platform.close()


    class TestMyPlatform(FunctionPlatformContract):
        @pytest.fixture
        def platform(self, shared):
            return shared

One platform may serve all tests of the class, in any order.  What a platform cannot have, it declares
(``lacks = frozenset({"memory"})``): the tests of that are then skipped, each with this as its reason.
"""

from __future__ import annotations

import functools
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from squall.errors import PlatformError
from squall.functions.payload import MAX_EVENT_BYTES
from squall.protocols import Endpoint, FunctionPlatform, Invocation
from squall.records import Outcome, OutcomeKind, Shape

HANDLERS = "squall.testing.handlers"
_ROUNDING_S = 1e-6
WAIT_S = 30.0
"""Longer than any call here takes: a wait that reaches it is a failure."""


def shape(handler: str, memory_mb: int = 256, timeout_s: float = 20.0) -> Shape:
    """The shape of one of the handlers in `squall.testing.handlers`."""
    return Shape(f"{HANDLERS}:{handler}", memory_mb, timeout_s)


def call(platform: FunctionPlatform, called: str | Shape, /, **event: Any) -> Outcome:
    """Prepare, invoke, wait."""
    wanted = shape(called) if isinstance(called, str) else called
    return platform.prepare(wanted).invoke(event).outcome(WAIT_S)


def event_of(size: int) -> dict[str, str]:
    """An event whose JSON has ``size`` bytes."""
    return {"x": "a" * (size - len('{"x":""}'))}


CAPABILITIES = {
    "memory": "real memory, which is measured and limited",
    "processes": "processes of their own, which exit, take signals and have process ids",
    "output": "output that is kept",
    "files": "temp folders",
}
"""What functions have, unless their platform declares that it lacks it."""

Test = TypeVar("Test", bound=Callable[..., None])


def needs(capability: str) -> Callable[[Test], Test]:
    """For tests of what not every platform has."""
    what = CAPABILITIES[capability]

    def marked(test: Test) -> Test:
        @functools.wraps(test)
        def guarded(self: _Contract, *args: Any, **kwargs: Any) -> None:
            if capability in self.lacks:
                pytest.skip(f"declared: functions of this platform have no {what}")
            test(self, *args, **kwargs)

        return cast(Test, guarded)

    return marked


class _Contract:
    """What may differ.  A platform in virtual time overrides `now` and `pause`."""

    lacks: frozenset[str] = frozenset()
    """Names in `CAPABILITIES`."""
    memory_slack_mb = 192
    """How far a function may overshoot its memory before it is ended."""

    def now(self, platform: FunctionPlatform) -> float:
        """Seconds, as the platform counts them."""
        return time.monotonic()

    def pause(self, platform: FunctionPlatform, seconds: float) -> None:
        """Let that many seconds pass."""
        time.sleep(seconds)


class FunctionPlatformContract(_Contract):
    """The tests."""

    @pytest.fixture
    def platform(self) -> FunctionPlatform:
        """The platform to test; to be overridden."""
        raise NotImplementedError

    # ------------------------------------------------------------------------- returning

    def test_is_a_platform(self, platform: FunctionPlatform) -> None:
        assert isinstance(platform, FunctionPlatform)
        assert platform.name
        assert self.lacks <= CAPABILITIES.keys()

    def test_endpoint_knows_its_shape(self, platform: FunctionPlatform) -> None:
        assert platform.prepare(shape("echo")).shape == shape("echo")

    @pytest.mark.parametrize(
        "value", [{}, {"a": [1, 2.5, None, True, "ü\u2028😀"], "b": {"c": {}}}, {"n": 2**63}]
    )
    def test_returns_what_the_handler_returns(
        self, platform: FunctionPlatform, value: dict[str, Any]
    ) -> None:
        outcome = call(platform, "echo", **value)
        assert outcome.kind is OutcomeKind.RETURNED
        assert outcome.value == value
        assert outcome.error == outcome.traceback == ""

    def test_context(self, platform: FunctionPlatform) -> None:
        invocation = platform.prepare(shape("about")).invoke({})
        outcome = invocation.outcome(WAIT_S)
        context = outcome.value
        assert context["id"] == invocation.id
        assert context["memory_mb"] == 256
        assert 15 < context["remaining_s"] <= 20
        assert (context["cold_start_s"] > 0) == outcome.cold

    def test_ids_are_unique(self, platform: FunctionPlatform) -> None:
        endpoint = platform.prepare(shape("echo"))
        invocations = [endpoint.invoke({}) for _ in range(5)]
        assert len({invocation.id for invocation in invocations}) == 5
        for invocation in invocations:
            invocation.outcome(WAIT_S)

    # --------------------------------------------------------------------------- failing

    def test_exception(self, platform: FunctionPlatform) -> None:
        outcome = call(platform, "fail", text="too few rows")
        assert outcome.kind is OutcomeKind.RAISED
        assert outcome.error_type == "ValueError"
        assert outcome.error == "too few rows"
        assert 'raise ValueError(event.get("text"' in outcome.traceback

    @pytest.mark.parametrize(
        ("handler", "error_type"),
        [(f"{HANDLERS}:nothing", "AttributeError"), ("no_such_module:f", "ModuleNotFoundError")],
    )
    def test_handler_that_is_not_there(
        self, platform: FunctionPlatform, handler: str, error_type: str
    ) -> None:
        for _ in range(2):
            outcome = call(platform, Shape(handler, 256, 20.0))
            assert (outcome.kind, outcome.error_type) == (OutcomeKind.RAISED, error_type)

    @pytest.mark.parametrize("what", ["bytes", "nan", "object"])
    def test_return_value_that_is_not_json(self, platform: FunctionPlatform, what: str) -> None:
        outcome = call(platform, "unserialisable", what=what)
        assert outcome.kind is OutcomeKind.RAISED
        assert "return value" in outcome.error

    @needs("processes")
    @pytest.mark.parametrize("hard", [False, True])
    @pytest.mark.parametrize("code", [0, 3])
    def test_exit(self, platform: FunctionPlatform, code: int, hard: bool) -> None:
        outcome = call(platform, "exit_with", code=code, hard=hard)
        assert (outcome.kind, outcome.exit_code) == (OutcomeKind.EXITED, code)

    @needs("processes")
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
    def test_signal(self, platform: FunctionPlatform, number: signal.Signals) -> None:
        outcome = call(platform, "kill_self", signal=number)
        assert (outcome.kind, outcome.signal) == (OutcomeKind.KILLED, number)

    @pytest.mark.parametrize("handler", ["spin", "sleep"])
    def test_timeout(self, platform: FunctionPlatform, handler: str) -> None:
        outcome = call(platform, shape(handler, timeout_s=0.3), seconds=60)
        assert outcome.kind is OutcomeKind.TIMED_OUT
        assert 0.3 - _ROUNDING_S <= outcome.billed_s < 5

    def test_timeout_counts_each_call_anew(self, platform: FunctionPlatform) -> None:
        brief = shape("sleep", timeout_s=0.6)
        for _ in range(3):
            assert call(platform, brief, seconds=0.3).kind is OutcomeKind.RETURNED

    @needs("memory")
    def test_out_of_memory(self, platform: FunctionPlatform) -> None:
        limit = 128
        outcome = call(
            platform,
            shape("allocate", memory_mb=limit),
            megabytes=limit + self.memory_slack_mb,
            pause_s=0.001,
        )
        assert outcome.kind is OutcomeKind.OUT_OF_MEMORY
        assert "128" in outcome.error
        assert outcome.peak_memory >= limit << 20

    @needs("memory")
    def test_memory_within_the_limit(self, platform: FunctionPlatform) -> None:
        # Held for long enough that a platform which samples sees it.
        outcome = call(platform, shape("allocate", memory_mb=256), megabytes=150, hold_s=0.5)
        assert outcome.kind is OutcomeKind.RETURNED
        assert 150 << 20 <= outcome.peak_memory <= 256 << 20

    @needs("memory")
    def test_killed_is_not_out_of_memory(self, platform: FunctionPlatform) -> None:
        """Even when nearly all memory is in use."""
        roomy = shape("allocate_and_die", memory_mb=256)
        assert call(platform, roomy, megabytes=180).kind is OutcomeKind.KILLED

    @needs("processes")
    def test_works_on_after_a_death(self, platform: FunctionPlatform) -> None:
        same = shape("exit_if")
        assert call(platform, same, exit=True).kind is OutcomeKind.EXITED
        outcome = call(platform, same, exit=False)
        assert (outcome.kind, outcome.cold) == (OutcomeKind.RETURNED, True)

    # ------------------------------------------------------------------------ environments

    @needs("files")
    def test_temp_folder_is_empty_at_each_start(self, platform: FunctionPlatform) -> None:
        for _ in range(3):
            found = call(platform, "litter").value
            assert found["before"] == []
            assert found["file"].startswith(found["temp_dir"])

    def test_an_exception_leaves_the_environment_usable(self, platform: FunctionPlatform) -> None:
        for _ in range(3):
            assert call(platform, "fail").kind is OutcomeKind.RAISED
        assert call(platform, "echo").kind is OutcomeKind.RETURNED

    def test_billed_time_covers_the_call(self, platform: FunctionPlatform) -> None:
        endpoint = platform.prepare(shape("sleep"))
        started = self.now(platform)
        outcome = endpoint.invoke({"seconds": 0.2}).outcome(WAIT_S)
        assert 0.2 - _ROUNDING_S <= outcome.billed_s <= self.now(platform) - started + _ROUNDING_S

    # ------------------------------------------------------------------------------ events

    def test_event_of_64_kb(self, platform: FunctionPlatform) -> None:
        event = event_of(MAX_EVENT_BYTES)
        assert call(platform, "echo", **event).value == event

    def test_event_of_64_kb_and_1_byte(self, platform: FunctionPlatform) -> None:
        endpoint = platform.prepare(shape("echo"))
        with pytest.raises(PlatformError, match="65,537 bytes") as caught:
            endpoint.invoke(event_of(MAX_EVENT_BYTES + 1))
        assert caught.value.fix

    @pytest.mark.parametrize("value", [b"x", float("inf"), object(), "\ud800", {1, 2}])
    def test_event_that_is_not_json(self, platform: FunctionPlatform, value: object) -> None:
        with pytest.raises(PlatformError, match="cannot be sent"):
            platform.prepare(shape("echo")).invoke({"value": value})

    # ------------------------------------------------------------------------- invocations

    @needs("output")
    def test_logs(self, platform: FunctionPlatform) -> None:
        invocation = platform.prepare(shape("write")).invoke({"text": "grüße"})
        invocation.outcome(WAIT_S)
        for source in ("by print", "to stderr", "by write", "by a child"):
            assert f"grüße {source}\n" in invocation.logs()

    @needs("output")
    def test_logs_belong_to_their_call(self, platform: FunctionPlatform) -> None:
        endpoint = platform.prepare(shape("write"))
        for text in ("first", "second"):
            invocation = endpoint.invoke({"text": text})
            invocation.outcome(WAIT_S)
            assert {line.split()[0] for line in invocation.logs().splitlines()} == {text}

    def test_waiting_is_bounded(self, platform: FunctionPlatform) -> None:
        invocation = platform.prepare(shape("sleep")).invoke({"seconds": 0.5})
        with pytest.raises(TimeoutError):
            invocation.outcome(0.01)
        assert invocation.outcome(WAIT_S).kind is OutcomeKind.RETURNED

    def test_callbacks(self, platform: FunctionPlatform) -> None:
        """Once each, set before or after the end; one that raises harms no one."""
        seen: list[tuple[str, Outcome]] = []
        both = threading.Semaphore(0)

        def note(when: str) -> Any:
            def callback(outcome: Outcome) -> None:
                seen.append((when, outcome))
                both.release()

            return callback

        def careless(outcome: Outcome) -> None:
            raise RuntimeError("careless")

        invocation = platform.prepare(shape("sleep")).invoke({"seconds": 0.1})
        invocation.add_done_callback(careless)
        invocation.add_done_callback(note("before"))
        outcome = invocation.outcome(WAIT_S)
        invocation.add_done_callback(note("after"))
        assert both.acquire(timeout=WAIT_S)
        assert both.acquire(timeout=WAIT_S)
        assert sorted(when for when, _ in seen) == ["after", "before"]
        assert all(given == outcome for _, given in seen)

    def test_cancel(self, platform: FunctionPlatform) -> None:
        invocation = platform.prepare(shape("sleep")).invoke({"seconds": 3})
        self.pause(platform, 0.1)
        expected = OutcomeKind.KILLED if invocation.cancel() else OutcomeKind.RETURNED
        assert invocation.outcome(WAIT_S).kind is expected
        assert invocation.cancel() is False

    @needs("processes")
    def test_calls_run_side_by_side(self, platform: FunctionPlatform) -> None:
        endpoint = platform.prepare(shape("sleep"))
        invocations = [endpoint.invoke({"seconds": 0.5}) for _ in range(3)]
        pids = {invocation.outcome(WAIT_S).value for invocation in invocations}
        assert len(pids) == 3

    def test_use_from_many_threads(self, platform: FunctionPlatform) -> None:
        endpoint = platform.prepare(shape("echo"))
        wrong: list[Any] = []

        def work(number: int) -> None:
            for index in range(20):
                event = {"thread": number, "index": index}
                outcome = endpoint.invoke(event).outcome(WAIT_S)
                if outcome.value != event:
                    wrong.append(outcome)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    # ----------------------------------------------------------------------------- refusals

    @pytest.mark.parametrize(
        "impossible",
        [
            Shape("without_a_function", 256, 10.0),
            Shape("__main__:f", 256, 10.0),
            Shape(f"{HANDLERS}:echo", 256, 0.0),
            Shape(f"{HANDLERS}:echo", 1, 10.0),
            Shape(f"{HANDLERS}:echo", 1 << 30, 10.0),
        ],
    )
    def test_impossible_shapes(self, platform: FunctionPlatform, impossible: Shape) -> None:
        with pytest.raises(PlatformError) as caught:
            platform.prepare(impossible)
        assert caught.value.fix


class ClosingContract(_Contract):
    """What must hold when a platform is closed; ``fresh`` gives a platform to one test alone."""

    @pytest.fixture
    def fresh(self) -> FunctionPlatform:
        """A platform that the test may close; to be overridden."""
        raise NotImplementedError

    def test_close_ends_what_runs(self, fresh: FunctionPlatform) -> None:
        invocation = fresh.prepare(shape("sleep")).invoke({"seconds": 60})
        self.pause(fresh, 0.1)
        fresh.close()
        assert invocation.outcome(WAIT_S).kind in {OutcomeKind.KILLED, OutcomeKind.LOST}
        assert invocation.cancel() is False

    def test_close_twice(self, fresh: FunctionPlatform) -> None:
        fresh.close()
        fresh.close()

    def test_closed_platform_refuses(self, fresh: FunctionPlatform) -> None:
        endpoint: Endpoint = fresh.prepare(shape("echo"))
        ended: Invocation = endpoint.invoke({})
        ended.outcome(WAIT_S)
        fresh.close()
        with pytest.raises(PlatformError, match="closed"):
            endpoint.invoke({})
        with pytest.raises(PlatformError, match="closed"):
            fresh.prepare(shape("echo"))
        assert ended.outcome(0).kind is OutcomeKind.RETURNED
