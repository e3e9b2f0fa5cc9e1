"""What client, launcher and environments say to each other: MessagePack in length-prefixed frames."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import msgspec

from squall.records import Outcome

_HEADER = struct.Struct("<I")
MAX_FRAME_BYTES = 16 << 20
_READ_BYTES = 1 << 18


class Message(msgspec.Struct, array_like=True, frozen=True):
    """Base of all messages."""


# ---------------------------------------------------------------------- client to launcher


class Hello(Message, frozen=True, tag=1):
    """First of all: the launcher's settings."""

    concurrency: int
    memory: str  # "auto", "cgroup" or "watchdog"
    idle_s: float  # after which unused environments end, and the launcher offers to
    pythonpath: str | None  # the client's PYTHONPATH; the launcher's own was amended
    strict: bool = False  # a fresh Python for every environment; no queue: THROTTLED
    temp_mb: int = 0  # (strict) what a function may keep in its temp folder
    emulate_cpu: bool = False  # CPU time in proportion to memory


class Prepare(Message, frozen=True, tag=2):
    """What the functions of one shape need; invocations name it by ``key``."""

    key: int
    handler: str
    memory_mb: int
    timeout_s: float
    sys_path: list[str]
    readable: list[str] = []  # (strict) files and folders that it needs, beside the system's
    variables: dict[str, str] = {}  # (strict) environment variables; they may be secret

    def __repr__(self) -> str:
        return f"Prepare({self.key}, {self.handler!r}, {self.memory_mb} MB, {self.timeout_s} s)"


class Invoke(Message, frozen=True, tag=3):
    """Start an invocation."""

    id: str
    key: int
    event: bytes


class Cancel(Message, frozen=True, tag=4):
    """End an invocation, queued or running; nothing happens if it has ended."""

    id: str


# ---------------------------------------------------------------------- launcher to client


class Ready(Message, frozen=True, tag=11):
    """The launcher is up."""

    home: str  # its temp folder; in it one folder per environment, named by process id
    memory: str  # the mechanism in use
    exposed: list[str] = []  # (strict) what functions can reach of the client all the same


class Log(Message, frozen=True, tag=12):
    """An invocation wrote to its standard output or error."""

    id: str
    data: bytes


class End(Message, frozen=True, tag=13):
    """An invocation has ended; ``value`` is the JSON of what it returned."""

    id: str
    outcome: Outcome
    value: bytes = b""


class Idle(Message, frozen=True, tag=14):
    """Nothing has run for a while.  The client may close; if it does not, all goes on."""


# ---------------------------------------------------------------- launcher and environments


class Enter(Message, frozen=True, tag=20):
    """(strict) What a freshly started Python needs to know to become an environment."""

    shape: Prepare
    started: float
    launcher: int


class Call(Message, frozen=True, tag=21):
    """Call the handler; ``deadline`` is on CLOCK_MONOTONIC, 0 if still to be set."""

    id: str
    event: bytes
    deadline: float


class Loaded(Message, frozen=True, tag=22):
    """The handler is imported and its time starts now."""


class Done(Message, frozen=True, tag=23):
    """The handler has returned or raised; ``last`` if this environment takes no more calls."""

    value: bytes | None
    error_type: str = ""
    error: str = ""
    traceback: str = ""
    peak_memory: int = 0
    last: bool = False


# --------------------------------------------------------------------------------- frames

encode = msgspec.msgpack.Encoder().encode


def frame(message: Message) -> bytes:
    """A message ready to be sent."""
    body = encode(message)
    return _HEADER.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into the bodies of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take received bytes; yield every body that is now complete.

        Raises
        ------
        ValueError
            If a frame claims to be longer than any may be.
        """
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _HEADER.size:
                (length,) = _HEADER.unpack_from(self._buffer, start)
                if length > MAX_FRAME_BYTES:
                    raise ValueError(f"a frame of {length:,} bytes")
                end = start + _HEADER.size + length
                if len(self._buffer) < end:
                    return
                body = bytes(self._buffer[start + _HEADER.size : end])
                start = end
                yield body
        finally:
            del self._buffer[:start]


def bodies(channel: socket.socket) -> Iterator[bytes]:
    """Bodies of frames as they arrive on a blocking socket, until its other end closes."""
    frames = Frames()
    while data := channel.recv(_READ_BYTES):
        yield from frames.feed(data)
