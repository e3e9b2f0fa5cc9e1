"""Callbacks: when they are called, with what, and what they may do."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sklearn.base import clone

import squall
from squall import LogisticRegression
from squall.errors import JobError, SettingError
from squall.records import HistoryRecord
from tests.estimators.problems import numbers

X, y = numbers()


class Collector:
    """Keeps what it is called with; a lock, so that it cannot be copied."""

    def __init__(self) -> None:
        self.records: list[HistoryRecord] = []
        self.lock = threading.Lock()

    def on_epoch_end(self, record: HistoryRecord, job: squall.Job[Any]) -> None:
        with self.lock:
            self.records.append(record)


def test_each_epoch_is_told_once_with_all_that_is_known_of_it():
    collector, seen = Collector(), []
    model = LogisticRegression(epochs=20, callbacks=[collector, lambda record, job: seen.append(job.id)])
    model.fit(X, y, validation=(X, y))
    assert collector.records == list(model.history_)
    assert len(set(seen)) == 1
    assert len(seen) == 20


def test_true_stops_the_training():
    model = LogisticRegression(epochs=100_000, callbacks=lambda record, job: record.epoch >= 3)
    model.fit(X, y)
    assert model.stopped_ == "callback"
    assert 3 <= len(model.history_) < 100_000
    assert model.score(X, y) > 0.5


def test_the_job_can_be_stopped_and_asked():
    def stop(record: HistoryRecord, job: squall.Job[Any]) -> None:
        if job.status().epoch >= 3:
            job.stop()

    model = LogisticRegression(epochs=100_000, callbacks=[stop]).fit(X, y)
    assert model.stopped_ == "stopped by the user"


@pytest.mark.parametrize("epochs", [2, 100_000])
def test_an_error_ends_the_job_and_is_its_cause(epochs):
    def broken(record: HistoryRecord, job: squall.Job[Any]) -> None:
        if record.epoch == 2:
            raise KeyError("colour")

    with pytest.raises(
        JobError, match=r"callback .*broken raised KeyError after epoch 2: 'colour'"
    ) as caught:
        LogisticRegression(epochs=epochs, callbacks=[broken]).fit(X, y)
    assert isinstance(caught.value.__cause__, KeyError)


def test_waiting_for_the_own_job_is_refused():
    with pytest.raises(JobError, match="waits for ever"):
        LogisticRegression(callbacks=lambda record, job: job.wait()).fit(X, y)


def test_submit_calls_the_very_objects():
    collector = Collector()
    final = LogisticRegression(epochs=3, callbacks=[collector])
    model = squall.make_pipeline(squall.MinMaxScaler(), final)
    fitted = squall.submit(model, (X, y)).wait()
    assert [r.epoch for r in collector.records] == [1, 2, 3]
    assert fitted is not model
    assert model.steps[-1][1] is final
    assert final.callbacks == [collector]
    fitted.steps[-1][1].set_params(warm_start=True)
    squall.submit(fitted, (X, y)).wait()
    assert len(collector.records) == 6


def test_they_are_cloned_and_not_saved(tmp_path):
    def told(record: HistoryRecord, job: squall.Job[Any]) -> None:
        calls.append(record.epoch)

    calls: list[int] = []
    model = LogisticRegression(epochs=1, callbacks=[told]).fit(X, y)
    assert clone(model).callbacks == [told]
    assert squall.load(squall.save(model, tmp_path / "m")).callbacks is None
    model.partial_fit(X, y)
    assert calls == [1, 1]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "callbacks=3 must be None, or a list of functions"),
        ([print, "x"], "must be None"),
        ([Collector], "the class Collector; give an object"),
    ],
)
def test_wrong_ones_are_told(given, says):
    with pytest.raises(SettingError, match=says):
        LogisticRegression(callbacks=given).fit(X, y)
