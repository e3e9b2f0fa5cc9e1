"""The contract suite of `StrategySettings` and `Strategy`: whole workers, in threads, on a real store.

An implementation subclasses :class:`StrategyContract` in its tests, with a name that pytest collects,
and says how to make a strategy.  A worker is ended as the platform would end it: it hands over when
its time is up, or, where it would be killed, leaves by an exception that nothing of it catches.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from squall.data.objects import ObjectStore
from squall.data.training import manifest_key, write_training
from squall.models.logistic import LogisticModel
from squall.protocols import Store, StrategySettings
from squall.records import CsrBlock, Float32, OptimizerSpec, Report, WorkerTask
from squall.store import connect
from squall.store.process import shared_store
from squall.worker import loop
from squall.worker.main import handle
from squall.worker.strategies import is_strategy, strategy_from_dict

ROWS, WIDTH, N_SLOTS, EPOCHS = 600, 40, 2, 3

_Place = tuple[int, int]  # slot, attempt


class _KilledError(BaseException):
    """Stands for SIGKILL."""


@dataclass
class Context:
    """A function's context; it has time for so many looks at the clock, if that is said."""

    looks: int | None = None
    invocation_id: str = "test"
    memory_mb: int = 256
    temp_dir: str = ""
    cold_start_s: float = 0.0

    def remaining_s(self) -> float:
        """See :meth:`squall.protocols.FunctionContext.remaining_s`."""
        if self.looks is None:
            return 900.0
        self.looks -= 1
        return 900.0 if self.looks >= 0 else 0.1


@dataclass
class Workers:
    """The workers of one job, as its driver would launch them.

    Attributes
    ----------
    task : WorkerTask
        Their event.
    store : Store
        The driver's connection.
    kill : dict
        At which minibatch an attempt, by (slot, attempt), is to be killed.
    looks : dict
        After how many looks at the clock an attempt has to hand over.
    ends : dict
        How each attempt ended.
    """

    task: WorkerTask
    store: Store
    kill: dict[_Place, int] = field(default_factory=dict)
    looks: dict[_Place, int] = field(default_factory=dict)
    ends: dict[_Place, str] = field(default_factory=dict)

    @property
    def strategy(self) -> StrategySettings:
        """What they work by."""
        return strategy_from_dict(self.task.strategy)

    def run(self) -> Float32:
        """All slots at once, each until an attempt has finished; the model then."""
        errors: list[BaseException] = []
        threads = [
            threading.Thread(target=self._slot, args=(slot, errors)) for slot in range(self.task.n_slots)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in errors:
            raise error
        weights = self.strategy.weights(self.store, self.task)
        assert weights is not None
        return weights

    def reports(self) -> list[Report]:
        """All that they have told."""
        return self.store.control.reports(self.task.job, 0, 0.0)

    def _slot(self, slot: int, errors: list[BaseException]) -> None:
        end, attempt = "", 0
        try:
            while end != "finished":
                attempt += 1
                end = self.ends[slot, attempt] = self._attempt(slot, attempt)
        except BaseException as error:  # noqa: BLE001 (the test raises it)
            errors.append(error)
            self.stop()

    def _attempt(self, slot: int, attempt: int) -> str:
        task = msgspec.structs.replace(self.task, slot=slot, attempt=attempt)
        context = Context(self.looks.get((slot, attempt)))
        try:
            return str(handle(msgspec.to_builtins(task), context)["end"])
        except _KilledError:
            return "killed"

    def stop(self) -> None:
        """(any thread) Let the others end, too."""
        with connect(self.task.store, self.task.token) as store:
            store.control.request_stop(self.task.job)


def rows() -> CsrBlock:
    """Sparse rows whose labels follow from a planted model."""
    draw = np.random.default_rng(0)
    indices = draw.integers(0, WIDTH, (ROWS, 5)).astype(np.int32)
    truth = draw.normal(size=WIDTH)
    labels = (truth[indices].sum(axis=1) > 0).astype(np.float32)
    return CsrBlock(np.arange(ROWS + 1, dtype=np.int64) * 5, indices.reshape(-1), None, labels, None, WIDTH)


@contextmanager
def jobs(
    strategy: StrategySettings, store_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Workers]]:
    """Makes jobs of so many slots, with another's workers to go on from, if they are given."""
    kills: dict[str, dict[_Place, int]] = {}

    def maybe_kill(task: WorkerTask, done: int) -> None:
        if done >= kills[task.job].get((task.slot, task.attempt), 1 << 62):
            raise _KilledError

    monkeypatch.setattr(loop, "_maybe_kill", maybe_kill)
    objects = ObjectStore(folder / "storage")
    write_training(iter([rows()]), objects, "data", seed=0, target_bytes=4_000)
    with ExitStack() as opened:

        def make(n_slots: int = N_SLOTS, source: Workers | None = None) -> Workers:
            task = _task(strategy, store_url, objects.url, n_slots)
            store = opened.enter_context(connect(store_url))
            store.control.open_job(task.job, n_slots)
            opened.callback(store.control.close_job, task.job)
            for _ in range(2):  # the second time as when it is resumed
                strategy.open(store, task, None if source is None else source.task)
            workers = Workers(task, store)
            kills[task.job] = workers.kill
            return workers

        yield make


def _task(strategy: StrategySettings, store_url: str, storage: str, n_slots: int) -> WorkerTask:
    job = uuid.uuid4().hex[:12]
    return WorkerTask(
        job=job,
        slot=-1,
        attempt=-1,
        n_slots=n_slots,
        storage=storage,
        training=manifest_key("data"),
        store=store_url,
        model=msgspec.to_builtins(LogisticModel(WIDTH)),
        table=f"{job}/model",
        strategy=msgspec.to_builtins(strategy),
        batch_size=16,
        epochs=EPOCHS,
        seed=3,
        optimizer=OptimizerSpec("adagrad", 0.5),
    )


class StrategyContract:
    """What every strategy must do."""

    def make(self) -> StrategySettings:
        """The strategy."""
        raise NotImplementedError

    def store_url(self, folder: Path) -> str:
        """The store; by default the embedded one."""
        return shared_store().address

    @pytest.fixture
    def new_job(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Workers]]:
        """See :func:`jobs`."""
        with jobs(self.make(), self.store_url(tmp_path), tmp_path, monkeypatch) as make:
            yield make

    # --------------------------------------------------------------------------------- settings

    def test_it_travels_as_plain_data(self) -> None:
        strategy = self.make()
        assert is_strategy(strategy) and not is_strategy(type(strategy))
        plain = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(strategy)))
        assert strategy_from_dict(plain) == strategy

    # ------------------------------------------------------------------------------ whole workers

    def test_it_learns_from_every_row_once_an_epoch(self, new_job: Any) -> None:
        workers = new_job()
        weights = workers.run()
        model = LogisticModel(WIDTH)
        assert weights.dtype == np.float32
        spec = model.table("job/t", workers.task.optimizer)
        assert weights.shape == (spec.rows, spec.dim)
        loss, weight, _ = model.loss(rows(), weights)
        assert loss / weight < 0.6 * np.log(2)
        for epoch in range(EPOCHS):
            told = [report for report in workers.reports() if report.epoch == epoch]
            assert sum(report.rows for report in told) == ROWS
            assert sum(report.epoch_done for report in told) == N_SLOTS

    def test_slots_without_rows_hold_nobody_up(self, new_job: Any) -> None:
        workers = new_job(n_slots=ROWS // 16 + 5)
        assert np.isfinite(workers.run()).all()
        assert {slot for slot, _ in workers.ends} == set(range(workers.task.n_slots))

    @pytest.mark.parametrize("how", ["hand-over", "kill"])
    def test_what_a_worker_leaves_is_gone_on_with(self, new_job: Any, how: str) -> None:
        expected, workers = new_job().run(), new_job()
        if how == "kill":
            workers.kill.update({(0, 1): 1, (1, 1): 2, (1, 2): 2, (0, 2): 3})
        else:
            workers.looks.update({(0, 1): 5, (1, 1): 4, (0, 2): 9, (1, 2): 4})
        weights = workers.run()
        ends = set(workers.ends.values())
        assert ("killed" if how == "kill" else "handover") in ends and "finished" in ends
        if self.make().synchronous:
            assert np.array_equal(weights, expected)
        if how == "hand-over":
            assert sum(report.rows for report in workers.reports()) == EPOCHS * ROWS

    def test_another_job_goes_on_from_its_model(self, new_job: Any) -> None:
        first = new_job()
        learned = first.run()
        second = new_job(n_slots=3, source=first)
        begun = second.strategy.weights(second.store, second.task)
        assert begun is not None
        np.testing.assert_array_equal(begun, learned)
        assert not np.array_equal(second.run(), learned)

    def test_a_stop_ends_it_also_where_it_waits_for_others(self, new_job: Any) -> None:
        workers = new_job()
        workers.stop()
        ended = workers._attempt(0, 1)
        assert ended in ("stopped", "finished")
        weights = workers.strategy.weights(workers.store, workers.task)
        assert weights is None or np.isfinite(weights).all()
