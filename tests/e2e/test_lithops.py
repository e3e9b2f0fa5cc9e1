"""Training on functions by Lithops's localhost backend, with its objects on a disk, in S3 and in Valkey."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import squall
from squall.testing import Chaos, Fault
from squall.testing.valkey import valkey_server
from tests.conftest import lithops_config

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux"),
    pytest.mark.timeout(180),
]


@pytest.fixture(autouse=True)
def ends_lithops() -> Iterator[None]:
    yield
    squall.shutdown()


def rows() -> tuple[Any, Any]:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(4_000, 6)).astype(np.float32)
    return X, (X @ np.arange(6) + 0.3 * draw.normal(size=4_000) > 0).astype(int)


def train(backend: squall.LithopsBackend, **settings: Any) -> squall.LogisticRegression:
    X, y = rows()
    run = squall.Run(backend=backend, workers=2, store="tcp", **settings)
    return squall.LogisticRegression(epochs=3, batch_size=100).fit(X, y, run=run)


def test_with_a_worker_that_is_killed(lithops_home: Path) -> None:
    config = lithops_config(lithops_home, "localhost")
    chaos = Chaos(script=(Fault(do="kill", when="before", slot=1, attempt=1),))
    model = train(squall.LithopsBackend(config=config, chaos=chaos))
    assert model.score(*rows()) > 0.95
    assert [record.epoch for record in model.history_] == [1, 2, 3]


def test_through_s3(lithops_home: Path, s3: str) -> None:
    """Lithops's own objects and Squall's partitions, both in a real S3 server."""
    config = lithops_config(
        lithops_home,
        "minio",
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        storage_bucket=s3.removeprefix("s3://").partition("/")[0],
    )
    assert train(squall.LithopsBackend(config=config), storage=s3).score(*rows()) > 0.95


def test_with_lithops_on_valkey(lithops_home: Path, tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        where = {"host": "127.0.0.1", "port": server.port, "password": server.password}
        config = lithops_config(lithops_home, "redis", **where)
        assert train(squall.LithopsBackend(config=config)).score(*rows()) > 0.95
        squall.shutdown()


def double(x: int) -> int:
    return 2 * x


def test_map(lithops_home: Path) -> None:
    config = lithops_config(lithops_home, "localhost")
    run = squall.Run(backend=squall.LithopsBackend(config=config), workers=2)
    assert [future.result(60) for future in squall.map(double, range(5), run=run)] == [0, 2, 4, 6, 8]
