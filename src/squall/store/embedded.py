"""The embedded store's client: requests over a Unix socket, tables and cells by shared memory."""

from __future__ import annotations

import mmap
import os

from squall.records import (
    Float32,
    Int64,
    Meeting,
    SharedTable,
    Stamp,
    Sync,
    TableContents,
    TableSpec,
    Update,
)
from squall.store import wire
from squall.store.connection import Connection, Patience, UnixConnection
from squall.store.contents import check_whole
from squall.store.control import advance, progress_cell
from squall.store.layout import Cells, TableMemory
from squall.store.meetings import meet
from squall.store.requests import RemoteControl, RemoteStore
from squall.store.table import ParameterTable


def connect(address: str, patience: Patience | None = None) -> EmbeddedStore:
    """Connect to the store at ``"unix:<path>"``; a reply may take as long as ``patience`` says.

    Raises
    ------
    StoreError
        If the address is not of this form, or nobody answers there.
    """
    store = EmbeddedStore(address, patience)
    store.open()
    return store


class EmbeddedStore(RemoteStore):
    """One process's view of the store; it belongs to the thread that made it.

    Attributes
    ----------
    tables : EmbeddedTables
        Implements :class:`squall.protocols.SharedTables`.
    blobs : RemoteBlobs
        Implements :class:`squall.protocols.AtomicBlobs`.
    control : EmbeddedControl
        Implements :class:`squall.protocols.Control`.
    """

    def __init__(self, address: str, patience: Patience | None = None) -> None:
        connection = UnixConnection(address, patience)
        super().__init__(connection)
        self._memory = _MappedMemory(connection)
        self.tables = EmbeddedTables(connection, self._memory)
        self.control = EmbeddedControl(connection, self._memory)

    def close(self) -> None:
        """Disconnect and unmap; idempotent.  Arrays still held keep their own memory mapped."""
        self._memory.clear()
        super().close()


class _MappedMemory:
    """What this process has mapped of the store, by name."""

    def __init__(self, connection: UnixConnection) -> None:
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
    `Control.register` sets.  Nothing travels, so ``half`` changes nothing.
    """

    def __init__(self, connection: Connection, memory: _MappedMemory) -> None:
        self._connection = connection
        self._table = memory.table
        self._memory = memory

    def create(self, spec: TableSpec, source: str | None = None) -> None:
        """See :meth:`squall.protocols.Tables.create`; the name is ``"<job>/<name>"``."""
        self._connection.request(wire.CreateTable(spec, source=source), wire.Done)

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

    def pull(self, name: str, rows: Int64 | None = None, *, half: bool = False) -> Float32:
        """See :meth:`squall.protocols.Tables.pull`."""
        return self._table(name).pull(rows)

    def push(self, name: str, rows: Int64, gradient: Float32, stamp: Stamp, *, half: bool = False) -> bool:
        """See :meth:`squall.protocols.Tables.push`."""
        return self._table(name).push(rows, gradient, stamp)

    def exchange(
        self,
        name: str,
        push: tuple[Int64, Float32] | None,
        pull: Int64,
        stamp: Stamp,
        *,
        half: bool = False,
    ) -> Float32:
        """See :meth:`squall.protocols.Tables.exchange`."""
        return self._table(name).exchange(push, pull, stamp)

    def meet(
        self, name: str, update: Update | None, pull: Int64, stamp: Stamp, sync: Sync, timeout: float
    ) -> Meeting:
        """See :meth:`squall.protocols.Tables.meet`; the owner is the server, which is asked."""
        return meet(self._connection, name, update, pull, stamp, sync, timeout)[0]

    def add(self, name: str, rows: Int64, deltas: Float32, stamp: Stamp, *, half: bool = False) -> bool:
        """See :meth:`squall.protocols.Tables.add`."""
        return self._table(name).add(rows, deltas, stamp)

    def dump(self, name: str) -> TableContents:
        """See :meth:`squall.protocols.Tables.dump`."""
        table = self._table(name)
        return TableContents(table.dump(0, table.spec.rows), table.step)

    def load(self, name: str, contents: TableContents) -> None:
        """See :meth:`squall.protocols.Tables.load`."""
        table = self._table(name)
        check_whole(table.spec, contents)
        table.load(0, contents.array, contents.step)


class EmbeddedControl(RemoteControl):
    """Control by requests, but for the stop flag and progress, which are shared memory."""

    def __init__(self, connection: Connection, memory: _MappedMemory) -> None:
        super().__init__(connection)
        self._memory = memory

    def close_job(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.close_job`; its workers are told to stop."""
        self._memory.forget_job(job)
        super().close_job(job)

    def progress(self, job: str, slot: int) -> Int64:
        """See :meth:`squall.protocols.Control.progress`."""
        return progress_cell(self._memory.open_cells(job), job, slot)

    def advance(self, job: str, slot: int, attempt: int, minibatches: int) -> None:
        """See :meth:`squall.protocols.Control.advance`."""
        advance(self._memory.open_cells(job), job, slot, attempt, minibatches)

    def request_stop(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.request_stop`."""
        self._memory.open_cells(job).stop[0] = 1

    def stop_requested(self, job: str) -> bool:
        """See :meth:`squall.protocols.Control.stop_requested`; True once the job is closed."""
        return bool(self._memory.cells(job).stop[0])
