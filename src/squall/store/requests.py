"""What a client asks by requests alone, whatever the socket: all but tables, and most of control."""

from __future__ import annotations

import time

from squall.records import Registration, Report
from squall.store import wire
from squall.store.closing import Closing
from squall.store.connection import Connection
from squall.store.remote_blobs import RemoteBlobs, part_of_wait


class RemoteStore(Closing):
    """One process's view of a store; it belongs to the thread that made it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.blobs = RemoteBlobs(connection)

    @property
    def address(self) -> str:
        """Where it is connected."""
        return self._connection.address

    def open(self) -> None:
        """Connect now rather than with the first request."""
        self._connection.open()

    def close(self) -> None:
        """Disconnect; idempotent."""
        self._connection.close()


class RemoteControl:
    """Control, but for the stop flag and progress, which each kind of client sees in its own way.

    Parameters
    ----------
    connection : Connection
        To the server.
    client : int
        A number that no other client has; 0 where process ids tell them apart and no request
        is sent twice.
    """

    def __init__(self, connection: Connection, client: int = 0) -> None:
        self._connection = connection
        self._client = client
        self._sent = 0

    def open_job(self, job: str, n_slots: int) -> None:
        """See :meth:`squall.protocols.Control.open_job`; the same again is a no-op."""
        self._connection.request(wire.OpenJob(job, n_slots), wire.Done)

    def close_job(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.close_job`; its workers are told to stop."""
        self._connection.request(wire.CloseJob(job), wire.Done)

    def register(self, job: str, slot: int, attempt: int, pid: int) -> Registration:
        """See :meth:`squall.protocols.Control.register`.

        A second process that registers the same attempt is refused as stale as well.
        """
        request = wire.Register(job, slot, attempt, pid, self._client)
        return self._connection.request(request, wire.Registered).registration

    def look(self, job: str, slot: int) -> Registration:
        """See :meth:`squall.protocols.Control.look`."""
        return self._connection.request(wire.LookAtSlot(job, slot), wire.Registered).registration

    def barrier(self, job: str, slot: int, attempt: int, number: int, timeout: float) -> bool:
        """See :meth:`squall.protocols.Control.barrier`."""
        request = wire.Barrier(job, slot, attempt, number, timeout)
        return self._connection.request(request, wire.Done, timeout).changed

    def finish(self, job: str, slot: int, attempt: int) -> None:
        """See :meth:`squall.protocols.Control.finish`."""
        self._connection.request(wire.Finish(job, slot, attempt), wire.Done)

    def save_state(self, job: str, slot: int, attempt: int, state: bytes) -> None:
        """See :meth:`squall.protocols.Control.save_state`."""
        self._connection.request(wire.SaveState(job, slot, attempt, state), wire.Done)

    def report(self, job: str, report: Report) -> None:
        """See :meth:`squall.protocols.Control.report`."""
        self._sent += bool(self._client)
        request = wire.SendReport(job, report, self._client, self._sent)
        self._connection.request(request, wire.Done)

    def reports(self, job: str, after: int, timeout: float) -> list[Report]:
        """See :meth:`squall.protocols.Control.reports`; forgets those before ``after``."""
        deadline = time.monotonic() + timeout
        while True:
            part = part_of_wait(deadline)
            reports = self._connection.request(wire.GetReports(job, after, part), wire.Reports, part).reports
            if reports or time.monotonic() >= deadline:
                return reports
