"""What the store's server does for each request, whatever carries it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from squall._kernels import FrameServer
from squall.errors import CorruptError, StoreError
from squall.records import Float32, InitialValues, TableSpec
from squall.store import wire
from squall.store.blob_service import BlobService
from squall.store.blobs import KeptBlobs
from squall.store.clocks import FINISHED, Clocks
from squall.store.contents import dump_rows, load_rows
from squall.store.control import ControlCore, check_job_name, check_n_slots, no_such_job
from squall.store.initial import check_initial, initial_values
from squall.store.layout import NEVER, Cells, TableMemory
from squall.store.live import LiveTables
from squall.store.meetings import Meetings
from squall.store.memory import Segment, check_room, no_room
from squall.store.placement import Placement
from squall.store.snapshots import Archive, KeptJob, KeptTable, Snapshots
from squall.store.stat import JobStat, RequestStat, TableStat
from squall.store.table import ParameterTable, check_spec, table_stride

MAX_WAIT_S = 10.0
"""Longest that one request may wait; a client asks again, so that a lost one is soon forgotten."""

_PIECE_VALUES = 1 << 18  # initial values made at a time: some 10 ms, others are served in between
_Result = TypeVar("_Result")

_MAX_NAME = 400  # characters of a table's name
_CHECKPOINTS = 2  # kept of one job
_LARGE = 1 << 20  # bytes from which on a value is checked against the memory left


class Answer(NamedTuple):
    """A reply, and the memory whose descriptor goes with it."""

    reply: wire.Reply
    memory: Segment | None = None


@dataclass(slots=True)
class _Table:
    spec: TableSpec  # of the whole table
    place: Placement
    stride: int
    memory: Segment


@dataclass(slots=True)
class _Job:
    n_slots: int
    cells: Segment
    tables: dict[str, _Table] = field(default_factory=dict)
    waiting: list[asyncio.Event] = field(default_factory=list)  # slots that wait for others


_DONE = Answer(wire.Done())
_SLOW = (
    wire.TakeSnapshot,
    wire.CreateTable,
    wire.WaitBlob,
    wire.GetReduced,
    wire.GetReports,
    wire.Barrier,
)


class StoreService:
    """The store's state: all jobs, their memory and blobs.

    Parameters
    ----------
    folder : str
        Where segments go on systems without memory files.
    huge : int, optional
        Where those of huge pages go; see :mod:`squall.store.hugepages`.
    limit : int, optional
        Bytes that tables and blobs may take together; None for all that the machine has.
    """

    def __init__(
        self,
        folder: str,
        huge: int | None = None,
        limit: int | None = None,
    ) -> None:
        self._folder, self._huge, self.limit = folder, huge, limit
        self.snapshots: Snapshots | None = None
        self._control = ControlCore()
        self._blobs = BlobService(self._check_blob)
        self._jobs: dict[str, _Job] = {}
        self._live = LiveTables(self._load)
        self._meetings = Meetings(
            lambda name: (*self._load(name), self._control.clocks(_job_of(name))), self._wake
        )
        # One table is made at a time, so that two do not count on the same free memory.
        self._making = asyncio.Lock()

    @property
    def n_jobs(self) -> int:
        """Number of open jobs."""
        return len(self._jobs)

    @property
    def held_bytes(self) -> int:
        """Bytes of all tables, with their optimisers' state, and of all blobs."""
        return self._blobs.n_bytes + sum(
            table.memory.size for job in self._jobs.values() for table in job.tables.values()
        )

    def table_stats(self) -> list[TableStat]:
        """All tables."""
        return [
            TableStat(
                name,
                table.place.rows,
                table.spec.dim,
                table.spec.optimizer.name,
                int(_head(table.memory, job.n_slots).step[0]),
                table.memory.size,
            )
            for job in self._jobs.values()
            for name, table in job.tables.items()
        ]

    def job_stats(self) -> list[JobStat]:
        """All jobs."""
        cells = {job: self._control.cells(job) for job in self._jobs}
        return [
            JobStat(job, words.attempts[:-1].tolist(), words.progress[:-1].tolist())
            for job, words in cells.items()
        ]

    def answer_rows(self, frame: memoryview) -> memoryview | bytearray:
        """Do what a frame about a table's rows asks for; the reply is a frame, valid until the next."""
        try:
            return self._live.answer(frame)
        except wire.MalformedFrameError:
            raise
        except StoreError as error:
            return wire.pack(wire.failure(error))

    @property
    def frames(self) -> FrameServer:
        """What serves most frames about rows; `answer_rows` serves all."""
        return self._live.frames

    def rows_stats(self) -> list[RequestStat]:
        """Requests about rows."""
        return self._live.stats()

    def answer_at_once(self, request: wire.Request) -> Answer | None:
        """Do what a request asks for, or None if that takes time: then ask `answer_later`.

        What is refused becomes a reply too.
        """
        if isinstance(request, _SLOW):
            return None
        try:
            if isinstance(request, wire.Meet):
                self._meetings.offer(request)
                met = self._meetings.met(request)
                return None if met is None else Answer(met)
            return self._answer(request)
        except StoreError as error:
            return Answer(wire.failure(error))

    async def answer_later(self, request: wire.Request) -> Answer:
        """Do what a request asks for that may have to wait."""
        try:
            match request:
                case wire.CreateTable():
                    return await self._create_table(request)
                case wire.TakeSnapshot():
                    return await self._take_snapshot(request.number)
                case wire.KeepJob():
                    return await self._keep_job(request)
                case wire.RestoreJob():
                    return await self._restore_job(request)
                case wire.WaitBlob() | wire.GetReduced():
                    return await self._wait_blob(request)
                case wire.GetReports():
                    return await self._get_reports(request)
                case wire.Meet():
                    return await self._meet(request)
                case wire.Barrier():
                    return await self._barrier(request)
                case _:
                    return self._answer(request)
        except StoreError as error:
            return Answer(wire.failure(error))

    def _answer(self, request: wire.Request) -> Answer:
        match request:
            case wire.DropTable():
                self._drop_table(request.name)
            case wire.DescribeTable():
                table = self._table(request.name)
                return Answer(wire.Description(table.spec, table.place.shard, table.place.n_shards))
            case wire.AttachTable():
                return self._attach_table(request.name)
            case wire.DumpRows():
                return Answer(dump_rows(self._load(request.name)[0], request))
            case wire.LoadRows():
                load_rows(self._load(request.name)[0], request)
            case (
                wire.PutBlob()
                | wire.CompareAndSet()
                | wire.AddToCounter()
                | wire.Reduce()
                | wire.PutPart()
                | wire.DropUpload()
                | wire.GetBlobs()
                | wire.GetPart()
                | wire.DeleteBlob()
            ):
                return Answer(self._blobs.answer(request))
            case wire.OpenJob():
                self._open_job(request.job, request.n_slots)
            case wire.CloseJob():
                self._close_job(request.job)
            case wire.AttachJob():
                job = self._job(request.job)
                return Answer(wire.JobMemory(job.n_slots, job.cells.size), job.cells)
            case wire.Register(job, slot, attempt, pid, client):
                registration = self._control.register(job, slot, attempt, pid, client)
                self._control.clocks(job).join(slot, time.monotonic())
                return Answer(wire.Registered(registration))
            case wire.Finish():
                self._arrive(request.job, request.slot, request.attempt, FINISHED)
            case wire.Advance(job, slot, attempt, minibatches):
                self._control.advance(job, slot, attempt, minibatches)
            case wire.GetProgress():
                return Answer(wire.Progress(self._control.progress(request.job, request.slot)))
            case wire.LookAtSlot():
                return Answer(wire.Registered(self._control.look(request.job, request.slot)))
            case wire.RequestStop():
                self._control.request_stop(request.job)
            case wire.AskStop():
                is_open = self._control.is_open(request.job)
                return Answer(wire.Stopping(self._control.stop_requested(request.job) if is_open else None))
            case wire.SaveState():
                self._control.save_state(request.job, request.slot, request.attempt, request.state)
            case wire.SendReport():
                self._control.report(request.job, request.report, request.client, request.number)
            case _:
                raise StoreError(f"a {type(request).__name__} is not expected here", fix="greet only once")
        return _DONE

    # ------------------------------------------------------------------------------- jobs

    def _open_job(self, job: str, n_slots: int) -> None:
        check_job_name(job)
        check_n_slots(job, n_slots)
        known = self._jobs.get(job)
        if known is not None and known.n_slots == n_slots:
            return
        cells = self._new_segment(f"{job}:cells", Cells.size(n_slots))
        with contextlib.ExitStack() as undo:
            undo.callback(cells.close)
            for _ in cells.fill():
                pass  # some pages: not worth a pause
            words = Cells.over(cells.map(), n_slots)
            words.attempts.fill(NEVER)
            self._control.open_job(job, words)
            undo.pop_all()
        self._jobs[job] = _Job(n_slots, cells)

    def _close_job(self, job: str) -> None:
        self._control.close_job(job)
        self._blobs.drop_job(job)
        closed = self._jobs.pop(job, None)
        if closed is not None:
            for event in closed.waiting:
                event.set()
            for table in closed.tables.values():
                self._retire(table, closed.n_slots)
            closed.cells.close()

    def _job(self, job: str) -> _Job:
        try:
            return self._jobs[job]
        except KeyError:
            raise no_such_job(job) from None

    # ----------------------------------------------------------------------------- tables

    async def _create_table(self, request: wire.CreateTable) -> Answer:
        spec = request.spec
        check_spec(spec)
        place = Placement.of(spec, request.shard, request.n_shards)
        job_name = _job_of(spec.name)
        async with self._making:
            job = self._job(job_name)
            known = job.tables.get(spec.name)
            if known is None:
                source = None if request.source is None else self._copied(request.source, spec, place)
                table = await self._make_table(spec, place, job.n_slots, source)
                if self._jobs.get(job_name) is not job:
                    table.memory.close()
                    raise no_such_job(job_name)
                job.tables[spec.name] = table
            elif (known.spec, known.place) != (spec, place):
                raise StoreError(
                    "it exists with another spec",
                    where=f"table {spec.name!r}",
                    fix="drop it first or use another name",
                )
        return Answer(wire.Done(known is None))

    def _copied(self, source: str, spec: TableSpec, place: Placement) -> TableMemory:
        """The memory of a table that another is to be a copy of."""
        table = self._table(source)
        if (msgspec.structs.replace(table.spec, name=spec.name), table.place) != (spec, place):
            raise StoreError(
                f"it cannot become a copy of table {source!r}, which has another spec",
                where=f"table {spec.name!r}",
                fix="give the same spec, but for the name",
            )
        n_slots = self._job(_job_of(source)).n_slots
        return TableMemory.over(table.memory.map(), place.local(spec).rows, table.stride, n_slots)

    async def _make_table(
        self, spec: TableSpec, place: Placement, n_slots: int, source: TableMemory | None = None
    ) -> _Table:
        local, stride = place.local(spec), table_stride(spec)
        size = TableMemory.size(local.rows, stride, n_slots)
        self._check_room(size, f"table {spec.name!r} ({local.rows} rows of {stride} float32)")
        memory = self._new_segment(spec.name, size)
        with contextlib.ExitStack() as undo:
            undo.callback(memory.close)
            for _ in memory.fill():
                await asyncio.sleep(0)
            words = TableMemory.over(memory.map(), local.rows, stride, n_slots)
            words.sequences.fill(NEVER)
            if source is not None:
                await _copy(source, words)
            elif spec.initial is not None:
                await _initialise(words.array, spec.initial, place, spec.dim)
            undo.pop_all()
        return _Table(spec, place, stride, memory)

    def _drop_table(self, name: str) -> None:
        job = self._jobs.get(_job_of(name))
        table = job.tables.pop(name, None) if job is not None else None
        if job is not None and table is not None:
            self._retire(table, job.n_slots)

    def _retire(self, table: _Table, n_slots: int) -> None:
        """Tell who has mapped a table that it is gone, and let its memory go."""
        self._live.forget(table.spec.name)
        self._meetings.forget(table.spec.name)
        _head(table.memory, n_slots).gone[0] = 1
        table.memory.close()

    def _load(self, name: str) -> tuple[ParameterTable, Cells]:
        """A table as the server itself works on it."""
        table, n_slots = self._table(name), self._job(_job_of(name)).n_slots
        local = table.place.local(table.spec)
        memory = TableMemory.over(table.memory.map(), local.rows, table.stride, n_slots)
        cells = self._control.cells(_job_of(name))
        return ParameterTable(local, memory, cells), cells

    def _attach_table(self, name: str) -> Answer:
        table, n_slots = self._table(name), self._job(_job_of(name)).n_slots
        reply = wire.SharedMemory(table.spec, table.stride, n_slots, table.memory.size)
        return Answer(reply, table.memory)

    def _table(self, name: str) -> _Table:
        try:
            return self._job(_job_of(name)).tables[name]
        except KeyError:
            raise StoreError(
                "there is no such table",
                where=f"table {name!r}",
                fix="create it first; it may have been dropped",
            ) from None

    # ------------------------------------------------------------------------------ waits

    def _check_blob(self, size: int, what: str) -> None:
        if self.limit is not None or size >= _LARGE:
            self._check_room(size, what)

    async def _wait_blob(self, request: wire.WaitBlob | wire.GetReduced) -> Answer:
        """The answer as soon as there is one; each wake-up may be one contribution of many."""
        deadline = time.monotonic() + _seconds(request.timeout)
        while (reply := self._blobs.ready(request)) is None and (rest := deadline - time.monotonic()) > 0:
            async with _event(partial(self._blobs.core.watch, request.key)) as event:
                await _wait(event, rest)
        return Answer(self._blobs.answer(request) if reply is None else reply)

    async def _get_reports(self, request: wire.GetReports) -> Answer:
        reports = self._control.reports(request.job, request.after)
        if not reports:
            async with _event(lambda wake: self._control.watch(request.job, wake)) as event:
                await _wait(event, request.timeout)
            reports = self._control.reports(request.job, request.after)
        return Answer(wire.Reports(reports))

    async def _meet(self, request: wire.Meet) -> Answer:
        """The update has been taken; the rows come when other slots are far enough."""
        start = time.monotonic()
        reply = await self._when(
            _job_of(request.name),
            lambda: self._meetings.met(request, time.monotonic() - start),
            request.timeout,
        )
        return Answer(reply or self._meetings.not_met(request, time.monotonic() - start))

    async def _barrier(self, request: wire.Barrier) -> Answer:
        clocks = self._arrive(request.job, request.slot, request.attempt, request.number)
        passed = await self._when(request.job, lambda: clocks.passed(request.number), request.timeout)
        return Answer(wire.Done(bool(passed)))

    def _arrive(self, job: str, slot: int, attempt: int, number: int) -> Clocks:
        self._control.arrive(job, slot, attempt, number)
        self._meetings.end_rounds(job)
        self._wake(job)
        return self._control.clocks(job)

    async def _when(self, job: str, attempt: Callable[[], _Result | None], timeout: float) -> _Result | None:
        """What ``attempt`` gives, tried again whenever a slot of the job has moved on."""
        deadline = time.monotonic() + _seconds(timeout)
        while not (result := attempt()) and (rest := deadline - time.monotonic()) > 0:
            event, waiting = asyncio.Event(), self._job(job).waiting
            waiting.append(event)
            try:
                await _wait(event, rest)
            finally:
                waiting.remove(event)
        return result

    def _wake(self, job: str) -> None:
        known = self._jobs.get(job)
        for event in known.waiting if known is not None else ():
            event.set()

    def _check_room(self, size: int, what: str) -> None:
        check_room(size, what)
        if self.limit is not None and size > (left := self.limit - self.held_bytes):
            raise no_room(size, left, what)

    async def _take_snapshot(self, number: int) -> Answer:
        if self.snapshots is None:
            raise StoreError(
                "this store takes no snapshots", fix="start it by `squall store serve --snapshot URL`"
            )
        return Answer(await self.snapshots.take(number))

    async def _keep_job(self, request: wire.KeepJob) -> Answer:
        self._job(request.job)
        snapshots = Snapshots(self, Archive(request.url, 0, 1), _CHECKPOINTS, job=request.job)
        return Answer(await snapshots.take(request.number, whole=request.whole))

    async def _restore_job(self, request: wire.RestoreJob) -> Answer:
        if request.job in self._jobs:
            raise StoreError("it is open", where=f"job {request.job!r}", fix="close it before it is restored")
        archive = Archive(request.url, 0, 1)
        numbers = await asyncio.to_thread(archive.numbers)
        if numbers:
            await self._restore_checkpoint(request, archive, numbers[-1])
        return Answer(wire.Done(bool(numbers)))

    async def _restore_checkpoint(self, request: wire.RestoreJob, archive: Archive, number: int) -> None:
        try:
            await Snapshots(self, archive, _CHECKPOINTS, job=request.job).restore(number)
        except CorruptError as error:
            self._close_job(request.job)
            raise StoreError(
                f"the checkpoint of job {request.job} is damaged: {error.what}",
                where=f"{request.url}/{number}",
                fix="remove it: the job then goes on from the one before, or from its first row",
            ) from error

    # ------------------------------------------------------------------- for snapshots

    def jobs_kept(self, only: str | None = None) -> list[KeptJob]:
        """Jobs, all or one, as they go into a snapshot, but for their tables."""
        return [
            KeptJob(name, job.n_slots, bytes(job.cells.map()), self._control.kept(name))
            for name, job in self._jobs.items()
            if only in (None, name)
        ]

    def tables_kept(self, only: str | None = None) -> list[KeptTable]:
        """Tables as they go into a snapshot, of all jobs or one; their arrays are the living ones."""
        kept = []
        for name, job in self._jobs.items():
            for table in job.tables.values() if only in (None, name) else ():
                local = table.place.local(table.spec)
                buffer = table.memory.map()
                memory = TableMemory.over(buffer, local.rows, table.stride, job.n_slots)
                head = memoryview(buffer)[: table.memory.size - memory.array.nbytes]
                kept.append(
                    KeptTable(table.spec, table.place.shard, table.place.n_shards, head, memory.array)
                )
        return kept

    def blobs_kept(self, only: str | None = None) -> KeptBlobs:
        """Blobs, counters and reductions, all or those of one job."""
        return self._blobs.core.kept("" if only is None else f"{only}/")

    def restore_job(self, kept: KeptJob) -> None:
        """Open a job as it was."""
        self._open_job(kept.name, kept.n_slots)
        self._jobs[kept.name].cells.map()[:] = kept.cells
        self._control.restore(kept.name, kept.control)

    async def restore_table(self, spec: TableSpec, place: Placement, head: bytes) -> Float32:
        """Make a table with the words it had; its array is the caller's to fill."""
        job = self._job(_job_of(spec.name))
        bare = msgspec.structs.replace(spec, initial=None)
        table = await self._make_table(bare, place, job.n_slots)
        table.spec = spec
        job.tables[spec.name] = table
        buffer = table.memory.map()
        buffer[: len(head)] = head
        return TableMemory.over(buffer, table.place.local(spec).rows, table.stride, job.n_slots).array

    def restore_blobs(self, kept: KeptBlobs) -> None:
        """Set all blobs, counters and reductions."""
        self._blobs.core.restore(kept)

    def _new_segment(self, name: str, size: int) -> Segment:
        try:
            return Segment(name, size, self._folder, self._huge)
        except OSError as error:
            raise StoreError(
                f"the system gives no memory: {error}",
                where=name,
                fix="close other jobs, or raise the limit of open files (ulimit -n)",
            ) from error


async def _initialise(array: Float32, initial: InitialValues, place: Placement, dim: int) -> None:
    check_initial(initial)
    piece = max(1, _PIECE_VALUES // dim)
    for start in range(0, place.rows, piece):
        stop = min(place.rows, start + piece)
        array[start:stop, :dim] = initial_values(initial, place.globals(start, stop), dim)
        await asyncio.sleep(0)


async def _copy(source: TableMemory, target: TableMemory) -> None:
    piece = max(1, _PIECE_VALUES // target.array.shape[1])
    for start in range(0, len(target.array), piece):
        target.array[start : start + piece] = source.array[start : start + piece]
        await asyncio.sleep(0)
    target.step[0] = source.step[0]


@contextlib.asynccontextmanager
async def _event(watch: Callable[[Callable[[], None]], Callable[[], None]]) -> AsyncIterator[asyncio.Event]:
    """An event that is set by what ``watch`` watches."""
    event = asyncio.Event()
    cancel = watch(event.set)
    try:
        yield event
    finally:
        cancel()


async def _wait(event: asyncio.Event, timeout: float) -> None:
    """Until the event is set or the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_seconds(timeout)):
            await event.wait()


def _seconds(timeout: float) -> float:
    """How long to wait; not at all for a time that is not a number."""
    return min(MAX_WAIT_S, timeout) if timeout > 0 else 0.0


def _head(memory: Segment, n_slots: int) -> TableMemory:
    """A table's words without its rows."""
    return TableMemory.over(memory.map(TableMemory.size(0, 0, n_slots)), 0, 0, n_slots)


def _job_of(name: str) -> str:
    """The job in ``"<job>/<name>"``."""
    job, _, rest = name.partition("/")
    if not (job and rest and name.isprintable() and len(name) <= _MAX_NAME):
        raise StoreError(
            f"{name[:80]!r} cannot name a table",
            fix=f'name it "<job>/<name>", printable and of at most {_MAX_NAME} characters',
        )
    return job
