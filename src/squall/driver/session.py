"""What a running job holds (store, platform, threads), opened together and given back in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from squall.config import STORES, Run, is_elsewhere
from squall.data.objects import ObjectStore
from squall.data.starting import read_beginning
from squall.driver.events import Leg
from squall.driver.keeping import checkpoints_of
from squall.driver.listening import Emit, listen_to, telling
from squall.driver.spec import JobSpec, Prepared, StoppedError
from squall.errors import JobError, SettingError, StoreError, StoreLostError
from squall.log import get_logger
from squall.protocols import Endpoint, Store
from squall.records import Float32, Shape, TableContents, WorkerTask
from squall.registry import BACKENDS
from squall.store import StoreAddress, connect, requests_of
from squall.store.auth import store_token
from squall.store.connection import Patience
from squall.store.process import end_silent_store, shared_store
from squall.store.table import table_stride
from squall.worker.strategies import strategy_from_dict

T = TypeVar("T")

HANDLER = "squall.worker.main:handle"

HEARTBEAT_S = 10.0
"""Seconds in which a store must answer a job whose time is up, or which is ending."""

_log = get_logger(__name__)


@dataclass(frozen=True)
class WarmUp:
    """The store's process and the platform, starting while the client prepares the data."""

    address: Future[StoreAddress]
    endpoint: Future[Endpoint]


def warm_up(run: Run, memory_mb: int, patience: Patience, resources: ExitStack) -> WarmUp:
    """Start both at once, each on a thread; errors come out where the result is taken."""
    threads = ThreadPoolExecutor(2, "squall-warm-up")
    started = WarmUp(threads.submit(_store, run), threads.submit(_endpoint, run, memory_mb))

    def leave() -> None:
        # What hangs while it starts stays with the pool, whose end ends it too.
        futures: list[Future[Any]] = [started.address, started.endpoint]
        wait(futures, patience())
        threads.shutdown(wait=False, cancel_futures=True)

    resources.callback(leave)
    return started


def _store(run: Run) -> StoreAddress:
    """Where driver and workers reach the store, both in the same way.

    Not the driver by memory and the workers by TCP: what it reads would race with the server.
    """
    if not _is_private(run):
        return StoreAddress(run.store, store_token() or "")
    process = shared_store()
    return process.listen_tcp() if run.store == "tcp" else StoreAddress(process.address)


def _is_private(run: Run) -> bool:
    """Whether the store is a process of this one's, which ends with it."""
    return run.store in STORES


def _endpoint(run: Run, memory_mb: int) -> Endpoint:
    backend = run.resolve_backend()
    shape = Shape(handler=HANDLER, memory_mb=memory_mb, timeout_s=backend.lifetime_s)
    endpoint: Endpoint = BACKENDS.load(backend.name)(backend).prepare(shape)
    return endpoint


@dataclass(frozen=True)
class OpenLeg:
    """What one leg of a job holds.

    ``task`` is the event of every worker, but for slot, attempt and where its epochs end; ``job`` is
    the leg's name in the store, which knows each leg as a job of its own.
    """

    leg: Leg
    job: str
    endpoint: Endpoint
    task: WorkerTask
    close: Callable[[], None]


class Session:
    """A job's connection to its store, and its present leg.

    Parameters
    ----------
    job, spec, prepared, objects, address, emit, patience, resources, left
        See `open_session`.
    store : Store
        The job's own connection.

    Attributes
    ----------
    rounds_split : bool
        Whether rounds of all workers' updates are put together by each of several shards: were one of
        them restored, it would be some rounds behind the others.
    restored : bool
        Whether the store is not the one in which a job that is resumed was, but at best its checkpoint.
    """

    def __init__(
        self,
        job: str,
        spec: JobSpec,
        prepared: Prepared,
        objects: ObjectStore,
        address: StoreAddress,
        store: Store,
        emit: Emit,
        patience: Patience,
        resources: ExitStack,
        left: Callable[[], bool],
    ) -> None:
        self._job, self._spec, self._prepared, self._objects = job, spec, prepared, objects
        self._address, self.store, self._emit, self._patience = address, store, emit, patience
        self._resources, self._left = resources, left
        self._private = _is_private(spec.run)
        self._stores = [store]  # all connections that this process has
        self._strategy = strategy_from_dict(spec.strategy)
        self.rounds_split = self._strategy.synchronous and "," in store.address
        self.restored = False
        self._present: OpenLeg | None = None
        self._next: OpenLeg | None = None

    @property
    def present(self) -> OpenLeg:
        """What the present leg holds."""
        assert self._present is not None
        return self._present

    @property
    def checkpoint(self) -> Callable[[int], None] | None:
        """Writes a checkpoint of that number; None where the store outlives this process."""
        return (lambda number: self._keep(self.present.job, number)) if self._private else None

    def weights(self) -> Float32 | None:
        """The model as it is now, (rows, dim); None if workers have not made one yet."""
        return self._strategy.weights(self.store, self.present.task)

    def trained(self) -> tuple[Float32 | None, TableContents | None]:
        """The model and, where the job keeps it, all that its table holds; no worker is at work."""
        if not (self._spec.keeps_state and self._strategy.needs_tables):
            return self.weights(), None
        task = self.present.task  # where the table is mapped its store is not asked: it may be no more
        contents = self.store.tables.dump(task.table)
        dim = self._prepared.model.table(task.table, task.optimizer).dim
        return np.ascontiguousarray(contents.array[:, :dim]), contents

    def requests(self) -> tuple[int, int]:
        """Reads and writes that this process has asked of object stores."""
        seen = [(self._objects.gets, self._objects.puts), *map(requests_of, self._stores)]
        return sum(gets for gets, _ in seen), sum(puts for _, puts in seen)

    def progress(self, slot: int) -> int:
        """Minibatches of the present leg that a slot has applied; 0 if there is no such slot (any more)."""
        leg = self.present
        return int(self.store.control.progress(leg.job, slot)[0]) if slot < leg.leg.plan.workers else 0

    def begin(self, leg: Leg, endpoint: Endpoint, *, resumed: bool) -> None:
        """Open the leg with which this process begins."""
        name = _name(self._job, leg.number)
        found = resumed and self._private and shared_store().restore_job(name, self._checkpoints(name))
        self.restored = resumed and (self._private or not _is_open(self.store, name))
        if leg.number and self.restored and not found:
            raise JobError(
                f"the store has lost it after its plan had changed for the {_ordinal(leg.number)} time",
                where=f"job {self._job}",
                fix="start it again (`squall train --fresh`)",
            )
        self._present = self._open(leg, endpoint, None, resumed=resumed)
        if leg.number:  # its predecessor may not have been closed
            self.store.control.close_job(_name(self._job, leg.number - 1))

    def arrange(self, leg: Leg) -> None:
        """(any thread) Make ready for the next leg, with a copy of the model as it is now."""
        endpoint = _endpoint(self._spec.run, leg.plan.memory_mb)
        self.store.control.close_job(_name(self._job, leg.number))  # what a driver before had begun
        opened = self._open(leg, endpoint, self.present.task, resumed=False)
        if self._private:  # so that from now on a resumed job finds this leg
            try:
                self._keep(opened.job, int(1000 * time.time()))
            except StoreError as error:  # (told as text: a handler that keeps the error keeps all of this)
                told = str(error)
                _log.warning("job %s cannot be resumed before its next checkpoint: %s", self._job, told)
        self._next = opened

    def switch(self, leg: Leg) -> None:
        """Go over to the leg for which all has been made ready; give back what the present one holds."""
        assert self._next is not None and self._next.leg == leg
        before, self._present, self._next = self.present, self._next, None
        before.close()

    def _open(self, leg: Leg, endpoint: Endpoint, source: WorkerTask | None, *, resumed: bool) -> OpenLeg:
        store, task = self.store, self._task(leg)
        with ExitStack() as resources:
            store.control.open_job(task.job, leg.plan.workers)
            listen_to(
                self._address,
                task.job,
                self._emit,
                self._patience,
                resources,
                self._stores.append,
                lambda: _close_job(store, task.job, self._left),
                resumed=resumed,
            )
            self._strategy.open(store, task, source)
            if source is None:
                self._begin_from(task)
            kept = resources.pop_all()
        self._resources.callback(kept.close)
        return OpenLeg(leg, task.job, endpoint, task, kept.close)

    def _begin_from(self, task: WorkerTask) -> None:
        """Have workers begin with what the job is to begin with, if that is given.

        A blob of the job's tells a driver that takes over that it has been done: no worker was launched
        before, and none may lose what it has trained.
        """
        key, done = self._prepared.initial, f"{task.job}/begun"
        if key is None or self.store.blobs.get(done) is not None:
            return
        stride = table_stride(self._prepared.model.table(task.table, task.optimizer))
        self._strategy.begin(self.store, task, read_beginning(self._objects, key).contents(stride))
        self.store.blobs.put(done, b"begun")

    def _task(self, leg: Leg) -> WorkerTask:
        spec, prepared, name = self._spec, self._prepared, _name(self._job, leg.number)
        return WorkerTask(
            job=name,
            slot=-1,
            attempt=-1,
            n_slots=leg.plan.workers,
            storage=self._objects.url,
            training=prepared.training,
            store=self._address.url,
            token=self._address.token,
            model=msgspec.to_builtins(prepared.model),
            table=f"{name}/model",
            optimizer=prepared.optimizer,
            strategy=spec.strategy,
            batch_size=prepared.batch_size,
            epochs=spec.epochs,
            seed=spec.seed,
            chaos=spec.run.resolve_backend().chaos,
            first_epoch=leg.first_epoch,
        )

    def _keep(self, name: str, number: int) -> None:
        shared_store().keep_job(name, self._checkpoints(name), number, whole=self._strategy.synchronous)

    def _checkpoints(self, name: str) -> str:
        return checkpoints_of(self._objects, self._job) + name.removeprefix(self._job)


def open_session(
    job: str,
    leg: Leg,
    spec: JobSpec,
    prepared: Prepared,
    objects: ObjectStore,
    warm: WarmUp,
    emit: Emit,
    patience: Patience,
    resources: ExitStack,
    *,
    resumed: bool,
    left: Callable[[], bool],
) -> Session:
    """Open everything for a leg of a job; ``resources`` gives it back.

    ``emit`` is called, from a thread, with every batch of reports, with the error if the store can no
    longer be reached, and when a shard of it has come back from a snapshot.  ``patience`` says how
    long the store may take to answer, ``left`` at the end whether the job is another process's.
    """
    _check_reach(spec.run, objects)
    endpoint = _in_time(warm.endpoint, "launcher", patience)
    _in_time(warm.address, "store", patience)
    address = _store(spec.run)  # again: during a long preparation it may have idled out
    store = resources.enter_context(connect(address.url, address.token, patience, telling(emit)))
    session = Session(job, spec, prepared, objects, address, store, emit, patience, resources, left)
    session.begin(leg, endpoint, resumed=resumed)
    return session


def _name(job: str, leg: int) -> str:
    return f"{job}.{leg}" if leg else job


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def _check_reach(run: Run, objects: ObjectStore) -> None:
    if objects.folder is not None and is_elsewhere(run.resolve_backend()):
        raise SettingError(
            f"functions elsewhere cannot reach {objects.url}, which is a folder of this machine",
            where="Run",
            fix='set storage="s3://bucket/prefix" or the like, in Run or as SQUALL_STORAGE',
        )


def _is_open(store: Store, job: str) -> bool:
    try:
        store.control.progress(job, 0)
    except StoreLostError:
        raise
    except StoreError:
        return False
    return True


def _close_job(store: Store, job: str, left: Callable[[], bool]) -> None:
    """Give the job's memory back, if need be together with a store that does not answer."""
    if left():
        return
    try:
        store.control.close_job(job)
    except StoreError as error:
        _log.warning("the store did not close job %s, so it is ended: %s", job, error)
        end_silent_store()


def _in_time(started: Future[T], what: str, patience: Patience) -> T:
    try:
        return started.result(patience())
    except TimeoutError as error:
        raise StoppedError(
            f"the {what} was not ready in time",
            fix="allow a larger deadline, or look for what keeps this machine busy",
        ) from error
