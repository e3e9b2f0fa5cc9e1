"""Fits through a store that runs apart from them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import squall
from squall.errors import StoreError
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


def test_a_store_that_dies_in_mid_fit_fails_the_fit_with_one_clear_error(
    data: Data, two_shards: StoreCluster
) -> None:
    done = threading.Event()
    keeper = threading.Thread(target=two_shards.watch, args=(done.is_set,))
    keeper.start()

    try:
        with squall.Run(workers=1, store=two_shards.address), StoreAdmin(two_shards.address) as admin:
            model = squall.LogisticRegression(epochs=100_000, batch_size=50, learning_rate=0.1)
            job = squall.submit(model, squall.from_arrays(*data))
            while not any(table.steps for table in admin.stat()[1].tables):
                time.sleep(0.01)
            os.kill(two_shards.pids[1], signal.SIGKILL)
            with pytest.raises(squall.SquallError, match=r"shard 1[\s\S]*came back empty"):
                job.wait()
    finally:
        done.set()
        keeper.join()
