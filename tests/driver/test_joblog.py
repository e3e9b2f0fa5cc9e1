"""The log of a job: only ever appended to, by one driver at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.data.objects import ObjectStore
from squall.driver.events import Ended, Event, Reported, Resumed, Start, Stop, StoreRestored, Tick
from squall.driver.joblog import Entry, JobLog, TakenOverError, read_log
from squall.driver.ledger import Ledger, load_prices
from squall.driver.machine import JobMachine
from squall.errors import CorruptError, StoreError
from squall.records import Outcome, OutcomeKind, Phases, Plan, Report

REPORT = Report(0, 1, 0, 10, 5.0, 10.0, True, 0.5, 0.25, Phases(compute=0.5, gets=2))
EVENTS: list[Event] = [
    Start(100),
    Reported(REPORT),
    Tick(),
    Ended(0, 1, Outcome(OutcomeKind.KILLED, signal=9, billed_s=1.5), 7, "last words"),
    StoreRestored("0:a-1", "shard 0 came back"),
    Resumed([7, 0], True),
    Stop("stopped by the user"),
]


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path)


def test_what_is_written_is_read(objects: ObjectStore) -> None:
    log = JobLog(objects, "job")
    entries = [Entry(0.5 * number, event) for number, event in enumerate(EVENTS)]
    log.append(entries[:3])
    log.append(entries[3:])
    records = read_log(objects, "job")
    assert [entry for record in records for entry in record.entries] == entries
    assert [record.term for record in records] == [1, 1]


@pytest.mark.parametrize("number", [0, 1])
def test_any_byte_that_has_changed_is_told(objects: ObjectStore, tmp_path: Path, number: int) -> None:
    """Also where what it then says could be read all the same."""
    log = JobLog(objects, "job")
    log.append([Entry(1.0, EVENTS[1]), Entry(2.0, EVENTS[0])])
    log.append([])
    path = tmp_path / "jobs" / "job" / "log" / f"{number:08d}"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptError, match=rf"{number:08d}: .*checksum"):
            read_log(objects, "job")
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptError, match="checksum"):
            read_log(objects, "job")
    path.write_bytes(whole)
    assert len(read_log(objects, "job")) == 2


def test_a_machine_is_the_same_after_its_events_have_been_through_the_log(objects: ObjectStore) -> None:
    def machine() -> JobMachine:
        return JobMachine(
            Plan(2, 1769), 3, Ledger(load_prices("aws-lambda-us-east-1"), 1769, 0.0), evaluates=True
        )

    first, second, log = machine(), machine(), JobLog(objects, "job")
    for number, event in enumerate(EVENTS):
        first.handle(event, 0.5 * number)
        log.append([Entry(0.5 * number, event)])
    for record in read_log(objects, "job"):
        for entry in record.entries:
            second.handle(entry.event, entry.at)
    assert first.status(9.0) == second.status(9.0)
    assert first.history == second.history


def test_whoever_comes_second_has_lost(objects: ObjectStore) -> None:
    old = JobLog(objects, "job")
    old.append([Entry(0.0, Start(1))])
    new = JobLog(objects, "job", term=2, number=1)
    new.append([])
    with pytest.raises(TakenOverError, match="taken this job over"):
        old.append([Entry(1.0, Tick())])
    new.append([Entry(1.0, Tick())])
    assert [record.term for record in read_log(objects, "job")] == [1, 2, 2]


@pytest.mark.parametrize("stored", [True, False])
def test_a_write_of_unknown_end_is_looked_at(
    objects: ObjectStore, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = objects.create

    def broken(key: str, data: Any) -> bool:
        if stored:
            create(key, data)
        raise StoreError("the connection was lost")

    log = JobLog(objects, "job")
    with monkeypatch.context() as patch:
        patch.setattr(objects, "create", broken)
        if stored:
            log.append([Entry(0.0, Start(1))])
        else:
            with pytest.raises(StoreError, match="lost"):
                log.append([Entry(0.0, Start(1))])
    log.append([Entry(1.0, Tick())])
    assert len(read_log(objects, "job")) == 1 + stored


def test_a_gap_and_a_damaged_record_are_told(objects: ObjectStore) -> None:
    log = JobLog(objects, "job")
    for _ in range(3):
        log.append([])
    objects.put("jobs/job/log/00000002", b"not a record")
    with pytest.raises(CorruptError, match="checksum is wrong"):
        read_log(objects, "job")
    objects.delete("jobs/job/log/00000001")
    with pytest.raises(CorruptError, match="missing"):
        read_log(objects, "job")
