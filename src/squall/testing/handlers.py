"""Handlers that the function platforms' contract suite calls.  Standard library only."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from squall.protocols import FunctionContext

Event = dict[str, Any]

_IMPORTED_IN = os.getpid()
"""The process that imported this module: the launcher's, where functions inherit its memory."""


def echo(event: Event, context: FunctionContext) -> Event:
    """Return the event."""
    return event


def about(event: Event, context: FunctionContext) -> Event:
    """Return what the context says, and who runs this."""
    return {
        "id": context.invocation_id,
        "memory_mb": context.memory_mb,
        "temp_dir": context.temp_dir,
        "cold_start_s": context.cold_start_s,
        "remaining_s": context.remaining_s(),
        "pid": os.getpid(),
        "monotonic": time.monotonic(),
    }


def modules(event: Event, context: FunctionContext) -> list[str]:
    """Return the names of all modules in memory."""
    return sorted(sys.modules)


def worker_modules(event: Event, context: FunctionContext) -> list[str]:
    """The same, once the training worker's entry point has been imported."""
    importlib.import_module("squall.worker.main")
    return modules(event, context)


def fail(event: Event, context: FunctionContext) -> None:
    """Raise a ValueError."""
    raise ValueError(event.get("text", "on purpose"))


def unserialisable(event: Event, context: FunctionContext) -> object:
    """Return what JSON cannot hold."""
    return {"bytes": b"x", "nan": float("nan"), "object": object()}[event["what"]]


def sleep(event: Event, context: FunctionContext) -> int:
    """Sleep for ``seconds``; return the process id."""
    time.sleep(event["seconds"])
    return os.getpid()


def spin(event: Event, context: FunctionContext) -> None:
    """Never end, without ever waiting."""
    while True:
        pass


def exit_with(event: Event, context: FunctionContext) -> None:
    """End the process by ``sys.exit`` or, if ``hard``, by ``os._exit``."""
    if event.get("hard"):
        os._exit(event["code"])
    sys.exit(event["code"])


def kill_self(event: Event, context: FunctionContext) -> None:
    """Send this process a signal."""
    os.kill(os.getpid(), event.get("signal", signal.SIGKILL))
    time.sleep(10)


def allocate(event: Event, context: FunctionContext) -> int:
    """Use ``megabytes`` of private memory, hold them for ``hold_s``, then return their number."""
    blocks = []
    for _ in range(event["megabytes"]):
        blocks.append(b"x" * (1 << 20))
        time.sleep(event.get("pause_s", 0.0))
    time.sleep(event.get("hold_s", 0.0))
    return len(blocks)


def allocate_and_die(event: Event, context: FunctionContext) -> None:
    """Use ``megabytes`` of private memory, then be killed for no reason to do with it."""
    block = b"x" * (event["megabytes"] << 20)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
    del block


def exit_if(event: Event, context: FunctionContext) -> None:
    """End the process if ``exit``."""
    if event["exit"]:
        sys.exit(1)


def write(event: Event, context: FunctionContext) -> None:
    """Write ``text`` to standard output, error, and past Python to the descriptor."""
    print(event["text"], "by print")
    print(event["text"], "to stderr", file=sys.stderr)
    os.write(1, f"{event['text']} by write\n".encode())
    subprocess.run(["/bin/sh", "-c", f"echo {event['text']} by a child"], check=True)


def litter(event: Event, context: FunctionContext) -> Event:
    """Leave files and folders behind; return what was there before, and where it is."""
    there = sorted(os.listdir(context.temp_dir))  # noqa: PTH208 - names are wanted
    handle, path = tempfile.mkstemp()
    os.close(handle)
    Path(context.temp_dir, "folder", "deeper").mkdir(parents=True, exist_ok=True)
    Path(context.temp_dir, "folder", "deeper", "file").write_text("x")
    return {"before": there, "temp_dir": context.temp_dir, "file": path, "pid": os.getpid()}


def nest(event: Event, context: FunctionContext) -> None:
    """Start a child that sleeps (as a ``daemon``: in a session of its own), and sleep as well."""
    command = ["/bin/sleep", str(event["seconds"])]
    with subprocess.Popen(command, start_new_session=event.get("daemon", False)) as child:
        print("child", child.pid)
        time.sleep(event["seconds"])


def abandon(event: Event, context: FunctionContext) -> int:
    """Leave a child behind and return its process id; or ``exit``."""
    if event["exit"]:
        sys.exit()
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid


def allocate_in_child(event: Event, context: FunctionContext) -> None:
    """Let a child process use ``megabytes`` of private memory for a while."""
    source = f"import time; x = b'x' * ({event['megabytes']} << 20); time.sleep(1)"
    subprocess.run([sys.executable, "-c", source], check=False)


def span(event: Event, context: FunctionContext) -> list[float]:
    """Sleep for ``seconds``; return when this began and ended, on the monotonic clock."""
    began = time.monotonic()
    time.sleep(event["seconds"])
    return [began, time.monotonic()]


def probe(event: Event, context: FunctionContext) -> list[str]:
    """Try to reach what is the client's; return the names of what could be reached.

    The event names a ``file`` in a ``folder`` of the client, its ``socket`` and ``abstract``
    Unix sockets, a ``variable`` of its environment, its ``cwd`` and its process id ``pid``.
    """
    proc = f"/proc/{event['pid']}"
    attempts: dict[str, Callable[[], object]] = {
        "descriptors": lambda: event["file"] in _open_files(),
        "file": lambda: Path(event["file"]).read_bytes(),
        "folder": lambda: list(Path(event["folder"]).iterdir()),
        "write": lambda: Path(event["folder"], "by a function").write_text("x"),
        "socket": lambda: _connects(event["socket"]),
        "abstract socket": lambda: _connects("\0" + event["abstract"]),
        "memory": lambda: os.getpid() != _IMPORTED_IN,
        "variable": lambda: event["variable"] in os.environ,
        "cwd": lambda: str(Path.cwd()) == event["cwd"],
        "environ in /proc": lambda: Path(f"{proc}/environ").read_bytes(),
        "files through /proc": lambda: Path(f"{proc}/root{event['file']}").read_bytes(),
        "signals": lambda: _may_signal(event["pid"]),
    }
    return [name for name, attempt in attempts.items() if _reached(name, attempt)]


def _reached(name: str, attempt: Callable[[], object]) -> bool:
    try:
        return bool(attempt())
    except OSError as error:
        print(name, error)
        return False


def _open_files() -> list[str]:
    """What the descriptors of this process are of."""
    return [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]


def _connects(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
    return True


def _may_signal(pid: int) -> bool:
    os.kill(pid, 0)
    return True


def fill(event: Event, context: FunctionContext) -> str:
    """Write ``megabytes`` to the temp folder; the error, if that ends in one."""
    try:
        with Path(context.temp_dir, "big").open("wb") as file:
            for _ in range(event["megabytes"]):
                file.write(b"x" * (1 << 20))
    except OSError as error:
        return error.strerror or "?"
    return ""


def variables(event: Event, context: FunctionContext) -> Event:
    """Return all environment variables."""
    return dict(os.environ)


def training_rows(event: Event, context: FunctionContext) -> list[int]:
    """Rows of each partition of the ``training`` data in ``storage``, read and checked."""
    objects = importlib.import_module("squall.data.objects").ObjectStore(event["storage"])
    manifest = importlib.import_module("squall.data.training").load_training(objects, event["training"])
    read = importlib.import_module("squall.data.partitions").read_training
    return [read(objects, info).n_rows for info in manifest.partitions]


def cpu_share(event: dict[str, Any], context: FunctionContext) -> float:
    """Work as fast as it may for some seconds; CPU seconds in each."""
    started, used = time.monotonic(), time.process_time()
    while time.monotonic() - started < event["seconds"]:
        pass
    return (time.process_time() - used) / (time.monotonic() - started)
