"""Jobs go on through what platforms do to invocations: lost, doubled, late, refused, killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import squall
from squall.records import OutcomeKind
from squall.testing import Chaos, Fault
from tests.e2e.test_census import LABEL, pipeline


def train(census: Path, chaos: Chaos, epochs: int = 10) -> squall.Job[Any]:
    train, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    run = squall.Run(workers=2, backend=squall.LocalBackend(chaos=chaos))
    job = squall.submit(pipeline(epochs=epochs), train, validation=test, run=run)
    model = job.wait(55)
    assert model.stopped_ == "epochs"
    assert model.history_[-1].validation_loss == pytest.approx(0.312, abs=0.008)
    return job


def kinds(job: squall.Job[Any], slot: int) -> list[OutcomeKind]:
    return [a.outcome.kind for a in job.status().attempts if a.slot == slot]


@pytest.mark.parametrize("when", ["before", "in flight", "after"])
def test_an_event_delivered_twice_is_harmless(census: Path, when: Any) -> None:
    job = train(census, Chaos(script=(Fault(do="duplicate", when=when, slot=1, wait="50ms"),)))
    assert set(kinds(job, 1)) == {OutcomeKind.RETURNED}


@pytest.mark.parametrize("when", ["before", "in flight", "after"])
def test_an_invocation_that_is_lost(census: Path, when: Any) -> None:
    fault = Fault(do="drop", when=when, slot=1, attempt=1)
    job = train(census, Chaos(script=(fault,), lost_after="200ms"))
    assert kinds(job, 1)[0] is OutcomeKind.LOST
    assert kinds(job, 1)[-1] is OutcomeKind.RETURNED


@pytest.mark.parametrize("when", ["before", "in flight", "after"])
def test_an_invocation_that_is_killed(census: Path, when: Any) -> None:
    # Epochs enough for the worker to be at work when the fault comes.
    chaos = Chaos(script=(Fault(do="kill", when=when, slot=0, attempt=1, wait="10ms"),))
    job = train(census, chaos, epochs=40)
    assert kinds(job, 0)[0] is OutcomeKind.KILLED
    assert kinds(job, 0)[-1] is OutcomeKind.RETURNED


def test_invocations_that_are_refused_or_late(census: Path) -> None:
    script = (
        Fault(do="throttle", slot=0, attempt=1),
        Fault(do="throttle", when="in flight", slot=1, attempt=1),
        Fault(do="delay", slot=0, attempt=2, wait="300ms"),
    )
    job = train(census, Chaos(script=script))
    assert kinds(job, 0)[0] is kinds(job, 1)[0] is OutcomeKind.THROTTLED


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_seeded_chaos(census: Path, seed: int) -> None:
    # At most three faults: more of them in a row without progress rightly end a job.
    chaos = Chaos(seed=seed, kill=0.2, duplicate=0.2, drop=0.2, delay=0.1, throttle=0.2, max_faults=3)
    train(census, chaos)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_chaos_of_a_cloud_costs_no_quality_and_all_of_it_is_on_the_bill(census: Path, seed: int) -> None:
    chaos = Chaos(seed=seed, kill=0.05, duplicate=0.05, throttle=0.1)
    train, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    # Functions that live for two seconds only: many invocations, so that each fault turns up.
    backend = squall.LocalBackend(lifetime="2s", chaos=chaos)
    job = squall.submit(
        pipeline(epochs=200), train, validation=test, run=squall.Run(workers=4, backend=backend)
    )
    model = job.wait(55)
    assert model.stopped_ == "epochs"
    calm = pipeline(epochs=200).fit(train, validation=test, run=squall.Run(workers=4))
    lossless = pytest.approx(calm.history_[-1].validation_loss, abs=0.008)
    assert model.history_[-1].validation_loss == lossless
    assert {record.rows for record in model.history_} == {26049}, "each row once an epoch"
    attempts, bill = job.status().attempts, job.bill
    assert bill is not None and bill.invocations == len(attempts) > 4
    assert all(attempt.outcome is not None and attempt.cost_usd > 0 for attempt in attempts)
    paid = bill.compute_usd + bill.requests_usd
    assert sum(attempt.cost_usd for attempt in attempts) == pytest.approx(paid, rel=1e-9)
