"""The entry point inside a function: from an event to a trained share."""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec

from squall.data.iterator import Deal, MinibatchStream, Visits, prefetch_depth
from squall.data.objects import ObjectStore
from squall.data.training import load_training
from squall.data.whole import WholeShare
from squall.errors import LostUpdatesError, StaleAttemptError
from squall.heap import keep_freed
from squall.models import model_from_dict
from squall.protocols import FunctionContext, Remembering, Store
from squall.records import WorkerTask, turn_key
from squall.store import connect
from squall.worker.gate import EpochGate
from squall.worker.loop import Ended, TimeGuard, reason_to_end, train
from squall.worker.reach import check_reachable
from squall.worker.reporter import Reporter
from squall.worker.strategies import strategy_from_dict
from squall.worker.updates import HOLD_S

_POLL_S = 0.2
_LEAST_LEFT_S = 0.5
_REMEMBERED, _FREED = (
    8,
    16,
)  # parts of its memory that a function takes for a model's memory, for freed memory


def handle(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
    """Train one slot's share of a job.

    Parameters
    ----------
    event : dict
        A :class:`squall.records.WorkerTask` as plain data.
    context : FunctionContext
        The platform's facts about this invocation.

    Returns
    -------
    dict
        An :class:`~squall.worker.loop.Ended` as plain data: why it ended, how many reports were sent.
    """
    started = time.monotonic()
    task = msgspec.convert(event, WorkerTask)
    check_reachable(task)
    try:
        return _work(task, context, started)._asdict()
    except StaleAttemptError as error:  # another delivery of this event, or a successor, is at work
        print(f"slot {task.slot} attempt {task.attempt}: {error}")
        return Ended("superseded", 0)._asdict()
    except LostUpdatesError as error:
        if not error.restored:
            raise
        # The successor makes again what is lost, from where the restored store says the slot is.
        print(f"slot {task.slot} attempt {task.attempt}: {error}")
        return Ended("rolled back", 0)._asdict()


def _work(task: WorkerTask, context: FunctionContext, started: float) -> Ended:
    memory = context.memory_mb << 20
    keep_freed(memory // _FREED)
    model = model_from_dict(task.model)
    objects = ObjectStore(task.storage)
    manifest = load_training(objects, task.training)
    with connect(task.store, task.token) as store:
        if task.standby:
            early = _await_turn(task, store, context)
            if early is not None:
                return early
        registration = store.control.register(task.job, task.slot, task.attempt, os.getpid())
        reporter = Reporter(task, store.control, context, objects, store, started)
        guard = TimeGuard(context, reporter.setup_s)

        def interrupted() -> bool:
            reporter.beat()
            return reason_to_end(task, store.control, guard, HOLD_S) is not None

        settings = strategy_from_dict(task.strategy)
        if isinstance(model, Remembering):
            mean_of = task.n_slots if settings.synchronous else 1
            model = model.at_work(task.job, store.blobs, mean_of, memory // _REMEMBERED)
        deal = Deal.of(manifest, task.n_slots, task.batch_size, task.seed)
        minibatches = deal.minibatches if not settings.whole_shares else deal.has_rows
        strategy = settings.bind(task, model, store, interrupted, minibatches)
        done = strategy.resume(registration)
        print(
            f"slot {task.slot} attempt {task.attempt}: starts at minibatch {done} in process {os.getpid()}",
            flush=True,
        )
        with _visits(task, objects, deal, done, context, whole=settings.whole_shares) as visits:
            gate = EpochGate(task, store.blobs, interrupted)
            ended = train(task, guard, done, store.control, gate, strategy, visits, reporter)
            if ended.end == "handover":
                store.blobs.put(turn_key(task.job, task.slot, task.attempt + 1), b"go")
        done = int(store.control.progress(task.job, task.slot)[0])
        print(f"slot {task.slot} attempt {task.attempt}: {ended.end} after minibatch {done}")
    return ended


def _visits(
    task: WorkerTask, objects: ObjectStore, deal: Deal, done: int, context: FunctionContext, *, whole: bool
) -> Visits:
    """What the slot has left to visit."""
    memory = context.memory_mb << 20
    if whole:
        return WholeShare(objects, deal, task.slot, task.first_epoch + done, task.epochs, memory)
    return MinibatchStream(
        objects,
        deal.manifest,
        batch_size=task.batch_size,
        block_rows=deal.block_rows,
        seed=task.seed,
        n_slots=task.n_slots,
        slot=task.slot,
        epochs=task.epochs,
        start_minibatch=done,
        first_epoch=task.first_epoch,
        depth=prefetch_depth(deal.manifest, memory),
    )


def _await_turn(task: WorkerTask, store: Store, context: FunctionContext) -> Ended | None:
    """Wait, ready to go, until the predecessor has handed the slot over; None when it has."""
    key = turn_key(task.job, task.slot, task.attempt)
    print(f"slot {task.slot} attempt {task.attempt}: stands by in process {os.getpid()}", flush=True)
    while store.blobs.wait(key, _POLL_S) is None:
        if store.control.stop_requested(task.job):
            return Ended("stopped", 0)
        if context.remaining_s() < _LEAST_LEFT_S:
            return Ended("handover", 0)
    return None
