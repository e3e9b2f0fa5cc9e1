"""One job of a private store, kept in an object store and opened again in another process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from squall.errors import StoreError
from squall.records import OptimizerSpec, Stamp, TableSpec
from squall.store.embedded import connect
from squall.store.process import StoreProcess

ROWS = np.arange(50)


def trained(process: StoreProcess, steps: int) -> np.ndarray:
    """A job with some updates, and another one that has nothing to do with it."""
    with connect(process.address) as store:
        for job in ("job", "other"):
            store.control.open_job(job, 2)
            store.tables.create(TableSpec(f"{job}/w", 50, 2, OptimizerSpec("adagrad", 0.5), 50))
            store.control.register(job, 0, 3, 1)
        gradient = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
        for sequence in range(steps):
            store.tables.push("job/w", ROWS, gradient, Stamp(0, 3, sequence, sequence + 1))
        store.blobs.put("job/blob", b"kept")
        return store.tables.pull("job/w")


@pytest.mark.parametrize("whole", [False, True])
def test_a_job_is_kept_and_opened_again(tmp_path: Path, whole: bool) -> None:
    with StoreProcess.start() as first:
        expected = trained(first, 3)
        first.keep_job("job", str(tmp_path), 1, whole=whole)
        with pytest.raises(StoreError, match="it is open"):
            first.restore_job("job", str(tmp_path))
    with StoreProcess.start() as second:
        assert second.restore_job("job", str(tmp_path))
        with connect(second.address) as store:
            assert np.array_equal(store.tables.pull("job/w"), expected)
            assert store.control.progress("job", 0).item() == 3
            assert store.blobs.get("job/blob") == b"kept"
            with pytest.raises(StoreError, match="no such job"):
                store.tables.pull("other/w")


def test_there_may_be_nothing_to_open(tmp_path: Path) -> None:
    with StoreProcess.start() as process:
        assert not process.restore_job("job", str(tmp_path))


def test_a_damaged_checkpoint_is_told_and_leaves_no_job(tmp_path: Path) -> None:
    with StoreProcess.start() as first:
        trained(first, 3)
        first.keep_job("job", str(tmp_path), 1, whole=True)
    (rows,) = tmp_path.rglob("*.safetensors")
    data = bytearray(rows.read_bytes())
    data[-5] ^= 1
    rows.write_bytes(data)
    with StoreProcess.start() as second:
        with pytest.raises(StoreError, match=r"checkpoint of job job is damaged[\s\S]*fix: remove it"):
            second.restore_job("job", str(tmp_path))
        with connect(second.address) as store:
            with pytest.raises(StoreError, match="no such job"):
                store.control.progress("job", 0)
