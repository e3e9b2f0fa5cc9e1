"""ADMM's vectors lie in pieces on several servers of a store, and a server or the driver is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import squall
from squall.errors import LostUpdatesError
from squall.store.admin import StoreAdmin
from squall.store.cluster import ServeSettings, StoreCluster
from squall.testing import Chaos
from tests.e2e.test_admm import L2, A, data, fit
from tests.e2e.test_served_store import kept_alive


def fit_through_a_death(
    cluster: StoreCluster, shard: int, *, snapshot: bool = True
) -> squall.Job[squall.LogisticRegression]:
    """A fit in which a server dies, maybe two rounds after a snapshot; it has not been waited for."""
    slow = squall.LocalBackend(chaos=Chaos(slow=1.0, slowdown=20.0))
    run = squall.Run(workers=2, store=cluster.address, random_state=0, backend=slow)
    job = squall.submit(squall.LogisticRegression(l2=L2, strategy=A(tol=1e-12, shards=4)), data(), run=run)
    until(job, 2)
    if snapshot:
        with StoreAdmin(cluster.address) as admin:
            admin.snapshot()
        until(job, job.status().epoch + 2)
    os.kill(cluster.pids[shard], signal.SIGKILL)
    return job


def until(job: squall.Job[squall.LogisticRegression], epoch: int) -> None:
    while job.status().epoch < epoch:
        assert not job.done()
        time.sleep(0.005)


def test_one_of_several_servers_that_comes_back_empty_ends_it_with_one_clear_error() -> None:
    with StoreCluster(ServeSettings(shards=2)) as cluster, kept_alive(cluster):
        job = fit_through_a_death(cluster, 1, snapshot=False)
        with pytest.raises(LostUpdatesError, match=r"shard 1 of[\s\S]*came back empty"):
            job.wait(50)


@pytest.mark.slow
@pytest.mark.parametrize("shard", [0, 1])
def test_one_of_several_servers_that_is_rounds_behind_ends_it_with_one_clear_error(
    tmp_path: Path, shard: int
) -> None:
    with StoreCluster(ServeSettings(shards=2, snapshot=str(tmp_path))) as cluster, kept_alive(cluster):
        job = fit_through_a_death(cluster, shard)
        told = (
            rf"the other shards are ahead: shard {shard} of[\s\S]*over one shard rounds of all workers go on"
        )
        with pytest.raises(LostUpdatesError, match=told):
            job.wait(50)


@pytest.mark.slow
def test_one_server_comes_back_with_the_pieces_of_a_round_before_and_the_bits_are_the_same(
    tmp_path: Path,
) -> None:
    with StoreCluster(ServeSettings(snapshot=str(tmp_path))) as cluster, kept_alive(cluster):
        job = fit_through_a_death(cluster, 0)
        model = job.wait(50)
    assert np.array_equal(model.coef_, fit(A(tol=1e-12)).coef_) and model.converged_
    assert [record.epoch for record in model.history_] == list(range(1, model.n_iter_ + 1))
    assert len(job.status().notes) == 1 and len(job.status().attempts) == 4


CLIENT = """
import os, signal, sys, threading, time
import squall
from tests.e2e.test_admm import L2, data
from squall.driver import resuming
resuming.SILENCE_OF_WORKERS_S = 0.5
X, y = data()
slow = squall.testing.Chaos(slow=1.0, slowdown=40.0)
run = squall.Run(workers=2, storage=sys.argv[1], backend=squall.LocalBackend(chaos=slow), checkpoint="0.05s",
                 random_state=0)
model = squall.LogisticRegression(l2=L2, strategy=squall.ADMM(tol=1e-9, shards=3))
job = squall.submit(model, (X, y), run=run)
print(job.url, flush=True)
while job.status().epoch < 4:
    time.sleep(0.001)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_driver_killed_in_a_round_of_pieces_is_followed_by_another(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path)],
        capture_output=True, text=True, timeout=50, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == -9, done.stderr
    model = squall.Job.open(done.stdout.strip()).wait(50)
    assert np.array_equal(model.coef_, fit(A(tol=1e-9)).coef_) and model.converged_
    assert [record.epoch for record in model.history_] == list(range(1, model.n_iter_ + 1))
