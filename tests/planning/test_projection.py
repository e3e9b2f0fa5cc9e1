"""The projection is arithmetic: it rises and falls as it should, and what it proposes holds."""

from __future__ import annotations

import dataclasses
import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from squall.driver.ledger import load_prices
from squall.driver.spec import StoppedError
from squall.planning.limits import Limits, check, plans_that_hold
from squall.planning.projection import NOTHING, ONE_CPU_MB, Place, Work, project
from squall.records import Expected

PRICES = load_prices("aws-lambda-us-east-1")

works = st.builds(
    Work,
    rows=st.integers(1, 10**9),
    epochs=st.integers(1, 1000),
    batch_size=st.integers(1, 512),
    partitions=st.integers(1, 1000),
    row_s=st.floats(1e-8, 1e-3),
    minibatch_s=st.floats(0.0, 1e-2),
    block_rows=st.integers(1, 10**4),
    block_s=st.floats(0.0, 1e-3),
)
places = st.builds(
    Place,
    workers=st.integers(1, 50),
    memory_mb=st.integers(128, 10240),
    start_s=st.floats(0.0, 5.0),
    lifetime_s=st.floats(1.0, 900.0),
    cores=st.one_of(st.none(), st.integers(1, 64)),
    most_workers=st.integers(50, 100),
    prices=st.just(PRICES),
    others=st.floats(0.0, 10.0),
)
spents = st.builds(Expected, st.floats(0.0, 100.0), st.floats(0.0, 1.0))


def test_a_job_by_hand() -> None:
    work = Work(rows=1_000_000, epochs=10, batch_size=100, partitions=4, row_s=1e-6, minibatch_s=1e-4)
    place = Place(4, ONE_CPU_MB, 0.5, 900.0, None, 1000, PRICES)
    expected = project(work, place, Expected(2.0, 0.0))
    assert expected.time_s == pytest.approx(2.0 + 0.5 + 10 * 250_000 * (1e-6 + 1e-6))
    functions = 4 * 5.5 * ONE_CPU_MB / 1024 * PRICES.gb_second
    assert functions < expected.cost_usd < 1.5 * functions, "requests, the store and objects are the rest"
    assert project(work, dataclasses.replace(place, memory_mb=ONE_CPU_MB // 2)).time_s == pytest.approx(
        0.5 + 10 * 250_000 * (2e-6 + 1e-6), rel=1e-2
    )
    assert project(work, dataclasses.replace(place, cores=2)).time_s == pytest.approx(
        0.5 + 10 * 250_000 * (2e-6 + 2e-6)
    )
    busy = dataclasses.replace(place, cores=2, others=4.0)
    assert project(work, busy).time_s == pytest.approx(0.5 + 10 * 250_000 * (4e-6 + 4e-6))


@given(works, places, spents)
def test_more_work_takes_longer_and_costs_more(work: Work, place: Place, spent: Expected) -> None:
    expected = project(work, place, spent)
    assert expected.time_s >= spent.time_s and expected.cost_usd >= spent.cost_usd
    for more in ({"epochs": work.epochs + 1}, {"rows": 2 * work.rows}, {"row_s": 2 * work.row_s}):
        larger = project(dataclasses.replace(work, **more), place, spent)
        assert larger.time_s >= expected.time_s and larger.cost_usd >= expected.cost_usd


@given(works, places)
def test_another_worker_or_more_memory_does_not_take_longer(work: Work, place: Place) -> None:
    by_memory = dataclasses.replace(place, cores=None)
    expected = project(work, by_memory)
    for more in ({"workers": place.workers + 1}, {"memory_mb": place.memory_mb + 64}):
        assert project(work, dataclasses.replace(by_memory, **more)).time_s <= expected.time_s


limits_of = st.tuples(st.one_of(st.none(), st.floats(0.1, 3.0)), st.one_of(st.none(), st.floats(0.1, 3.0)))


@given(works, places, spents, limits_of)
def test_what_is_proposed_holds_and_only_what_is_hopeless_is_refused(
    work: Work, place: Place, spent: Expected, shares: tuple[float | None, float | None]
) -> None:
    expected = project(work, place, spent)
    limits = Limits(*(None if s is None else s * e for s, e in zip(shares, expected, strict=True)))
    holds = limits.hold(expected)
    alone = dataclasses.replace(place, others=0.0)
    one = project(dataclasses.replace(work, epochs=1), alone, spent)
    try:
        told = check(work, place, spent, limits)
    except StoppedError as error:
        told, hopeless = str(error), True
        assert error.reason in limits.broken(one), "even what is refused for is broken by one epoch"
    else:
        hopeless = False
    assert bool(told) != holds
    assert not (hopeless and limits.hold(one))
    if not told:
        return
    for plan in plans_that_hold(work, place, spent, limits):
        assert plan in told
        assert holds_if(plan, work, place, spent, limits), plan


def holds_if(plan: str, work: Work, place: Place, spent: Expected, limits: Limits) -> bool:
    """Whether a proposed setting makes the plan hold."""
    for name, value in re.findall(r'(\w+)="?\$?([\d.]+)', plan):
        match name:
            case "epochs":
                work = dataclasses.replace(work, epochs=int(value))
            case "workers":
                place = dataclasses.replace(place, workers=int(value))
            case "memory":
                place = dataclasses.replace(place, memory_mb=int(value))
            case "deadline":
                limits = dataclasses.replace(limits, deadline_s=float(value))
            case "budget":
                limits = dataclasses.replace(limits, budget_usd=float(value))
    return limits.hold(project(work, place, spent))


def test_the_words_of_a_warning() -> None:
    work = Work(rows=1_000_000, epochs=100, batch_size=100, partitions=4, row_s=1e-6)
    place = Place(2, ONE_CPU_MB // 2, 0.5, 900.0, None, 1000, PRICES)
    told = check(work, place, NOTHING, Limits(40.0, None))
    assert "100 epochs on 2 workers of 884 MB would take about" in told
    assert "the deadline is 40.0 s" in told
    for plan in ("epochs=39", "workers=6", 'deadline="121s"'):
        assert plan in told


def test_the_words_of_a_refusal() -> None:
    work = Work(rows=1_000_000_000, epochs=3, batch_size=100, partitions=4, row_s=1e-6)
    place = Place(1, ONE_CPU_MB, 0.5, 900.0, 2, 2, PRICES)
    with pytest.raises(StoppedError, match="not even one epoch would be done") as caught:
        check(work, place, NOTHING, Limits(60.0, 1e-4))
    assert caught.value.reason == "deadline"
    assert "the deadline is 60.0 s and the budget is $0.000100" in str(caught.value)
    assert re.search(r'deadline="\d+s" with budget="\$0\.\d+"', str(caught.value.fix))
