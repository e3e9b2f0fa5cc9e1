"""The simulated platform keeps the contract of all function platforms, in its own time."""

from __future__ import annotations

import importlib
import math
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from squall.records import Outcome, Shape
from squall.simulation.clock import VirtualClock
from squall.simulation.platform import (
    Seconds,
    SimulatedEndpoint,
    SimulatedInvocation,
    SimulatedPlatform,
    VirtualContext,
)
from squall.simulation.scenario import PlatformModel
from squall.testing import handlers
from squall.testing.platform import ClosingContract, FunctionPlatformContract


def sleep(event: dict[str, Any], context: VirtualContext) -> Seconds:
    yield event["seconds"]
    return context.number


def spin(event: dict[str, Any], context: VirtualContext) -> Seconds:
    while True:
        yield 0.1


IN_VIRTUAL_TIME: dict[str, Callable[[dict[str, Any], VirtualContext], Seconds]] = {
    f"{handlers.__name__}:sleep": sleep,
    f"{handlers.__name__}:spin": spin,
}


def program(event: dict[str, Any], context: VirtualContext) -> Seconds:
    """The real handlers; but those that take time take virtual time."""
    if context.handler in IN_VIRTUAL_TIME:
        return (yield from IN_VIRTUAL_TIME[context.handler](event, context))
    yield 0.0
    module, _, name = context.handler.partition(":")
    return getattr(importlib.import_module(module), name)(event, context)


class Waiting:
    """An invocation: who waits for its end lets time pass until then."""

    def __init__(self, platform: Adapter, invocation: SimulatedInvocation) -> None:
        self._platform, self._invocation = platform, invocation
        self.id, self.logs = invocation.id, invocation.logs

    def outcome(self, timeout: float | None = None) -> Outcome:
        self._platform.pass_time(math.inf if timeout is None else timeout, self._invocation)
        return self._invocation.outcome(0)

    def add_done_callback(self, callback: Callable[[Outcome], None]) -> None:
        self._invocation.add_done_callback(callback)

    def cancel(self) -> bool:
        with self._platform.lock:
            return self._invocation.cancel()


class Ready:
    """An endpoint that may be used from several threads."""

    def __init__(self, platform: Adapter, endpoint: SimulatedEndpoint) -> None:
        self._platform, self._endpoint = platform, endpoint
        self.shape = endpoint.shape

    def invoke(self, event: dict[str, Any]) -> Waiting:
        with self._platform.lock:
            return Waiting(self._platform, self._endpoint.invoke(event))


class Adapter:
    """The platform and its clock behind the protocol, which knows of no clock."""

    name = SimulatedPlatform.name

    def __init__(self) -> None:
        self.clock, self.lock = VirtualClock(), threading.RLock()
        chance = random.Random(0)
        self._platform = SimulatedPlatform(self.clock, PlatformModel(), program, chance, expected=Exception)

    def prepare(self, shape: Shape) -> Ready:
        with self.lock:
            return Ready(self, self._platform.prepare(shape))

    def close(self) -> None:
        with self.lock:
            self._platform.close()

    def pass_time(self, seconds: float, until: SimulatedInvocation | None = None) -> None:
        """Do what is due in that time, or until an invocation has ended."""
        with self.lock:
            over: list[object] = []
            if math.isfinite(seconds):
                self.clock.after(seconds, lambda: over.append(True))
            if until is not None:
                until.add_done_callback(over.append)
            while not over:
                assert self.clock.step(), "it would never end"


class InVirtualTime:
    """What an exact clock and programs without processes cannot have, and how time passes."""

    lacks = frozenset({"memory", "processes", "output", "files"})

    def now(self, platform: Any) -> float:
        return float(platform.clock.now)

    def pause(self, platform: Any, seconds: float) -> None:
        platform.pass_time(seconds)


@pytest.fixture(scope="module")
def shared() -> Iterator[Adapter]:
    platform = Adapter()
    yield platform
    platform.close()


class TestContract(InVirtualTime, FunctionPlatformContract):
    @pytest.fixture
    def platform(self, shared: Adapter) -> Adapter:  # type: ignore[override]
        return shared


class TestClosing(InVirtualTime, ClosingContract):
    @pytest.fixture
    def fresh(self) -> Adapter:  # type: ignore[override]
        return Adapter()
