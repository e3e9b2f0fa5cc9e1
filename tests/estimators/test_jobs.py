"""Jobs that run in the background, and limits."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import squall
from squall import LogisticRegression, MinMaxScaler, Run, make_pipeline
from squall.errors import DataError, JobError, SettingError

from .problems import numbers

X, y = numbers()
ENDLESS = 10**7


@pytest.fixture(scope="module", autouse=True)
def warm(module_storage):
    """Limits below are for training, not for starting functions on a busy machine."""
    return LogisticRegression(epochs=1).fit(X, y)


def wait_until(condition, timeout=20.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def test_submit_trains_a_clone():
    model = LogisticRegression()
    job = squall.submit(model, (X, y), validation=(X, y))
    fitted = job.wait(20)
    assert fitted is not model
    assert not hasattr(model, "coef_")
    np.testing.assert_array_equal(fitted.coef_, LogisticRegression().fit(X, y).coef_)
    assert fitted.history_[-1].validation_loss is not None


def test_a_pipeline_comes_back_fitted_and_its_steps_are_clones():
    pipeline = make_pipeline(MinMaxScaler(), LogisticRegression())
    fitted = squall.submit(pipeline, squall.from_arrays(X, y)).wait(20)
    assert isinstance(fitted, squall.Pipeline)
    assert fitted.score(X, y) > 0.75
    assert not hasattr(pipeline[0], "transform_")


def test_the_run_around_submit_counts_wherever_the_job_runs():
    with Run(workers=2):
        job = squall.submit(LogisticRegression(epochs=1), (X, y))
    assert job.wait(20).bill_.invocations == 2


def test_a_job_that_has_ended_says_so():
    job = squall.submit(LogisticRegression(epochs=3), (X, y))
    fitted = job.wait(20)
    status = job.status()
    assert job.done()
    assert (status.state, status.reason) == ("finished", "epochs")
    assert (status.epoch, status.epochs, status.rows, status.workers) == (3, 3, 900, 0)
    assert status.loss == pytest.approx(fitted.history_[-1].loss)
    assert [attempt.slot for attempt in status.attempts] == [0]
    assert job.cost == fitted.cost_usd_ == job.bill.total_usd
    assert job.history == fitted.history_
    assert "finished" in repr(job)
    assert job.id in repr(job)


def test_wait_can_be_called_again():
    job = squall.submit(LogisticRegression(epochs=1), (X, y))
    assert job.wait(20) is job.wait()


def test_a_running_job_can_be_watched_and_stopped_and_the_model_is_of_use():
    job = squall.submit(LogisticRegression(epochs=ENDLESS), (X, y))
    wait_until(lambda: job.status().rows > 3000)
    status = job.status()
    assert (status.state, status.workers, job.done()) == ("running", 1, False)
    assert 0 < status.cost_usd <= job.cost
    with pytest.raises(TimeoutError, match=f"job {job.id} has not ended within 0.01 s"):
        job.wait(0.01)
    job.stop()
    fitted = job.wait(20)
    assert fitted.stopped_ == "stopped by the user"
    assert 0 < len(fitted.history_) < ENDLESS
    assert fitted.score(X, y) > 0.75


def test_what_functions_write_can_be_read():
    job = squall.submit(LogisticRegression(epochs=1), (X, y))
    job.wait(20)
    assert isinstance(job.logs(), str)
    assert job.logs(worker=7) == ""


def test_a_stop_before_training_has_no_model():
    job = squall.submit(LogisticRegression(epochs=ENDLESS), (X, y))
    job.stop("changed my mind")
    with pytest.raises(JobError, match="changed my mind"):
        job.wait(20)
    assert job.done()


LIMITS = [({"deadline": "1.5s"}, "deadline"), ({"budget": 1e-4}, "budget")]


@pytest.mark.parametrize(("limit", "reason"), LIMITS)
def test_a_limit_ends_training_and_keeps_the_model(limit, reason):
    """Epochs are short here: the driver hears of hundreds of them in a second."""
    LogisticRegression(epochs=1).fit(
        X, y
    )  # the first job of a process takes longer to begin than all of the budget
    job = squall.submit(LogisticRegression(epochs=ENDLESS), (X, y), run=Run(**limit))
    try:
        model = job.wait(10)
    finally:
        job.stop("the test is over")
    assert model.stopped_ == reason
    assert model.score(X, y) > 0.75
    if reason == "budget":
        assert model.cost_usd_ <= limit["budget"]
    else:
        assert job.status().time_s < 1.5 + 1.0  # the machine may be busy


def test_jobs_at_the_same_time_keep_apart():
    problems = [(X, y), (X[:, :1], 1 - y)]
    with ThreadPoolExecutor(2) as threads:
        jobs = threads.map(lambda problem: squall.submit(LogisticRegression(), problem), problems)
        fitted = [job.wait(20) for job in jobs]
    for model, problem in zip(fitted, problems, strict=True):
        np.testing.assert_array_equal(model.coef_, LogisticRegression().fit(*problem).coef_)


def test_an_error_comes_to_whoever_waits():
    job = squall.submit(LogisticRegression(), (X * np.nan, y))
    for _ in range(2):
        with pytest.raises(DataError, match="missing value"):
            job.wait(20)


def test_wrong_settings_and_labels_are_told_at_once():
    with pytest.raises(SettingError, match="epochs=0"):
        squall.submit(LogisticRegression(epochs=0), (X, y))
    with pytest.raises(DataError, match="two classes"):
        squall.submit(LogisticRegression(), (X, np.zeros(300)))


@pytest.mark.parametrize("model", [LogisticRegression, MinMaxScaler(), None])
def test_what_is_no_model(model):
    with pytest.raises(SettingError, match=r"submit: .*is not a model of Squall(?s:.)*fix:"):
        squall.submit(model, (X, y))


@pytest.mark.parametrize("train", [X, (X,), (X, y, y, y), None])
def test_what_is_no_training_data(train):
    with pytest.raises(SettingError, match=r"train must be a Dataset or a pair \(X, y\)"):
        squall.submit(LogisticRegression(), train)


def test_functions_start_again_after_a_shutdown():
    squall.shutdown()
    squall.shutdown()
    assert LogisticRegression(epochs=1).fit(X, y).stopped_ == "epochs"
