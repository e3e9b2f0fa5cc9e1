"""Local functions as the client sees them."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import secrets
import sys
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from squall.config import Isolation
from squall.errors import PlatformError, SettingError
from squall.functions import payload
from squall.functions.invocation import Ending
from squall.functions.limits import PlatformLimits, load_limits
from squall.functions.local import wire
from squall.functions.local.connection import Connection, ConnectionEndedError, LauncherKilledError
from squall.functions.local.readable import readable
from squall.functions.shapes import check_shape
from squall.log import get_logger
from squall.records import Shape

MAX_LOG_BYTES = 1 << 20
DEFAULT_CONCURRENCY = 1000
"""A backstop for the machine; what a new AWS account allows, too."""

_MIN_MEMORY_MB = 128  # as `Run` has it
_RULES = "aws-lambda"
_OBJECT_STORE_VARIABLES = frozenset(
    f"AWS_{name}"
    for name in (
        "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "DEFAULT_REGION", "ENDPOINT",
        "ENDPOINT_URL", "ENDPOINT_URL_S3", "ALLOW_HTTP", "VIRTUAL_HOSTED_STYLE_REQUEST", "SKIP_SIGNATURE",
        "UNSIGNED_PAYLOAD", "S3_EXPRESS", "REQUEST_PAYER", "CHECKSUM_ALGORITHM", "CONDITIONAL_PUT",
    )
)  # fmt: skip
_log = get_logger("squall.functions.local")


class LocalInvocation(Ending):
    """`squall.protocols.Invocation` of a local function.  Usable from any thread."""

    def __init__(self, call_id: str) -> None:
        super().__init__(call_id)
        self._connection: Connection | None = None
        self._log: deque[bytes] = deque()
        self._log_bytes = 0

    def cancel(self) -> bool:
        """Kill it, or take it off the queue; False if it has ended already."""
        return self._connection is not None and self._connection.cancel(self)

    def logs(self) -> str:
        """What it wrote to its standard output and error so far (the last 1 MB)."""
        with self._lock:
            return b"".join(self._log)[-MAX_LOG_BYTES:].decode(errors="replace")

    # ------------------------------------------------------------------ for the connection

    def bind(self, connection: Connection) -> None:
        """It is about to be submitted to this launcher."""
        self._connection = connection

    def add_log(self, data: bytes) -> None:
        """Keep what was written, the last megabyte of it."""
        with self._lock:
            self._log.append(data)
            self._log_bytes += len(data)
            while self._log_bytes - len(self._log[0]) >= MAX_LOG_BYTES:
                self._log_bytes -= len(self._log.popleft())


class LocalEndpoint:
    """`squall.protocols.Endpoint` of local functions.  Usable from any thread."""

    def __init__(self, platform: LocalPlatform, shape: Shape, prepared: wire.Prepare) -> None:
        self._platform = platform
        self._shape = shape
        self._prepared = prepared

    @property
    def shape(self) -> Shape:
        """The shape it was prepared for."""
        return self._shape

    def invoke(self, event: dict[str, Any]) -> LocalInvocation:
        """Start one invocation and return at once.

        Raises
        ------
        PlatformError
            If the event is too large or not JSON, or the platform is closed.
        """
        return self._platform._submit(self._prepared, payload.encode_event(event))


class LocalPlatform:
    """Functions as processes of this machine, behind `squall.protocols.FunctionPlatform`.

    The launcher starts with the first `prepare`, ends by itself after a minute in which
    nothing runs, and comes back when it is needed.  It ends with this object, at `close`,
    and with this process however that ends; then nothing is left of it.

    Parameters
    ----------
    concurrency : int, optional
        Invocations that may run at once; further ones wait their turn, first come, first
        served.  Default 1,000.
    lifetime_s : float, optional
        Upper limit to every shape's timeout: functions as short-lived as one wants them.
    isolation : {"off", "strict"}, default "off"
        With ``"strict"`` functions share nothing with the client and keep to the rules of
        AWS Lambda; see `LocalBackend`.
    emulate_cpu : bool
        Give functions CPU time in proportion to their memory; see `LocalBackend`.

    Notes
    -----
    A function is ended by SIGKILL when its time or memory is over.  Importing the handler
    (at most 30 s) does not count as its time, but is billed.  ``sys.exit`` in a handler ends
    the environment: the outcome is EXITED with that code.  Results that are not JSON, or
    larger than 6 MB, are RAISED.
    """

    def __init__(
        self,
        concurrency: int | None = None,
        lifetime_s: float | None = None,
        *,
        isolation: Isolation = "off",
        emulate_cpu: bool = False,
        _memory: str = "auto",
        _idle_s: float = 60.0,
    ) -> None:
        _check_system()
        if concurrency is not None and concurrency < 1:
            raise SettingError(f"concurrency is {concurrency}", fix="allow at least 1 function at once")
        if lifetime_s is not None and not lifetime_s > 0:
            raise SettingError(f"lifetime_s is {lifetime_s}", fix="give functions some time to live")
        self._strict = isolation == "strict"
        self._limits = load_limits(_RULES)
        if self._strict:
            _check_strict(lifetime_s, self._limits)
            lifetime_s = min(lifetime_s or math.inf, self._limits.timeout_s)
            concurrency = concurrency or self._limits.concurrency
        self._emulate_cpu = emulate_cpu
        self._settings = (concurrency or DEFAULT_CONCURRENCY, _memory, _idle_s)
        self._lifetime_s = lifetime_s
        self._prefix = f"local-{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)
        self._shapes: dict[tuple[Any, ...], wire.Prepare] = {}
        self._lock = threading.Lock()  # guards starting and closing
        self._held = _Held()
        self._closed = False
        weakref.finalize(self, self._held.close)  # also at exit
        self._pid = os.getpid()

    @property
    def name(self) -> str:
        """``"local"``."""
        return "local"

    def exposed(self) -> list[str]:
        """What strictly isolated functions can reach of the client all the same, in words.

        Empty where everything can be hidden.  Starts the launcher if none runs.
        """
        with self._lock:
            return self._launcher().exposed

    def prepare(self, shape: Shape) -> LocalEndpoint:
        """Make a function of this shape ready; starts the launcher if none runs.

        The function will see ``sys.path`` as it is now, and environment variables as they
        were when the launcher started; with strict isolation, only code on ``sys.path``, and
        of the variables only those that the object store needs, as they are now.

        Raises
        ------
        PlatformError
            If this machine cannot give that memory or time, the handler's name is not of
            the form ``"module:function"``, or the launcher does not start.
        """
        _check_shape(shape, self._limits if self._strict else None)
        timeout_s = min(shape.timeout_s, self._lifetime_s or math.inf)
        path = [str(Path(entry).absolute()) for entry in sys.path if isinstance(entry, str)]
        shown = readable(path, shape.handler) if self._strict else []
        given = _object_store_variables() if self._strict else {}
        identity = (shape.handler, shape.memory_mb, timeout_s, *path, *shown, *sorted(given.items()))
        with self._lock:
            connection = self._launcher()
            prepared = self._shapes.setdefault(
                identity,
                wire.Prepare(
                    len(self._shapes), shape.handler, shape.memory_mb, timeout_s, path, shown, given
                ),
            )
        with contextlib.suppress(ConnectionEndedError):  # then the first call prepares its successor
            connection.prepare(prepared)
        return LocalEndpoint(self, msgspec.structs.replace(shape, timeout_s=timeout_s), prepared)

    def close(self) -> None:
        """End everything that runs and give all resources back; idempotent.

        What was still running ends as KILLED.
        """
        with self._lock:
            self._closed = True
        self._held.close()  # without the lock: callbacks of what it ends may call us

    def _submit(self, shape: wire.Prepare, event: bytes) -> LocalInvocation:
        invocation = LocalInvocation(f"{self._prefix}-{next(self._numbers)}")
        while True:
            with self._lock:
                connection = self._launcher()
            invocation.bind(connection)
            try:
                connection.submit(invocation, shape, event)
            except ConnectionEndedError:
                continue  # it ended between the two lines: a new one is started
            return invocation

    def _launcher(self) -> Connection:
        """The running launcher, or a new one.  With the lock held."""
        if os.getpid() != self._pid:
            raise PlatformError(
                "this local platform belongs to the process that made it", fix="make a new one after the fork"
            )
        if self._closed:
            raise PlatformError("this local platform is closed", fix="make a new one")
        connection = self._held.current()
        if connection is None:
            hello = wire.Hello(
                *self._settings,
                os.environ.get("PYTHONPATH"),
                self._strict,
                self._limits.temp_mb,
                self._emulate_cpu,
            )
            connection = _connected(hello)
            self._held.add(connection)
            for what in connection.exposed:
                _log.warning("strict isolation cannot keep functions here from the client's %s", what)
        return connection


def _connected(hello: wire.Hello) -> Connection:
    """A new launcher; a second one if the first was killed while it started."""
    try:
        return Connection(hello)
    except LauncherKilledError as error:
        _log.warning("%s; starting another", error.what)
        return Connection(hello)


class _Held:
    """What a platform has to give back; apart from it, so that its finaliser can."""

    def __init__(self) -> None:
        self._connections: list[Connection] = []
        self._pid = os.getpid()

    def current(self) -> Connection | None:
        """The connection to use, if there is one."""
        return next((c for c in self._connections if c.is_open), None)

    def add(self, connection: Connection) -> None:
        """Take a connection; older ones are kept until all that they ran has been reported."""
        self._connections = [c for c in self._connections if not c.has_ended] + [connection]

    def close(self) -> None:
        """Close all, unless this is a forked child of the process that made them."""
        if os.getpid() == self._pid:
            for connection in self._connections:
                connection.close()


def _check_system() -> None:
    if os.name == "nt":
        raise PlatformError("local functions do not run on Windows itself", fix="use WSL")


def _check_strict(lifetime_s: float | None, limits: PlatformLimits) -> None:
    if sys.platform != "linux":
        raise PlatformError("strict isolation needs Linux", fix='use isolation="off"')
    if lifetime_s is not None and lifetime_s > limits.timeout_s:
        raise SettingError(
            f"lifetime_s is {lifetime_s:g}, more than the {limits.timeout_s:g} s of {limits.name}",
            fix=f'with isolation="strict" functions live at most {limits.timeout_s:g} s',
        )


def _object_store_variables() -> dict[str, str]:
    """What obstore needs to reach an object store; passed on, never shown."""
    return {name: value for name, value in os.environ.items() if name in _OBJECT_STORE_VARIABLES}


def _check_shape(shape: Shape, limits: PlatformLimits | None) -> None:
    machine_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    low = limits.memory_mb_min if limits else _MIN_MEMORY_MB
    check_shape(shape, low, min(machine_mb, limits.memory_mb_max) if limits else machine_mb)
