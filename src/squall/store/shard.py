"""The process of one shard: ``python -P -m squall.store.shard``, started by `squall store serve`.

It reads its settings as one line of JSON from standard input (so that the token shows neither in
its arguments nor in its environment), writes one line when it is ready or cannot be, and serves until
that input closes, as it also does when its parent was killed.  The listening socket is its parent's:
clients that come while the process is started again just wait a little.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import socket
import ssl
import sys
import time
from pathlib import Path

import msgspec

from squall.errors import SquallError
from squall.heap import keep_freed
from squall.log import get_logger
from squall.store import wire
from squall.store.hugepages import mount_huge
from squall.store.server import allow_many_files
from squall.store.service import StoreService
from squall.store.serving import BACKLOG, HELLO_TIMEOUT_S, ClientConnection, Server, fastest_loop
from squall.store.snapshots import Archive, Snapshots

_log = get_logger(__name__)


class ShardSettings(msgspec.Struct, frozen=True):
    """What a shard's process is told.

    ``restore`` is the number of a snapshot to begin with, 0 for the latest if there is one, None
    to begin empty.
    """

    folder: str
    listener: int
    shard: int
    ports: tuple[int, ...]
    incarnation: str
    token: str | None = None
    certificate: str | None = None
    key: str | None = None
    limit: int | None = None
    snapshot: str | None = None
    every_s: float | None = None
    keep: int = 3
    restore: int | None = None

    @property
    def n_shards(self) -> int:
        """Shards of the store."""
        return max(1, len(self.ports))


def main() -> None:
    """Run the shard."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=ShardSettings)
    logging.basicConfig(format=f"squall store, shard {settings.shard}: %(levelname)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    allow_many_files()
    keep_freed()
    huge = mount_huge()  # before anything starts a thread
    try:
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(_serve(settings, huge))
    except SquallError as error:
        _log.critical("%s", error)
        raise SystemExit(1) from None


async def _serve(settings: ShardSettings, huge: int | None) -> None:
    service = StoreService(settings.folder, huge, settings.limit)
    try:
        listening = await _start(settings, service)
    except SquallError as error:  # for its parent to tell, once for all shards
        sys.stdout.write(f"{msgspec.json.encode([error.what, error.where, error.fix]).decode()}\n")
        sys.stdout.flush()
        raise SystemExit(1) from None
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), end.set)
    loop.add_signal_handler(signal.SIGTERM, end.set)
    periodic = None
    if service.snapshots is not None and settings.every_s is not None:
        periodic = loop.create_task(service.snapshots.every(settings.every_s))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await end.wait()
    listening.close()
    if periodic is not None:
        periodic.cancel()
    if service.snapshots is not None and service.n_jobs:
        # Its parent has said the number, lest it differ between shards, unless it was killed.
        said = os.read(sys.stdin.fileno(), 64).split()
        await service.snapshots.take(int(said[0]) if said else int(1000 * time.time()))


async def _start(settings: ShardSettings, service: StoreService) -> asyncio.Server:
    restored = None
    if settings.snapshot is not None:
        archive = Archive(settings.snapshot, settings.shard, settings.n_shards)
        service.snapshots = Snapshots(service, archive, settings.keep)
        restored = await _restore(service.snapshots, archive, settings.restore)
    info = wire.ServerInfo(settings.incarnation, settings.shard, settings.ports, restored)
    return await _listen(settings, Server(service, info))


async def _restore(snapshots: Snapshots, archive: Archive, number: int | None) -> wire.Snapshot | None:
    if number is None:
        return None
    if number == 0:
        numbers = await asyncio.to_thread(archive.numbers)
        if not numbers:
            return None
        number = numbers[-1]
    return await snapshots.restore(number)


async def _listen(settings: ShardSettings, server: Server) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    listener = socket.socket(fileno=settings.listener)
    if listener.family == socket.AF_UNIX:
        return await loop.create_unix_server(lambda: ClientConnection(server, settings.token), sock=listener)
    context = certificate = None
    if settings.certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(settings.certificate, settings.key)
        certificate = fingerprint(Path(settings.certificate).read_text())
    return await loop.create_server(
        lambda: ClientConnection(server, settings.token, certificate=certificate),
        sock=listener,
        ssl=context,
        ssl_handshake_timeout=None if context is None else HELLO_TIMEOUT_S,
        backlog=BACKLOG,
    )


def fingerprint(pem: str) -> bytes:
    """SHA-256 of the first certificate in a PEM file, as a client sees it."""
    end = "-----END CERTIFICATE-----"
    first = pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(end) + len(end)]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
