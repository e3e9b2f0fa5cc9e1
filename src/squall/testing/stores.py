"""What the contract suites of stores share: their fixtures, and values to store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from squall.protocols import Control, Tables
from squall.records import (
    Float32,
    Int64,
    Phases,
    Report,
)

N_SLOTS = 3
"""Slots of the job that the fixtures open."""


def rows_of(*numbers: int) -> Int64:
    """Row numbers as the tables take them."""
    return np.array(numbers, dtype=np.int64)


def filled(shape: tuple[int, int], value: float) -> Float32:
    """A matrix of one value."""
    return np.full(shape, value, dtype=np.float32)


def soon(ask: Callable[[], bool]) -> bool:
    """Whether what may be known a little late is so within some seconds."""
    give_up = time.monotonic() + 10.0
    while not (result := ask()) and time.monotonic() < give_up:
        time.sleep(0.05)
    return result


class OfTables:
    """What a contract about tables is given."""

    @pytest.fixture
    def job(self) -> str:
        """Name of an open job with :data:`N_SLOTS` slots."""
        raise NotImplementedError

    @pytest.fixture
    def larger_job(self) -> str:
        """Name of another open job, with more slots."""
        raise NotImplementedError

    @pytest.fixture
    def tables(self) -> Tables:
        """The implementation."""
        raise NotImplementedError


class OfControl:
    """What a contract about control is given."""

    @pytest.fixture
    def control(self) -> Control:
        """The implementation."""
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> Control:
        """Another client of the same store, for another thread."""
        raise NotImplementedError


def report_of(slot: int, attempt: int, epoch: int = 0, rows: int = 1) -> Report:
    """A report with some numbers in it."""
    return Report(slot, attempt, epoch, rows, 0.5, 1.0, False, 0.25, 0.125, Phases(compute=1.25, bytes_in=7))


class OfJobs(OfControl):
    """What a contract about control alone is given."""

    @pytest.fixture
    def new_job(self) -> str:
        """Name of a job that is not open."""
        raise NotImplementedError

    @pytest.fixture
    def job(self, control: Control, new_job: str) -> Iterator[str]:
        """Name of a job with :data:`N_SLOTS` slots."""
        control.open_job(new_job, N_SLOTS)
        yield new_job
        control.close_job(new_job)
