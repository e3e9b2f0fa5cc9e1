"""What keeps a running job: nothing that only others look at may end it."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.data.objects import ObjectStore
from squall.driver import window
from squall.driver.joblog import JobLog
from squall.driver.keeping import Keeper
from squall.driver.ledger import Ledger, load_prices
from squall.driver.machine import JobMachine
from squall.driver.record import JobRecord, Recorder, record_of
from squall.driver.window import stop_key
from squall.errors import StoreError
from squall.records import Plan


def record() -> JobRecord:
    machine = JobMachine(
        Plan(1, 1769), 2, Ledger(load_prices("aws-lambda-us-east-1"), 1769, 0.0), evaluates=False
    )
    return record_of("job", machine, 1.5, {})


def test_a_look_for_the_stop_flag_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(key: str) -> bool:
        raise StoreError("the object store refused")

    monkeypatch.setattr(window, "LOOK_S", -1.0)
    objects = ObjectStore(tmp_path)
    keeper = Keeper(objects, "job", JobLog(objects, "job"), Recorder(objects), None, None)
    assert not keeper.tick(record, dict)
    objects.put(stop_key("job"), b"")
    with monkeypatch.context() as patch:
        patch.setattr(objects, "exists", unreachable)
        assert not keeper.tick(record, dict)
    assert keeper.tick(record, dict)
    keeper.close(dict)
