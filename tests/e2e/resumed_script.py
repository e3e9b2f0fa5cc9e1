"""A client that is killed at a chosen moment of its job's log; run by test_resume as a process of its own.

Arguments: storage, store, consistency, moment and, if the model is one that has been fitted before, "warm".
It prints the job's URL.  A moment is

- ``"<record>:<point>"`` or ``"<command>:<point>"``: at that record of the log, or the first one that has
  to be written before a command of that name is carried out; ``before``, ``during`` or ``after`` the
  write;
- ``"stopping"``: when it has been written down that the job is to stop;
- ``"finishing"``: when the last epoch is about to be measured.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from typing import Any

import numpy as np

import squall
from squall.data import objects
from squall.driver import resuming
from squall.driver.events import Command, Event, Stop
from squall.driver.joblog import Entry, JobLog
from squall.driver.keeping import Keeper
from squall.driver.measuring import Measurer
from squall.testing import Chaos

OF_PLANS = ("Proceed", "EndLeg", "Switch")
AVERAGING = squall.ModelAveraging(every=7)
PLANNER = squall.ScriptedPlanner({3: 3, 6: (1, "1024MB")})


def data() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(3000, 12))
    return X, (X @ draw.normal(size=12) + 0.5 * draw.normal(size=3000) > 0).astype(int)


def model(consistency: str) -> squall.Pipeline:
    """By a parameter server's consistency, or ``"averaging"``."""
    strategy: Any = squall.ParameterServer(consistency) if consistency != "averaging" else AVERAGING
    final = squall.LogisticRegression(epochs=12, batch_size=50, learning_rate=0.1, strategy=strategy)
    return squall.make_pipeline(squall.MinMaxScaler(), final)


def warm(storage: str) -> squall.Pipeline:
    """A fitted model with which another fit begins."""
    X, y = data()
    fitted = model("bsp").set_params(logisticregression__warm_start=True)
    return fitted.fit(X[:600], y[:600], run=squall.Run(storage=storage, random_state=0))


def run(storage: str, store: str, moment: str = "") -> squall.Run:
    """A worker is killed at its 100th minibatch, so that there is a replacement to be logged.

    If the moment is one of a job that changes its plan, its plan changes twice.
    """
    backend = squall.LocalBackend(chaos=Chaos(slot=1, attempt=1, minibatch=100))
    return squall.Run(
        backend=backend,
        workers=2,
        storage=storage,
        store=store,
        checkpoint="0.05s",
        random_state=0,
        plan=PLANNER if moment.startswith(OF_PLANS) else "fixed",
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
    which, _, point = moment.partition(":")
    log, note = JobLog.append, Keeper.note
    coming: set[str] = set()

    def notes(self: Keeper, at: float, event: Event, commands: list[Command]) -> None:
        coming.update(type(command).__name__ for command in commands)
        note(self, at, event, commands)

    def append(self: JobLog, entries: list[Entry]) -> None:
        if which not in coming and str(self._number) != which:
            return log(self, entries)
        if point == "before":
            die()
        if point == "during":  # the record's content is there, under another name
            objects.os.link = lambda *_: die()
        log(self, entries)
        return die()

    JobLog.append, Keeper.note = append, notes  # type: ignore[method-assign]


def bring_about(moment: str, job: squall.Job[Any]) -> None:
    """What does not come by itself."""
    if moment.startswith(("stopping", "RequestStop", "Cancel")):
        while job.status().epoch < 3:
            time.sleep(0.001)
    if moment.startswith("Cancel"):
        found = re.findall(r"worker 0, .* in process (\d+)", job.logs())
        os.kill(int(found[-1]), signal.SIGSTOP)
    if moment.startswith(("stopping", "RequestStop", "CancelAll")):
        job.stop()


if __name__ == "__main__":
    storage, store, consistency, moment, *is_warm = sys.argv[1:]
    trained = warm(storage) if is_warm else model(consistency)
    die_at(moment)
    X, y = data()
    resuming.SILENCE_OF_WORKERS_S = 0.5
    settings = run(storage, store, moment)
    job = squall.submit(trained, (X, y), validation=(X[:300], y[:300]), run=settings)
    print(job.url, flush=True)
    bring_about(moment, job)
    job.wait()
