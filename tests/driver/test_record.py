"""Records and logs of jobs for other terminals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall.data.objects import ObjectStore
from squall.driver.ledger import Ledger, load_prices
from squall.driver.logs import MAX_CHARACTERS, read_logs, write_logs
from squall.driver.machine import JobMachine
from squall.driver.record import JobRecord, Recorder, read_record, record_of, recorded_jobs
from squall.errors import CorruptError, SquallError
from squall.records import Plan


def record(job: str) -> JobRecord:
    machine = JobMachine(
        Plan(1, 1769), 2, Ledger(load_prices("aws-lambda-us-east-1"), 1769, 0.0), evaluates=False
    )
    return record_of(job, machine, 1.5, {"out": "m.squall"})


def test_what_is_written_is_read_and_listed(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    written = [record("one"), record("two")]
    for each in written:
        Recorder(objects).write(each)
    write_logs(objects, "one", {(0, 1): "hello\n"})
    assert read_record(objects, "two") == written[1]
    assert list(recorded_jobs(objects)) == written
    with pytest.raises(SquallError, match=r"no record of a job 'tow' \(did you mean \"two\"\?\)"):
        read_record(objects, "tow")
    with pytest.raises(SquallError, match="no record"):
        read_record(objects, "../jobs/x")


def test_the_oldest_go_with_their_logs(tmp_path: Path) -> None:
    objects, runs = ObjectStore(tmp_path), tmp_path / "runs"
    for number in range(119):
        Recorder(objects).write(record(f"job-{number}"))
        write_logs(objects, f"job-{number}", {(0, 1): "hello\n"})
        for ending in ("json", "logs"):
            os.utime(runs / f"job-{number}.{ending}", (number, number))
    Recorder(objects).forget_old()
    assert len(list(runs.iterdir())) == 2 * 119, "some are spared, so that not every job has to look"
    Recorder(objects).write(record("newest"))
    Recorder(objects).forget_old()
    left = {path.name for path in runs.iterdir()}
    assert len(left) == 100 + 99
    assert {"newest.json", "job-118.json", "job-20.logs"} <= left
    assert not {"job-19.json", "job-19.logs"} & left


def test_logs_are_cut_and_damage_is_told(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    assert read_logs(objects, "job") == {}
    write_logs(objects, "job", {(1, 2): "x" * MAX_CHARACTERS + "end", (0, 1): ""})
    logs = read_logs(objects, "job")
    assert list(logs) == [(0, 1), (1, 2)]
    assert len(logs[1, 2]) == MAX_CHARACTERS
    assert logs[1, 2].endswith("xend")
    objects.put("runs/job.logs", b"{")
    with pytest.raises(CorruptError, match="logs cannot be read"):
        read_logs(objects, "job")
