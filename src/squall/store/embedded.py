"""The embedded store's client: requests over a Unix socket, tables and cells by shared memory."""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from types import TracebackType

from squall.records import Float32, Int64, Registration, Report, SharedTable, Stamp, TableSpec
from squall.store import wire
from squall.store.connection import Connection
from squall.store.control import advance, progress_cell
from squall.store.layout import Cells, TableMemory
from squall.store.table import ParameterTable

_POLL_S = 5.0  # longest wait in one request; a server forgets a lost client's that soon


def connect(address: str) -> EmbeddedStore:
    """Connect to the store at ``"unix:<path>"``.

    Raises
    ------
    StoreError
        If the address is not of this form, or nobody answers there.
    """
    store = EmbeddedStore(address)
    store.open()
    return store


class EmbeddedStore:
    """One process's view of the store; it belongs to the thread that made it.

    Attributes
    ----------
    tables : EmbeddedTables
        Implements :class:`squall.protocols.SharedTables`.
    blobs : EmbeddedBlobs
        Implements :class:`squall.protocols.Blobs`.
    control : EmbeddedControl
        Implements :class:`squall.protocols.Control`.
    """

    def __init__(self, address: str) -> None:
        self._connection = Connection(address)
        self._memory = _MappedMemory(self._connection)
        self.tables = EmbeddedTables(self._connection, self._memory)
        self.blobs = EmbeddedBlobs(self._connection)
        self.control = EmbeddedControl(self._connection, self._memory)

    @property
    def address(self) -> str:
        """Where it is connected."""
        return self._connection.address

    def open(self) -> None:
        """Connect now rather than with the first request."""
        self._connection.open()

    def close(self) -> None:
        """Disconnect and unmap; idempotent.  Arrays still held keep their own memory mapped."""
        self._memory.clear()
        self._connection.close()

    def __enter__(self) -> EmbeddedStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _MappedMemory:
    """What this process has mapped of the store, by name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cells: dict[str, Cells] = {}
        self._tables: dict[str, ParameterTable] = {}

    def cells(self, job: str) -> Cells:
        """The words of a job, also of one that was closed after they had been mapped."""
        known = self._cells.get(job)
        if known is not None:
            return known
        reply, fd = self._connection.request_memory(wire.AttachJob(job), wire.JobMemory)
        cells = Cells.over(_map(fd, reply.size), reply.n_slots)
        self._cells[job] = cells
        return cells

    def open_cells(self, job: str) -> Cells:
        """The words of a job that is open: asks again if those known are of a closed one."""
        known = self._cells.get(job)
        if known is not None and known.gone[0]:
            self.forget_job(job)
        return self.cells(job)

    def table(self, name: str) -> ParameterTable:
        """A table that exists."""
        known = self._tables.get(name)
        if known is not None:
            if not known.gone:
                return known
            del self._tables[name]
        reply, fd = self._connection.request_memory(wire.AttachTable(name), wire.SharedMemory)
        memory = TableMemory.over(_map(fd, reply.size), reply.spec.rows, reply.stride, reply.n_slots)
        table = ParameterTable(reply.spec, memory, self.open_cells(name.partition("/")[0]))
        self._tables[name] = table
        return table

    def forget_table(self, name: str) -> None:
        self._tables.pop(name, None)

    def forget_job(self, job: str) -> None:
        self._cells.pop(job, None)
        for name in [name for name in self._tables if name.startswith(f"{job}/")]:
            del self._tables[name]

    def clear(self) -> None:
        self._cells.clear()
        self._tables.clear()


def _map(fd: int, size: int) -> mmap.mmap:
    """Map a descriptor from the store and close it; the arrays over it unmap it in the end."""
    try:
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


class EmbeddedTables:
    """Tables in shared memory: updates and reads happen in this process, without a round trip.

    They are racy by declaration (see :class:`squall.protocols.SharedTables`).  Repeats are
    recognised by a word per slot beside the table, replaced attempts by the word that
    `Control.register` sets.
    """

    def __init__(self, connection: Connection, memory: _MappedMemory) -> None:
        self._connection = connection
        self._table = memory.table
        self._memory = memory

    def create(self, spec: TableSpec) -> None:
        """See :meth:`squall.protocols.Tables.create`; the name is ``"<job>/<name>"``."""
        self._connection.request(wire.CreateTable(spec), wire.Done)

    def drop(self, name: str) -> None:
        """See :meth:`squall.protocols.Tables.drop`."""
        self._memory.forget_table(name)
        self._connection.request(wire.DropTable(name), wire.Done)

    def describe(self, name: str) -> TableSpec:
        """See :meth:`squall.protocols.Tables.describe`."""
        return self._connection.request(wire.DescribeTable(name), wire.Description).spec

    def shared(self, name: str) -> SharedTable:
        """See :meth:`squall.protocols.SharedTables.shared`."""
        return self._table(name).shared

    def pull(self, name: str, rows: Int64 | None = None) -> Float32:
        """See :meth:`squall.protocols.Tables.pull`."""
        return self._table(name).pull(rows)

    def push(self, name: str, rows: Int64, gradient: Float32, stamp: Stamp) -> bool:
        """See :meth:`squall.protocols.Tables.push`."""
        return self._table(name).push(rows, gradient, stamp)

    def exchange(self, name: str, push: tuple[Int64, Float32] | None, pull: Int64, stamp: Stamp) -> Float32:
        """See :meth:`squall.protocols.Tables.exchange`."""
        return self._table(name).exchange(push, pull, stamp)

    def add(self, name: str, rows: Int64, deltas: Float32, stamp: Stamp) -> bool:
        """See :meth:`squall.protocols.Tables.add`."""
        return self._table(name).add(rows, deltas, stamp)


@dataclass(frozen=True, slots=True)
class EmbeddedBlobs:
    """Blobs in the server's memory; those named ``"<job>/…"`` end with their job."""

    _connection: Connection

    def put(self, key: str, value: bytes) -> None:
        """See :meth:`squall.protocols.Blobs.put`."""
        self._connection.request(wire.PutBlob(key, value), wire.Done)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See :meth:`squall.protocols.Blobs.put_if_absent`."""
        return self._connection.request(wire.PutBlob(key, value, if_absent=True), wire.Done).changed

    def get(self, key: str) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.get`."""
        return self.mget([key])[0]

    def mget(self, keys: list[str]) -> list[bytes | None]:
        """See :meth:`squall.protocols.Blobs.mget`."""
        return self._connection.request(wire.GetBlobs(keys), wire.Values).values

    def wait(self, key: str, timeout: float) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.wait`."""
        deadline = time.monotonic() + timeout
        while True:
            part = _part(deadline)
            value = self._connection.request(wire.WaitBlob(key, part), wire.Values, part).values[0]
            if value is not None or time.monotonic() >= deadline:
                return value

    def delete(self, key: str) -> None:
        """See :meth:`squall.protocols.Blobs.delete`."""
        self._connection.request(wire.DeleteBlob(key), wire.Done)


class EmbeddedControl:
    """Control by requests, but for the stop flag and progress, which are shared memory."""

    def __init__(self, connection: Connection, memory: _MappedMemory) -> None:
        self._connection = connection
        self._memory = memory

    def open_job(self, job: str, n_slots: int) -> None:
        """See :meth:`squall.protocols.Control.open_job`; the same again is a no-op."""
        self._connection.request(wire.OpenJob(job, n_slots), wire.Done)

    def close_job(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.close_job`; its workers are told to stop."""
        self._memory.forget_job(job)
        self._connection.request(wire.CloseJob(job), wire.Done)

    def register(self, job: str, slot: int, attempt: int, pid: int) -> Registration:
        """See :meth:`squall.protocols.Control.register`.

        A second process that registers the same attempt is refused as stale as well.
        """
        request = wire.Register(job, slot, attempt, pid)
        return self._connection.request(request, wire.Registered).registration

    def progress(self, job: str, slot: int) -> Int64:
        """See :meth:`squall.protocols.Control.progress`."""
        return progress_cell(self._memory.open_cells(job), job, slot)

    def advance(self, job: str, slot: int, attempt: int, minibatches: int) -> None:
        """See :meth:`squall.protocols.Control.advance`."""
        advance(self._memory.open_cells(job), job, slot, attempt, minibatches)

    def save_state(self, job: str, slot: int, attempt: int, state: bytes) -> None:
        """See :meth:`squall.protocols.Control.save_state`."""
        self._connection.request(wire.SaveState(job, slot, attempt, state), wire.Done)

    def report(self, job: str, report: Report) -> None:
        """See :meth:`squall.protocols.Control.report`."""
        self._connection.request(wire.SendReport(job, report), wire.Done)

    def reports(self, job: str, after: int, timeout: float) -> list[Report]:
        """See :meth:`squall.protocols.Control.reports`; forgets those before ``after``."""
        deadline = time.monotonic() + timeout
        while True:
            part = _part(deadline)
            reports = self._connection.request(wire.GetReports(job, after, part), wire.Reports, part).reports
            if reports or time.monotonic() >= deadline:
                return reports

    def request_stop(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.request_stop`."""
        self._memory.open_cells(job).stop[0] = 1

    def stop_requested(self, job: str) -> bool:
        """See :meth:`squall.protocols.Control.stop_requested`; True once the job is closed."""
        return bool(self._memory.cells(job).stop[0])


def _part(deadline: float) -> float:
    """Seconds to wait in one request."""
    return max(0.0, min(_POLL_S, deadline - time.monotonic()))
