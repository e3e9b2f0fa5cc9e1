"""Maps whose functions die, hang or come too late at the worst moments, and what nobody may read."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import time
import traceback
from pathlib import Path
from typing import Any

import joblib
import pytest

import squall
from squall.data.objects import ObjectStore
from squall.driver import record, window
from squall.errors import CallError
from squall.testing import Chaos, Fault


def squared_by_a_saboteur(moment: str, marker: Path, item: int) -> int:
    """``item²``; but the first environment that comes here ends while it stores what it has."""
    from squall.data import objects

    create = objects.ObjectStore.create

    def end(*_: Any) -> None:
        if moment == "late":  # until its lifetime is over
            time.sleep(60)
        os.kill(os.getpid(), signal.SIGKILL)

    def sabotaged(self: objects.ObjectStore, key: str, data: bytes) -> bool:
        if moment == "before":
            end()
        if moment in ("during", "late"):  # all is written, under another name
            objects.os.link = end
        create(self, key, data)
        end()
        return True

    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return item * item
    objects.ObjectStore.create = sabotaged  # type: ignore[method-assign]
    return item * item


@pytest.mark.parametrize(("moment", "calls"), [("before", 2), ("during", 2), ("after", 1), ("late", 2)])
def test_a_function_that_ends_while_it_stores_its_results(moment: str, calls: int, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    run = squall.Run(workers=1, backend=squall.LocalBackend(lifetime="2s" if moment == "late" else "900s"))
    futures = squall.map(
        lambda item: squared_by_a_saboteur(moment, marker, item), range(5), run=run, chunksize=5
    )
    assert futures.results() == [item * item for item in range(5)]
    assert marker.exists() and futures.bill.invocations == calls


@pytest.mark.parametrize("how", ["stopped", "deaf"])
def test_an_item_that_hangs_beyond_all_alarms_is_ended_and_no_other(how: str) -> None:
    def hangs(item: int) -> int:
        if item == 1 and how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if item == 1:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            time.sleep(60)
        return item

    futures = squall.map(hangs, range(4), run=squall.Run(workers=1), chunksize=4, timeout="500ms")
    squall.wait(futures)
    assert [future.result() for future in (futures[0], *futures[2:])] == [0, 2, 3]
    error = futures[1].exception()
    assert isinstance(error, CallError) and error.outcome == "timed out"
    assert "item 1" in str(error) and "timeout=" in str(error)


def test_a_platform_that_has_less_room_than_was_asked_for() -> None:
    run = squall.Run(workers=6, backend=squall.LocalBackend(chaos=Chaos(quota=2)))
    futures = squall.map(lambda item: time.sleep(0.02) or item, range(24), run=run, chunksize=2)
    assert futures.results() == list(range(24))


CHAOS = Chaos(seed=11, kill=0.1, duplicate=0.1, drop=0.1, throttle=0.1, wait="20ms", lost_after="50ms")


def test_executor_map_reduce_and_joblib_under_faults() -> None:
    run = squall.Run(workers=2, backend=squall.LocalBackend(chaos=CHAOS))
    assert squall.map_reduce(lambda item: item + 1, range(20), sum, run=run).result() == 210
    with squall.Executor(run) as executor:
        assert list(executor.map(pow, range(12), itertools.repeat(2))) == [item**2 for item in range(12)]
    squall.register_joblib()
    with run, joblib.parallel_config(backend="squall", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(abs)(-item) for item in range(12)) == list(range(12))


def test_the_key_is_in_nothing_that_anybody_can_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, own_storage: Path
) -> None:
    """Logs at their finest, tracebacks, texts of all objects, what is stored and stays."""
    monkeypatch.setattr(record, "INTERVAL_S", -1.0)
    monkeypatch.setattr(window, "LOOK_S", 0.0)
    caplog.set_level(logging.DEBUG)
    script = (Fault(do="kill", when="after", slot=0), Fault(do="throttle", slot=2), Fault(do="drop", slot=4))
    run = squall.Run(workers=2, backend=squall.LocalBackend(chaos=Chaos(script=script, lost_after="50ms")))

    def work(item: int) -> int:
        print("at", item, flush=True)
        time.sleep(0.2)
        return 10 // item

    executor = squall.Executor(run, retries=1)
    futures = [executor.submit(work, item) for item in (1, 0, 2, 5, 10)]
    errors = [future.exception() for future in futures]
    assert [type(error) for error in errors].count(ZeroDivisionError) == 1, errors
    key = executor._job._storage._key
    objects = ObjectStore(own_storage)
    stored = [bytes(objects.get(name)) for folder in ("jobs", "runs") for name in objects.keys(folder)]
    assert any(b"at 1" in data for data in stored), "logs are among them"
    told = [caplog.text, executor.logs(), repr(executor), repr(futures), repr(executor._job.__dict__)]
    told += ["".join(traceback.format_exception(error)) for error in errors if error is not None]
    executor.shutdown()
    told.append(repr(executor.bill))
    assert "squall" in caplog.text and "ZeroDivisionError" in told[-2]
    for secret in (key.hex(), repr(key)[2:-1]):
        assert not any(secret in text for text in told)
        assert not any(secret.encode() in data or key in data for data in stored)
