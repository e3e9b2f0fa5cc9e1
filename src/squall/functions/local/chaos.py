"""Any function platform, with the faults of real ones: seeded, counted, at chosen points."""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
import threading
import weakref
from collections.abc import Callable
from typing import Any

import msgspec

from squall.config import FAULT_POINTS, Problems, check_chaos
from squall.errors import SquallError
from squall.functions import payload
from squall.functions.invocation import Ending
from squall.log import get_logger
from squall.protocols import Endpoint, FunctionPlatform, Invocation
from squall.records import Chaos, Fault, FaultKind, FaultPoint, Outcome, OutcomeKind, Shape
from squall.units import parse_duration

_log = get_logger("squall.functions.chaos")


class ChaosPlatform:
    """Another platform, whose invocations now and then meet a fault.

    =========  ===========================  =============================  =========================
    fault      before                       in flight                      after
    =========  ===========================  =============================  =========================
    kill       dies without having started  dies within ``wait``           dies when it has returned
                                                                           (its reply is lost)
    duplicate  runs twice at once           again after ``wait``           again when the first ends
    drop       never runs; LOST             runs, given up as LOST         runs to its end, LOST then
    delay      starts ``wait`` later        \\-                             ends ``wait`` later
    throttle   refused                      runs, though it was "refused"  \\-
    slow       all its work takes ``slowdown`` times as long, at whichever point
    =========  ===========================  =============================  =========================

    Of a duplicate only the first run's outcome is reported.  LOST comes ``lost_after`` the
    call (or its end), or never.  Nobody but the platform can end what goes on after it was
    reported as ended: that is what has to be survived.

    Parameters
    ----------
    platform : FunctionPlatform
        The real one; closed with this one.
    chaos : Chaos
        The faults.

    Raises
    ------
    SettingError
        Naming everything that is wrong with the faults.
    """

    def __init__(self, platform: FunctionPlatform, chaos: Chaos) -> None:
        problems = Problems("Chaos")
        check_chaos(problems, chaos)
        problems.raise_if_any()
        self._platform = platform
        self._fate = _Fate(chaos)

    @property
    def name(self) -> str:
        """The real platform's."""
        return self._platform.name

    @property
    def faults(self) -> list[Fault]:
        """What was injected so far, in order."""
        return list(self._fate.faults)

    def prepare(self, shape: Shape) -> Endpoint:
        """See `squall.protocols.FunctionPlatform.prepare`."""
        return ChaosEndpoint(self._platform.prepare(shape), self._fate)

    def close(self) -> None:
        """End everything, also what was reported as ended."""
        self._fate.stop()
        self._platform.close()
        self._fate.end_all()


class ChaosEndpoint:
    """An endpoint whose invocations meet their fate."""

    def __init__(self, endpoint: Endpoint, fate: _Fate) -> None:
        self._endpoint = endpoint
        self._fate = fate

    @property
    def shape(self) -> Shape:
        """The shape it was prepared for."""
        return self._endpoint.shape

    def invoke(self, event: dict[str, Any]) -> Invocation:
        """See `squall.protocols.Endpoint.invoke`.

        A faulty invocation's id is the first real one's, if there is one when this returns.
        """
        payload.encode_event(event)  # what the platform would refuse is refused, whatever follows
        if not self._fate.enter():
            return _ended(OutcomeKind.THROTTLED, "the quota of chaos is used up")
        try:
            invocation = self._invoke(event)
        except SquallError:
            self._fate.leave()
            raise
        invocation.add_done_callback(lambda _: self._fate.leave())
        return invocation

    def _invoke(self, event: dict[str, Any]) -> Invocation:
        fault = self._fate.decide(event)
        if fault is not None and fault.do == "slow":  # its handler sees to that
            return self._endpoint.invoke({**event, "slowdown": self._fate.slowdown})
        if fault is None:
            return self._endpoint.invoke(event)
        _log.info("chaos: %s %s for %s", fault.do, fault.when, {k: event.get(k) for k in ("slot", "attempt")})
        faulty = FaultyInvocation(fault, lambda: self._endpoint.invoke(event), self._fate)
        faulty.begin()
        return faulty


class FaultyInvocation(Ending):
    """What the caller sees of an invocation that meets a fault.

    Parameters
    ----------
    fault : Fault
        With its ``wait`` in seconds.
    start : callable
        Starts a real invocation.
    fate : _Fate
        Keeps time.
    """

    def __init__(self, fault: Fault, start: Callable[[], Invocation], fate: _Fate) -> None:
        super().__init__(f"chaos-{secrets.token_hex(4)}")
        self._fault, self._start, self._fate = fault, start, fate
        self._real: list[Invocation] = []
        self._cancelled = False
        fate.remember(self)

    def begin(self) -> None:
        """Let the fault take its course."""
        course = getattr(self, f"_{self._fault.do}")
        course(self._fault.when, self._fault.wait)

    @property
    def id(self) -> str:
        """Unique name; the same inside the function, if it was started at once."""
        return self._real[0].id if self._real else self._id

    def logs(self) -> str:
        """What its runs wrote."""
        return "".join(real.logs() for real in self._real)

    def cancel(self) -> bool:
        """End what really runs; False if an end has been reported already."""
        ended = self._outcome is not None
        self._cancelled = True
        running = [real.cancel() for real in self._real]
        if not any(running) or self._fault.do == "drop":  # whose runs report nothing
            self.finish(_killed("cancelled"))
        return not ended

    # ----------------------------------------------------------------------------- courses

    def _kill(self, when: FaultPoint, wait: float) -> None:
        if when == "before":
            self.finish(_killed("killed by chaos before it started"))
            return
        real = self._run()
        if when == "in flight":
            # (also if it was still waiting for its turn then)
            died = OutcomeKind.KILLED
            real.add_done_callback(lambda o: self.finish(_killed(o.error, o) if o.kind is died else o))
            self._fate.later(wait, real.cancel)
        else:
            text = "killed by chaos when it had returned: its reply is lost"
            real.add_done_callback(lambda o: self.finish(_killed(text, o) if _returned(o) else o))

    def _duplicate(self, when: FaultPoint, wait: float) -> None:
        first = self._run()
        self._report(first)
        if when == "before":
            self._again()
        elif when == "in flight":
            self._fate.later(wait, self._again)
        else:
            first.add_done_callback(lambda _: self._fate.later(0.0, self._again))

    def _drop(self, when: FaultPoint, wait: float) -> None:
        if when == "before":
            self._fate.give_up(lambda: self.finish(_lost("it never started")))
            return
        real = self._run()
        if when == "in flight":
            self._fate.give_up(lambda: self.finish(_lost("it may still run")))
        else:
            real.add_done_callback(
                lambda _: self._fate.give_up(lambda: self.finish(_lost("it ran to its end")))
            )

    def _delay(self, when: FaultPoint, wait: float) -> None:
        if when == "before":
            self._fate.later(wait, self._run_late)
        else:
            self._run().add_done_callback(lambda o: self._fate.later(wait, lambda: self.finish(o)))

    def _throttle(self, when: FaultPoint, wait: float) -> None:
        if when == "in flight":
            self._run()
        self.finish(Outcome(OutcomeKind.THROTTLED, error="throttled by chaos"))

    def _run(self) -> Invocation:
        real = self._start()
        self._real.append(real)
        if self._cancelled:
            real.cancel()
        return real

    def _run_late(self) -> None:
        if self._cancelled:
            return
        try:
            self._report(self._run())
        except SquallError as error:  # the platform was closed in the meantime
            self.finish(_lost(str(error)))

    def _again(self) -> None:
        if not self._cancelled:
            with contextlib.suppress(SquallError):  # closed in the meantime: no second delivery
                self._run()

    def _report(self, real: Invocation) -> None:
        real.add_done_callback(self.finish)


class _Fate:
    """Decides what happens to whom, keeps count and time."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos, self.slowdown = chaos, float(chaos.slowdown)
        self._wait_s = parse_duration(chaos.wait)
        self._lost_after_s = None if chaos.lost_after is None else parse_duration(chaos.lost_after)
        self._left = [fault.times for fault in chaos.script]
        self._numbers = itertools.count()
        self._running = 0
        self._lock = threading.Lock()
        self._timers: set[threading.Timer] = set()
        self._faulty: weakref.WeakSet[FaultyInvocation] = weakref.WeakSet()
        self._closed = False
        self.faults: list[Fault] = []

    # ---------------------------------------------------------------------------- decisions

    def enter(self) -> bool:
        """Count a call in; False if the quota is used up."""
        with self._lock:
            if self._chaos.quota is not None and self._running >= self._chaos.quota:
                return False
            self._running += 1
            return True

    def leave(self) -> None:
        """A call has ended, as far as anyone knows."""
        with self._lock:
            self._running -= 1

    def decide(self, event: dict[str, Any]) -> Fault | None:
        """The fault that this invocation meets, if any."""
        slot, attempt = event.get("slot"), event.get("attempt")
        with self._lock:
            number = next(self._numbers)
            fault = self._scripted(slot, attempt) or self._drawn(slot, attempt, number)
            if fault is not None:
                self.faults.append(fault)
        return fault

    def _scripted(self, slot: Any, attempt: Any) -> Fault | None:
        for index, fault in enumerate(self._chaos.script):
            if self._left[index] and fault.slot in (None, slot) and fault.attempt in (None, attempt):
                self._left[index] -= 1
                wait = self._wait_s if fault.wait is None else parse_duration(fault.wait)
                return msgspec.structs.replace(fault, wait=wait)
        return None

    def _drawn(self, slot: Any, attempt: Any, number: int) -> Fault | None:
        chaos = self._chaos
        if chaos.max_faults is not None and len(self.faults) >= chaos.max_faults:
            return None
        if chaos.slots is not None and slot not in chaos.slots:
            return None
        # By slot and attempt, not by the order of calls, which depends on the clock.
        which = number if slot is None else f"{slot}/{attempt}"
        dice = random.Random(f"{chaos.seed}/{which}")
        kind = _pick(chaos, dice.random())
        if kind is None:
            return None
        when = dice.choice([point for point in FAULT_POINTS[kind] if point in chaos.points])
        wait = self._wait_s * (dice.random() if when == "in flight" else 1.0)
        return Fault(do=kind, when=when, slot=slot, attempt=attempt, wait=wait)

    # --------------------------------------------------------------------------------- time

    def later(self, seconds: float, do: Callable[[], object]) -> None:
        """Do something on a thread of its own after a while, unless closed by then."""

        def due() -> None:
            with self._lock:
                self._timers.discard(timer)
                if self._closed:
                    return
            do()

        timer = threading.Timer(seconds, due)
        timer.daemon = True
        with self._lock:
            if self._closed:
                return
            self._timers.add(timer)
            timer.start()

    def give_up(self, do: Callable[[], None]) -> None:
        """Do something when a caller gives a lost invocation up: after a while, or never."""
        if self._lost_after_s is not None:
            self.later(self._lost_after_s, do)

    def remember(self, invocation: FaultyInvocation) -> None:
        """It ends when this is closed, if not before."""
        with self._lock:
            self._faulty.add(invocation)

    def stop(self) -> None:
        """Nothing more happens; what runs is cancelled."""
        with self._lock:
            self._closed = True
            timers, self._timers = self._timers, set()
        for timer in timers:
            timer.cancel()
        for invocation in list(self._faulty):
            invocation.cancel()

    def end_all(self) -> None:
        """Let those end that nothing would end any more."""
        for invocation in list(self._faulty):
            invocation.finish(_killed("the platform was closed"))


def _pick(chaos: Chaos, dice: float) -> FaultKind | None:
    for kind in FAULT_POINTS:
        dice -= float(getattr(chaos, kind))
        if dice < 0:
            return kind
    return None


def _ended(kind: OutcomeKind, error: str) -> Invocation:
    invocation = _Refused(f"chaos-{secrets.token_hex(4)}")
    invocation.finish(Outcome(kind, error=error))
    return invocation


class _Refused(Ending):
    """An invocation that was never accepted."""

    def cancel(self) -> bool:
        """It has ended."""
        return False

    def logs(self) -> str:
        """Nothing."""
        return ""


def _returned(outcome: Outcome) -> bool:
    return outcome.kind is OutcomeKind.RETURNED


def _killed(error: str, run: Outcome | None = None) -> Outcome:
    base = Outcome(OutcomeKind.KILLED) if run is None else run
    return msgspec.structs.replace(base, kind=OutcomeKind.KILLED, value=None, signal=9, error=error)


def _lost(error: str) -> Outcome:
    return Outcome(OutcomeKind.LOST, error=f"lost by chaos: {error}")
