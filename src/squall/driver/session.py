"""What a running job holds (store, platform, threads), opened together and given back in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from squall.config import STORES, Run, is_elsewhere
from squall.data.objects import ObjectStore
from squall.driver.arrivals import Arrived, Happened, Unheard
from squall.driver.events import StoreRestored
from squall.driver.keeping import checkpoints_of
from squall.driver.spec import JobSpec, Prepared, StoppedError
from squall.errors import LostUpdatesError, SettingError, SquallError, StoreError, StoreLostError
from squall.log import get_logger
from squall.protocols import Endpoint
from squall.records import Shape, WorkerTask
from squall.registry import BACKENDS
from squall.store import Store, StoreAddress, connect
from squall.store.auth import store_token
from squall.store.connection import Forgiveness, Patience
from squall.store.process import end_silent_store, shared_store
from squall.worker.strategies import strategy_from_dict

T = TypeVar("T")

HANDLER = "squall.worker.main:handle"

HEARTBEAT_S = 10.0
"""Seconds in which a store must answer a job whose time is up, or which is ending."""

_POLL_S = 1.0
_log = get_logger(__name__)


@dataclass(frozen=True)
class Session:
    """A job's connections.  ``task`` is the event of every worker, but for slot and attempt.

    ``rounds_split`` says that rounds of all workers' updates are put together by each of several
    shards: were one of them restored, it would be some rounds behind the others.  ``restored`` says
    that the store is not the one in which a job that is resumed was, but at best its checkpoint.
    ``checkpoint`` writes one of that number; None where the store outlives this process.
    """

    store: Store
    rounds_split: bool
    restored: bool
    checkpoint: Callable[[int], None] | None
    endpoint: Endpoint
    task: WorkerTask


@dataclass(frozen=True)
class WarmUp:
    """The store's process and the platform, starting while the client prepares the data."""

    address: Future[StoreAddress]
    endpoint: Future[Endpoint]


def warm_up(run: Run, patience: Patience, resources: ExitStack) -> WarmUp:
    """Start both at once, each on a thread; errors come out where the result is taken."""
    threads = ThreadPoolExecutor(2, "squall-warm-up")
    started = WarmUp(threads.submit(_store, run), threads.submit(_endpoint, run))

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


def _endpoint(run: Run) -> Endpoint:
    backend = run.resolve_backend()
    shape = Shape(handler=HANDLER, memory_mb=run.memory_mb, timeout_s=backend.lifetime_s)
    endpoint: Endpoint = BACKENDS.load(backend.name)(backend).prepare(shape)
    return endpoint


def open_session(
    job: str,
    spec: JobSpec,
    prepared: Prepared,
    objects: ObjectStore,
    warm: WarmUp,
    emit: Callable[[Happened], None],
    patience: Patience,
    resources: ExitStack,
    *,
    resumed: bool,
    left: Callable[[], bool],
) -> Session:
    """Open everything; ``resources`` gives it back.

    ``emit`` is called, from a thread, with every batch of reports, with the error if the store can no
    longer be reached, and when a shard of it has come back from a snapshot.  ``patience`` says how
    long the store may take to answer, ``left`` at the end whether the job is another process's.
    """
    _check_reach(spec.run, objects)
    endpoint = _in_time(warm.endpoint, "launcher", patience)
    _in_time(warm.address, "store", patience)
    address = _store(spec.run)  # again: during a long preparation it may have idled out
    table = prepared.model.table(f"{job}/model", prepared.optimizer)
    private = _is_private(spec.run)
    if resumed and private:
        shared_store().restore_job(job, checkpoints_of(objects, job))
    store = resources.enter_context(connect(address.url, address.token, patience, _telling(emit)))
    restored = resumed and (private or not _is_open(store, job))
    store.control.open_job(job, spec.n_workers)
    _listen_to(address, job, emit, patience, resources, lambda: _close_job(store, job, left), resumed=resumed)
    store.tables.create(table)
    # Maps it, where it is mapped: the model can then be had although the store has died.
    store.tables.pull(table.name, np.zeros(0, dtype=np.int64))
    task = WorkerTask(
        job=job,
        slot=-1,
        attempt=-1,
        n_slots=spec.n_workers,
        storage=objects.url,
        training=prepared.training,
        store=address.url,
        token=address.token,
        model=msgspec.to_builtins(prepared.model),
        table=table.name,
        strategy=spec.strategy,
        batch_size=prepared.batch_size,
        epochs=spec.epochs,
        seed=spec.seed,
        chaos=spec.run.resolve_backend().chaos,
    )
    rounds_split = strategy_from_dict(spec.strategy).synchronous and "," in store.address
    whole = strategy_from_dict(spec.strategy).synchronous

    def checkpoint(number: int) -> None:
        shared_store().keep_job(job, checkpoints_of(objects, job), number, whole=whole)

    return Session(store, rounds_split, restored, checkpoint if private else None, endpoint, task)


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


def _listen_to(
    address: StoreAddress,
    job: str,
    emit: Callable[[Happened], None],
    patience: Patience,
    resources: ExitStack,
    close: Callable[[], None],
    *,
    resumed: bool,
) -> None:
    """Listen until ``resources`` are given back; ``close`` then closes the job."""
    closing = threading.Event()
    arguments = (address, job, closing, emit, patience, -1 if resumed else 0)
    listener = threading.Thread(target=_listen, args=arguments, name="squall-reports")
    listener.start()
    # Given back in the reverse order; closing the job is what wakes the listener up.
    resources.callback(listener.join)
    resources.callback(close)
    resources.callback(closing.set)


def _telling(emit: Callable[[Happened], None]) -> Forgiveness:
    def tell(error: LostUpdatesError) -> None:
        emit(StoreRestored(error.incarnation, f"{error.where}: {error.what}"))

    return tell


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


def _listen(
    address: StoreAddress,
    job: str,
    closing: threading.Event,
    emit: Callable[[Happened], None],
    patience: Patience,
    after: int,
) -> None:
    """Bring reports from number ``after`` on as they come, on a connection of its own."""
    try:
        with connect(address.url, address.token, patience, _telling(emit)) as store:
            while not closing.is_set():
                reports = store.control.reports(job, after, _POLL_S)
                if reports:
                    emit(Arrived(reports))
                    after = max(0, after) + len(reports)
    except SquallError as error:
        if not closing.is_set():  # closing the job refuses its listener, as meant
            emit(Unheard(error))
