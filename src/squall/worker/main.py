"""The entry point inside a function: from an event to a trained share."""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec

from squall.data.iterator import MinibatchStream, block_rows, prefetch_depth
from squall.data.objects import ObjectStore
from squall.data.training import load_training
from squall.errors import LostUpdatesError, StaleAttemptError
from squall.models import model_from_dict
from squall.protocols import FunctionContext, Remembering
from squall.records import WorkerTask, turn_key
from squall.store import Store, connect
from squall.worker.gate import EpochGate
from squall.worker.loop import Ended, TimeGuard, reason_to_end, train
from squall.worker.reach import check_reachable
from squall.worker.reporter import Reporter
from squall.worker.strategies import strategy_from_dict

_POLL_S = 0.2
_LEAST_LEFT_S = 0.5


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
    model = model_from_dict(task.model)
    objects = ObjectStore(task.storage)
    manifest = load_training(objects, task.training)
    with connect(task.store, task.token) as store:
        if task.standby:
            early = _await_turn(task, store, context)
            if early is not None:
                return early
        registration = store.control.register(task.job, task.slot, task.attempt, os.getpid())
        print(
            f"slot {task.slot} attempt {task.attempt}: starts at minibatch {registration.minibatches} "
            f"in process {os.getpid()}",
            flush=True,
        )
        reporter = Reporter(task, store.control, context, objects, started)
        guard = TimeGuard(context, reporter.setup_s)

        def interrupted() -> bool:
            reporter.beat()
            return reason_to_end(task, store.control, guard) is not None

        chosen = strategy_from_dict(task.strategy)
        if isinstance(model, Remembering):
            model = model.at_work(task.job, store.blobs, task.n_slots if chosen.synchronous else 1)
        strategy = chosen.bind(task, model, store, interrupted)
        optimizer = store.tables.describe(task.table).optimizer
        with MinibatchStream(
            objects,
            manifest,
            batch_size=task.batch_size,
            block_rows=block_rows(manifest, task.n_slots, task.batch_size),
            seed=task.seed,
            n_slots=task.n_slots,
            slot=task.slot,
            epochs=task.epochs,
            start_minibatch=registration.minibatches,
            first_epoch=task.first_epoch,
            depth=prefetch_depth(manifest, context.memory_mb << 20),
        ) as stream:
            gate = EpochGate(task, store.blobs, interrupted)
            ended = train(
                task, guard, registration, store.control, gate, strategy, stream, reporter, optimizer
            )
            if ended.end == "handover":
                store.blobs.put(turn_key(task.job, task.slot, task.attempt + 1), b"go")
        done = int(store.control.progress(task.job, task.slot)[0])
        print(f"slot {task.slot} attempt {task.attempt}: {ended.end} after minibatch {done}")
    return ended


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
