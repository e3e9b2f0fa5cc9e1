"""A job as its worker sees it: real data, a real store, and this process as the function."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pytest

from squall.data.objects import ObjectStore
from squall.data.training import manifest_key, write_training
from squall.models.logistic import LogisticModel
from squall.records import CsrBlock, OptimizerSpec, WorkerTask
from squall.store.embedded import EmbeddedStore, connect
from squall.store.process import shared_store

ROWS, WIDTH = 1000, 50


@dataclass
class Context:
    """A function's context whose time left a test decides."""

    remaining: list[float] = field(default_factory=list)
    invocation_id: str = "test"
    memory_mb: int = 256
    temp_dir: str = ""
    cold_start_s: float = 0.125

    def remaining_s(self) -> float:
        return self.remaining.pop(0) if self.remaining else 900.0


@dataclass
class Job:
    task: WorkerTask
    store: EmbeddedStore
    model: LogisticModel

    def event(self, **changes: object) -> dict[str, object]:
        return msgspec.to_builtins(msgspec.structs.replace(self.task, **changes))

    def weights(self, table: str | None = None) -> np.ndarray:
        return self.store.tables.pull(table or self.task.table)


def rows(seed: int = 0) -> CsrBlock:
    """Sparse rows whose labels follow from a planted model."""
    draw = np.random.default_rng(seed)
    indices = draw.integers(0, WIDTH, (ROWS, 5)).astype(np.int32)
    truth = draw.normal(size=WIDTH)
    labels = (truth[indices].sum(axis=1) > 0).astype(np.float32)
    indptr = np.arange(ROWS + 1, dtype=np.int64) * 5
    return CsrBlock(indptr, indices.reshape(-1), None, labels, None, WIDTH)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    name = uuid.uuid4().hex[:12]
    objects = ObjectStore(tmp_path)
    write_training(iter([rows()]), objects, f"jobs/{name}", seed=0, target_bytes=8_000)
    model = LogisticModel(WIDTH)
    task = WorkerTask(
        job=name,
        slot=0,
        attempt=1,
        n_slots=1,
        storage=objects.url,
        training=manifest_key(f"jobs/{name}"),
        store=shared_store().address,
        model=msgspec.to_builtins(model),
        table=f"{name}/model",
        strategy={"type": "parameter_server", "consistency": "asp"},
        batch_size=16,
        epochs=2,
        seed=3,
        optimizer=OptimizerSpec("adagrad", 0.5),
    )
    with connect(task.store) as store:
        store.control.open_job(name, 2)
        store.tables.create(model.table(task.table, task.optimizer))
        yield Job(task, store, model)
        store.control.close_job(name)
