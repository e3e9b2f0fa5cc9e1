"""Frames between the store's server and its clients.

A frame is a big-endian uint32 length and that many bytes of MessagePack: one of the
structs below, with its name as the tag.  The length is checked before anything is
allocated, the content is decoded into typed structs only, and nothing here is executed.
The first frame of a connection is :class:`Hello`, over TCP followed by a proof of the token
(:mod:`squall.store.auth`); afterwards each request has one reply.  A reply that announces
memory (:class:`JobMemory`, :class:`SharedMemory`) is followed by one byte that carries the
descriptor.

What is asked of a table's rows, and the reply to it, are not MessagePack but a header of fixed
size and little-endian arrays (:class:`Rows`, :class:`Weights`): C++ packs and serves such a
frame (``_kernels/wire.hpp`` has the layout again).  Their first byte is below 0x80, which no struct's is.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeVar

import msgspec

from squall.errors import StaleAttemptError, StoreError, StoreFullError
from squall.records import Registration, Report, Stamp, Sync, TableSpec
from squall.store.stat import ShardStat

VERSION = 6
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


class KeepJob(_Message, frozen=True):
    """(Unix socket only) Write a snapshot of one job below ``url``; replied to by :class:`Snapshot`.

    With ``whole`` it is of one moment, however large the tables are: all others wait meanwhile.
    """

    job: str
    url: str
    number: int
    whole: bool


class RestoreJob(_Message, frozen=True):
    """(Unix socket only) Open a job as its latest snapshot below ``url`` holds it, if there is one.

    Replied to by :class:`Done`.
    """

    job: str
    url: str


class CreateTable(_Message, frozen=True):
    """`Tables.create`; ``spec`` is the whole table's, of which the server makes one shard's part."""

    spec: TableSpec
    shard: int = 0
    n_shards: int = 1
    source: str | None = None


class DropTable(_Message, frozen=True):
    """`Tables.drop`."""

    name: str


class DescribeTable(_Message, frozen=True):
    """`Tables.describe`; replied to by :class:`Description`."""

    name: str


class DumpRows(_Message, frozen=True):
    """Rows of this shard's part from ``first`` on; replied to by :class:`DumpedRows`."""

    name: str
    first: int


class LoadRows(_Message, frozen=True):
    """Set the rows of this shard's part from ``first`` on, and the step; ``values`` are float32."""

    name: str
    first: int
    stride: int
    step: int
    values: memoryview


class AttachTable(_Message, frozen=True):
    """Ask for a table's memory; replied to by :class:`SharedMemory`."""

    name: str


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


class Once(_Message, frozen=True):
    """Marks a request that must not be carried out twice: ``number`` rises by ``client``."""

    client: int
    number: int


class Upload(_Message, frozen=True):
    """A value of ``size`` bytes that has been sent in parts, by :class:`PutPart`."""

    number: int
    size: int


class PutPart(_Message, frozen=True):
    """A part of a value of that key, ``offset`` bytes of which have been sent before."""

    key: str
    upload: int
    offset: int
    data: memoryview


class DropUpload(_Message, frozen=True):
    """The rest of an upload will not come."""

    upload: int


class PutBlob(_Message, frozen=True):
    """`Blobs.put`, or with ``if_absent`` `Blobs.put_if_absent`; replied to by :class:`Done`."""

    key: str
    value: bytes | Upload
    once: Once
    if_absent: bool = False


class CompareAndSet(_Message, frozen=True):
    """`AtomicBlobs.compare_and_set`; replied to by :class:`Done`."""

    key: str
    expected: bytes | None
    value: bytes | Upload
    once: Once


class AddToCounter(_Message, frozen=True):
    """`Reductions.add`; replied to by :class:`Counted`."""

    key: str
    increment: int
    once: Once


class Reduce(_Message, frozen=True):
    """`Reductions.reduce`; ``values`` are little-endian."""

    key: str
    op: str
    contributor: int
    dtype: str
    shape: tuple[int, ...]
    values: bytes | Upload
    once: Once


class GetReduced(_Message, frozen=True):
    """`Reductions.reduced`; replied to by :class:`Reduced`."""

    key: str
    n: int
    timeout: float


class GetBlobs(_Message, frozen=True):
    """`Blobs.get` and `Blobs.mget`; replied to by :class:`Values`."""

    keys: list[str]


class GetPart(_Message, frozen=True):
    """Ask for a part of a :class:`Large` value; replied to by :class:`Values` of one."""

    key: str
    version: int
    offset: int


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


class LookAtSlot(_Message, frozen=True):
    """`Control.look`; replied to by :class:`Registered`."""

    job: str
    slot: int


class RequestStop(_Message, frozen=True):
    """`Control.request_stop`."""

    job: str


class AskStop(_Message, frozen=True):
    """`Control.stop_requested`; replied to by :class:`Stopping`."""

    job: str


class GetStat(_Message, frozen=True):
    """Ask how the server is; replied to by :class:`Status`."""


class TakeSnapshot(_Message, frozen=True):
    """Write a snapshot of that number now; replied to by :class:`Snapshot`."""

    number: int


Greeting = Hello | Proof
TableRequest = CreateTable | DropTable | DescribeTable | AttachTable | Meet | DumpRows | LoadRows
BlobUpdate = PutBlob | CompareAndSet | AddToCounter | Reduce
BlobRequest = BlobUpdate | PutPart | DropUpload | GetBlobs | GetPart | WaitBlob | GetReduced | DeleteBlob
SlotRequest = Register | SaveState | SendReport | Advance | GetProgress | LookAtSlot | Barrier | Finish
ControlRequest = OpenJob | CloseJob | AttachJob | SlotRequest | GetReports | RequestStop | AskStop
OfOwner = Listen | KeepJob | RestoreJob
Request = Greeting | OfOwner | GetStat | TakeSnapshot | TableRequest | BlobRequest | ControlRequest


# --------------------------------------------------------------------------------- replies


class Snapshot(_Message, frozen=True):
    """A complete snapshot of one shard: its number, and when it was taken (seconds since 1970)."""

    number: int
    taken_at: float


class ServerInfo(_Message, frozen=True):
    """Who answers.

    ``ports`` are those of all shards on that host, in order.  ``incarnation`` is another each time
    the process starts; ``restored`` is what it then began with, None for nothing.
    """

    incarnation: str = ""
    shard: int = 0
    ports: tuple[int, ...] = ()
    restored: Snapshot | None = None


class Welcome(_Message, frozen=True):
    """End of the greeting; where there is a token with the proof that the server knows it too."""

    version: int
    proof: bytes = b""
    server: ServerInfo = ServerInfo()


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
    """A table's spec, and which part of it is here."""

    spec: TableSpec
    shard: int
    n_shards: int


class SharedMemory(_Message, frozen=True):
    """A table's memory; its descriptor follows."""

    spec: TableSpec
    stride: int
    n_slots: int
    size: int


class DumpedRows(_Message, frozen=True):
    """As many rows as go into a piece, of the ``rows`` that are there; float32."""

    rows: int
    stride: int
    step: int
    values: memoryview


class JobMemory(_Message, frozen=True):
    """A job's cells; their descriptor follows."""

    n_slots: int
    size: int


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


class Large(_Message, frozen=True):
    """A value that is to be asked for in parts, by :class:`GetPart`."""

    size: int
    version: int


class Values(_Message, frozen=True):
    """Values of blobs, None for those that are not there."""

    values: list[bytes | Large | None]


class Counted(_Message, frozen=True):
    """What a counter is."""

    count: int


class Reduced(_Message, frozen=True):
    """The result of a reduction, None if too few have contributed yet."""

    dtype: str = ""
    shape: tuple[int, ...] = ()
    values: bytes | Large | None = None


class Registered(_Message, frozen=True):
    """What the new attempt takes over, or would."""

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


class Status(_Message, frozen=True):
    """How a server is."""

    stat: ShardStat


GreetingReply = Welcome | Challenge | Listening
TableReply = Description | SharedMemory | Met | DumpedRows
ControlReply = JobMemory | Registered | Reports | Progress | Stopping
BlobReply = Values | Counted | Reduced
Reply = GreetingReply | Done | Status | Snapshot | TableReply | BlobReply | ControlReply | Failed

_ERRORS: dict[str, type[StoreError]] = {
    c.__name__: c for c in (StoreError, StaleAttemptError, StoreFullError)
}

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
            fix=f"send at most {MAX_FRAME} bytes at once",
        )
    _HEADER.pack_into(frame, 0, size)
    return frame


def body_size(data: bytes | bytearray | memoryview, limit: int = MAX_FRAME, at: int = 0) -> int:
    """Bytes that follow the header of four bytes at ``at``.

    Raises
    ------
    MalformedFrameError
        If the length is zero or above ``limit``.
    """
    (size,) = _HEADER.unpack_from(data, at)
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


# --------------------------------------------------------------------------- rows and values

PULL, PULL_RANGE, PUSH, ADD, EXCHANGE = 1, 2, 3, 4, 5
"""What a frame of rows asks for.

`PULL_RANGE` reads ``n_pulled`` rows (or as many as a piece holds) from number ``sequence`` on;
`EXCHANGE` is a `PUSH`, unless ``n_pushed`` is 0 and it says :data:`NO_PUSH`, and then a `PULL`.
"""

ROWS = {PULL: "pull", PULL_RANGE: "pull all", PUSH: "push", ADD: "add", EXCHANGE: "exchange"}
"""Names of these, for people."""

NARROW_ROWS, HALF_VALUES, HALF_REPLY, NO_PUSH = 1, 2, 4, 8
"""Flags of a frame of rows: uint32 row numbers, float16 values, a float16 reply, no push."""

CHANGED, STOP, HALF_WEIGHTS = 1, 2, 4
"""Flags of a reply: not a repeat; the job's workers are to stop; the weights are float16."""

# The length of the frame first; all big-endian, unlike the arrays, since that is the network's way.
_REQUEST = struct.Struct(">IBBHiqqqIII")
_REPLY = struct.Struct(">IBBHIq")
_WEIGHTS = 9

MESSAGEPACK = 0x80
"""Least first byte of a struct; a frame of rows begins with a smaller one."""

REQUEST_BYTES = _REQUEST.size
"""Where the table's name begins in a frame of rows."""

REPLY_BYTES = _REPLY.size
"""Where the weights begin in the reply to it."""

MAX_NAME = 1600
"""Bytes of a table's name in UTF-8."""


class Rows(NamedTuple):
    """A request about rows of a table, but for the table's name and the arrays.

    In a frame these follow the header: the name, padded by zeros to a multiple of four bytes,
    the numbers of the rows to change, of those to read, and values (n_pushed, dim).
    """

    size: int
    kind: int
    flags: int
    name_bytes: int
    slot: int
    attempt: int
    sequence: int
    minibatches: int
    dim: int
    n_pushed: int
    n_pulled: int


class Weights(NamedTuple):
    """The reply to :class:`Rows`: weights (n, dim) follow it, in a table of ``table_rows``."""

    size: int
    kind: int
    flags: int
    reserved: int
    dim: int
    table_rows: int


def padded(n_bytes: int) -> int:
    """Bytes that a name takes in a frame."""
    return -(-n_bytes // 4) * 4


def is_of_rows(frame: bytes | memoryview) -> bool:
    """Whether a whole frame is :class:`Rows` or :class:`Weights` rather than a struct."""
    return frame[HEADER_BYTES] < MESSAGEPACK


def unpack_rows(frame: memoryview) -> tuple[Rows, bytes]:
    """A request and the name of its table, from a whole frame; raises `MalformedFrameError`.

    The counts are not checked against the frame: the kernel does that before it uses them.
    """
    if len(frame) < REQUEST_BYTES:
        raise MalformedFrameError(f"a frame of {len(frame)} bytes is too short for a request about rows")
    request = Rows._make(_REQUEST.unpack_from(frame))
    if not PULL <= request.kind <= EXCHANGE:
        raise MalformedFrameError(f"there is no request {request.kind} about rows")
    end = REQUEST_BYTES + request.name_bytes
    if request.name_bytes > MAX_NAME or end > len(frame):
        raise MalformedFrameError(f"a name of {request.name_bytes} bytes does not fit the frame")
    return request, bytes(frame[REQUEST_BYTES:end])


def pack_weights(frame: memoryview, flags: int, dim: int, table_rows: int, n_bytes: int) -> int:
    """Write the header of a reply whose weights take ``n_bytes``; returns the frame's size."""
    size = REPLY_BYTES + n_bytes
    _REPLY.pack_into(frame, 0, size - HEADER_BYTES, _WEIGHTS, flags, 0, dim, table_rows)
    return size


def unpack_weights(frame: bytes | memoryview) -> Weights:
    """The header of a reply, from the beginning of its frame; raises `MalformedFrameError`."""
    if len(frame) < REPLY_BYTES:
        raise MalformedFrameError("a reply is too short to hold weights")
    reply = Weights._make(_REPLY.unpack_from(frame))
    if reply.kind != _WEIGHTS:
        raise MalformedFrameError(f"a reply of kind {reply.kind} came where weights were due")
    return reply


# -------------------------------------------------------------------------------------- errors


def failure(error: StoreError) -> Failed:
    """How an error travels to the client."""
    kind = type(error).__name__
    return Failed(kind if kind in _ERRORS else "StoreError", error.what, error.where, error.fix)


def error_of(reply: Failed) -> StoreError:
    """The error that a reply stands for."""
    return _ERRORS.get(reply.kind, StoreError)(reply.what, where=reply.where, fix=reply.fix)
