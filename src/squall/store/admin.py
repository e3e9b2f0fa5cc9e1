"""What only who runs a store asks of it: how each shard is, and a snapshot now."""

from __future__ import annotations

import time

from squall.store import wire
from squall.store.closing import Closing
from squall.store.connection import Connection, UnixConnection
from squall.store.stat import ShardStat
from squall.store.tcp import connections

SNAPSHOT_TIMEOUT_S = 3600.0
"""Seconds that a snapshot may take."""


class StoreAdmin(Closing):
    """Connections to all shards of a store.

    Parameters
    ----------
    address : str
        As :func:`squall.store.connect` takes it.
    token : str
        What the store asks for, if anything.

    Raises
    ------
    StoreError
        As `connect`.
    """

    def __init__(self, address: str, token: str = "") -> None:
        self._shards: list[Connection]
        if address.startswith("unix:"):
            self._shards = [UnixConnection(address)]
            self._shards[0].open()
        else:
            self._shards = list(connections(address, token))

    def stat(self) -> list[ShardStat]:
        """How each shard is."""
        return [shard.request(wire.GetStat(), wire.Status).stat for shard in self._shards]

    def snapshot(self) -> int:
        """Have all shards write a snapshot, one after the other; returns its number."""
        number = int(1000 * time.time())
        for shard in self._shards:
            shard.request(wire.TakeSnapshot(number), wire.Snapshot, SNAPSHOT_TIMEOUT_S)
        return number

    def close(self) -> None:
        """Disconnect; idempotent."""
        for shard in self._shards:
            shard.close()
