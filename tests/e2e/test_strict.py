"""Jobs on functions that share nothing with the client: a real S3 server, and a store on TCP."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import obstore
import pytest
from obstore.store import from_url

import squall
from squall.data import parsing, pieces
from squall.data.objects import ObjectStore
from squall.data.training import manifest_key, write_training
from squall.errors import FunctionError, SettingError
from squall.functions.local import pool
from squall.models.logistic import LogisticModel
from squall.records import CsrBlock, OptimizerSpec, OutcomeKind, Shape, WorkerTask
from squall.testing import Chaos, Fault
from squall.testing.platform import WAIT_S
from tests.e2e.test_census import LABEL, pipeline

STRICT = squall.LocalBackend(isolation="strict")


def strict_run(backend: squall.LocalBackend = STRICT, **settings: Any) -> squall.Run:
    return squall.Run(backend=backend, store="tcp", workers=2, **settings)


def invoke(handler: str, event: dict[str, Any]) -> Any:
    endpoint = pool.open_platform(STRICT).prepare(Shape(handler, 512, 60.0))
    invocation = endpoint.invoke(event)
    return invocation.outcome(WAIT_S), invocation.logs()


# ------------------------------------------------------------------------- what is reached


def test_partitions_are_read_from_s3(s3: str) -> None:
    draw = np.random.default_rng(0)
    indptr = np.arange(1001, dtype=np.int64) * 5
    indices = draw.integers(0, 50, 5000).astype(np.int32)
    block = CsrBlock(indptr, indices, None, np.ones(1000, dtype=np.float32), None, 50)
    write_training(iter([block]), ObjectStore(s3), "train", seed=0, target_bytes=8_000)
    event = {"storage": s3, "training": manifest_key("train")}
    outcome, logs = invoke("squall.testing.handlers:training_rows", event)
    assert outcome.kind is OutcomeKind.RETURNED, (outcome, logs)
    assert len(outcome.value) > 1
    assert sum(outcome.value) == 1000


def test_the_worker_says_what_it_cannot_reach(tmp_path: Path) -> None:
    task = WorkerTask(
        job="j", slot=3, attempt=1, n_slots=4, storage=tmp_path.as_uri(), training="t", store="unix:/tmp/x",
        model=msgspec.to_builtins(LogisticModel(5)), table="j/model", strategy={}, batch_size=1, epochs=1,
        seed=0, optimizer=OptimizerSpec("sgd", 0.1),
    )  # fmt: skip
    outcome, _ = invoke("squall.worker.main:handle", msgspec.to_builtins(task))
    assert (outcome.kind, outcome.error_type) == (OutcomeKind.RAISED, "squall.errors.SettingError")
    for part in ("worker 3", f"storage {tmp_path.as_uri()}", "unix:/tmp/x", "s3://bucket/prefix", "TCP"):
        assert part in outcome.error


def test_a_job_whose_storage_is_a_folder_is_told_so(census: Path) -> None:
    data = squall.read_csv(census, label=LABEL)
    with pytest.raises(FunctionError, match=r"share no files with their client.*file://"):
        pipeline(epochs=1).fit(data, run=squall.Run(backend=STRICT, store="tcp"))


def test_a_folder_given_as_storage_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"isolation=\"strict\" cannot reach"):
        squall.Run(backend=STRICT, storage=tmp_path, store="tcp")
    squall.Run(backend=STRICT, storage="s3://bucket/prefix", store="tcp")


# ------------------------------------------------------------------------------ whole jobs


def test_a_job_passes(census: Path, s3: str) -> None:
    train, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    model = pipeline(epochs=5).fit(train, validation=test, run=strict_run())
    assert model.history_[-1].validation_loss == pytest.approx(0.315, abs=0.01)
    assert [record.rows for record in model.history_] == [26049] * 5
    left = ObjectStore(s3).keys("jobs")
    assert [key for key in left if key.endswith(".safetensors")] == [], "its partitions are removed"


@pytest.mark.slow
def test_short_lives_hand_over(census: Path, s3: str) -> None:
    data = squall.read_csv(census, label=LABEL)
    backend = squall.LocalBackend(isolation="strict", lifetime="4s")
    job = squall.submit(pipeline(epochs=20), data, run=strict_run(backend))
    model = job.wait(55)
    assert {a.outcome.kind for a in job.status().attempts} == {OutcomeKind.RETURNED}
    assert [record.rows for record in model.history_] == [32561] * 20


def test_the_plan_changes(census: Path, s3: str) -> None:
    planner = squall.ScriptedPlanner({2: 3, 3: (1, "2GB")})
    data = squall.read_csv(census, label=LABEL)
    model = pipeline(epochs=4).fit(data, run=strict_run(plan=planner))
    assert [(record.workers, record.rows) for record in model.history_] == [
        (2, 32561),
        (2, 32561),
        (3, 32561),
        (1, 32561),
    ]


def test_a_job_survives_what_happens_on_clouds(census: Path, s3: str) -> None:
    script = (
        Fault(do="duplicate", slot=0, attempt=1),
        Fault(do="throttle", slot=1, attempt=1),
        Fault(do="kill", when="in flight", slot=1, attempt=2, wait="1s"),
    )
    backend = squall.LocalBackend(isolation="strict", chaos=Chaos(script=script))
    train, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    model = pipeline(epochs=5).fit(train, validation=test, run=strict_run(backend))
    assert model.history_[-1].validation_loss == pytest.approx(0.315, abs=0.01)


def test_credentials_are_nowhere_to_be_read(census: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    data = squall.read_csv(census, label=LABEL)
    run = strict_run()
    job = squall.submit(pipeline(epochs=1), data, run=run)
    job.wait(55)
    objects = ObjectStore(s3)
    names = objects.keys("")
    stored = b"".join(bytes(objects.get(key)) for key in names if key.endswith(".json"))
    told = job.logs() + repr(run) + repr(job) + json.dumps(msgspec.to_builtins(job.status().attempts))
    assert secret not in told
    assert secret.encode() not in stored


def test_strict_functions_parse_objects_by_ranges(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(parsing, "LARGE_BYTES", 1)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 4000)
    text = "n,s,y\n" + "".join(f'{i}.5,"two\n""lines"" {i % 7}",{i % 2}\n' for i in range(1000))
    local = tmp_path / "f.csv"
    local.write_text(text)
    obstore.put(from_url(s3), "f.csv", text.encode())
    with strict_run(storage=s3):
        data = squall.read_csv(f"{s3}/f.csv", label="y")
        here = squall.read_csv(local, label="y")  # which functions cannot reach
    assert len(list(data.blocks())) > 5 and data.key() == here.key(), "the same partitions everywhere"
    assert data.to_pandas().equals(here.to_pandas())
