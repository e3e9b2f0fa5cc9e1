"""The function of `squall.map`, called in this process: what it stores, and when."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from squall.data.objects import ObjectStore
from squall.errors import CorruptError, SerializationError, SettingError
from squall.records import CallTask
from squall.worker import calls
from squall.worker.pickles import dumps
from squall.workflows.events import Call
from squall.workflows.storage import CallStorage, Stored


@dataclass
class Context:
    """A function that has ``life_s`` seconds left in all."""

    life_s: float = 60.0
    invocation_id: str = "x"
    memory_mb: int = 128
    temp_dir: str = ""
    cold_start_s: float = 0.0
    began: float = 0.0

    def __post_init__(self) -> None:
        self.began = time.monotonic()

    def remaining_s(self) -> float:
        return self.life_s - (time.monotonic() - self.began)


class Client:
    """The client's side of one call."""

    def __init__(self, folder: Path, fn: Callable[[Any], Any], items: list[Any]) -> None:
        self.storage = CallStorage(ObjectStore(folder), "jobs/j")
        self.call = Call(0, 1, 0, tuple(range(len(items))))
        self.storage.put_items(self.call.items, [dumps(item) for item in items])
        self.function = self.storage.put_function(0, dumps(fn))

    def task(self, **changes: Any) -> CallTask:
        return msgspec.structs.replace(self.storage.task(self.call, self.function, None), **changes)

    def handle(self, task: CallTask | None = None, life_s: float = 60.0) -> dict[str, Any]:
        event = msgspec.json.decode(msgspec.json.encode(task or self.task()))
        return calls.handle(event, Context(life_s))

    def results(self, parts: int | None = None) -> dict[int, Stored]:
        return self.storage.results(self.task(), parts)

    def values(self) -> dict[int, Any]:
        return {position: stored.load(position)[0] for position, stored in self.results().items()}

    def names(self) -> list[str]:
        return [Path(name).name for name in self.storage.objects.keys("jobs/j/results")]


def test_results_are_stored_together_and_told(tmp_path: Path) -> None:
    client = Client(tmp_path, abs, [-1, -2, -3])
    done = client.handle()
    assert (done["parts"], done["gets"], done["puts"]) == (1, 2, 1)
    assert client.values() == {0: 1, 1: 2, 2: 3} and client.names() == ["0-1-0"]


def test_carefully_one_by_one(tmp_path: Path) -> None:
    client = Client(tmp_path, abs, [-1, -2, -3])
    assert client.handle(client.task(careful=True))["parts"] == 3
    assert len(client.names()) == 3 and len(client.values()) == 3


def test_only_the_items_that_are_asked_for(tmp_path: Path) -> None:
    client = Client(tmp_path, abs, list(range(10)))
    client.handle(client.task(ranges=[(1, 3), (7, 8)]))
    assert set(client.values()) == {1, 2, 7}


def test_a_second_delivery_changes_nothing_that_is_stored(tmp_path: Path) -> None:
    def unique(_: int) -> bytes:
        return os.urandom(8)

    client = Client(tmp_path, unique, [0, 1])
    client.handle()
    first = client.values()
    assert client.handle()["parts"] == 2, "its own are stored behind them"
    assert client.values() == first


def test_of_two_deliveries_one_may_die(tmp_path: Path) -> None:
    """The first has stored a part when it dies, and the second adds what is missing."""
    client = Client(tmp_path, abs, [-5, -6, -7])
    client.handle(client.task(ranges=[(0, 1)]))  # as far as it came
    client.handle()
    assert client.values() == {0: 5, 1: 6, 2: 7}


def test_it_leaves_for_another_what_it_has_no_time_for(tmp_path: Path) -> None:
    client = Client(tmp_path, lambda s: time.sleep(s), [0.05] * 5)
    client.handle(life_s=1.1)
    assert 1 <= len(client.values()) < 5


@pytest.mark.parametrize("life_s", [0.0, 0.5])
def test_it_does_one_item_however_little_time_there_is(tmp_path: Path, life_s: float) -> None:
    client = Client(tmp_path, abs, [-1, -2])
    client.handle(life_s=life_s)
    assert 0 in client.values()


def test_another_pythons_pickles_are_not_loaded(tmp_path: Path) -> None:
    client = Client(tmp_path, abs, [1])
    with pytest.raises(SettingError, match=r"Python 3\.7"):
        client.handle(client.task(python="3.7"))


def test_what_another_has_written_is_not_loaded(tmp_path: Path) -> None:
    client = Client(tmp_path, abs, [1])
    with pytest.raises(CorruptError, match="not signed"):
        client.handle(client.task(key="00" * 32))
    results = tmp_path / "jobs" / "j" / "results"
    client.handle()
    (results / "0-1-1").write_bytes((results / "0-1-0").read_bytes())  # right key, wrong name
    with pytest.raises(CorruptError):
        client.results()


class Unloadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("import a_module_that_is_not_there",)


def test_a_function_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    client = Client(tmp_path, Unloadable(), [1])  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="a_module_that_is_not_there"):
        client.handle()


def test_an_argument_that_cannot_be_loaded_is_its_items_affair(tmp_path: Path) -> None:
    client = Client(tmp_path, abs, [Unloadable(), -2])
    client.handle()
    results = client.results()
    value, error = results[0].load(0)
    assert value is None and isinstance(error, ModuleNotFoundError)
    assert results[1].load(1) == (2, None)


def test_the_key_is_not_shown(tmp_path: Path) -> None:
    task = Client(tmp_path, abs, [1]).task()
    assert task.key not in repr(task) and "***" in repr(task)
