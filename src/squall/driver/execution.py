"""The machine's commands, carried out."""

from __future__ import annotations

import msgspec

from squall.config import MAX_WORKERS, MIN_MEMORY_MB
from squall.driver import events
from squall.driver.errands import Errands
from squall.driver.events import Leg
from squall.driver.invocations import Invocations
from squall.driver.machine import JobMachine
from squall.driver.measuring import Measurer
from squall.driver.session import Session
from squall.driver.spec import JobSpec, stopped_early
from squall.errors import SettingError
from squall.records import GO_ON, LEAVE, Plan, Situation, epoch_key, turn_key


class Execution:
    """Carries commands out; its methods belong to the thread of the job's loop.

    Parameters
    ----------
    spec : JobSpec
        The job.
    machine : JobMachine
        Whose commands; it is asked about its legs.
    session, invocations, measurer, errands
        What it takes.
    rows : int
        Of the training data.
    """

    def __init__(
        self,
        spec: JobSpec,
        machine: JobMachine,
        session: Session,
        invocations: Invocations,
        measurer: Measurer,
        errands: Errands,
        rows: int,
    ) -> None:
        self._spec, self._machine, self._session, self._rows = spec, machine, session, rows
        self._invocations, self._measurer, self._errands = invocations, measurer, errands

    def carry_out(self, command: events.Command, now: float) -> None:
        """Do it; what takes long is only begun."""
        session = self._session
        job, store = session.present.job, session.store
        match command:
            case events.Launch(slot, attempt, standby):
                self._launch(slot, attempt, standby=standby)
            case events.Release(slot, attempt):
                store.blobs.put(turn_key(job, slot, attempt), b"go")
            case events.RequestStop():
                store.control.request_stop(job)
            case events.Evaluate(epoch):
                weights = session.weights()
                if weights is None:  # a store restored from before there was one, and no worker goes on
                    raise stopped_early("workers had made a model", self._machine.reason)
                self._measurer.start(epoch, weights)
            case events.Cancel(slot, attempt):
                self._invocations.cancel((slot, attempt))
            case events.CancelAll():
                self._invocations.cancel()
            case events.AskPlanner():
                self._ask(self._situation(now))
            case events.Proceed(epoch):
                store.blobs.put(epoch_key(job, epoch), GO_ON)
            case events.EndLeg(epoch):
                store.blobs.put(epoch_key(job, epoch), LEAVE)
            case events.Arrange(leg):
                self._errands.run(lambda: self._arrange(leg))
            case events.Switch(leg):
                session.switch(leg)

    def _launch(self, slot: int, attempt: int, *, standby: bool) -> None:
        end, held_from = self._machine.epochs_of_leg
        present = self._session.present
        task = msgspec.structs.replace(
            present.task, slot=slot, attempt=attempt, standby=standby, epochs=end, held_from=held_from
        )
        self._invocations.launch(present.endpoint, task)

    def _ask(self, situation: Situation) -> None:
        planner = self._spec.run.planner
        assert planner is not None
        self._errands.run(lambda: events.Planned(situation.epoch, _checked(planner.next_plan(situation))))

    def _situation(self, now: float) -> Situation:
        machine, spec = self._machine, self._spec
        return Situation(
            plan=machine.leg.plan,
            epoch=len(machine.history),
            epochs=spec.epochs,
            rows=self._rows,
            history=list(machine.history),
            time_s=now,
            cost_usd=machine.ledger.bill(now).total_usd,
            deadline_s=spec.run.deadline_s,
            budget_usd=spec.run.budget_usd,
        )

    def _arrange(self, leg: Leg) -> events.Event:
        self._session.arrange(leg)
        return events.Arranged(leg.number)


def _checked(plan: Plan) -> Plan:
    if isinstance(plan, Plan) and 1 <= plan.workers <= MAX_WORKERS and plan.memory_mb >= MIN_MEMORY_MB:
        return plan
    raise SettingError(
        f"the planner said {plan!r}, which is no plan",
        fix=f"let next_plan return a squall.records.Plan of 1 to {MAX_WORKERS:,} workers with at least "
        f"{MIN_MEMORY_MB} MB each",
    )
