"""A worker that hangs is replaced, whoever waits for it."""

from __future__ import annotations

import os
import re
import signal
import time

import numpy as np
import pytest

import squall
from squall.driver import resuming


@pytest.mark.parametrize("consistency", ["asp", pytest.param("bsp", marks=pytest.mark.slow)])
def test_a_worker_that_hangs_is_given_up_and_replaced(
    consistency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "SILENCE_OF_WORKERS_S", 3.0)
    draw = np.random.default_rng(0)
    X = draw.normal(size=(20_000, 10))
    y = X[:, 0] > 0
    model = squall.LogisticRegression(
        epochs=10**6, batch_size=20, learning_rate=0.1, strategy=squall.ParameterServer(consistency)
    )
    job = squall.submit(model, (X, y), run=squall.Run(workers=2))
    while not re.search(r"\[worker 1.*starts at minibatch 0 in process", logs := job.logs()):
        time.sleep(0.01)
    time.sleep(1.0)  # until it has spoken
    found = re.search(r"\[worker 1.*in process (\d+)", logs)
    assert found is not None
    os.kill(int(found[1]), signal.SIGSTOP)
    while not any(a.slot == 1 and a.attempt == 2 for a in job.status().attempts):
        time.sleep(0.05)
    rows = job.status().rows
    while job.status().rows < rows + 2000:
        time.sleep(0.01)
    job.stop()
    assert job.wait().score(X, y) > 0.9
    lost = next(a for a in job.status().attempts if (a.slot, a.attempt) == (1, 1))
    assert lost.outcome is not None and lost.outcome.kind == "lost"
    with pytest.raises(ProcessLookupError):
        os.kill(int(found[1]), 0)
