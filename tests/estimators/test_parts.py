"""What the estimators are made of; no functions are started here."""

from __future__ import annotations

import io
import sys

import pandas as pd
import pytest

import squall
from squall.estimators.columns import aligned
from squall.estimators.progress import final_line, progress_line, wait_showing_progress
from squall.records import JobStatus


def test_data_with_the_columns_of_fit_is_not_touched():
    data = squall.from_arrays(pd.DataFrame({"a": [1.0], "b": [2.0]}))
    assert aligned(data, data.columns, "the model") is data


def test_columns_come_into_the_order_of_fit_and_others_are_left_out():
    fitted = squall.from_arrays(pd.DataFrame({"a": [1.0], "b": [2.0]})).columns
    data = squall.from_arrays(pd.DataFrame({"b": [2], "c": ["x"], "a": [1]}))
    assert aligned(data, fitted, "the model").to_arrays()[0].tolist() == [[1, 2]]


STATUS = JobStatus(
    state="running", epoch=3, epochs=10, rows=3_600_000, loss=0.342, validation_loss=0.339, workers=2,
    rows_per_s=1.2e6, time_s=3.0, cost_usd=0.000012, reason="epochs",
)  # fmt: skip


def test_the_line_of_progress():
    expected = "epoch 3/10  loss 0.3420  held-out 0.3390  1.2 M rows/s  2 workers  3.00 s  $0.0000120"
    assert progress_line(STATUS) == expected
    assert final_line(STATUS) == f"{expected}  ended by: epochs"


def test_the_line_before_there_is_anything_to_tell():
    nothing = JobStatus("preparing", 0, 10, 0, None, None, 0, 0.0, 0.42, 0.0)
    assert progress_line(nothing) == "preparing  0.42 s  $0"


class FakeJob:
    """Ends at the third look."""

    def __init__(self):
        self.looks = 0

    def wait(self, timeout=None):
        self.looks += 1
        if timeout is not None and self.looks < 3:
            raise TimeoutError
        return "model"

    def done(self):
        return True

    def status(self):
        return STATUS


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_one_line_is_rewritten_and_ends(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert wait_showing_progress(FakeJob()) == "model"
    shown = sys.stderr.getvalue()
    lines = [line.rstrip() for line in shown.split("\r")]
    assert lines == ["", progress_line(STATUS), progress_line(STATUS), final_line(STATUS)]
    assert shown.count("\n") == 1


def test_the_line_never_wraps(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", Terminal())
    wait_showing_progress(FakeJob())
    assert {len(line.rstrip("\n")) for line in sys.stderr.getvalue().split("\r")[1:]} == {39}


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_where_nobody_looks_nothing_is_written(monkeypatch, stderr):
    monkeypatch.setattr(sys, "stderr", stderr)
    assert wait_showing_progress(FakeJob()) == "model"
    assert stderr is None or stderr.getvalue() == ""
