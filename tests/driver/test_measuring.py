"""Measuring on a thread, and the best weights, which outlive the process."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path

import numpy as np

from squall.data.objects import ObjectStore
from squall.driver.events import Evaluated
from squall.driver.measuring import Measurer
from squall.driver.spec import StoppedError
from squall.records import Float32, HeldOut


def weights_of(value: float) -> Float32:
    return np.full((5, 1), value, dtype=np.float32)


def measure(weights: Float32, check: Callable[[], None]) -> HeldOut:
    check()
    return HeldOut(float(weights[0, 0]), 0.5, 10)


def test_the_best_weights_are_found_by_another_process(tmp_path: Path) -> None:
    told: queue.SimpleQueue[Evaluated | BaseException] = queue.SimpleQueue()
    first = Measurer(measure, told.put, ObjectStore(tmp_path), "job")
    assert np.array_equal(first.best(weights_of(9.0)), weights_of(9.0)), "none are kept yet"
    first.start(0, weights_of(1.0))
    assert told.get(timeout=10) == Evaluated(0, HeldOut(1.0, 0.5, 10))
    first.keep_best()
    first.start(1, weights_of(2.0))
    told.get(timeout=10)
    first.close()
    second = Measurer(measure, told.put, ObjectStore(tmp_path), "job")
    assert np.array_equal(second.best(weights_of(9.0)), weights_of(1.0))
    second.close()


def test_what_is_not_wanted_any_more_ends(tmp_path: Path) -> None:
    told: queue.SimpleQueue[Evaluated | BaseException] = queue.SimpleQueue()
    measurer = Measurer(measure, told.put, ObjectStore(tmp_path), "job")
    measurer.unwanted()
    measurer.start(0, weights_of(1.0))
    assert isinstance(told.get(timeout=10), StoppedError)
    measurer.close()
