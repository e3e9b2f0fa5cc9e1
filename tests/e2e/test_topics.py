"""Topic models as whole jobs: whatever dies, each token of each document counts once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import squall
from squall.records import OutcomeKind
from squall.testing import Chaos
from tests.estimators.test_topics import WORDS, X, held_out

P = squall.ParameterServer
MODES = ["asp", "bsp", "ssp", "hsp"]
ETA = 0.02

CLIENT = """
import os, signal, sys, time
import squall
from squall.driver import resuming
from tests.e2e.test_topics import submit
resuming.SILENCE_OF_WORKERS_S = 0.5
storage, consistency, store, *warm = sys.argv[1:]
job = submit(consistency, store, epochs=30, warm=bool(warm), storage=storage, checkpoint="0.05s")
print(job.url, flush=True)
while job.status().epoch < 5:
    time.sleep(0.002)
os.kill(os.getpid(), signal.SIGKILL)
"""


def submit(
    consistency: str,
    store: str,
    backend: Any = "local",
    *,
    epochs: int = 8,
    workers: int = 2,
    warm: bool = False,
    **run: Any,
) -> squall.Job[Any]:
    model = squall.LatentDirichletAllocation(5, epochs=epochs, random_state=3, strategy=P(consistency))
    where = squall.Run(backend=backend, store=store, workers=workers, **run)
    if warm:
        model.set_params(epochs=2, warm_start=True).fit(X[::3], run=where).set_params(epochs=epochs)
    return squall.submit(model, squall.from_arrays(X), validation=squall.from_arrays(held_out), run=where)


def checked(job: squall.Job[Any], epochs: int = 8) -> Any:
    """The fitted model, whose table has to hold each token once."""
    model = job.wait(55)
    assert {record.rows for record in model.history_} == {len(X)}
    assert len(model.history_) == epochs
    counts = model.components_ - ETA
    assert counts.sum() == pytest.approx(X.sum(), rel=1e-4)
    np.testing.assert_allclose(counts.sum(axis=0), X.sum(axis=0), rtol=2e-3)
    assert model.perplexity(held_out) < 0.6 * WORDS
    return model


@pytest.mark.parametrize("store", [pytest.param("embedded", marks=pytest.mark.slow), "tcp"])
@pytest.mark.parametrize("consistency", MODES)
def test_a_worker_killed_between_blocks_takes_nothing_along(consistency: str, store: str) -> None:
    backend = squall.LocalBackend(chaos=Chaos(slot=1, attempt=1, minibatch=21))
    job = submit(consistency, store, backend)
    checked(job)
    assert len(job.status().attempts) == 3


@pytest.mark.slow
@pytest.mark.parametrize("consistency", MODES)
def test_workers_killed_in_the_middle_take_nothing_along(consistency: str) -> None:
    chaos = Chaos(kill=0.6, points=("in flight",), wait="600ms", seed=2, max_faults=6)
    backend = squall.LocalBackend(chaos=chaos)
    job = submit(consistency, "tcp", backend, epochs=40)
    checked(job, 40)
    assert any(a.outcome.kind is OutcomeKind.KILLED for a in job.status().attempts)


def test_bsp_gives_the_same_bits_whatever_happens() -> None:
    expected = checked(submit("bsp", "embedded"))
    chaos = Chaos(slot=0, attempt=1, minibatch=13)
    again = checked(submit("bsp", "tcp", squall.LocalBackend(chaos=chaos)))
    np.testing.assert_array_equal(again.components_, expected.components_)


@pytest.mark.slow
@pytest.mark.parametrize("consistency", MODES)
def test_short_lives_under_strict_isolation(s3: str, consistency: str) -> None:
    backend = squall.LocalBackend(isolation="strict", lifetime="2s")
    job = submit(consistency, "tcp", backend, epochs=150)
    checked(job, 150)
    assert len(job.status().attempts) > 2
    assert {a.outcome.kind for a in job.status().attempts} == {OutcomeKind.RETURNED}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("consistency", "store", "warm"),
    [("bsp", "embedded", []), ("bsp", "tcp", []), ("ssp", "tcp", []), ("bsp", "embedded", ["warm"])],
)
def test_a_job_goes_on_after_its_client_was_killed(
    tmp_path: Any, consistency: str, store: str, warm: list[str]
) -> None:
    """What a warm start was lent is taken off by whoever ends the job: it counts 3 % of the tokens."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path), consistency, store, *warm],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == -9, done.stderr
    model = checked(squall.Job.open(done.stdout.strip()), 30)
    if consistency == "bsp":
        expected = checked(submit("bsp", "embedded", epochs=30, warm=bool(warm)), 30)
        np.testing.assert_array_equal(model.components_, expected.components_)


def test_online_variational_bayes_is_distributed_too() -> None:
    model = squall.LatentDirichletAllocation(5, method="online", epochs=10, strategy=P("bsp"))
    run = squall.Run(workers=2, store="tcp")
    fitted = [squall.submit(model, squall.from_arrays(X), run=run).wait(50) for _ in range(2)]
    np.testing.assert_array_equal(fitted[0].components_, fitted[1].components_)
    assert fitted[0].perplexity(held_out) < 0.6 * WORDS
