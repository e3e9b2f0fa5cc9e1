"""A client that is killed at a chosen moment of its job's log; run by test_resume as a process of its own.

Arguments: storage, store, consistency, moment.  It prints the job's URL.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

import squall
from squall.data import objects
from squall.driver.events import Stop
from squall.driver.joblog import Entry, JobLog
from squall.driver.measuring import Measurer
from squall.testing import Chaos


def data() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(3000, 12))
    return X, (X @ draw.normal(size=12) + 0.5 * draw.normal(size=3000) > 0).astype(int)


def model(consistency: str) -> squall.Pipeline:
    strategy = squall.ParameterServer(consistency)
    final = squall.LogisticRegression(epochs=12, batch_size=50, learning_rate=0.1, strategy=strategy)
    return squall.make_pipeline(squall.MinMaxScaler(), final)


def run(storage: str, store: str) -> squall.Run:
    """A worker is killed at its 100th minibatch, so that there is a replacement to be logged."""
    backend = squall.LocalBackend(chaos=Chaos(slot=1, attempt=1, minibatch=100))
    return squall.Run(
        backend=backend, workers=2, storage=storage, store=store, checkpoint="0.05s", random_state=0
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(moment: str) -> None:
    """Arrange for the end: ``"<record>:<before|during|after>"``, ``"stopping"`` or ``"finishing"``."""
    if moment == "stopping":
        write = JobLog.append

        def stop(self: JobLog, entries: list[Entry]) -> None:
            write(self, entries)
            if any(isinstance(entry.event, Stop) for entry in entries):
                die()

        JobLog.append = stop  # type: ignore[method-assign]
        return
    if moment == "finishing":

        def measure(self: Measurer, epoch: int, weights: Any) -> None:
            if epoch == 11:
                die()
            start(self, epoch, weights)

        start, Measurer.start = Measurer.start, measure  # type: ignore[method-assign]
        return
    number, _, point = moment.partition(":")
    log = JobLog.append

    def append(self: JobLog, entries: list[Entry]) -> None:
        if self._number != int(number):
            return log(self, entries)
        if point == "before":
            die()
        if point == "during":  # the record's content is there, under another name
            objects.os.link = lambda *_: die()
        log(self, entries)
        return die()

    JobLog.append = append  # type: ignore[method-assign]


if __name__ == "__main__":
    storage, store, consistency, moment = sys.argv[1:]
    die_at(moment)
    X, y = data()
    job = squall.submit(model(consistency), (X, y), validation=(X[:300], y[:300]), run=run(storage, store))
    print(job.url, flush=True)
    if moment == "stopping":
        while job.status().epoch < 3:
            time.sleep(0.001)
        job.stop()
    job.wait()
