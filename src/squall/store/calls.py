"""A client's requests about rows of a table: to one shard or several, in one round trip.

One C++ object packs the frames, sends and receives them by the connections' sockets and puts the
replies together (:class:`squall._kernels.FrameClient`).  What is out of the ordinary (TLS, a
connection that was lost, a refusal) is up to :class:`~squall.store.tcp.TcpConnection`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from squall._kernels import FrameClient, Status
from squall.errors import StoreError
from squall.records import Float32, Int64, Stamp
from squall.store import wire

if TYPE_CHECKING:
    from squall.store.tcp import TcpConnection

_Array = TypeVar("_Array", Int64, Float32)

_BAD_ARGUMENT = (TypeError, ValueError, IndexError, OverflowError)
_FAILURES: dict[int, Callable[[], OSError | StoreError]] = {
    Status.CLOSED: lambda: ConnectionResetError("the server closed the connection"),
    Status.SEND_TIMED_OUT: lambda: TimeoutError("it takes no more requests"),
    Status.RECEIVE_TIMED_OUT: lambda: TimeoutError("no reply"),
    Status.BAD_SIZE: lambda: wire.MalformedFrameError(
        f"a reply claims no bytes, or more than {wire.MAX_FRAME}"
    ),
    Status.TRAILING_BYTES: lambda: wire.MalformedFrameError("bytes follow a reply"),
}


class RowsCaller:
    """Calls about rows, each to all shards of a store at once.

    Parameters
    ----------
    shards : list of TcpConnection
        To each shard, in order.
    """

    def __init__(self, shards: Sequence[TcpConnection]) -> None:
        self._shards = shards
        self._client = FrameClient(len(shards))
        self._title = "", b""  # the last table's name

    def call(
        self,
        kind: int,
        flags: int,
        name: str,
        stamp: Stamp,
        push: tuple[Int64, Float32] | None = None,
        pull: Int64 | None = None,
        table_rows: int = 0,
        stretch: int = 0,
    ) -> tuple[int, Float32 | None]:
        """One round trip; of several shards, rows go ``stretch`` to each, or in turn if that is 0.

        Returns
        -------
        said : int
            :data:`~squall.store.wire.CHANGED` and :data:`~squall.store.wire.STOP`, if any shard says so.
        weights : (n, dim) float32, optional
            Of the rows ``pull``.

        Raises
        ------
        StoreError, StaleAttemptError
            If the arguments make no frame, or what a server answered, or that it cannot be reached.
        """
        held: list[TcpConnection] = []
        try:
            for shard in self._shards:
                shard.hold()
                held.append(shard)
            self._pack(kind, flags, name, stamp, push, pull, table_rows, stretch)
            said = self._talk()
            return said, None if pull is None else self._client.weights()
        finally:
            for shard in held:
                shard.release()

    def pull_all(self, name: str, at: int = 0) -> Float32:
        """All rows that one shard has of a table, piece by piece."""
        done, whole = 0, None
        while whole is None or done < len(whole):
            reply = self._pull_piece(name, at, done)
            header = wire.unpack_weights(reply)
            if whole is None:
                whole = np.empty((header.table_rows, header.dim), dtype=np.float32)
            count, rest = divmod(len(reply) - wire.REPLY_BYTES, 4 * max(1, header.dim))
            if rest or (header.table_rows, header.dim) != whole.shape or not 0 < count <= len(whole) - done:
                raise StoreError("it changed its shape while it was pulled", where=f"table {name!r}")
            piece = np.frombuffer(reply, np.float32, count * header.dim, wire.REPLY_BYTES)
            whole[done : done + count] = piece.reshape(count, header.dim)
            done += count
        return whole

    def _pull_piece(self, name: str, at: int, first: int) -> bytes | memoryview:
        shard = self._shards[at]
        shard.hold()
        try:
            self._pack(wire.PULL_RANGE, 0, name, Stamp(0, 0, first), None, None, 1, 0)
            frame = self._client.request(at)
            shard.start(frame)
            reply = shard.fetch(frame)
            if not wire.is_of_rows(reply):
                shard.refuse(reply)
            return reply
        finally:
            shard.release()

    def _pack(
        self,
        kind: int,
        flags: int,
        name: str,
        stamp: Stamp,
        push: tuple[Int64, Float32] | None,
        pull: Int64 | None,
        table_rows: int,
        stretch: int,
    ) -> None:
        if name != self._title[0]:
            self._title = name, name.encode("utf-8", "surrogatepass")
        pushed, values = (None, None) if push is None else push
        try:
            self._client.pack(
                kind,
                flags,
                self._title[1],
                stamp.slot,
                stamp.attempt,
                stamp.sequence,
                stamp.minibatches,
                _contiguous(pushed),
                _contiguous(values),
                _contiguous(pull),
                table_rows,
                stretch,
            )
        except OverflowError as error:
            raise StoreError(f"{stamp} cannot stamp an update: {error}", where=f"table {name!r}") from error
        except _BAD_ARGUMENT as error:
            raise StoreError(
                str(error), where=f"table {name[:80]!r}", fix="give int64 rows and float32 values (n, dim)"
            ) from error

    def _talk(self) -> int:
        """Send what has been packed; flags of the replies, all of which are weights."""
        client, shards = self._client, self._shards
        try:
            fds = [shard.begin(client, at) for at, shard in enumerate(shards)]
            said = client.talk(fds)
        except BaseException:
            for shard in shards:
                shard.drop()  # a late reply would be taken for the next one's
            raise
        return said if said >= 0 else self._talk_on()

    def _talk_on(self) -> int:
        """Go on where `_talk` could not."""
        failure = None
        for at, shard in enumerate(self._shards):
            try:
                self._complete(shard, at)
            except StoreError as error:
                failure = failure or error  # the others' replies must be read all the same
            except BaseException:
                for rest in self._shards[at:]:
                    rest.drop()
                raise
        if failure is not None:
            raise failure
        return self._client.said()

    def _complete(self, shard: TcpConnection, at: int) -> None:
        """Get one shard's weights, whatever it takes."""
        client, status = self._client, self._client.status(at)
        reply: bytes | memoryview
        if status == Status.DONE:
            reply = client.reply(at)
        elif status == Status.NOT_TRIED:
            reply = shard.fetch(client.request(at))
        else:
            error = _FAILURES[status]() if status < 0 else OSError(status, os.strerror(status))
            reply = shard.fetch(client.request(at), error)
        if not client.accept(at, reply):
            shard.refuse(reply)


def _contiguous(array: _Array | None) -> _Array | None:
    return array if array is None or array.flags.c_contiguous else np.ascontiguousarray(array)
