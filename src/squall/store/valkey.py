"""A store that is somebody's Valkey (or Redis 7) server: blobs and control, but no tables.

Everything that must happen at once is a script that the server runs.  A client numbers the
scripts that change something, and each keeps its latest answer: so one that is sent again after
the connection was lost is carried out once.  All keys begin with ``squall:``; a cluster of
servers is not supported, since a script's keys lie on one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

import valkey
from valkey.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoScriptError,
    OutOfMemoryError,
    ResponseError,
    TimeoutError,
    ValkeyError,
)

from squall.errors import StoreError, StoreFullError, StoreLostError
from squall.protocols import Tables
from squall.store.closing import Closing
from squall.store.connection import REPLY_TIMEOUT_S, Patience
from squall.store.opening import no_tables
from squall.store.valkey_blobs import ValkeyBlobs
from squall.store.valkey_control import ValkeyControl

RETRIES = 10
"""How often a command is sent again after the connection was lost: for some 3 s."""

BLOCK_S = 5.0
"""Longest wait in one command."""

_CONNECT_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
_PORT = 6379

_ONCE = """
local known = redis.call('HMGET', KEYS[1], 'number', 'reply')
if known[1] == ARGV[1] then return known[2] end
local function ring(bell)
  redis.call('XADD', bell, 'MAXLEN', 1, '*', 'rung', 1)
  redis.call('EXPIRE', bell, 60)
end
local function act()
%s
end
local reply = act()
redis.call('HSET', KEYS[1], 'number', ARGV[1], 'reply', reply)
redis.call('EXPIRE', KEYS[1], 120)
return reply
"""


def connect(address: str, token: str = "", patience: Patience | None = None) -> ValkeyStore:
    """Connect to the server at ``"redis://host:port/db"``, by TLS ``"rediss://…"``.

    Parameters
    ----------
    address : str
        Where it is; may hold a user and a password.
    token : str
        The password, if the address holds none.
    patience : callable, optional
        Seconds that a reply may take, asked once.

    Raises
    ------
    StoreError
        If the address is not of this form, nobody answers there, or the password is wrong.
    """
    with contextlib.ExitStack() as undo:
        store = ValkeyStore(ValkeyConnection(address, token, patience))
        undo.callback(store.close)
        store.open()
        undo.pop_all()
    return store


class ValkeyStore(Closing):
    """One process's view of the server; it belongs to the thread that made it.

    Parameters
    ----------
    connection : ValkeyConnection
        To the server; the store closes it.

    Attributes
    ----------
    blobs : ValkeyBlobs
        Implements :class:`squall.protocols.AtomicBlobs`.
    control : ValkeyControl
        Implements :class:`squall.protocols.Control`.
    """

    def __init__(self, connection: ValkeyConnection) -> None:
        self._connection = connection
        self.blobs = ValkeyBlobs(connection)
        self.control = ValkeyControl(connection)

    @property
    def tables(self) -> Tables:
        """There are none; raises `StoreError`."""
        raise no_tables(self.address)

    @property
    def address(self) -> str:
        """Where it is connected, without a password."""
        return self._connection.shown

    def open(self) -> None:
        """Connect now rather than with the first command."""
        self._connection.command("PING")

    def close(self) -> None:
        """Disconnect; idempotent."""
        self._connection.close()


class ValkeyConnection:
    """A connection to the server, made on first use and made again when it is lost.

    Attributes
    ----------
    shown : str
        The address without its password.
    client : int
        A number that no other connection has.
    """

    def __init__(self, address: str, token: str = "", patience: Patience | None = None) -> None:
        options, self.shown = _parsed(address)
        options["password"] = options["password"] or token or None
        self._valkey = valkey.Valkey(
            **options,
            socket_timeout=(patience or (lambda: REPLY_TIMEOUT_S))() + BLOCK_S,
            socket_connect_timeout=_CONNECT_S,
            single_connection_client=False,
        )
        self.client = int.from_bytes(os.urandom(6))
        self._number = 0
        self._pid = os.getpid()
        self._closed = False

    def command(self, *words: Any) -> Any:
        """The reply to a command that may be repeated."""
        return self._sent(lambda: self._valkey.execute_command(*words))  # type: ignore[no-untyped-call]

    def read(self, script: str, keys: Sequence[str], *arguments: Any) -> Any:
        """What a script gives that may be repeated."""
        return self._sent(lambda: self._run(script, keys, arguments))

    def once(self, script: str, keys: Sequence[str], *arguments: Any) -> Any:
        """What a script gives that is carried out once: ``KEYS[2]`` and ``ARGV[2]`` are its first.

        It returns a string, and may ``ring`` a bell.
        """
        self._number += 1
        keys, arguments = (f"squall:once:{self.client}", *keys), (self._number, *arguments)
        return self._sent(lambda: self._run(_ONCE % script, keys, arguments))

    def listen(self, bell: str, heard: Any, timeout: float) -> None:
        """Wait until a bell is rung after what was ``heard`` last, for at most :data:`BLOCK_S`."""
        milliseconds = int(1000 * min(BLOCK_S, timeout))
        if milliseconds > 0:
            self.command("XREAD", "COUNT", 1, "BLOCK", milliseconds, "STREAMS", bell, heard)

    def close(self) -> None:
        """Disconnect; idempotent."""
        self._closed = True
        self._valkey.close()  # type: ignore[no-untyped-call]

    def _run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        try:
            return self._valkey.evalsha(digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return self._valkey.eval(script, len(keys), *keys, *arguments)

    def _sent(self, send: Any) -> Any:
        if self._closed or os.getpid() != self._pid:
            why = (
                "has been closed"
                if self._closed
                else f"belongs to process {self._pid}, of which this is a fork"
            )
            raise StoreError(f"this connection {why}", where=self.shown, fix="connect again")
        with self._named():
            for pause in _pauses():
                try:
                    return send()
                except (AuthenticationError, TimeoutError):
                    raise
                except ConnectionError:
                    time.sleep(pause)
            return send()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """The client's errors in words that say what to do about them; none of them shows the password."""
        try:
            yield
        except ValkeyError as error:
            self._raise(error)

    def _raise(self, error: ValkeyError) -> NoReturn:
        text = str(error)
        if isinstance(error, AuthenticationError) or text.startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
            fix = "give a user and password: redis://user:password@host:port"
            raise StoreError("it refuses this user or password", where=self.shown, fix=fix) from None
        if isinstance(error, TimeoutError):
            raise StoreLostError(
                "it does not answer", where=self.shown, fix="see whether it is busy"
            ) from None
        if isinstance(error, ConnectionError):
            fix = "start it, or check the address; what it does not keep on disk is lost with it"
            raise StoreLostError(f"it cannot be reached ({text})", where=self.shown, fix=fix) from None
        if isinstance(error, OutOfMemoryError) or "OOM" in text:
            fix = "raise its maxmemory, or close other jobs"
            raise StoreFullError("the server has no memory left", where=self.shown, fix=fix) from None
        known = isinstance(error, ResponseError)
        raise StoreError(
            f"the server refused: {text}" if known else text,
            where=self.shown,
            fix="use Valkey, or Redis 7 or later, that allows scripts and streams",
        ) from None


def _pauses() -> Iterator[float]:
    for failures in range(RETRIES):
        yield min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**failures)


def _parsed(address: str) -> tuple[dict[str, Any], str]:
    """What an address means, and the address without its password."""
    try:
        parts = urlsplit(address)
        port, database = parts.port or _PORT, int(parts.path.strip("/") or "0")
    except ValueError:
        parts, port, database = urlsplit(""), 0, 0
    if parts.scheme not in ("redis", "rediss") or not parts.hostname or parts.query or parts.fragment:
        # Not shown: it may hold a password.
        raise StoreError(
            "this is not the address of a Valkey or Redis server",
            fix='use "redis://host:port/database" or, by TLS, "rediss://…"',
        )
    options = {
        "host": parts.hostname,
        "port": port,
        "db": database,
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "ssl": parts.scheme == "rediss",
    }
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return options, f"{parts.scheme}://{'***@' if '@' in parts.netloc else ''}{host}:{port}/{database}"
