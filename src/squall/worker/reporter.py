"""What a worker tells its driver: rows, loss and where the time went, a few times a second."""

from __future__ import annotations

import resource
import time

from squall.data.iterator import BlockVisit, Visits
from squall.data.objects import ObjectStore
from squall.protocols import Control, FunctionContext, Store
from squall.records import Phases, Report, SolverRound, Steps, WorkerTask
from squall.store import requests_of

INTERVAL_S = 0.2
ALL_A_SECOND = 100.0
"""A worker reports so often while it trains, but all together not more than so many times a second."""

BEAT_S = 2.0
"""How often a worker that waits says that it is alive."""


def interval_s(n_slots: int) -> float:
    """Seconds between two reports of one of so many workers."""
    return min(BEAT_S, max(INTERVAL_S, n_slots / ALL_A_SECOND))


def private_memory() -> int:
    """Bytes of private (anonymous) memory of this process now.

    Mapped partitions and shared tables are not the worker's own, so they do not count.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 (hot path)
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) << 10
    except OSError:  # not Linux: the kernel's high-water mark is the best there is
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Reporter:
    """Collects what was done since the last report, and sends it when due.

    Parameters
    ----------
    task : WorkerTask
        Whose work it is.
    control : Control
        Where reports go.
    context : FunctionContext
        For the cold start, which counts in the first report.
    objects : ObjectStore
        Counts the worker's requests.
    store : Store
        Its requests are counted, too, where it is an object store.
    started : float
        When the handler was called, by the monotonic clock.
    """

    def __init__(
        self,
        task: WorkerTask,
        control: Control,
        context: FunctionContext,
        objects: ObjectStore,
        store: Store,
        started: float,
    ) -> None:
        self._task, self._control, self._objects, self._store = task, control, objects, store
        self._cold_start_s, self._started = context.cold_start_s, started
        self._working_since = time.monotonic()
        self._interval_s = interval_s(task.n_slots)
        self._announced = False
        self._phases = Phases(cold_start=context.cold_start_s)
        self._epoch = task.first_epoch
        self._epochs_done = 0  # by this attempt's own word
        self.sent = 0
        self._rows = 0
        self._solver: SolverRound | None = None
        self._loss_sum = self._weight_sum = 0.0
        self._last = time.monotonic()
        self._cpu = time.process_time()
        self._fetched: tuple[float, float, int] = (0.0, 0.0, 0)
        self._requests = 0, 0

    def add(self, epoch: int, steps: Steps, seconds: float) -> None:
        """Note rows trained, their progressive loss, and what the ``seconds`` were spent on."""
        self._epoch = epoch
        self._rows += steps.rows
        self._loss_sum += steps.loss_sum
        self._weight_sum += steps.weight_sum
        self._solver = steps.solver or self._solver
        phases = self._phases
        phases.pull += steps.pull_s
        phases.push += steps.push_s
        phases.wait += steps.wait_s
        phases.compute += max(0.0, seconds - steps.pull_s - steps.push_s - steps.wait_s)
        phases.bytes_in += steps.bytes_in
        phases.bytes_out += steps.bytes_out

    def await_epoch(self, epoch: int) -> None:
        """Make sure that the driver knows that all before an epoch is done, before waiting for its word.

        A predecessor may have said so to a driver that is no more.
        """
        self._epoch = epoch - 1
        if self._epochs_done < epoch:
            self._epochs_done = epoch
            self._send(epoch_done=True, ending=False)

    def waited(self, seconds: float) -> None:
        """Note time that went by between two epochs."""
        self._phases.wait += seconds

    @property
    def setup_s(self) -> float:
        """Seconds from the start of the environment to the first minibatch."""
        return self._cold_start_s + self._working_since - self._started

    def after_block(self, visit: BlockVisit, visits: Visits, *, ending: bool) -> None:
        """Account for reading, and send a report if one is due, the epoch is over, or the end near."""
        self._account_fetch(visits)
        announce = ending and not self._announced
        if visit.last_of_epoch or announce or time.monotonic() - self._last > self._interval_s:
            self._epoch = visit.epoch
            self.flush(epoch_done=visit.last_of_epoch, ending=announce)
            self._epochs_done = visit.epoch + visit.last_of_epoch
            self._announced = self._announced or announce
        if not self._rows:
            self.beat()

    def beat(self) -> None:
        """Nothing else is to be told: say at once that it has started, then now and then that it is alive."""
        if not self.sent or time.monotonic() - self._last > BEAT_S:
            self._send(epoch_done=False, ending=False)

    def _account_fetch(self, visits: Visits) -> None:
        seen = visits.fetch_s, visits.wait_s, visits.bytes_in
        fetch, wait, size = (now - before for now, before in zip(seen, self._fetched, strict=True))
        self._fetched = seen
        self._phases.fetch += fetch
        self._phases.wait += wait
        self._phases.bytes_in += int(size)

    def _account_requests(self) -> None:
        gets, puts = requests_of(self._store)
        seen = gets + self._objects.gets, puts + self._objects.puts
        self._phases.gets += seen[0] - self._requests[0]
        self._phases.puts += seen[1] - self._requests[1]
        self._requests = seen

    def flush(self, *, epoch_done: bool, ending: bool = False) -> None:
        """Send what there is."""
        if self._rows or epoch_done or ending:
            self._send(epoch_done=epoch_done, ending=ending)

    def _send(self, *, epoch_done: bool, ending: bool) -> None:
        self._account_requests()
        cpu = time.process_time()
        self._phases.cpu += cpu - self._cpu
        self._phases.peak_rss = max(self._phases.peak_rss, private_memory())
        report = Report(
            slot=self._task.slot,
            attempt=self._task.attempt,
            epoch=self._epoch,
            rows=self._rows,
            loss_sum=self._loss_sum,
            weight_sum=self._weight_sum,
            epoch_done=epoch_done,
            ending=ending,
            working_s=time.monotonic() - self._working_since,
            billed_s=self._cold_start_s + time.monotonic() - self._started,
            phases=self._phases,
            number=self.sent + 1,
            solver=self._solver,
        )
        self._control.report(self._task.job, report)
        self.sent += 1
        self._phases, self._cpu, self._last = Phases(), cpu, time.monotonic()
        self._rows, self._loss_sum, self._weight_sum, self._solver = 0, 0.0, 0.0, None
