"""A job in the hands of its user: wait, stop, status, logs, cost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from squall.driver.loop import JobLoop
from squall.driver.resuming import Resumption
from squall.driver.spec import JobResult, JobSpec
from squall.errors import JobError
from squall.records import Bill, HistoryRecord, JobStatus
from squall.registry import JOB_OPENERS

T = TypeVar("T")


class Job(Generic[T]):
    """A job that runs in the background of this process.

    Made by :func:`squall.submit`; all methods may be called from any thread.

    Parameters
    ----------
    spec : JobSpec
        What to do.
    finish : callable
        Makes the fitted model from the job's result.
    resumption : Resumption, optional
        What happened to it before, in the hands of another process.
    """

    def __init__(
        self, spec: JobSpec, finish: Callable[[JobResult], T], resumption: Resumption | None = None
    ) -> None:
        self._loop = JobLoop(spec, self, resumption)
        self._finish = finish
        self._done = threading.Event()
        self._result: JobResult | None = None
        self._model: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"squall-job-{self.id}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._loop.run()
            self._model = self._finish(self._result)
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
            self._error = error
        finally:
            self._done.set()

    @staticmethod
    def open(url: str) -> Job[Any]:
        """Go on with a job whose process is no more, in this one.

        Parameters
        ----------
        url : str
            The job's :attr:`url`.  Its id alone will do where the storage is the default one.

        Returns
        -------
        Job
            As :func:`squall.submit` gave; ``wait`` gives the fitted model.

        Raises
        ------
        JobError
            If it has ended, died before its data was prepared, or is driven by a living process.
        """
        job: Job[Any] = JOB_OPENERS.load("estimator")(url)
        return job

    @property
    def id(self) -> str:
        """Unique name."""
        return self._loop.id

    @property
    def url(self) -> str:
        """Where it is kept; :meth:`open` takes it."""
        return f"{self._loop.storage}/jobs/{self.id}"

    def wait(self, timeout: float | None = None) -> T:
        """The fitted model, once the job has ended.

        Ctrl-C while waiting stops the job in order and returns the model as it is then; a
        second Ctrl-C ends the job at once and raises ``KeyboardInterrupt``.

        Raises
        ------
        TimeoutError
            If the job has not ended within ``timeout`` seconds; it goes on.
        SquallError
            If the job failed, or was stopped before there was a model.
        """
        if self._loop.callbacks.is_calling:
            raise JobError(
                "a callback that waits for its job waits for ever",
                where=f"job {self.id}",
                fix="use job.status(), job.history and job.stop() in callbacks",
            )
        try:
            ended = self._done.wait(timeout)
        except KeyboardInterrupt:
            ended = self._interrupt()
        if not ended:
            raise TimeoutError(f"job {self.id} has not ended within {timeout:g} s")
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._model is not None
        return self._model

    def _interrupt(self) -> bool:
        self.stop("interrupted")
        try:
            return self._done.wait()
        except KeyboardInterrupt:
            self._loop.abort(KeyboardInterrupt())
            self._done.wait()
            raise

    def done(self) -> bool:
        """Whether the job has ended, one way or another."""
        return self._done.is_set()

    def stop(self, reason: str = "stopped by the user") -> None:
        """Ask for an orderly end that keeps the model; returns at once."""
        self._loop.stop(reason)

    def status(self) -> JobStatus:
        """State, epoch, losses, workers, rows/s and dollars at this moment."""
        if self._result is not None:
            return self._result.status
        return self._loop.status()

    @property
    def history(self) -> list[HistoryRecord]:
        """Epochs so far."""
        return self._loop.history()

    @property
    def bill(self) -> Bill | None:
        """The bill by item, once the job has ended."""
        return None if self._result is None else self._result.bill

    @property
    def cost(self) -> float:
        """US dollars so far."""
        return self.status().cost_usd

    def logs(self, worker: int | None = None) -> str:
        """What the functions wrote, attempt by attempt; of one worker if its slot is given."""
        parts = []
        for (slot, attempt), text in sorted(self._loop.logs().items()):
            if worker is None or worker == slot:
                parts += [f"[worker {slot}, attempt {attempt}] {line}" for line in text.splitlines()]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.status().state}>"
