"""Futures of calls: those of `concurrent.futures`, which can also be cancelled while they run."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from squall.config import Problems
from squall.log import get_logger
from squall.records import Bill
from squall.terminal import REFRESH_S, end_line, rewrite, someone_looks
from squall.units import format_count, format_duration, format_money
from squall.workflows.machine import MapStatus

if TYPE_CHECKING:
    from squall.workflows.job import MapJob

T = TypeVar("T")

_log = get_logger(__name__)
_cancelling = threading.RLock()  # a callback may cancel others


class CallFuture(concurrent.futures.Future[T]):
    """The result of one call; works with everything that takes `concurrent.futures.Future`.

    Made by `squall.map`, `squall.call` and :class:`squall.Executor`.  Callbacks are called from the
    job's own thread and must not wait for another future of it.

    Parameters
    ----------
    job : MapJob
        Whose call it is.
    item : int
        Its number there.
    whole : bool
        Whether the job is for this call alone, so that cancelling it ends the job.
    """

    def __init__(self, job: MapJob, item: int, *, whole: bool = False) -> None:
        super().__init__()
        self.job, self.item, self._whole = job, item, whole

    def cancel(self) -> bool:
        """End the call, also if it runs; False if it is done.

        Where several items share an invocation, that ends once all of them are cancelled.
        """
        with _cancelling:
            if self.cancelled():
                return True
            if not super().cancel():
                return False
            self.set_running_or_notify_cancel()  # tells those who wait
        self.job.cancel(None if self._whole else (self.item,))
        return True

    def running(self) -> bool:
        """Whether its call has begun and is not done."""
        return not self.done() and self.job.is_running(self.item)

    def result(self, timeout: float | None = None) -> T:
        """What the function returned.

        Raises
        ------
        Exception
            What the function raised; its ``__cause__`` has the traceback in the function.
        CallError
            If the call died; ``outcome`` says of what.
        CancelledError
            If it was cancelled.
        TimeoutError
            If it is not done within ``timeout`` seconds; it goes on.
        """
        with self.job.ended_by_interrupt():
            return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result` would raise, or None."""
        with self.job.ended_by_interrupt():
            return super().exception(timeout)

    def settle(self, value: Any, error: BaseException | None) -> None:
        """(for the job) Its end, unless it was cancelled."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)


class MapFutures(list[CallFuture[T]]):
    """The futures of one `squall.map`, in the order of its items.

    Parameters
    ----------
    job : MapJob
        What they are of.
    futures : iterable of CallFuture
    """

    def __init__(self, job: MapJob, futures: Iterable[CallFuture[T]]) -> None:
        super().__init__(futures)
        self.job = job

    def results(self, timeout: float | None = None) -> list[T]:
        """All results, in the order of the items.

        The first item that has failed, in that order, raises its exception once all are done; every
        future has its own result or exception all the same.  Shows progress on a terminal.

        Raises
        ------
        TimeoutError
            If they are not all done within ``timeout`` seconds; they go on.
        """
        if wait(self, timeout).not_done:
            raise TimeoutError(f"not all calls of job {self.job.id} were done within {timeout:g} s")
        with self.job.ended_by_interrupt():
            self.job.join()  # then nothing is left of it, and its bill is complete
        return [future.result() for future in self]

    def cancel(self) -> None:
        """Cancel all that are not done."""
        for future in self:
            future.cancel()

    def status(self) -> MapStatus:
        """Items done and failed, functions that run, time and dollars at this moment."""
        return self.job.status()

    @property
    def bill(self) -> Bill:
        """What it costs (locally: would cost) so far, by item."""
        return self.job.bill()

    @property
    def cost(self) -> float:
        """US dollars so far."""
        return self.bill.total_usd

    def logs(self) -> str:
        """What the functions wrote, call by call."""
        return self.job.logs()

    def __repr__(self) -> str:
        status = self.status()
        return f"<MapFutures {self.job.id}: {status.done:,} of {status.items:,} done>"


def progress_line(status: MapStatus) -> str:
    """``312 of 1,000 items  2 failed  2 functions  0.42 s  $0.000012``."""
    parts = [f"{status.done:,} of {status.items:,} items"]
    if status.failed:
        parts.append(f"{status.failed:,} failed")
    if status.workers:
        parts.append(f"{status.workers} function{'s' if status.workers > 1 else ''}")
    if status.done and status.time_s > 0:
        parts.append(f"{format_count(status.done / status.time_s)} items/s")
    line = "  ".join([*parts, format_duration(status.time_s), format_money(status.cost_usd)])
    return f"{line}  ended by: {status.reason}" if status.reason else line


def wait(
    futures: Iterable[CallFuture[Any]],
    timeout: float | None = None,
    return_when: Literal["all", "any"] = "all",
) -> concurrent.futures._base.DoneAndNotDoneFutures[Any]:
    """Wait for all futures, or for any of them.

    Parameters
    ----------
    futures : iterable of CallFuture
    timeout : float, optional
        Seconds after which to return in any case.
    return_when : {"all", "any"}

    Returns
    -------
    (done, not_done)
        Two sets.  Ctrl-C while waiting ends their jobs and raises ``KeyboardInterrupt``.
    """
    problems = Problems("wait")
    problems.choice("return_when", return_when, ("all", "any"))
    problems.raise_if_any()
    when = concurrent.futures.ALL_COMPLETED if return_when == "all" else concurrent.futures.FIRST_COMPLETED
    waited_for = list(futures)
    jobs = list(dict.fromkeys(future.job for future in waited_for))
    with _ended_by_interrupt(jobs), _progress(jobs):
        return concurrent.futures.wait(waited_for, timeout, when)


def as_completed(
    futures: Iterable[CallFuture[T]], timeout: float | None = None
) -> Generator[CallFuture[T], None, None]:
    """Futures in the order in which they are done; those that are done come first.

    Raises
    ------
    TimeoutError
        If not all are done ``timeout`` seconds after the call.
    """
    waited_for = list(futures)
    jobs = list(dict.fromkeys(future.job for future in waited_for))
    with _ended_by_interrupt(jobs):
        for future in concurrent.futures.as_completed(waited_for, timeout):
            yield cast(CallFuture[T], future)


@contextlib.contextmanager
def _ended_by_interrupt(jobs: list[MapJob]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for job in jobs:
            stack.enter_context(job.ended_by_interrupt())
        yield


@contextlib.contextmanager
def _progress(jobs: list[MapJob]) -> Iterator[None]:
    """Show one job's progress meanwhile, from a thread, where someone looks."""
    if len(jobs) != 1 or not someone_looks():
        yield
        return
    leaving = threading.Event()
    (job,) = jobs

    def show() -> None:
        while not leaving.wait(REFRESH_S):
            rewrite(progress_line(job.status()))

    thread = threading.Thread(target=show, name="squall-progress")
    thread.start()
    try:
        yield
    finally:
        leaving.set()
        thread.join()
        rewrite(progress_line(job.status()))
        end_line()
