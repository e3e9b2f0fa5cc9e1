"""Clicks (39 fields, 2**20 slots, heavy tails) on strict isolation, through a store that is served apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import squall
from squall.store.cluster import ServeSettings, StoreCluster
from squall.testing.clicks import clicks

ROWS, EPOCHS = 50_000, 2
SETTINGS = {"epochs": EPOCHS, "batch_size": 100, "learning_rate": 0.1}


@pytest.fixture(scope="module")
def two_shards() -> Iterator[str]:
    with StoreCluster(ServeSettings(shards=2)) as cluster:
        yield cluster.address


@pytest.fixture(scope="module")
def expected() -> float:
    """The held-out loss with one worker on this machine's memory."""
    model = squall.LogisticRegression(**SETTINGS)
    train, test = clicks(ROWS).split(test=0.2, random_state=0)
    model.fit(train, validation=test, run=squall.Run(workers=1))
    return float(model.history_[-1].validation_loss)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("consistency", ["asp", "bsp", "ssp", "hsp"])
def test_every_mode_learns_clicks(s3: str, two_shards: str, consistency: str, expected: float) -> None:
    backend = squall.LocalBackend(isolation="strict")
    run = squall.Run(backend=backend, workers=2, storage=s3, store=two_shards)
    model = squall.LogisticRegression(strategy=squall.ParameterServer(consistency), **SETTINGS)
    train, test = clicks(ROWS).split(test=0.2, random_state=0)
    model.fit(train, validation=test, run=run)
    assert model.history_[-1].validation_loss == pytest.approx(expected, abs=0.003)
    assert [record.rows for record in model.history_] == [train.n_rows] * EPOCHS
