"""The process of the embedded store: ``python -P -m squall.store.server``.

It listens on a Unix socket in a private temporary folder, writes its address as one line
to standard output, and serves until its owner's pipe closes (which the system does even
for an owner that was killed), it is terminated, or it has idled for long enough.  When it is
asked to, it listens on a TCP port of the loopback interface as well.
:class:`squall.store.process.StoreProcess` starts it.

It listens before it imports what it serves with: a client can go on at once, and its
first request is answered some 200 ms later.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

_MAX_FILES = 65_536
_MAX_SOCKET_PATH = 100  # bytes; systems allow 104 or 108


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only this user can enter, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="squall-store-"))
    try:
        if len(os.fsencode(folder / "socket")) > _MAX_SOCKET_PATH:
            folder.rmdir()
            folder = Path(tempfile.mkdtemp(prefix="squall-store-", dir="/tmp"))
        yield folder
    finally:
        shutil.rmtree(folder)


def main(owner_fd: int, idle_s: float) -> None:
    """Run the server.

    Parameters
    ----------
    owner_fd : int
        Reading end of a pipe; the server ends when its last writing end closes.
    idle_s : float
        Seconds without an open job after which it ends; may be infinite.
    """
    signal.signal(signal.SIGTERM, _terminate)
    logging.basicConfig(format="squall store: %(levelname)s: %(message)s")
    allow_many_files()
    with private_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(1024)  # until `serving` takes over: all workers of a job may come at once
        _announce(f"unix:{folder / 'socket'}")

        from squall.heap import keep_freed
        from squall.store.hugepages import mount_huge

        keep_freed()
        huge = mount_huge()  # before anything starts a thread

        import asyncio

        from squall.store.serving import fastest_loop, serve

        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(serve(listener, str(folder), huge, owner_fd, idle_s))


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    """End by an exception, so that the folder is removed."""
    raise SystemExit(128 + signum)


def allow_many_files() -> None:
    """Every table needs a descriptor; the usual limit is meant for `select`, not for this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _announce(address: str) -> None:
    """Write the address, then leave the pipe: its reader reads no more."""
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
    # Nothing is left to do, and taking numpy and all memory apart takes 50 ms.
    logging.shutdown()
    os._exit(0)
