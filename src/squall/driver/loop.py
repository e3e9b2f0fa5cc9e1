"""The driver's loop: what happens becomes events, the machine's commands become deeds.

One call of :meth:`JobLoop.run` is the whole life of a job on the client's side: prepare the
data, open the store, launch workers, listen, and give everything back, whatever happened.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from contextlib import ExitStack

import msgspec
import numpy as np

from squall.data.objects import ObjectStore, default_storage
from squall.driver import events
from squall.driver.arrivals import Arrivals, Happened, Unheard
from squall.driver.causes import rounds_lost, store_lost
from squall.driver.claims import claim
from squall.driver.ledger import Ledger, load_prices
from squall.driver.machine import JobMachine, Limits
from squall.driver.record import JobRecord, Recorder, record_of
from squall.driver.session import HEARTBEAT_S, Session, open_session, warm_up
from squall.driver.spec import JobResult, JobSpec, Prepared, StoppedError, stopped_early
from squall.log import get_logger
from squall.protocols import Endpoint, Invocation
from squall.records import Float32, HistoryRecord, JobStatus, Outcome, WorkerTask, turn_key
from squall.store.connection import REPLY_TIMEOUT_S

_log = get_logger(__name__)

TICK_S = 0.05
MAX_RESTARTS = 3  # deaths of a worker in a row, without progress in between
_END_S = 30.0


class JobLoop:
    """Drives one job; :meth:`run` belongs to one thread, the rest may be called from any.

    Parameters
    ----------
    spec : JobSpec
        The job.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.id = uuid.uuid4().hex[:12]
        self._inbox: queue.SimpleQueue[events.Event | Happened | BaseException] = queue.SimpleQueue()
        self._leaving = threading.Event()  # what still runs in other threads is not wanted any more
        self._began = time.monotonic()
        self._ended_s: float | None = None
        self._stop_reason = ""
        self._measuring: tuple[int, Float32] = (-1, np.empty((0, 1), dtype=np.float32))
        self._best: Float32 | None = None  # weights at the lowest held-out loss
        self._invocations: dict[tuple[int, int], Invocation] = {}
        self._logs: dict[tuple[int, int], str] = {}  # of those that have ended
        self._lock = threading.Lock()  # the machine is read by other threads
        self._machine = JobMachine(
            spec.n_workers,
            spec.epochs,
            Ledger(load_prices(spec.run.prices), spec.run.memory_mb, 0.0),
            evaluates=spec.evaluate is not None,
            limits=Limits(
                deadline_s=spec.run.deadline_s,
                budget_usd=spec.run.budget_usd,
                target_loss=spec.target_loss,
                patience=spec.patience,
                max_restarts=MAX_RESTARTS,
            ),
        )

    # ------------------------------------------------------------------- asked by other threads

    def stop(self, reason: str) -> None:
        """Ask for an orderly end that keeps the model."""
        self._stop_reason = self._stop_reason or reason
        self._inbox.put(events.Stop(reason))

    def abort(self, error: BaseException) -> None:
        """End at once: kill the workers, give everything back, raise ``error``."""
        self._stop_reason = self._stop_reason or "aborted"
        self._inbox.put(error)

    def status(self) -> JobStatus:
        """The job at this moment."""
        with self._lock:
            return self._machine.status(self._now())

    def history(self) -> list[HistoryRecord]:
        """Epochs so far."""
        with self._lock:
            return list(self._machine.history)

    def logs(self) -> dict[tuple[int, int], str]:
        """What each attempt has written so far, by (slot, attempt)."""
        running = {key: invocation.logs() for key, invocation in list(self._invocations.items())}
        return {**running, **self._logs}

    def _now(self) -> float:
        """Seconds since the job began, until it ended."""
        return time.monotonic() - self._began if self._ended_s is None else self._ended_s

    # --------------------------------------------------------------------------- the job's life

    def run(self) -> JobResult:
        """Prepare, train, give everything back.

        Raises
        ------
        SquallError
            If the job failed, or was stopped before there was a model.
        """
        storage = self.spec.run.storage
        objects = ObjectStore(default_storage() if storage is None else storage)
        recorder = Recorder(objects)
        try:
            with ExitStack() as resources:
                return self._run(objects, recorder, resources)
        except BaseException as error:
            with self._lock:
                self._machine.abandon(error)
            raise
        finally:
            recorder.write(self._record())
            recorder.forget_old()

    def _run(self, objects: ObjectStore, recorder: Recorder, resources: ExitStack) -> JobResult:
        warm = warm_up(self.spec.run, self._patience, resources)
        folder = f"jobs/{self.id}"
        resources.callback(objects.delete_prefix, folder)
        claim(objects, folder)
        prepared = self.spec.prepare(objects, folder, self._check_stopped)
        read, written = objects.gets, objects.puts
        self._machine.ledger.objects(read, written)
        self._check_stopped()
        session = open_session(
            self.id, self.spec, prepared, objects, warm, self._inbox.put, self._patience, resources
        )
        resources.callback(self._end_invocations)
        resources.callback(self._leaving.set)
        weights = self._drive(session, prepared, recorder)
        self._machine.ledger.objects(objects.gets - read, objects.puts - written)  # to evaluate
        return self._result(prepared, weights)

    def _check_stopped(self) -> None:
        """(during preparation) Raise if the job is to end before it has begun."""
        self._handle(events.Tick())
        reason = self._stop_reason or self._machine.reason
        if reason:
            raise stopped_early("training began", reason)

    def _patience(self) -> float:
        """Seconds to wait for an answer: no call may hold the job up for long after its deadline."""
        if self._leaving.is_set() or self._machine.is_ending:
            return HEARTBEAT_S
        deadline_s = self.spec.run.deadline_s
        left = REPLY_TIMEOUT_S if deadline_s is None else deadline_s - self._now()
        return min(REPLY_TIMEOUT_S, max(HEARTBEAT_S, left))

    # --------------------------------------------------------------------------------- the loop

    def _drive(self, session: Session, prepared: Prepared, recorder: Recorder) -> Float32:
        machine, control = self._machine, session.store.control
        arrivals = Arrivals(lambda slot: int(control.progress(self.id, slot)[0]))
        self._inbox.put(events.Start(prepared.rows))
        ticked = self._now()
        while not machine.ended:
            arrived = self._next_events(session, arrivals)
            if self._now() - ticked > TICK_S:  # also when reports never cease to arrive
                ticked = self._now()
                arrived.append(events.Tick())
                if recorder.due:
                    recorder.write(self._record())
            for event in arrived:
                for command in self._handle(event):
                    _log.debug("job %s: %s: %s", self.id, type(event).__name__, command)
                    self._execute(command, session)
        if machine.error is not None:
            raise machine.error
        if not machine.trained_rows:
            raise stopped_early("any row was trained on", machine.reason)
        if self.spec.patience is not None and self._best is not None:
            return self._best
        return session.store.tables.pull(session.task.table)

    def _handle(self, event: events.Event) -> list[events.Command]:
        with self._lock:
            commands = self._machine.handle(event, self._now())
        if isinstance(event, events.Evaluated) and self._machine.best == (event.held_out.loss, event.epoch):
            self._best = self._measuring[1]
        return commands

    def _next_events(self, session: Session, arrivals: Arrivals) -> list[events.Event]:
        try:
            event = self._inbox.get(timeout=TICK_S)
        except queue.Empty:
            return []
        if isinstance(event, BaseException):
            raise event
        if isinstance(event, Unheard):
            if not self._machine.is_ending:
                raise store_lost(str(event.error).partition("\n")[0]) from event.error
            return []  # the rest of the reports is lost, the model is not
        if isinstance(event, events.StoreRestored):
            _log.warning("job %s: %s", self.id, event.told)
            if session.rounds_split:
                raise rounds_lost(event.told)
        return arrivals.take(event)

    def _execute(self, command: events.Command, session: Session) -> None:
        match command:
            case events.Launch(slot, attempt, standby):
                task = msgspec.structs.replace(session.task, slot=slot, attempt=attempt, standby=standby)
                self._launch(session.endpoint, task)
            case events.Release(slot, attempt):
                session.store.blobs.put(turn_key(self.id, slot, attempt), b"go")
            case events.RequestStop():
                session.store.control.request_stop(self.id)
            case events.Evaluate(epoch):
                weights = session.store.tables.pull(session.task.table)
                self._measuring = (epoch, weights)
                session.evaluator.submit(self._evaluate, epoch, weights)
            case events.CancelAll():
                self._cancel_running()

    # ------------------------------------------------------------ deeds, on threads of their own

    def _launch(self, endpoint: Endpoint, task: WorkerTask) -> None:
        key = (task.slot, task.attempt)
        invocation = endpoint.invoke(msgspec.to_builtins(task))
        self._invocations[key] = invocation

        def ended(outcome: Outcome) -> None:
            self._logs[key] = invocation.logs()
            self._inbox.put(events.Ended(*key, outcome, 0, self._logs[key]))

        invocation.add_done_callback(ended)

    def _evaluate(self, epoch: int, weights: Float32) -> None:
        assert self.spec.evaluate is not None
        try:
            self._inbox.put(events.Evaluated(epoch, self.spec.evaluate(weights, self._check_wanted)))
        except Exception as error:  # noqa: BLE001 (it ends the job: the loop raises it)
            self._inbox.put(error)

    def _check_wanted(self) -> None:
        if self._leaving.is_set():
            raise StoppedError("the job has ended")

    def _cancel_running(self) -> None:
        for key, invocation in self._invocations.items():
            if key not in self._logs:
                invocation.cancel()

    def _end_invocations(self) -> None:
        """Nothing goes on running, whatever ended the job."""
        self._cancel_running()
        give_up = time.monotonic() + _END_S
        for invocation in self._invocations.values():
            try:
                invocation.outcome(timeout=max(0.0, give_up - time.monotonic()))
            except TimeoutError:  # (a cloud's function may be beyond reach; its own time limit ends it)
                _log.warning("invocation %s of job %s has not ended yet", invocation.id, self.id)

    # ----------------------------------------------------------------------------------- the end

    def _record(self) -> JobRecord:
        with self._lock:
            return record_of(self.id, self._machine, self._now())

    def _result(self, prepared: Prepared, weights: Float32) -> JobResult:
        now = self._ended_s = self._now()
        return JobResult(
            weights=weights,
            prepared=prepared,
            history=self.history(),
            bill=self._machine.ledger.bill(now),
            status=self._machine.status(now),
        )
