"""Fits through a store that runs apart from them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import squall
from squall.errors import LostUpdatesError, StoreError
from squall.store.admin import StoreAdmin
from squall.store.cluster import ServeSettings, StoreCluster

Data = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def data() -> Data:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(4000, 20))
    return X, (X @ draw.normal(size=20) + 0.5 * draw.normal(size=4000) > 0).astype(int)


@pytest.fixture
def two_shards() -> Iterator[StoreCluster]:
    with StoreCluster(ServeSettings(shards=2)) as cluster:
        yield cluster


def test_the_number_of_shards_changes_nothing(data: Data, two_shards: StoreCluster) -> None:
    models = []
    for store in ("tcp", two_shards.address):
        with squall.Run(workers=1, store=store):
            models.append(squall.LogisticRegression(epochs=3, batch_size=50, learning_rate=0.1).fit(*data))
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert models[0].score(*data) > 0.9


def test_a_token_is_asked_for_and_taken_from_the_environment(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = squall.LogisticRegression(epochs=1, batch_size=50, learning_rate=0.1)
    with StoreCluster(ServeSettings(token="between us")) as cluster:
        run = squall.Run(workers=1, store=cluster.address)
        with run, pytest.raises(StoreError, match="asks for a token"):
            model.fit(*data)
        monkeypatch.setenv("SQUALL_STORE_TOKEN", "between us")
        with run:
            assert model.fit(*data).score(*data) > 0.8


@contextlib.contextmanager
def kept_alive(cluster: StoreCluster) -> Iterator[None]:
    """Dead shards are started again, as `squall store serve` does."""
    done = threading.Event()
    keeper = threading.Thread(target=cluster.watch, args=(done.is_set,))
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def until_trained(admin: StoreAdmin, shard: int, steps: int) -> None:
    while not any(table.steps > steps for table in admin.stat()[shard].tables):
        time.sleep(0.01)


def test_a_store_that_dies_in_mid_fit_fails_the_fit_with_one_clear_error(
    data: Data, two_shards: StoreCluster
) -> None:
    model = squall.LogisticRegression(epochs=100_000, batch_size=50, learning_rate=0.1)
    with kept_alive(two_shards), StoreAdmin(two_shards.address) as admin:
        job = squall.submit(
            model, squall.from_arrays(*data), run=squall.Run(workers=1, store=two_shards.address)
        )
        until_trained(admin, 1, 0)
        os.kill(two_shards.pids[1], signal.SIGKILL)
        with pytest.raises(squall.SquallError, match=r"shard 1[\s\S]*came back empty"):
            job.wait()


def fit_through_a_death(
    data: Data, cluster: StoreCluster, shard: int, consistency: str
) -> squall.Job[squall.LogisticRegression]:
    """A fit in which a shard dies at some time after a snapshot; it has not been waited for."""
    model = squall.LogisticRegression(
        epochs=25, batch_size=50, learning_rate=0.1, strategy=squall.ParameterServer(consistency)
    )
    run = squall.Run(workers=2, store=cluster.address, random_state=0)
    with StoreAdmin(cluster.address) as admin:
        job = squall.submit(model, squall.from_arrays(*data), run=run)
        until_trained(admin, shard, 100)
        admin.snapshot()
        taken = max(table.steps for table in admin.stat()[shard].tables)
        until_trained(admin, shard, taken + 50)
        os.kill(cluster.pids[shard], signal.SIGKILL)
    return job


@pytest.mark.parametrize(
    ("shards", "shard"),
    [pytest.param(1, 0, marks=pytest.mark.slow), pytest.param(2, 0, marks=pytest.mark.slow), (2, 1)],
)
def test_a_shard_that_comes_back_from_a_snapshot_is_trained_on(
    data: Data, tmp_path: Path, shards: int, shard: int
) -> None:
    with StoreCluster(ServeSettings(shards=shards, snapshot=str(tmp_path))) as cluster, kept_alive(cluster):
        job = fit_through_a_death(data, cluster, shard, "asp")
        model = job.wait()
    assert model.score(*data) > 0.9
    assert model.stopped_ == "epochs"
    status = job.status()
    assert len(status.notes) == 1
    assert f"shard {shard} of the parameter store" in status.notes[0]
    ends = [a.outcome.value["end"] for a in status.attempts if a.outcome]
    assert ends.count("rolled back") >= 1
    assert ends.count("finished") == 2


def test_rounds_end_with_the_same_bits_after_the_store_has_died(data: Data, tmp_path: Path) -> None:
    with StoreCluster(ServeSettings(snapshot=str(tmp_path))) as cluster:
        model = squall.LogisticRegression(
            epochs=25, batch_size=50, learning_rate=0.1, strategy=squall.ParameterServer("bsp")
        )
        with squall.Run(workers=2, store=cluster.address, random_state=0):
            expected = model.fit(*data).coef_
        with kept_alive(cluster):
            job = fit_through_a_death(data, cluster, 0, "bsp")
            assert np.array_equal(job.wait().coef_, expected)
        assert len(job.status().notes) == 1


def test_rounds_over_several_shards_do_not_go_on_with_one_behind(data: Data, tmp_path: Path) -> None:
    with StoreCluster(ServeSettings(shards=2, snapshot=str(tmp_path))) as cluster, kept_alive(cluster):
        job = fit_through_a_death(data, cluster, 1, "bsp")
        with pytest.raises(LostUpdatesError, match="the other shards are ahead"):
            job.wait()
