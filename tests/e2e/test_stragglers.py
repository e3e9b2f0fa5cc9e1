"""A worker that is much slower than the others is relieved, and the job ends sooner."""

from __future__ import annotations

import time

import numpy as np
import pytest

import squall
from squall.records import OutcomeKind
from squall.testing import Chaos, Fault


@pytest.mark.parametrize("consistency", ["asp", pytest.param("bsp", marks=pytest.mark.slow)])
def test_a_slow_worker_is_relieved(consistency: str) -> None:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(20_000, 10))
    y = X[:, 0] > 0
    # Fifty times as slow: its share of all epochs would take minutes.
    chaos = Chaos(script=(Fault(do="slow", slot=1, attempt=1),), slowdown=50.0)
    model = squall.LogisticRegression(
        epochs=10**6,
        batch_size=20,
        learning_rate=0.1,
        strategy=squall.ParameterServer(consistency, stragglers="replace"),
    )
    run = squall.Run(workers=2, backend=squall.LocalBackend(chaos=chaos))
    job = squall.submit(model, (X, y), run=run)
    while not any((a.slot, a.attempt) == (1, 1) and a.outcome for a in job.status().attempts):
        assert not job.done(), job.wait()
        time.sleep(0.01)
    time.sleep(1.0)  # its successor is at work
    job.stop()
    assert job.wait().score(X, y) > 0.9
    ends = {(a.slot, a.attempt): a for a in job.status().attempts}
    relieved, successor = ends[1, 1], ends[1, 2]
    assert relieved.outcome is not None and relieved.outcome.kind is OutcomeKind.KILLED
    assert relieved.ended_s is not None and successor.ended_s is not None
    slow = relieved.minibatches / (relieved.ended_s - relieved.started_s)
    assert successor.minibatches / (successor.ended_s - relieved.ended_s) > 5 * slow
    assert successor.lost_s < 0.5, "it was ready"
    assert {slot for slot, _ in ends} == {0, 1} and len(ends) == 3
