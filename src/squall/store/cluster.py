"""A store of one's own: its shards' processes, their sockets, and what happens when one dies."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from squall.config import Problems
from squall.errors import StoreError
from squall.log import get_logger
from squall.store.closing import Closing
from squall.store.placement import MAX_SHARDS
from squall.store.process import server_environment
from squall.store.serving import BACKLOG
from squall.store.shard import ShardSettings
from squall.store.snapshots import Archive
from squall.units import parse_duration, parse_size

START_TIMEOUT_S = 300.0
"""Seconds that a shard may take to start, a restore included."""

END_TIMEOUT_S = 60.0
"""Seconds that a shard may take to end: it writes a last snapshot."""

MAX_RESTARTS = 5
"""Deaths of one shard within :data:`RESTARTS_S` after which the whole store ends."""

RESTARTS_S = 60.0
"""Seconds in which these are counted."""

MIN_TOKEN, MIN_TOKEN_LETTERS = 20, 6
"""Characters, and different ones, that a token needs beyond the loopback interface: a recorded greeting
lets anybody try tokens without asking the store."""

_LAST_PORT = 65535
_POLL_S = 0.1
_log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """What `squall store serve` is told; all that is wrong is reported at once.

    Parameters
    ----------
    listen : str
        ``"tcp://host:port"`` or ``"unix:/path"``.  Port 0 picks free ports.
    shards : int
        Processes; they listen on ``port``, ``port + 1``, …
    token : str, optional
        What clients must know; needed beyond the loopback interface.
    tls_cert, tls_key : path, optional
        PEM files; with them connections are by TLS.
    memory : str, optional
        Most that all shards' tables and blobs may take together.
    snapshot : str, optional
        Object store for snapshots: a folder or URL.
    snapshot_every : str, optional
        How often one is taken, such as ``"30s"``.
    keep : int
        Snapshots kept.
    restore : int, optional
        Number of a snapshot to begin with, 0 for the latest complete one.
    """

    listen: str = "tcp://127.0.0.1:0"
    shards: int = 1
    token: str | None = field(default=None, repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    memory: str | None = None
    snapshot: str | None = None
    snapshot_every: str | None = None
    keep: int = 3
    restore: int | None = None

    def __post_init__(self) -> None:
        problems = Problems("store serve")
        problems.integer("shards", self.shards, 1, high=MAX_SHARDS)
        problems.integer("keep", self.keep, 1)
        self._check_address(problems)
        self._check_tls(problems)
        if self.memory is not None:
            problems.check(parse_size, "memory", self.memory)
        if self.snapshot_every is not None:
            seconds = problems.check(parse_duration, "snapshot-every", self.snapshot_every)
            if seconds is not None and seconds < 1.0:
                problems.add(f"snapshot-every={self.snapshot_every!r} is below 1s")
            if self.snapshot is None:
                problems.add("snapshot-every needs snapshot, the place where they go")
        if self.restore is not None and self.snapshot is None:
            problems.add("a restore needs snapshot, the place where they are")
        problems.raise_if_any()

    def _check_address(self, problems: Problems) -> None:
        if self.is_unix:
            if self.shards != 1:
                problems.add("a Unix socket has one shard: its clients map the memory itself")
            if self.tls_cert is not None:
                problems.add("a Unix socket has no TLS")
            return
        try:
            host, port = self.host, self.port
        except ValueError:
            problems.add(f'listen={self.listen!r} must be "tcp://host:port" or "unix:/path"')
            return
        if port and isinstance(self.shards, int) and port + self.shards - 1 > _LAST_PORT:
            problems.add(
                f"listen={self.listen!r} leaves no port for each shard: {_LAST_PORT} is the last one"
            )
        if is_loopback(host):
            return
        if not self.token:
            problems.add(
                f"listen={self.listen!r} can be reached from elsewhere, so it needs a token: "
                "give --token-file, or set SQUALL_STORE_TOKEN"
            )
        elif len(set(self.token)) < MIN_TOKEN_LETTERS or len(self.token) < MIN_TOKEN:
            problems.add(
                f"listen={self.listen!r} can be reached from elsewhere, where a token of under {MIN_TOKEN} "
                "characters, or of few different ones, can be guessed: make one at random"
            )

    def _check_tls(self, problems: Problems) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            problems.add("tls-cert and tls-key belong together")
        for name, path in (("tls-cert", self.tls_cert), ("tls-key", self.tls_key)):
            if path is not None and not path.is_file():
                problems.add(f"{name}={str(path)!r} is not a file")
        if self.tls_cert is not None and not self.token:
            problems.add("TLS needs a token, which vouches for the certificate: give --token-file")

    @property
    def is_unix(self) -> bool:
        """Whether it listens on a Unix socket."""
        return self.listen.startswith("unix:") and len(self.listen) > len("unix:")

    @property
    def host(self) -> str:
        """The address to listen on; raises `ValueError` if there is none."""
        parts = urlsplit(self.listen)
        if parts.scheme != "tcp" or not parts.hostname or self.listen != f"tcp://{parts.netloc}":
            raise ValueError(self.listen)
        return parts.hostname

    @property
    def port(self) -> int:
        """The first shard's port."""
        port = urlsplit(self.listen).port
        if port is None:
            raise ValueError(self.listen)
        return port

    @property
    def is_everywhere(self) -> bool:
        """Whether it listens on all addresses of this machine."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_unspecified
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class StoreCluster(Closing):
    """The shards of one store, started together; a shard that dies is started again.

    Parameters
    ----------
    settings : ServeSettings
        How many, where, and how.

    Attributes
    ----------
    address : str
        Where clients connect: the first shard, which tells them of the others.
    folder : Path
        For files of its shards, removed at the end.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._incarnation = secrets.token_hex(4)
        # Theirs too, so that a shard that is killed leaves nothing.
        self.folder = Path(tempfile.mkdtemp(prefix="squall-store-"))
        self._shards: list[_Shard] = []
        self._listeners: list[socket.socket] = []
        _open.add(self)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._listeners = _listen(settings)
            restore = self._number_to_restore()
            self._start_all(restore)
            undo.pop_all()

    @property
    def address(self) -> str:
        """Where clients connect; by this machine's name if it listens on all of its addresses."""
        if self._settings.is_unix:
            return self._settings.listen
        scheme = "tcp" if self._settings.tls_cert is None else "tls"
        host = socket.gethostname() if self._settings.is_everywhere else self._settings.host
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{self._ports[0]}"

    @property
    def pids(self) -> list[int]:
        """Process ids of the shards, in order."""
        return [shard.popen.pid for shard in self._shards]

    def descriptors(self) -> set[int]:
        """Descriptors of this process that belong to it."""
        found = {listener.fileno() for listener in self._listeners}
        for shard in self._shards:
            found |= {pipe.fileno() for pipe in (shard.popen.stdin, shard.popen.stdout) if pipe}
        return found

    @property
    def _ports(self) -> tuple[int, ...]:
        if self._settings.is_unix:
            return ()
        return tuple(listener.getsockname()[1] for listener in self._listeners)

    def _number_to_restore(self) -> int | None:
        wanted, url = self._settings.restore, self._settings.snapshot
        if wanted is None or url is None:
            return None
        numbers = Archive(url, 0, self._settings.shards).common_numbers()
        if not numbers or wanted not in (0, *numbers):
            raise StoreError(
                f"there is no snapshot {wanted}" if numbers else "there is no snapshot",
                where=url,
                fix=f"choose one of {numbers}" if numbers else "check the URL",
            )
        return wanted or numbers[-1]

    def _start_all(self, restore: int | None) -> None:
        for shard in range(self._settings.shards):
            self._shards.append(_Shard(self._settings_of(shard, 0, restore)))
        for started in self._shards:
            started.wait_until_ready()

    def _settings_of(self, shard: int, restarts: int, restore: int | None) -> ShardSettings:
        settings = self._settings
        limit = None if settings.memory is None else parse_size(settings.memory) // settings.shards
        every = None if settings.snapshot_every is None else parse_duration(settings.snapshot_every)
        return ShardSettings(
            folder=str(self.folder),
            listener=self._listeners[shard].fileno(),
            shard=shard,
            ports=self._ports,
            incarnation=f"{self._incarnation}-{restarts}",
            token=settings.token,
            certificate=None if settings.tls_cert is None else str(settings.tls_cert),
            key=None if settings.tls_key is None else str(settings.tls_key),
            limit=limit,
            snapshot=settings.snapshot,
            every_s=every,
            keep=settings.keep,
            restore=restore,
        )

    def watch(self, until: Callable[[], bool]) -> None:
        """Start dead shards again until ``until`` says so.

        Raises
        ------
        StoreError
            If one dies again and again.
        """
        while not until():
            time.sleep(_POLL_S)
            self.restart_dead()

    def restart_dead(self) -> None:
        """Start again, from its latest snapshot if there is one, each shard that has died."""
        for at, shard in enumerate(self._shards):
            code = shard.popen.poll()
            if code is None:
                continue
            deaths = [t for t in shard.deaths if t > time.monotonic() - RESTARTS_S]
            if len(deaths) >= MAX_RESTARTS:
                raise StoreError(
                    f"shard {at} has died {len(deaths) + 1} times within {RESTARTS_S:g} s (exit code {code})",
                    where=self.address,
                    fix="look at what it wrote above; is the machine out of memory?",
                )
            _log.error("shard %d has died (exit code %d) and is started again", at, code)
            shard.discard()
            restarts = shard.restarts + 1
            again = _Shard(self._settings_of(at, restarts, 0), restarts, [*deaths, time.monotonic()])
            self._shards[at] = again
            again.wait_until_ready()

    def close(self) -> None:
        """End all shards; with snapshots, each writes a last one.  Idempotent."""
        shards, self._shards = self._shards, []
        now = int(1000 * time.time())
        for shard in shards:
            shard.ask_to_end(now)
        for shard in shards:
            shard.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
            if self._settings.is_unix:
                Path(self._settings.listen.removeprefix("unix:")).unlink(missing_ok=True)


_open: weakref.WeakSet[StoreCluster] = weakref.WeakSet()


def open_clusters() -> list[StoreCluster]:
    """Those of this process that have not been closed."""
    return [cluster for cluster in _open if cluster.pids]


class _Shard:
    """One shard's process."""

    def __init__(self, settings: ShardSettings, restarts: int = 0, deaths: list[float] | None = None) -> None:
        self.restarts, self.deaths = restarts, deaths or []
        self._shard = settings.shard
        self.popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "squall.store.shard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[settings.listener],
            start_new_session=True,  # Ctrl-C is for the parent
            env=server_environment(),
        )
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # seen when it is waited for
            self.popen.stdin.write(msgspec.json.encode(settings) + b"\n")
            self.popen.stdin.flush()

    def wait_until_ready(self) -> None:
        """Until it serves; raises `StoreError` if it ends instead."""
        assert self.popen.stdout is not None
        ready, _, _ = select.select([self.popen.stdout], [], [], START_TIMEOUT_S)
        line = self.popen.stdout.readline() if ready else b""
        if line == b"ready\n":
            return
        self.popen.kill()
        code = self.popen.wait()
        if line:
            what, where, fix = msgspec.json.decode(line, type=tuple[str, str | None, str | None])
            raise StoreError(what, where=where, fix=fix)
        raise StoreError(
            f"shard {self._shard} did not start (exit code {code})", fix="look at what it wrote above"
        )

    def ask_to_end(self, number: int) -> None:
        """It ends, with a last snapshot of that number if it takes any, when its input closes."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(b"%d\n" % number)
            self.popen.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()

    def wait(self) -> None:
        """Wait for its end; kill it if it hangs."""
        try:
            self.popen.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _log.error("shard %d did not end in time and is killed", self._shard)
            self.popen.kill()
            self.popen.wait()
        self.discard()

    def discard(self) -> None:
        """Close what belongs to a process that has ended."""
        assert self.popen.stdin is not None and self.popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        self.popen.stdout.close()


def _listen(settings: ServeSettings) -> list[socket.socket]:
    """One listening socket for each shard; they outlive the shards' processes."""
    try:
        if settings.is_unix:
            return [_listen_unix(settings.listen.removeprefix("unix:"))]
        first, listeners = settings.port, []
        with contextlib.ExitStack() as undo:
            for shard in range(settings.shards):
                port = first + shard if first else 0
                family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
                listener = socket.create_server((settings.host, port), family=family, backlog=BACKLOG)
                undo.callback(listener.close)
                listeners.append(listener)
            undo.pop_all()
        return listeners
    except OSError as error:
        raise StoreError(
            f"it cannot listen there: {error}", where=settings.listen, fix=_way_to_listen(settings, error)
        ) from error


def _way_to_listen(settings: ServeSettings, error: OSError) -> str:
    """What to do about a refusal."""
    number = error.errno
    if settings.is_unix:
        if number == errno.EADDRINUSE:
            return "end the store that is there, remove the file, or choose another path"
        if number in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR):
            return "choose a path in a folder that exists and that this user may write to"
        return "choose a path of at most 100 characters"
    if number in (socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL):
        return "check the name, or give an address of this machine, such as 127.0.0.1"
    if number in (errno.EACCES, errno.EPERM):
        return "choose a port above 1023: this user may not listen on lower ones"
    if number == errno.EADDRNOTAVAIL:
        return "give an address that this machine has, or 0.0.0.0 for all of them"
    return "choose another port (each shard takes one), or 0 for free ones"


def _listen_unix(path: str) -> socket.socket:
    if Path(path).is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                Path(path).unlink()  # left by a store that was killed
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o077)  # for this user only
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener
