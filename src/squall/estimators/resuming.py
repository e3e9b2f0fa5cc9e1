"""Going on with a job whose process is no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from squall.data.objects import ObjectStore, default_storage
from squall.data.training import load_training, manifest_key
from squall.driver.description import JobDescription, run_of
from squall.driver.job import Job
from squall.driver.resuming import take_over
from squall.driver.spec import JobResult, JobSpec, Prepared
from squall.errors import JobError, SettingError
from squall.estimators.persistence import rebuild_step
from squall.estimators.pipeline import Pipeline
from squall.estimators.plain import Fitting
from squall.estimators.preparation import HeldOutRows, validation_prefix
from squall.models import model_from_dict
from squall.records import Float32, HeldOut


def open_job(url: str) -> Job[Any]:
    """See :meth:`squall.driver.job.Job.open`."""
    storage, job = _place(url)
    objects = ObjectStore(storage)
    resumption = take_over(objects, job)
    description = resumption.description
    if description.fitting is None:
        raise JobError(
            "its model has a setting that is no plain data, so only the process that began it could go on",
            where=f"job {job}",
            fix="start it again, with settings that are numbers, texts, True, False or None",
        )
    fitting = msgspec.convert(description.fitting, Fitting)
    steps = [(step.name, rebuild_step(step)) for step in fitting.steps]
    model = steps[-1][1]
    whole = Pipeline(steps) if fitting.pipeline else model

    def finish(ended: JobResult) -> Any:
        model._finish(ended, fitting.columns, np.asarray(fitting.classes))
        return whole

    learned = model._recalled(objects, f"jobs/{job}")
    spec = _spec(objects, description, learned, keeps_state=model._keeps_state)
    return Job(spec, finish, resumption)


def _spec(objects: ObjectStore, description: JobDescription, learned: Any, *, keeps_state: bool) -> JobSpec:
    plain = description.prepared
    prepared = Prepared(
        training=plain.training,
        model=model_from_dict(plain.model),
        optimizer=plain.optimizer,
        batch_size=plain.batch_size,
        rows=plain.rows,
        initial=plain.initial,
        learned=learned,
    )
    return JobSpec(
        run=run_of(description),
        n_workers=description.n_workers,
        epochs=description.epochs,
        seed=description.seed,
        strategy=description.strategy,
        prepare=lambda *_: prepared,
        evaluate=_evaluation(objects, description, prepared.model) if description.evaluates else None,
        target_loss=description.target_loss,
        patience=description.patience,
        tags=description.tags,
        keeps_state=keeps_state,
    )


def _evaluation(
    objects: ObjectStore, description: JobDescription, model: Any
) -> Callable[[Float32, Callable[[], None]], HeldOut]:
    prefix = validation_prefix(f"jobs/{description.id}")
    return HeldOutRows(objects, load_training(objects, manifest_key(prefix)), model).evaluate


def _place(url: str) -> tuple[str, str]:
    """(storage, id) of a job's URL, or of an id alone."""
    storage, found, job = url.rpartition("/jobs/")
    if not found:
        storage, job = default_storage(), url
    if not job or "/" in job:
        raise SettingError(
            f"{url!r} is not the URL of a job", where="Job.open", fix="give job.url, or the id of a job"
        )
    return storage, job
