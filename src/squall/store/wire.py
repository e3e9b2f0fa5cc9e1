"""Frames between the store's server and its clients.

A frame is a big-endian uint32 length and that many bytes of MessagePack: one of the
structs below, with its name as the tag.  The length is checked before anything is
allocated, the content is decoded into typed structs only, and nothing here is executed.
The first frame of a connection is :class:`Hello`, over TCP followed by a proof of the token
(:mod:`squall.store.auth`); afterwards each request has one reply.  A reply that announces
memory (:class:`JobMemory`, :class:`SharedMemory`) is followed by one byte that carries the
descriptor.

Rows and values travel as the bytes of little-endian arrays inside these structs (float32
values; rows uint32 where all of them fit, else int64), and are read where they were received.
Values come last in a frame, so that a receiver who lets the frame end on a multiple of eight
finds them aligned.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from squall.errors import StaleAttemptError, StoreError
from squall.records import Float32, Int64, Registration, Report, Stamp, Sync, TableSpec

VERSION = 3
"""Version of this protocol; both ends must have the same."""

MAX_FRAME = 64 << 20
"""Largest frame in bytes."""

MAX_PAYLOAD = MAX_FRAME - 4096
"""Most bytes of values in one frame."""

MAX_HELLO = 1024
"""Largest frame of a greeting in bytes: a stranger is not given more."""

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


class Proof(_Message, frozen=True):
    """Second request over TCP: that the client knows the token; see :mod:`squall.store.auth`."""

    nonce: bytes
    proof: bytes


class Listen(_Message, frozen=True):
    """(Unix socket only) Listen on TCP as well; replied to by :class:`Listening`."""


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


class PullRows(_Message, frozen=True):
    """`Tables.pull` of some rows; replied to by :class:`Weights`."""

    name: str
    narrow: bool
    rows: memoryview


class PullRange(_Message, frozen=True):
    """`Tables.pull` of rows from ``first`` on, as many as go into a piece; :class:`Weights`."""

    name: str
    first: int


class Update(_Message, frozen=True):
    """`Tables.push`, or with ``raw`` `Tables.add`; replied to by :class:`Applied`."""

    name: str
    stamp: Stamp
    raw: bool
    narrow: bool
    rows: memoryview
    dim: int
    values: memoryview


class Exchange(_Message, frozen=True):
    """`Tables.exchange`; replied to by :class:`Weights`.

    ``rows`` are the ``n_pushed`` rows of ``values`` (None: there is no push), then those to
    pull.
    """

    name: str
    stamp: Stamp
    n_pushed: int | None
    narrow: bool
    rows: memoryview
    dim: int
    values: memoryview


class Meet(_Message, frozen=True):
    """`Tables.meet`; replied to by :class:`Met`, after at most ``timeout`` seconds.

    ``rows`` are the ``n_pushed`` rows of ``values`` (None: there is no update), then those to
    pull, encoded as :mod:`squall.store.meetings` says.
    """

    name: str
    stamp: Stamp
    sync: Sync
    timeout: float
    n_pushed: int | None
    narrow: bool
    rows: memoryview
    encoding: str
    scale: float
    dim: int
    values: memoryview


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
    client: int = 0


class SaveState(_Message, frozen=True):
    """`Control.save_state`."""

    job: str
    slot: int
    attempt: int
    state: bytes


class SendReport(_Message, frozen=True):
    """`Control.report`; ``number`` rises by client, so that a repeat is known (0: no repeats)."""

    job: str
    report: Report
    client: int = 0
    number: int = 0


class GetReports(_Message, frozen=True):
    """`Control.reports`; replied to by :class:`Reports`."""

    job: str
    after: int
    timeout: float


class Advance(_Message, frozen=True):
    """`Control.advance`."""

    job: str
    slot: int
    attempt: int
    minibatches: int


class Barrier(_Message, frozen=True):
    """`Control.barrier`; replied to by :class:`Done`, ``changed`` if it has been passed."""

    job: str
    slot: int
    attempt: int
    number: int
    timeout: float


class Finish(_Message, frozen=True):
    """`Control.finish`."""

    job: str
    slot: int
    attempt: int


class GetProgress(_Message, frozen=True):
    """`Control.progress`; replied to by :class:`Progress`."""

    job: str
    slot: int


class RequestStop(_Message, frozen=True):
    """`Control.request_stop`."""

    job: str


class AskStop(_Message, frozen=True):
    """`Control.stop_requested`; replied to by :class:`Stopping`."""

    job: str


Greeting = Hello | Proof
TableData = PullRows | PullRange | Update | Exchange
TableRequest = CreateTable | DropTable | DescribeTable | AttachTable | TableData | Meet
BlobRequest = PutBlob | GetBlobs | WaitBlob | DeleteBlob
SlotRequest = Register | SaveState | SendReport | Advance | GetProgress | Barrier | Finish
ControlRequest = OpenJob | CloseJob | AttachJob | SlotRequest | GetReports | RequestStop | AskStop
Request = Greeting | Listen | TableRequest | BlobRequest | ControlRequest


# --------------------------------------------------------------------------------- replies


class Welcome(_Message, frozen=True):
    """End of the greeting; over TCP with the proof that the server knows the token too."""

    version: int
    proof: bytes = b""


class Challenge(_Message, frozen=True):
    """Reply to :class:`Hello` over TCP."""

    version: int
    nonce: bytes


class Listening(_Message, frozen=True):
    """Where the server listens on TCP, and the token that it asks for there."""

    address: str
    token: str

    def __repr__(self) -> str:
        return f"Listening({self.address!r}, token=***)"


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


class Applied(_Message, frozen=True):
    """An update was applied, or dropped as a repeat; and whether the job's workers are to stop."""

    changed: bool
    stop: bool


class Weights(_Message, frozen=True):
    """Some rows of a table of ``table_rows`` × ``dim``; and whether the job's workers are to stop."""

    table_rows: int
    dim: int
    stop: bool
    values: memoryview


class Met(_Message, frozen=True):
    """Rows of a table, or with ``ready`` False that the time was over before they could be read.

    ``held`` is for how many seconds the request waited for other slots.
    """

    ready: bool
    stop: bool
    held: float
    dim: int
    values: memoryview


class Progress(_Message, frozen=True):
    """Minibatches that a slot has fully applied."""

    minibatches: int


class Stopping(_Message, frozen=True):
    """Whether a job's workers are to stop; None if there is no such job."""

    stop: bool | None


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


GreetingReply = Welcome | Challenge | Listening
TableReply = Description | SharedMemory | Applied | Weights | Met
ControlReply = JobMemory | Registered | Reports | Progress | Stopping
Reply = GreetingReply | Done | TableReply | Values | ControlReply | Failed

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


def body_size(header: bytes | bytearray | memoryview, limit: int = MAX_FRAME) -> int:
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


def unpack_request(body: bytes | memoryview) -> Request:
    """Decode a request; raises `MalformedFrameError`."""
    return _unpack(_requests, body)


def unpack_reply(body: bytes | bytearray | memoryview) -> Reply:
    """Decode a reply; raises `MalformedFrameError`."""
    return _unpack(_replies, body)


def _unpack(decoder: msgspec.msgpack.Decoder[_T], body: bytes | bytearray | memoryview) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedFrameError(f"a frame does not hold a message: {error}") from error


def is_repeatable(request: Request) -> bool:
    """Whether a request may be sent again by a client that does not know if it was served.

    Updates and reports are recognised as repeats; put-if-absent would deny its own success.
    """
    return not (isinstance(request, PutBlob) and request.if_absent)


# --------------------------------------------------------------------------- rows and values

_WIDE, _NARROW, _VALUE = np.dtype("<i8"), np.dtype("<u4"), np.dtype("<f4")


def check_rows(rows: Int64) -> None:
    """Raise `StoreError` unless ``rows`` is an int64 vector."""
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise StoreError(f"rows: {rows.dtype} of shape {rows.shape}", fix="give an int64 vector")


def pack_rows(rows: Int64) -> tuple[bool, memoryview]:
    """Whether all row numbers fit into uint32, and their bytes, as these if they do."""
    narrow = 0 <= int(np.bitwise_or.reduce(rows)) < 1 << 32
    return narrow, np.ascontiguousarray(rows, dtype=_NARROW if narrow else _WIDE).data


def unpack_rows(data: memoryview, narrow: bool) -> Int64:
    """Row numbers from bytes; raises `StoreError` if these are not whole numbers."""
    kind = _NARROW if narrow else _WIDE
    if len(data) % kind.itemsize:
        raise _foreign(f"{len(data)} bytes are no rows")
    rows = np.frombuffer(data, dtype=kind)
    return rows.astype(np.int64, copy=narrow or _is_misaligned(rows))


def pack_values(values: Float32, n_rows: int) -> memoryview:
    """Values (n_rows, dim) as bytes; raises `StoreError` if they are not float32 of that shape."""
    if values.dtype != np.float32 or values.ndim != 2 or len(values) != n_rows:
        raise StoreError(
            f"values: {values.dtype} of shape {values.shape}", fix=f"give float32 of shape ({n_rows}, dim)"
        )
    return np.ascontiguousarray(values, dtype=_VALUE).data


def unpack_values(data: memoryview, n_rows: int, dim: int) -> Float32:
    """Values (n_rows, dim) from bytes, without a copy if they are aligned."""
    if dim < 1 or len(data) != n_rows * dim * _VALUE.itemsize:
        raise _foreign(f"{len(data)} bytes are not {n_rows} rows of {dim} float32")
    values = np.frombuffer(data, dtype=_VALUE)
    return values.astype(np.float32, copy=_is_misaligned(values)).reshape(n_rows, dim)


def _is_misaligned(array: npt.NDArray[Any]) -> bool:
    """Whether the kernels would refuse it; they ask that of an empty one too, NumPy does not."""
    return not (array.size and array.flags.aligned)


def _foreign(what: str) -> StoreError:
    return StoreError(what, fix="use the same Squall version on both sides")


# -------------------------------------------------------------------------------------- errors


def failure(error: StoreError) -> Failed:
    """How an error travels to the client."""
    kind = type(error).__name__
    return Failed(kind if kind in _ERRORS else "StoreError", error.what, error.where, error.fix)


def error_of(reply: Failed) -> StoreError:
    """The error that a reply stands for."""
    return _ERRORS.get(reply.kind, StoreError)(reply.what, where=reply.where, fix=reply.fix)
