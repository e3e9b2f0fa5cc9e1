"""Frames between the store's server and its clients.

A frame is a big-endian uint32 length and that many bytes of MessagePack: one of the
structs below, with its name as the tag.  The length is checked before anything is
allocated, the content is decoded into typed structs only, and nothing here is executed.
The first frame of a connection is :class:`Hello`; afterwards each request has one reply.
A reply that announces memory (:class:`JobMemory`, :class:`SharedMemory`) is followed by
one byte that carries the descriptor.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from squall.errors import StaleAttemptError, StoreError
from squall.records import Registration, Report, TableSpec

VERSION = 1
"""Version of this protocol; both ends must have the same."""

MAX_FRAME = 64 << 20
"""Largest frame in bytes."""

MAX_HELLO = 1024
"""Largest first frame in bytes: a stranger is not given more."""

HEADER_BYTES = 4

_HEADER = struct.Struct(">I")


class MalformedFrameError(StoreError):
    """The other side of a connection sent something that is not of this protocol."""


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=True):
    """Base of all messages: an array whose first element is the class's name."""


# -------------------------------------------------------------------------------- requests


class Hello(_Message, frozen=True):
    """First request: the client's protocol version."""

    version: int


class CreateTable(_Message, frozen=True):
    """`Tables.create`; the name is ``"<job>/<name>"``."""

    spec: TableSpec


class DropTable(_Message, frozen=True):
    """`Tables.drop`."""

    name: str


class DescribeTable(_Message, frozen=True):
    """`Tables.describe`; replied to by :class:`Description`."""

    name: str


class AttachTable(_Message, frozen=True):
    """Ask for a table's memory; replied to by :class:`SharedMemory`."""

    name: str


class PutBlob(_Message, frozen=True):
    """`Blobs.put`, or with ``if_absent`` `Blobs.put_if_absent`; replied to by :class:`Done`."""

    key: str
    value: bytes
    if_absent: bool = False


class GetBlobs(_Message, frozen=True):
    """`Blobs.get` and `Blobs.mget`; replied to by :class:`Values`."""

    keys: list[str]


class WaitBlob(_Message, frozen=True):
    """`Blobs.wait`; replied to by :class:`Values` of one."""

    key: str
    timeout: float


class DeleteBlob(_Message, frozen=True):
    """`Blobs.delete`."""

    key: str


class OpenJob(_Message, frozen=True):
    """`Control.open_job`."""

    job: str
    n_slots: int


class CloseJob(_Message, frozen=True):
    """`Control.close_job`."""

    job: str


class AttachJob(_Message, frozen=True):
    """Ask for a job's cells; replied to by :class:`JobMemory`."""

    job: str


class Register(_Message, frozen=True):
    """`Control.register`; replied to by :class:`Registered`."""

    job: str
    slot: int
    attempt: int
    pid: int


class SaveState(_Message, frozen=True):
    """`Control.save_state`."""

    job: str
    slot: int
    attempt: int
    state: bytes


class SendReport(_Message, frozen=True):
    """`Control.report`."""

    job: str
    report: Report


class GetReports(_Message, frozen=True):
    """`Control.reports`; replied to by :class:`Reports`."""

    job: str
    after: int
    timeout: float


TableRequest = CreateTable | DropTable | DescribeTable | AttachTable
BlobRequest = PutBlob | GetBlobs | WaitBlob | DeleteBlob
ControlRequest = OpenJob | CloseJob | AttachJob | Register | SaveState | SendReport | GetReports
Request = Hello | TableRequest | BlobRequest | ControlRequest


# --------------------------------------------------------------------------------- replies


class Welcome(_Message, frozen=True):
    """Reply to :class:`Hello`."""

    version: int


class Done(_Message, frozen=True):
    """It is done; ``changed`` is False if there was nothing to do."""

    changed: bool = True


class Description(_Message, frozen=True):
    """A table's spec."""

    spec: TableSpec


class SharedMemory(_Message, frozen=True):
    """A table's memory; its descriptor follows."""

    spec: TableSpec
    stride: int
    n_slots: int
    size: int


class JobMemory(_Message, frozen=True):
    """A job's cells; their descriptor follows."""

    n_slots: int
    size: int


class Values(_Message, frozen=True):
    """Values of blobs, None for those that are not there."""

    values: list[bytes | None]


class Registered(_Message, frozen=True):
    """What the new attempt takes over."""

    registration: Registration


class Reports(_Message, frozen=True):
    """Reports in the order in which they came."""

    reports: list[Report]


class Failed(_Message, frozen=True):
    """The request was refused; the client raises it again."""

    kind: str
    what: str
    where: str | None = None
    fix: str | None = None


Reply = Welcome | Done | Description | SharedMemory | JobMemory | Values | Registered | Reports | Failed

_ERRORS: dict[str, type[StoreError]] = {c.__name__: c for c in (StoreError, StaleAttemptError)}

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)

_T = TypeVar("_T")


def pack(message: Request | Reply) -> bytearray:
    """One frame.

    Raises
    ------
    StoreError
        If it would be larger than :data:`MAX_FRAME`.
    """
    frame = bytearray(HEADER_BYTES)
    _encoder.encode_into(message, frame, HEADER_BYTES)
    size = len(frame) - HEADER_BYTES
    if size > MAX_FRAME:
        raise StoreError(
            f"a message of {size} bytes is too large",
            where=type(message).__name__,
            fix=f"send at most {MAX_FRAME} bytes at once; keep larger values in the object store",
        )
    _HEADER.pack_into(frame, 0, size)
    return frame


def body_size(header: bytes | bytearray, limit: int = MAX_FRAME) -> int:
    """Bytes that follow a header of four bytes.

    Raises
    ------
    MalformedFrameError
        If the length is zero or above ``limit``.
    """
    (size,) = _HEADER.unpack(header)
    if not 0 < size <= limit:
        raise MalformedFrameError(f"a frame claims {size} bytes; 1 to {limit} are allowed")
    return int(size)


def unpack_request(body: bytes) -> Request:
    """Decode a request; raises `MalformedFrameError`."""
    return _unpack(_requests, body)


def unpack_reply(body: bytes | bytearray) -> Reply:
    """Decode a reply; raises `MalformedFrameError`."""
    return _unpack(_replies, body)


def _unpack(decoder: msgspec.msgpack.Decoder[_T], body: bytes | bytearray) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedFrameError(f"a frame does not hold a message: {error}") from error


def failure(error: StoreError) -> Failed:
    """How an error travels to the client."""
    kind = type(error).__name__
    return Failed(kind if kind in _ERRORS else "StoreError", error.what, error.where, error.fix)


def error_of(reply: Failed) -> StoreError:
    """The error that a reply stands for."""
    return _ERRORS.get(reply.kind, StoreError)(reply.what, where=reply.where, fix=reply.fix)
