"""Model averaging: the mean is what NumPy says, and rounds that are over leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import squall
from squall.data.iterator import Deal, MinibatchStream
from squall.data.objects import ObjectStore
from squall.data.training import load_training
from squall.errors import SettingError, StoreError
from squall.models import model_from_dict
from squall.records import Registration
from squall.store.table import ParameterTable
from squall.testing.strategies import Workers, jobs
from squall.worker.keeping import Keeper, latest, packed, shown, unpacked

Make = Callable[..., Workers]


@pytest.fixture(params=[4, "epoch"])
def every(request: pytest.FixtureRequest) -> int | str:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def new_job(every: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    store = (tmp_path / "store").as_uri()
    with jobs(squall.ModelAveraging(every), store, tmp_path, monkeypatch) as make:
        yield make


class _Slot:
    """A worker by the book: its minibatches one at a time, on a table of its own."""

    def __init__(self, workers: Workers, slot: int) -> None:
        task = workers.task
        self.model = model_from_dict(task.model)
        self.table = ParameterTable.private(self.model.table("job/own", task.optimizer), 1)
        objects = ObjectStore(task.storage)
        deal = Deal.of(load_training(objects, task.training), task.n_slots, task.batch_size, task.seed)
        self.visits: dict[int, list[Any]] = {}
        with MinibatchStream(
            objects, deal.manifest, batch_size=task.batch_size, block_rows=deal.block_rows, seed=task.seed,
            n_slots=task.n_slots, slot=slot, epochs=task.epochs,
        ) as stream:  # fmt: skip
            for visit in stream:
                for batch in range(visit.n_minibatches):
                    self.visits.setdefault(visit.epoch, []).append((visit.block, visit.order, batch))
        self.batch_size = task.batch_size

    def train(self, epoch: int, first: int, stop: int) -> int:
        """Minibatches of an epoch; how many rows they had."""
        rows = 0
        for block, order, batch in self.visits[epoch][first:stop]:
            _, _, n = self.model.train_shared(
                block, order, self.batch_size, batch, 1, self.table.shared, np.zeros(1, dtype=np.int64)
            )
            rows += n
        return rows


def test_the_mean_is_weighted_by_rows(new_job: Make, every: int | str) -> None:
    workers = new_job(n_slots=3)
    weights = workers.run()
    slots = [_Slot(workers, slot) for slot in range(3)]
    for epoch in range(workers.task.epochs):
        longest = max(len(slot.visits[epoch]) for slot in slots)
        step = longest if every == "epoch" else 4
        for first in range(0, longest, step):
            rows = [slot.train(epoch, first, first + step) for slot in slots]
            mean = np.average([slot.table.pull() for slot in slots], axis=0, weights=rows)
            for slot in slots:
                slot.table.shared.array[:, : mean.shape[1]] = mean
    np.testing.assert_allclose(weights, mean, rtol=2e-5, atol=2e-6)


def test_rounds_that_are_over_are_forgotten(new_job: Make, tmp_path: Path) -> None:
    workers = new_job()
    workers.kill.update({(0, 1): 7, (1, 1): 9})
    workers.looks.update({(0, 2): 9, (1, 2): 9})
    workers.run()
    left = [str(path.relative_to(tmp_path)) for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len({name for name in left if "rounds" in name and "reductions" in name}) <= 2 * 3, left
    assert sum("models" in name for name in left) == 1, left
    assert sum("kept" in name for name in left) <= 2 * 2, "two turns of the last attempt of each slot"


# -------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("every", "message"),
    [
        (0, 'every=0 must be "epoch" or a number of minibatches of at least 1'),
        (True, "every=True must be"),
        (2.5, "every=2.5 must be"),
        (None, "every=None must be"),
        ("minute", "every='minute' is unknown; choose from epoch"),
        ("epochs", 'did you mean "epoch"'),
    ],
)
def test_wrong_settings(every: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        squall.ModelAveraging(every)


def test_numbers_of_numpy_are_plain_data() -> None:
    assert repr(squall.ModelAveraging(np.int64(7))) == "ModelAveraging(every=7)"  # type: ignore[arg-type]
    assert repr(squall.ModelAveraging()) == "ModelAveraging()"


def test_what_does_not_go_together_is_told_with_all_else() -> None:
    model = squall.LogisticRegression(optimizer="ftrl", epochs=0, strategy=squall.ModelAveraging())
    with pytest.raises(SettingError) as told:
        model.fit(np.eye(4), [0, 1, 0, 1])
    assert "2 settings are wrong" in str(told.value) and "does not go with ModelAveraging" in str(told.value)
    with pytest.raises(SettingError, match=r"or a strategy; write strategy=squall\.ModelAveraging\(\)"):
        squall.LinearRegression(strategy="averaging").fit(np.eye(4), [0, 1, 0, 1])  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ what is kept


def test_arrays_come_back() -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([7]), "none": np.zeros((0, 2))}
    back = unpacked(packed(arrays))
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype and np.array_equal(back[name], array)
        assert back[name].shape == array.shape and back[name].flags.writeable


@pytest.mark.parametrize("every", [4], indirect=True)
def test_only_what_is_named_counts(new_job: Make) -> None:
    workers = new_job()
    task, control, blobs = workers.task, workers.store.control, workers.store.blobs
    assert latest(workers.store, task) is None
    assert shown(workers.store, task) is None

    def attempt(number: int) -> tuple[Keeper, Registration]:
        own = msgspec.structs.replace(task, slot=0, attempt=number)
        return Keeper(own, workers.store), control.register(task.job, 0, number, number)

    first, registration = attempt(1)
    assert first.taken_over(registration) is None
    first.keep(3, "0-1", {"a": 1}, {"x": np.array([1.0])})
    first.put(5, "0-2", {}, {"x": np.array([2.0])})  # it dies before that counts
    second, registration = attempt(2)
    taken = second.taken_over(registration)
    assert taken is not None
    assert (taken[0].minibatches, taken[0].round, taken[0].facts) == (3, "0-1", {"a": 1})
    assert taken[1]["x"].tolist() == [1.0]
    with pytest.raises(StoreError, match="replaced by attempt 2"):
        first.keep(9, "0-3", {}, {"x": np.array([9.0])})
    second.keep(4, "0-1", {}, {"x": np.array([4.0])})
    kept = latest(workers.store, task)
    assert kept is not None and kept[1]["x"].tolist() == [4.0]
    assert [blobs.get(f"{task.job}/kept/0/1-{turn}") for turn in (0, 1)] == [None, None]
    blobs.delete(kept[0].blob)
    with pytest.raises(StoreError, match="not in the store any more"):
        latest(workers.store, task)
    with pytest.raises(StoreError, match="not in the store any more"):
        attempt(3)[0].taken_over(control.look(task.job, 0))
