"""A job as plain data: the run that comes back is the one that was described."""

from __future__ import annotations

from pathlib import Path

import pytest

import squall
from squall.config import Backend
from squall.data.objects import ObjectStore
from squall.driver.description import describe, read_description, run_of
from squall.driver.spec import JobSpec, Prepared
from squall.errors import CorruptError
from squall.models.logistic import LogisticModel
from squall.records import Bill, OptimizerSpec
from squall.testing import Chaos, Fault


@pytest.mark.parametrize(
    "backend",
    [
        "local",
        "lithops",
        squall.LocalBackend(concurrency=3, lifetime="20s", emulate_cpu=True, chaos=Chaos(kill=0.1)),
        squall.LithopsBackend(
            config=Path("lithops.yaml"), lifetime="1min", chaos=Chaos(script=(Fault(do="kill", slot=1),))
        ),
    ],
    ids=["local", "lithops", "local with settings", "lithops with settings"],
)
def test_a_run_comes_back_with_its_backend(backend: str | Backend, tmp_path: Path) -> None:
    run = squall.Run(backend=backend, workers=3, deadline="10min", store="tcp")
    objects = ObjectStore(tmp_path)
    spec = JobSpec(run, 3, 2, 0, {}, prepare=lambda *_: prepared)
    spent = Bill(0.5, 0.25, 0.0, 0.125, 3, 1.5, "prices")
    prepared = Prepared("train", LogisticModel(5), OptimizerSpec("sgd", 0.1), 100, 1_000, spent=(spent,))
    describe(objects, "j", spec, prepared, 1, 2)
    assert read_description(objects, "j").spent == (spent,)
    back = run_of(read_description(objects, "j"))
    assert back.backend == run.resolve_backend()
    assert back.replace(backend=run.backend, storage=None) == run


def test_a_changed_digit_in_a_description_is_told(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    prepared = Prepared("train", LogisticModel(5), OptimizerSpec("sgd", 0.1), 100, 1_000)
    describe(objects, "j", JobSpec(squall.Run(), 3, 2, 0, {}, prepare=lambda *_: prepared), prepared, 1, 2)
    path = tmp_path / "jobs" / "j" / "job.json"
    path.write_bytes(path.read_bytes().replace(b'"epochs":2', b'"epochs":3'))
    with pytest.raises(CorruptError, match="checksum is wrong"):
        read_description(objects, "j")


def test_a_local_job_of_an_older_version_can_be_gone_on_with(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    prepared = Prepared("train", LogisticModel(5), OptimizerSpec("sgd", 0.1), 100, 1_000)
    spec = JobSpec(squall.Run(), 1, 2, 0, {}, prepare=lambda *_: prepared)
    describe(objects, "j", spec, prepared, 1, 2)
    description = read_description(objects, "j")
    del description.run["backend"]["name"]
    assert run_of(description).backend == squall.LocalBackend()
