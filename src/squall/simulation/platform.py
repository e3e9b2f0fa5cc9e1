"""Functions that exist in virtual time only, behind the protocol of all function platforms."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator
from typing import Any

from squall.errors import PlatformError, SquallError
from squall.functions import payload
from squall.functions.invocation import Ending
from squall.functions.limits import load_limits
from squall.functions.shapes import check_shape
from squall.records import Outcome, OutcomeKind, Shape
from squall.simulation.clock import VirtualClock
from squall.simulation.scenario import KINDS, PlatformModel
from squall.worker import telling

Seconds = Generator[float, None, Any]
"""What a program is while it runs: it yields the seconds that it works or waits, and returns its value."""

Program = Callable[[dict[str, Any], "VirtualContext"], Seconds]
"""A handler."""


class VirtualContext:
    """What a running program knows of itself (`squall.protocols.FunctionContext`)."""

    temp_dir = ""

    def __init__(
        self, clock: VirtualClock, call_id: str, number: int, shape: Shape, cold_start_s: float
    ) -> None:
        self._clock, self.number = clock, number
        self.invocation_id, self.handler = call_id, shape.handler
        self.memory_mb, self.cold_start_s = shape.memory_mb, cold_start_s
        self._ends = clock.now + shape.timeout_s
        self.started = clock.now

    def now(self) -> float:
        """Virtual seconds."""
        return self._clock.now

    def remaining_s(self) -> float:
        """Virtual seconds until the platform ends this invocation."""
        return self._ends - self._clock.now


class _Run:
    """One run of a program: an invocation has one, two if it is doubled, none if it is dropped."""

    def __init__(self, platform: SimulatedPlatform, call_id: str, shape: Shape, event: bytes) -> None:
        self._platform, self._id, self._shape, self._event = platform, call_id, shape, event
        self._program: Seconds | None = None
        self._ended = False
        self.on_end: Callable[[Outcome], None] = _nobody
        self.dies_after_s = math.inf
        self.dies_of = OutcomeKind.KILLED
        self.hangs_after_s = math.inf
        self.slowness = 1.0
        self.fails = False

    def start(self) -> None:
        """Begin with a cold or a warm environment."""
        platform = self._platform
        self._cold = not platform.take_environment()
        self._requested = platform.clock.now
        platform.running[self] = None
        platform.clock.after(platform.start_s(cold=self._cold), self._begin)

    def end(self, kind: OutcomeKind, *, value: Any = None, raised: BaseException | None = None) -> bool:
        """It ends, whatever it does; False if it has ended already."""
        if self._ended:
            return False
        self._ended = True
        if self._program is not None:
            self._program.close()
        platform = self._platform
        platform.running.pop(self, None)
        platform.environments += kind in (OutcomeKind.RETURNED, OutcomeKind.RAISED)
        from_s = self._requested if self._cold or self._program is None else self._context.started
        billed = platform.clock.now - from_s
        outcome = Outcome(
            kind,
            value,
            *(("", "", "") if raised is None else telling.told(raised, __file__)),
            signal=9 if kind is OutcomeKind.KILLED else 0,
            cold=self._cold,
            billed_s=billed,
        )
        platform.billed_s.append(billed)
        self.on_end(outcome)
        return True

    def _begin(self) -> None:
        if self._ended:
            return
        platform = self._platform
        cold_s = platform.clock.now - self._requested if self._cold else 0.0
        self._context = VirtualContext(platform.clock, self._id, platform.count(), self._shape, cold_s)
        self._program = platform.program(payload.decode(self._event), self._context)
        platform.clock.after(self._shape.timeout_s, lambda: self.end(OutcomeKind.TIMED_OUT))
        if self.dies_after_s < math.inf:
            platform.clock.after(self.dies_after_s, lambda: self.end(self.dies_of))
        self._advance()

    def _advance(self) -> None:
        if self._ended or self._platform.clock.now > self._context.started + self.hangs_after_s:
            return
        assert self._program is not None
        try:
            pause = next(self._program)
        except StopIteration as stop:
            self._has_returned(stop.value)
        except self._platform.expected as error:
            self.end(OutcomeKind.RAISED, raised=error)
        else:
            self._platform.clock.after(pause * self.slowness, self._advance)

    def _has_returned(self, value: Any) -> None:
        if self.fails:
            self.end(OutcomeKind.RAISED, raised=ValueError("a fault of the user's code"))
            return
        try:
            sent = payload.encode(value)
        except ValueError as error:
            self.end(OutcomeKind.RAISED, raised=ValueError(f"the return value cannot be sent: {error}"))
        else:
            self.end(OutcomeKind.RETURNED, value=payload.decode(sent))


def _nobody(outcome: Outcome) -> None:
    """Nobody hears of it."""


class SimulatedInvocation(Ending):
    """`squall.protocols.Invocation` in virtual time."""

    def __init__(self, call_id: str) -> None:
        super().__init__(call_id)
        self.run: _Run | None = None
        self.cancels = True

    def cancel(self) -> bool:
        """Kill it, if this platform can."""
        return self.cancels and self.run is not None and self.run.end(OutcomeKind.KILLED)

    def logs(self) -> str:
        """Nothing is written here."""
        return ""


class SimulatedEndpoint:
    """`squall.protocols.Endpoint` in virtual time."""

    def __init__(self, platform: SimulatedPlatform, shape: Shape) -> None:
        self._platform, self._shape = platform, shape

    @property
    def shape(self) -> Shape:
        """The shape it was prepared for."""
        return self._shape

    def invoke(self, event: dict[str, Any]) -> SimulatedInvocation:
        """Start one invocation, or what a fault makes of it."""
        return self._platform.call(self._shape, payload.encode_event(event))


class SimulatedPlatform:
    """Functions of which only the times and the ends are real.

    Parameters
    ----------
    clock : VirtualClock
        In whose time they run.
    model : PlatformModel
        How they start and end.
    program : callable
        What they do, whichever handler a shape names.
    chance : random.Random
        Decides all that the model leaves open.
    expected : type
        Exceptions of programs that are outcomes; any other is a fault of the simulation and comes through.

    Attributes
    ----------
    running : dict
        What runs at the moment, heard of or not.
    billed_s : list of float
        Seconds of every run that has ended.
    """

    name = "simulated"

    def __init__(
        self,
        clock: VirtualClock,
        model: PlatformModel,
        program: Program,
        chance: random.Random,
        expected: type[Exception] = SquallError,
    ) -> None:
        self.clock, self.program, self.expected = clock, program, expected
        self._model, self._chance = model, chance
        self.running: dict[_Run, None] = {}  # in the order of their starts
        self.environments = 0  # warm and free
        self.billed_s: list[float] = []
        self._n_runs = self._n_calls = 0
        self._closed = False
        self._limits = load_limits("aws-lambda")

    def prepare(self, shape: Shape) -> SimulatedEndpoint:
        """A function of this shape, with the memory that AWS Lambda gives."""
        self._check_open()
        check_shape(shape, self._limits.memory_mb_min, self._limits.memory_mb_max)
        timeout_s = min(shape.timeout_s, self._model.lifetime_s)
        return SimulatedEndpoint(self, Shape(shape.handler, shape.memory_mb, timeout_s))

    def close(self) -> None:
        """End everything that runs."""
        self._closed = True
        self.end_all()

    def end_all(self) -> None:
        """End everything that runs; more may follow."""
        for run in list(self.running):
            run.end(OutcomeKind.KILLED)

    # ------------------------------------------------------------------------- for its parts

    def _check_open(self) -> None:
        if self._closed:
            raise PlatformError("this simulated platform is closed", fix="make a new one")

    def call(self, shape: Shape, event: bytes) -> SimulatedInvocation:
        """See :meth:`SimulatedEndpoint.invoke`."""
        self._check_open()
        self._n_calls += 1
        invocation = SimulatedInvocation(f"simulated-call-{self._n_calls}")
        invocation.cancels = self._model.cancels
        fault = self._fault()
        if fault == "throttle" or len(self.running) >= self._model.concurrency:
            self._tell(invocation, Outcome(OutcomeKind.THROTTLED))
        elif fault == "drop":
            self._give_up(invocation)
        else:
            self._start(invocation, shape, event, fault)
        return invocation

    def _start(self, invocation: SimulatedInvocation, shape: Shape, event: bytes, fault: str) -> None:
        run = invocation.run = _Run(self, invocation.id, shape, event)
        run.on_end = lambda outcome: self._tell(invocation, outcome)
        run.fails = self._chance.random() < self._model.fail
        if fault in ("kill", "memory"):
            run.dies_after_s = self._chance.uniform(0, self._model.dies_within_s)
            run.dies_of = OutcomeKind.KILLED if fault == "kill" else OutcomeKind.OUT_OF_MEMORY
        elif fault == "hang":
            run.hangs_after_s = self._chance.uniform(0, self._model.dies_within_s)
        elif fault == "straggle":
            run.slowness = self._model.slowdown
        elif fault == "lose":
            run.on_end = _nobody
            invocation.cancels = False
            self._give_up(invocation)
        run.start()
        if fault == "duplicate":
            second = _Run(self, invocation.id, shape, event)
            self.clock.after(self._chance.uniform(0, 2 * self._model.cold_start_s), second.start)

    def take_environment(self) -> bool:
        """Whether a warm one was free; it is not any more."""
        free = self.environments > 0
        self.environments -= free
        return free

    def start_s(self, *, cold: bool) -> float:
        """Seconds that this start takes."""
        median = self._model.cold_start_s if cold else self._model.warm_start_s
        return median * math.exp(self._chance.gauss(0.0, self._model.spread))

    def count(self) -> int:
        """Number of the next run."""
        self._n_runs += 1
        return self._n_runs

    def _fault(self) -> str:
        drawn = self._chance.random()
        for kind in KINDS:
            drawn -= getattr(self._model, kind)
            if drawn < 0:
                return kind
        return ""

    def _tell(self, invocation: SimulatedInvocation, outcome: Outcome) -> None:
        delay = self._chance.uniform(0, self._model.news_s)
        self.clock.after(delay, lambda: invocation.finish(outcome))

    def _give_up(self, invocation: SimulatedInvocation) -> None:
        lost = Outcome(OutcomeKind.LOST, error="given up")
        self.clock.after(self._model.lost_after_s, lambda: invocation.finish(lost))
