"""Held-out quality while training goes on, and the weights at which it was best."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from squall.data.objects import ObjectStore
from squall.driver.events import Evaluated
from squall.driver.spec import StoppedError
from squall.records import Float32, HeldOut

Evaluate = Callable[[Float32, Callable[[], None]], HeldOut]


class Measurer:
    """Measures one model at a time, on a thread.

    Parameters
    ----------
    evaluate : callable, optional
        See :class:`~squall.driver.spec.JobSpec`.
    emit : callable
        Called, from the thread, with what was measured, or with the error that prevented it.
    objects, job
        Where the best weights are kept, lest they end with this process.
    """

    def __init__(
        self,
        evaluate: Evaluate | None,
        emit: Callable[[Evaluated | BaseException], None],
        objects: ObjectStore,
        job: str,
    ) -> None:
        self._evaluate, self._emit = evaluate, emit
        self._objects, self._key = objects, f"jobs/{job}/best"
        self._thread = ThreadPoolExecutor(1, "squall-evaluate")
        self._wanted = True
        self._weights = np.empty((0, 1), dtype=np.float32)  # those that are being measured

    def start(self, epoch: int, weights: Float32) -> None:
        """Measure the model of an epoch; the last one's result must have come."""
        self._weights = weights
        self._thread.submit(self._measure, epoch, weights)

    def keep_best(self) -> None:
        """The weights that were measured last are the best so far."""
        self._objects.put(self._key, np.ascontiguousarray(self._weights).tobytes())

    def best(self, like: Float32) -> Float32:
        """The best weights, of the shape of ``like``; ``like`` itself if it has them, or none were kept."""
        if not self._objects.exists(self._key):
            return like
        best = np.frombuffer(self._objects.get(self._key), dtype=np.float32).reshape(like.shape)
        return like if np.array_equal(best, like) else best.copy()

    def unwanted(self) -> None:
        """What is being measured is not wanted any more."""
        self._wanted = False

    def close(self) -> None:
        """Wait for the thread, which ends soon if its work is unwanted."""
        self._thread.shutdown()

    def _measure(self, epoch: int, weights: Float32) -> None:
        assert self._evaluate is not None
        try:
            self._emit(Evaluated(epoch, self._evaluate(weights, self._check_wanted)))
        except Exception as error:  # noqa: BLE001 (it ends the job: the loop raises it)
            self._emit(error)

    def _check_wanted(self) -> None:
        if not self._wanted:
            raise StoppedError("the job has ended")
