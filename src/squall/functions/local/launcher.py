"""The launcher's program: one process, one thread, that forks environments.

Started by `connection` as ``python -P -m squall.functions.local.launcher FD``, where FD is a
socket to the client.  When that socket closes, for whatever reason, the launcher ends all
environments, gives all resources back and exits.

It imports what functions will need, so that they need not, and then only forks: it starts no
thread and does not *use* obstore, whose threads would be missing in the children.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np  # noqa: F401 - for the environments
import obstore  # noqa: F401 - imported only: see above
import safetensors.numpy  # noqa: F401 - for the environments

from squall.errors import PlatformError
from squall.functions.local import cpu, environment, hiding, leftovers, memory, strict, wire
from squall.functions.local.link import ClientLink
from squall.functions.local.supervisor import Supervisor
from squall.log import get_logger

_PR_SET_CHILD_SUBREAPER = 36


def main(fd: int) -> None:
    """Shake hands with the client at the other end of ``fd``, and serve it."""
    client = socket.socket(fileno=fd)
    client.set_inheritable(False)
    # To standard error, which the client shows if this process fails.  Not to the root logger:
    # functions inherit it, and may want to configure it themselves.
    get_logger("squall.functions.local").addHandler(logging.StreamHandler())
    hello = _greet(client)
    _restore("PYTHONPATH", hello.pythonpath)
    _adopt_orphans()
    folder = Path(tempfile.gettempdir())
    for orphan in leftovers.orphans_in(folder):
        leftovers.remove_tree(orphan)
    memory.remove_orphans()
    name = leftovers.owner_name(os.getpid())
    limiter = _limiter(hello, name)
    home = tempfile.mkdtemp(prefix=name + "-", dir=folder)
    try:
        run, exposed = _isolation(hello, home)
        client.sendall(wire.frame(wire.Ready(home, limiter.name, exposed)))
    except BaseException:  # the client has ended meanwhile, or this process is to
        limiter.close()
        leftovers.remove_tree(Path(home))
        raise
    gc.collect()
    gc.freeze()  # the collector would write to, and so copy, pages shared with environments
    Supervisor(ClientLink(client), hello, home, limiter, run).run()


def _limiter(hello: wire.Hello, name: str) -> memory.MemoryLimiter:
    limiter = memory.choose(hello.memory, name)
    if not hello.emulate_cpu:
        return limiter
    try:
        return cpu.proportional(limiter, name)
    except PlatformError:
        limiter.close()
        raise


def _isolation(hello: wire.Hello, home: str) -> tuple[Callable[[environment.Birth], NoReturn], list[str]]:
    """How environments are made, and what they can reach of the client although they should not."""
    if not hello.strict:
        return environment.run, []
    folder = Path(home, "probe")
    folder.mkdir()
    hides = hiding.what_can_be_hidden(str(folder))
    folder.rmdir()
    return partial(strict.run, hides=hides, temp_mb=hello.temp_mb), hides.exposed()


def _greet(client: socket.socket) -> wire.Hello:
    """The first message; the client then waits for Ready, so nothing follows it yet."""
    for body in wire.bodies(client):
        return msgspec.msgpack.decode(body, type=wire.Hello)
    raise SystemExit("the client has closed the connection before its first message")


def _restore(variable: str, value: str | None) -> None:
    """Functions see the client's environment, not what was changed to start the launcher."""
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value


def _adopt_orphans() -> None:
    """Become the parent of processes that functions leave behind, so that they can be ended."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except PlatformError as problem:
        sys.exit(str(problem))
