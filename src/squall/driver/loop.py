"""The driver's loop: what happens becomes events, the machine's commands become deeds.

One call of :meth:`JobLoop.run` is the whole life of a job on the client's side: prepare the
data, open the store, launch workers, listen, and give everything back, whatever happened.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from contextlib import ExitStack, nullcontext
from typing import Any

from squall.data.objects import ObjectStore, default_storage
from squall.driver import events
from squall.driver.arrivals import Arrivals, Happened, Unheard
from squall.driver.callbacks import Callbacks
from squall.driver.causes import rounds_lost, store_lost
from squall.driver.claims import claim, remove
from squall.driver.description import describe
from squall.driver.errands import Errands
from squall.driver.execution import Execution
from squall.driver.invocations import Invocations
from squall.driver.joblog import JobLog, TakenOverError
from squall.driver.keeping import Keeper
from squall.driver.measuring import Measurer
from squall.driver.record import JobRecord, Recorder, record_of
from squall.driver.resuming import Resumption, kept_if_lost, machine_of
from squall.driver.session import HEARTBEAT_S, Session, open_session, warm_up
from squall.driver.spec import JobResult, JobSpec, Prepared, stopped_early
from squall.log import get_logger
from squall.records import Expected, Float32, HistoryRecord, JobStatus, TableContents
from squall.store.connection import REPLY_TIMEOUT_S

_log = get_logger(__name__)

TICK_S = 0.05
_END_S = 30.0


class JobLoop:
    """Drives one job; :meth:`run` belongs to one thread, the rest may be called from any.

    Parameters
    ----------
    spec : JobSpec
        The job.
    job : Job
        What callbacks are given.
    resumption : Resumption, optional
        What happened to it before, in the hands of another process.
    """

    def __init__(self, spec: JobSpec, job: Any = None, resumption: Resumption | None = None) -> None:
        self.spec, self._resumption = spec, resumption
        place = spec.run.storage
        self._objects = ObjectStore(default_storage() if place is None else place)
        self.id = uuid.uuid4().hex[:12] if resumption is None else resumption.id
        self._inbox: queue.SimpleQueue[events.Event | Happened | BaseException] = queue.SimpleQueue()
        self._leaving = threading.Event()  # what still runs in other threads is not wanted any more
        self._left = False  # the job is another process's now, or one's that is yet to come
        self._began = time.monotonic() - (0.0 if resumption is None else resumption.elapsed_s)
        self._ended_s: float | None = None
        self._stop_reason = ""
        self._invocations = Invocations(self._inbox.put)
        self._lock = threading.Lock()  # the machine is read by other threads
        self._machine = machine_of(spec, resumption)
        self.callbacks = Callbacks(spec.callbacks, job, self._inbox.put)

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
        return self._invocations.logs()

    @property
    def storage(self) -> str:
        """URL of the object store that keeps the job."""
        return self._objects.url

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
        objects = self._objects
        recorder = Recorder(objects)
        try:
            with ExitStack() as resources:
                return self._run(objects, recorder, resources)
        except BaseException as error:
            with self._lock:
                self._machine.abandon(error)
            raise
        finally:
            if not self._left:
                recorder.write(self._record())
            recorder.forget_old()

    def _run(self, objects: ObjectStore, recorder: Recorder, resources: ExitStack) -> JobResult:
        recorder.write(self._record())
        resources.enter_context(self.callbacks)
        warm = warm_up(self.spec.run, self._machine.leg.plan.memory_mb, self._patience, resources)
        resources.callback(self._forget, objects)
        prepared = self._prepare(objects)
        with nullcontext() if self._resumption is None else kept_if_lost(objects, self.id, self._leave):
            session = open_session(
                self.id,
                self._machine.leg,
                self.spec,
                prepared,
                objects,
                warm,
                self._inbox.put,
                self._patience,
                resources,
                resumed=self._resumption is not None,
                left=lambda: self._left,
            )
        self._project(prepared, session, objects)
        log = JobLog(objects, self.id) if self._resumption is None else self._resumption.log
        keeper = Keeper(objects, self.id, log, recorder, session.checkpoint, self.spec.run.checkpoint_s)
        resources.callback(keeper.close, self.logs)
        measurer = Measurer(self.spec.evaluate, self._inbox.put, objects, self.id)
        resources.callback(measurer.close)
        resources.callback(self._invocations.end)
        resources.callback(measurer.unwanted)
        errands = Errands(self._inbox.put, self._patience)
        resources.callback(errands.close)
        resources.callback(self._leaving.set)
        execution = Execution(
            self.spec, self._machine, session, self._invocations, measurer, errands, prepared.rows
        )
        try:
            weights, contents = self._drive(session, prepared.rows, keeper, measurer, execution)
        except TakenOverError:
            self._left = True
            raise
        self._machine.ledger.client_objects(*session.requests())
        return self._result(prepared, weights, contents)

    def _leave(self) -> None:
        self._left = True

    def _project(self, prepared: Prepared, session: Session, objects: ObjectStore) -> None:
        """Expect what the job will take; refuse it before anything is launched if that is beyond hope."""
        if self.spec.project is None:
            return
        self._machine.ledger.client_objects(*session.requests())
        spent = Expected(self._now(), self._machine.ledger.bill(self._now()).total_usd)
        expected, told = self.spec.project(prepared, session, objects, spent)
        with self._lock:
            self._machine.expect(expected, told)

    def _prepare(self, objects: ObjectStore) -> Prepared:
        """Data and description, which are there already if the job is resumed."""
        folder = f"jobs/{self.id}"
        claim(objects, folder)
        prepared = self.spec.prepare(objects, folder, self._check_stopped)
        self._machine.ledger.client_objects(objects.gets, objects.puts)
        self._machine.ledger.add(*prepared.spent)
        if self._resumption is None:
            self._check_stopped()
            describe(objects, self.id, self.spec, prepared, objects.gets, objects.puts)
        return prepared

    def _forget(self, objects: ObjectStore) -> None:
        if not self._left:
            remove(objects, f"jobs/{self.id}")

    def _check_stopped(self) -> None:
        """(during preparation) Raise if the job is to end before it has begun."""
        self._handle(events.Tick(), self._now())
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

    def _drive(
        self, session: Session, rows: int, keeper: Keeper, measurer: Measurer, execution: Execution
    ) -> tuple[Float32, TableContents | None]:
        machine = self._machine
        arrivals = Arrivals(session.progress)
        self._inbox.put(self._first_event(session, rows))
        ticked = self._now()
        while not machine.ended:
            arrived = self._next_events(session, arrivals)
            if self._now() - ticked > TICK_S:  # also when reports never cease to arrive
                ticked = self._now()
                self._machine.ledger.client_objects(*session.requests())
                arrived.append(events.Tick())
                if keeper.tick(self._record, self.logs):
                    arrived.append(events.Stop("stopped from elsewhere"))
            for event in arrived:
                now = self._now()
                commands = self._handle(event, now)
                keeper.note(now, event, commands)
                if self.spec.patience is not None and self._is_best(event):
                    measurer.keep_best()
                for command in commands:
                    _log.debug("job %s: %s: %s", self.id, type(event).__name__, command)
                    execution.carry_out(command, now)
            self.callbacks.note(machine.history, machine.n_settled)
        if machine.error is not None:
            raise machine.error
        weights, contents = session.trained() if machine.trained_rows else (None, None)
        if weights is None:
            raise stopped_early("workers had made a model", machine.reason)
        best = weights if self.spec.patience is None else measurer.best(weights)
        return best, contents if best is weights else None  # the state is that of the last weights

    def _first_event(self, session: Session, rows: int) -> events.Event:
        if self._machine.state == "preparing":
            return events.Start(rows)
        positions = [session.progress(slot) for slot in range(self._machine.leg.plan.workers)]
        return events.Resumed(positions, session.restored)

    def _handle(self, event: events.Event, now: float) -> list[events.Command]:
        with self._lock:
            return self._machine.handle(event, now)

    def _is_best(self, event: events.Event) -> bool:
        best = self._machine.best
        return isinstance(event, events.Evaluated) and best == (event.held_out.loss, event.epoch)

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

    # ----------------------------------------------------------------------------------- the end

    def _record(self) -> JobRecord:
        with self._lock:
            return record_of(self.id, self._machine, self._now(), self.spec.tags)

    def _result(self, prepared: Prepared, weights: Float32, contents: TableContents | None) -> JobResult:
        now = self._ended_s = self._now()
        return JobResult(
            weights=weights,
            prepared=prepared,
            history=self.history(),
            bill=self._machine.ledger.bill(now),
            status=self._machine.status(now),
            contents=contents,
        )
