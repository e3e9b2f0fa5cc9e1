"""One simulated job: the shell around the real core, as :mod:`squall.driver.loop` is in real time."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from squall.driver import events
from squall.driver.arrivals import Arrivals, Arrived
from squall.driver.invocations import Invocations
from squall.driver.joblog import Entry, LogRecord
from squall.driver.keeping import FLUSH_S, belongs_in_log, reaches_out
from squall.driver.ledger import Ledger, PriceList, load_prices
from squall.driver.limits import Limits
from squall.driver.machine import JobMachine
from squall.driver.record import INTERVAL_S as RECORD_S
from squall.protocols import Endpoint
from squall.records import (
    GO_ON,
    LEAVE,
    HeldOut,
    OptimizerSpec,
    Plan,
    Shape,
    WorkerTask,
    epoch_key,
    turn_key,
)
from squall.simulation.clock import VirtualClock
from squall.simulation.invariants import Watch
from squall.simulation.platform import Seconds, SimulatedPlatform, VirtualContext
from squall.simulation.scenario import DriverDeath, Scenario
from squall.simulation.store import VirtualStore
from squall.simulation.worker import Worker

JOB = "simulated"

_LISTENING_S = 0.005
"""From a report to its arrival."""

_LONGEST_S = 3600.0
"""A job of a few seconds that takes so long in virtual time will never end."""


@dataclass(frozen=True)
class Simulation:
    """How a scenario went: the machine in the end, and what happened on the way there.

    ``n_events`` is how many the machine has heard, over all drivers; ``drivers`` how many there were.
    """

    machine: JobMachine
    store: VirtualStore
    platform: SimulatedPlatform
    time_s: float  # of the job, as its driver counts
    n_events: int
    drivers: int


def simulate(scenario: Scenario) -> Simulation:
    """Play a scenario to its end.

    Raises
    ------
    BrokenInvariantError
        If something happened that must not, or the job does not end.
    """
    return _World(scenario).run()


class _World:
    """Everything outside of the driver's process, and what outlives it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.chance = random.Random(scenario.seed)
        self.clock = VirtualClock()
        self.platform = SimulatedPlatform(self.clock, scenario.platform, self._work, self.chance)
        self.stores = {JOB: VirtualStore(JOB, scenario.workload.n_workers)}  # by leg
        self.kept: dict[str, VirtualStore] = {}  # the last checkpoint of each
        self.watch = Watch(scenario)
        self.log: list[bytes] = []
        self.recorded_s = 0.0  # how far the job was by its record
        self.n_events = 0
        self.deaths = sorted(scenario.deaths, key=lambda death: death.event)
        self.driver = _Driver(self)
        self.drivers = 1

    def run(self) -> Simulation:
        self.driver.begin()
        while not self.driver.over:
            alive = self.clock.step() and self.clock.now < _LONGEST_S
            self.watch.check(alive, "the job does not end")
        time_s, store = self.driver.now(), self.driver.store
        self.watch.at_end(self.driver.machine, store, time_s)
        self.driver.give_back()
        while self.platform.running:
            self.watch.check(self.clock.step(), "what still runs will never end")
        return Simulation(self.driver.machine, store, self.platform, time_s, self.n_events, self.drivers)

    def die(self, death: DriverDeath) -> None:
        """The driver's process ends here; another goes on."""
        self.driver.alive = False
        if not death.orphans:
            self.platform.end_all()
        if death.restores:
            for store in self.stores.values():
                store.lose()
            self.stores = {JOB: VirtualStore(JOB, self.scenario.workload.n_workers)}
            self.stores |= {name: kept.checkpoint() for name, kept in self.kept.items()}
        self.clock.after(death.silent_s, lambda: self._resume(restored=death.restores))

    def _resume(self, *, restored: bool) -> None:
        self.drivers += 1
        self.driver = _Driver(self, resumed=True)
        self.driver.begin(restored=restored)

    def _work(self, event: dict[str, object], context: VirtualContext) -> Seconds:
        return Worker(self.scenario.workload, self.stores[str(event["job"])], event, context).run()


class _Died(Exception):  # noqa: N818 (no error: it takes the driver out of whatever it was doing)
    """The driver's process has ended."""


class _Driver:
    """One process that drives the job; what it holds is gone when it dies."""

    def __init__(self, world: _World, *, resumed: bool = False) -> None:
        self._world, self._clock = world, world.clock
        scenario = world.scenario
        self.alive, self._resumed = True, resumed
        self.machine = _machine(scenario)
        self._unwritten: list[Entry] = []
        self._elapsed_s = self._replay() if resumed else 0.0
        self._born_s = self._flushed_s = self._kept_s = world.clock.now
        self._arrivals = Arrivals(self._progress)
        self._invocations = Invocations(self._later)
        self._after = -1 if resumed else 0
        self.store = world.stores[_name(self.machine.leg)]
        self._endpoint = self._prepare(self.machine.leg)
        self._listening = False

    @property
    def over(self) -> bool:
        """Whether the job has ended in this driver's hands."""
        return self.alive and self.machine.ended

    def now(self) -> float:
        """Seconds since the job began, as far as they were driven."""
        return self._elapsed_s + self._clock.now - self._born_s

    def begin(self, *, restored: bool = False) -> None:
        """As the real loop: the first event, then reports, ticks and ends of functions."""
        first: events.Event = events.Start(self._world.scenario.workload.rows)
        if self.machine.state != "preparing":
            positions = [self._progress(slot) for slot in range(self.store.n_slots)]
            first = events.Resumed(positions, restored)
        self._take(first)
        self._read_reports()
        self._clock.after(self._world.scenario.tick_s, self._tick)

    def give_back(self) -> None:
        """The job is over: nothing of it is to be left."""
        self._invocations.cancel()
        for store in self._world.stores.values():
            store.close()

    def _prepare(self, leg: events.Leg) -> Endpoint:
        scenario = self._world.scenario
        shape = Shape("simulated:work", leg.plan.memory_mb, scenario.platform.lifetime_s)
        return self._world.platform.prepare(shape)

    def _progress(self, slot: int) -> int:
        store = self.store
        return store.core.progress(store.job, slot) if slot < store.n_slots else 0

    # ------------------------------------------------------------------------- what happens

    def _take(self, arrived: events.Event | Arrived) -> None:
        try:
            for event in self._arrivals.take(arrived):
                if self.machine.ended:
                    break
                self._handle(event)
        except _Died:
            pass

    def _handle(self, event: events.Event) -> None:
        world, now = self._world, self.now()
        world.n_events += 1
        self._maybe_die("before")
        commands = self.machine.handle(event, now)
        if belongs_in_log(event, commands):
            self._unwritten.append(Entry(now, event))
        if reaches_out(commands):
            self._flush()
            self._maybe_die("logged")
        world.watch.after(event, commands, self.machine, self.store, now)
        for command in commands:
            self._execute(command)
            self._maybe_die("commanded")

    def _maybe_die(self, when: str) -> None:
        deaths = self._world.deaths
        if deaths and self._world.n_events >= deaths[0].event and deaths[0].when == when:
            self._world.die(deaths.pop(0))
            raise _Died

    def _later(self, event: events.Ended) -> None:
        if self.alive:
            self._take(event)

    def _tick(self) -> None:
        if not self.alive or self.machine.ended:
            return
        world = self._world
        if world.clock.now - self._flushed_s > FLUSH_S:
            self._flush()
        world.recorded_s = max(world.recorded_s, self.now() // RECORD_S * RECORD_S)
        if world.clock.now - self._kept_s >= world.scenario.checkpoint_s and _restores(world.scenario):
            self._kept_s, world.kept[self.store.job] = world.clock.now, self.store.checkpoint()
        self._take(events.Tick())
        stop_at = world.scenario.stop_at_s
        if stop_at is not None and world.clock.now >= stop_at and self.alive:
            self._take(events.Stop("stopped by the user"))
        self._clock.after(world.scenario.tick_s, self._tick)

    def _read_reports(self) -> None:
        """Take what is there in, ask for more, and wait for it."""
        self._listening = False
        if not self.alive or self.machine.ended:
            return
        store = self.store
        reports = store.core.reports(store.job, self._after)
        if reports:
            self._take(Arrived(reports))
            if not self.alive:
                return  # they are kept, for the next driver has not been told that this one has them
            self._after = max(0, self._after) + len(reports)
            store.core.reports(store.job, self._after)
        store.core.watch(store.job, lambda: self._hear(store))

    def _hear(self, store: VirtualStore) -> None:
        if store is self.store:
            self._clock.after(_LISTENING_S, self._read_reports)

    # --------------------------------------------------------------------------- what it does

    def _execute(self, command: events.Command) -> None:
        store = self.store
        match command:
            case events.Launch(slot, attempt, standby):
                self._launch(slot, attempt, standby=standby)
            case events.Release(slot, attempt):
                store.turns.add(turn_key(store.job, slot, attempt))
            case events.RequestStop():
                store.core.request_stop(store.job)
            case events.Evaluate(epoch):
                self._measure(epoch)
            case events.AskPlanner(epoch):
                self._errand(lambda: events.Planned(epoch, self._plan_after(epoch)))
            case events.Proceed(epoch):
                store.words[epoch_key(store.job, epoch)] = GO_ON
            case events.EndLeg(epoch):
                store.words[epoch_key(store.job, epoch)] = LEAVE
            case events.Arrange(leg):
                self._errand(lambda: self._arrange(leg))
            case events.Switch(leg):
                self._switch(leg)
            case events.Cancel(slot, attempt):
                self._invocations.cancel((slot, attempt))
            case events.CancelAll():
                self._invocations.cancel()

    def _launch(self, slot: int, attempt: int, *, standby: bool) -> None:
        end, held_from = self.machine.epochs_of_leg
        task = msgspec.structs.replace(
            _TASK,
            job=self.store.job,
            slot=slot,
            attempt=attempt,
            standby=standby,
            first_epoch=self.machine.leg.first_epoch,
            epochs=end,
            held_from=held_from,
        )
        self._invocations.launch(self._endpoint, task)

    def _errand(self, errand: Callable[[], events.Event]) -> None:
        def done() -> None:
            if self.alive and not self.machine.ended:
                self._take(errand())

        self._clock.after(self._world.scenario.thinking_s, done)

    def _plan_after(self, epoch: int) -> Plan:
        said = [change for change in self._world.scenario.changes or () if change.epoch == epoch]
        return Plan(said[0].workers, said[0].memory_mb) if said else self.machine.leg.plan

    def _arrange(self, leg: events.Leg) -> events.Event:
        name = _name(leg)
        self._world.stores[name] = opened = VirtualStore(name, leg.plan.workers)
        if _restores(self._world.scenario):
            self._world.kept[name] = opened.checkpoint()
        return events.Arranged(leg.number)

    def _switch(self, leg: events.Leg) -> None:
        self.store.close()
        self.store, self._endpoint = self._world.stores[_name(leg)], self._prepare(leg)
        self._after = 0
        self._read_reports()

    def _measure(self, epoch: int) -> None:
        loss = 0.5 / (1 + epoch) + self._world.chance.uniform(0, 0.3)

        def measured() -> None:
            if self.alive:
                self._take(events.Evaluated(epoch, HeldOut(loss, 0.8, 100)))

        seconds = self._world.scenario.workload.evaluate_s
        assert seconds is not None
        self._clock.after(seconds, measured)

    def _flush(self) -> None:
        if self._unwritten:
            record = LogRecord(self._world.drivers, "", self._unwritten)
            self._world.log.append(msgspec.msgpack.encode(record))
        self._unwritten, self._flushed_s = [], self._clock.now

    def _replay(self) -> float:
        elapsed_s = self._world.recorded_s
        for record in self._world.log:
            for entry in msgspec.msgpack.decode(record, type=LogRecord).entries:
                self.machine.handle(entry.event, entry.at)
                elapsed_s = max(elapsed_s, entry.at)
        return elapsed_s


_TASK = WorkerTask(
    job=JOB,
    slot=-1,
    attempt=-1,
    n_slots=1,
    storage="memory:",
    training="",
    store="",
    model={},
    table="",
    strategy={},
    batch_size=1,
    epochs=1,
    seed=0,
    optimizer=OptimizerSpec("sgd", 0.0),
)


def _name(leg: events.Leg) -> str:
    return f"{JOB}.{leg.number}" if leg.number else JOB


def _machine(scenario: Scenario) -> JobMachine:
    workload = scenario.workload
    return JobMachine(
        Plan(workload.n_workers, scenario.memory_mb),
        workload.epochs,
        Ledger(_prices(), scenario.memory_mb, 0.0),
        evaluates=workload.evaluate_s is not None,
        limits=Limits(
            deadline_s=scenario.deadline_s,
            budget_usd=scenario.budget_usd,
            max_restarts=scenario.max_restarts,
            throttled_s=scenario.throttled_s,
            silence_s=scenario.silence_s,
            ramp=scenario.ramp,
            replaces_stragglers=scenario.replaces_stragglers,
            patience=scenario.patience if workload.evaluate_s is not None else None,
        ),
        planned=scenario.changes is not None,
    )


@functools.cache
def _prices() -> PriceList:
    return load_prices("aws-lambda-us-east-1")


def _restores(scenario: Scenario) -> bool:
    return any(death.restores for death in scenario.deaths)
