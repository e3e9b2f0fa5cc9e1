"""Deadline and budget against a projection: go on, warn, or refuse, with the nearest plans that hold."""

from __future__ import annotations

import dataclasses
import math

from squall.driver.spec import StoppedError
from squall.planning.projection import ONE_CPU_MB, Place, Work, project
from squall.records import Expected
from squall.units import format_duration, format_money

OPTIMISM = 0.5
"""A job is refused only if not even one epoch in half of the projected time and money would hold.

Whatever else runs on this machine at the moment is not held against it, either.
"""

_SPARE = 1.2  # in the limits that are proposed
_MEMORY_STEP_MB = 64


@dataclasses.dataclass(frozen=True)
class Limits:
    """Seconds and dollars that a job may take; None where there is no limit."""

    deadline_s: float | None
    budget_usd: float | None

    def hold(self, expected: Expected) -> bool:
        """Whether they would."""
        return not self.broken(expected)

    def broken(self, expected: Expected) -> list[str]:
        """Names of those that would not."""
        pairs = (
            ("deadline", self.deadline_s, expected.time_s),
            ("budget", self.budget_usd, expected.cost_usd),
        )
        return [name for name, limit, value in pairs if limit is not None and value > limit]


def check(work: Work, place: Place, spent: Expected, limits: Limits) -> str:
    """What there is to say about a plan before it is launched; empty if it holds.

    Raises
    ------
    StoppedError
        If it is hopeless.
    """
    expected = project(work, place, spent)
    broken = limits.broken(expected)
    if not broken:
        return ""
    told = (
        f"{_count(work.epochs, 'epoch')} on {_count(place.workers, 'worker')} of {place.memory_mb} MB would "
        f"take about {format_duration(expected.time_s)} and {format_money(expected.cost_usd)}; "
        f"{_limits_told(broken, limits)}"
    )
    fix = " or ".join(plans_that_hold(work, place, spent, limits))
    alone = dataclasses.replace(place, others=0.0)
    one = project(dataclasses.replace(work, epochs=1), alone, spent)
    best = Expected(*(had + OPTIMISM * (all_ - had) for had, all_ in zip(spent, one, strict=True)))
    hopeless = limits.broken(best)
    if hopeless:
        error = StoppedError(f"not even one epoch would be done: {told}", fix=fix)
        error.reason = hopeless[0]
        raise error
    return f"{told}, and training will be ended by then; to train to the end, set {fix}"


def plans_that_hold(work: Work, place: Place, spent: Expected, limits: Limits) -> list[str]:
    """Settings each of which alone makes the plan hold, by its projection; nearest to what was asked."""
    plans = []
    epochs = _most_epochs(work, place, spent, limits)
    if epochs:
        plans.append(f"epochs={epochs}")
    for workers in range(place.workers + 1, place.most_workers + 1):
        if limits.hold(project(work, dataclasses.replace(place, workers=workers), spent)):
            plans.append(f"workers={workers}")
            break
    if place.cores is None:
        for memory in range(place.memory_mb + _MEMORY_STEP_MB, ONE_CPU_MB + _MEMORY_STEP_MB, _MEMORY_STEP_MB):
            larger = dataclasses.replace(place, memory_mb=min(memory, ONE_CPU_MB))
            if limits.hold(project(work, larger, spent)):
                plans.append(f'memory="{larger.memory_mb}MB"')
                break
    return [*plans, _larger_limits(project(work, place, spent), limits)]


def _most_epochs(work: Work, place: Place, spent: Expected, limits: Limits) -> int:
    """The most epochs, fewer than asked for, that hold; 0 if there are none."""
    low, high = 0, work.epochs - 1
    while low < high:
        middle = (low + high + 1) // 2
        fits = limits.hold(project(dataclasses.replace(work, epochs=middle), place, spent))
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _larger_limits(expected: Expected, limits: Limits) -> str:
    """The limits that would hold, with something to spare."""
    larger = []
    for name in limits.broken(expected):
        if name == "deadline":
            larger.append(f'deadline="{math.ceil(_SPARE * expected.time_s)}s"')
        else:
            larger.append(f'budget="${_two_digits_up(_SPARE * expected.cost_usd)}"')
    return " with ".join(larger)


def _two_digits_up(dollars: float) -> str:
    digits = 1 - math.floor(math.log10(dollars))
    return f"{math.ceil(dollars * 10.0**digits) / 10.0**digits:.{max(0, digits)}f}"


def _limits_told(broken: list[str], limits: Limits) -> str:
    told = {
        "deadline": f"the deadline is {format_duration(limits.deadline_s or 0.0)}",
        "budget": f"the budget is {format_money(limits.budget_usd or 0.0)}",
    }
    return " and ".join(told[name] for name in broken)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
