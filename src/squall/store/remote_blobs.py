"""Blobs, counters and reductions by requests, whatever the socket."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from functools import partial
from io import BytesIO

from squall.errors import StoreError
from squall.records import Numbers, ReduceOp
from squall.store import wire
from squall.store.blobs import checked_count
from squall.store.connection import Connection
from squall.store.reductions import checked_form, form_of, little_endian
from squall.store.uploads import PART_BYTES, again, parts_of, regrouped, replaced

_POLL_S = 5.0  # longest wait in one request; a server forgets a lost client's that soon


class RemoteBlobs:
    """Blobs in the server's memory; implements :class:`squall.protocols.AtomicBlobs`.

    Values above :data:`~squall.store.uploads.PART_BYTES` travel in parts.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client = int.from_bytes(os.urandom(7))
        self._number = 0

    def put(self, key: str, value: bytes) -> None:
        """See :meth:`squall.protocols.Blobs.put`."""
        self._connection.request(wire.PutBlob(key, self._sent(key, value), self._once()), wire.Done)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See :meth:`squall.protocols.Blobs.put_if_absent`."""
        request = wire.PutBlob(key, self._sent(key, value), self._once(), if_absent=True)
        return self._connection.request(request, wire.Done).changed

    def get(self, key: str) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.get`."""
        return self.mget([key])[0]

    def mget(self, keys: list[str]) -> list[bytes | None]:
        """See :meth:`squall.protocols.Blobs.mget`: one round trip, and one for each part of what is large."""
        return again(partial(self._read, wire.GetBlobs(keys), keys))

    def wait(self, key: str, timeout: float) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.wait`."""
        deadline = time.monotonic() + timeout
        while True:
            part = part_of_wait(deadline)
            value = again(partial(self._read, wire.WaitBlob(key, part), [key], part))[0]
            if value is not None or time.monotonic() >= deadline:
                return value

    def delete(self, key: str) -> None:
        """See :meth:`squall.protocols.Blobs.delete`."""
        self._connection.request(wire.DeleteBlob(key), wire.Done)

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """See :meth:`squall.protocols.Blobs.put_stream`."""
        parts = regrouped(pieces)
        first, second = next(parts), next(parts, None)
        if second is None:
            self.put(key, first)
        else:
            upload = self._uploaded(key, itertools.chain((first, second), parts))
            self._connection.request(wire.PutBlob(key, upload, self._once()), wire.Done)

    def get_stream(self, key: str) -> Iterator[bytes] | None:
        """See :meth:`squall.protocols.Blobs.get_stream`; a value that came whole is one piece."""
        value = self._connection.request(wire.GetBlobs([key]), wire.Values).values[0]
        if value is None:
            return None
        return self._parts(key, value) if isinstance(value, wire.Large) else iter((value,))

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """See :meth:`squall.protocols.AtomicBlobs.compare_and_set`; ``expected`` fits into one request."""
        request = wire.CompareAndSet(key, expected, self._sent(key, value), self._once())
        return self._connection.request(request, wire.Done).changed

    def add(self, key: str, increment: int = 1) -> int:
        """See :meth:`squall.protocols.Reductions.add`."""
        request = wire.AddToCounter(key, checked_count(key, increment), self._once())
        return self._connection.request(request, wire.Counted).count

    def reduce(self, key: str, array: Numbers, op: ReduceOp, contributor: int) -> None:
        """See :meth:`squall.protocols.Reductions.reduce`."""
        form = form_of(op, array, key)
        values = self._sent(key, little_endian(array))
        once = self._once()
        request = wire.Reduce(key, op, contributor, form.dtype, form.shape, values, once)
        self._connection.request(request, wire.Done)

    def reduced(self, key: str, n: int, timeout: float) -> Numbers | None:
        """See :meth:`squall.protocols.Reductions.reduced`."""
        deadline = time.monotonic() + timeout
        while True:
            part = part_of_wait(deadline)
            result = again(partial(self._read_reduced, wire.GetReduced(key, n, part), part))
            if result is not None or time.monotonic() >= deadline:
                return result

    # ------------------------------------------------------------------------------- private

    def _once(self) -> wire.Once:
        self._number += 1
        return wire.Once(self._client, self._number)

    def _sent(self, key: str, value: bytes) -> bytes | wire.Upload:
        """The value itself, or what stands for it after it has been sent in parts."""
        return value if len(value) <= PART_BYTES else self._uploaded(key, parts_of(value))

    def _uploaded(self, key: str, parts: Iterable[bytes | memoryview]) -> wire.Upload:
        number, size = int.from_bytes(os.urandom(7)), 0
        try:
            for part in parts:
                self._connection.request(wire.PutPart(key, number, size, memoryview(part)), wire.Done)
                size += len(part)
        except BaseException:
            with contextlib.suppress(StoreError):  # it is given up there too, only later
                self._connection.request(wire.DropUpload(number), wire.Done)
            raise
        return wire.Upload(number, size)

    def _read(self, request: wire.Request, keys: list[str], wait: float = 0.0) -> list[bytes | None]:
        values = self._connection.request(request, wire.Values, wait).values
        return [self._whole(key, value) for key, value in zip(keys, values, strict=True)]

    def _read_reduced(self, request: wire.GetReduced, wait: float) -> Numbers | None:
        reply = self._connection.request(request, wire.Reduced, wait)
        values = self._whole(request.key, reply.values)
        if values is None:
            return None
        return checked_form("sum", reply.dtype, reply.shape, request.key).array(values)

    def _whole(self, key: str, value: bytes | wire.Large | None) -> bytes | None:
        if not isinstance(value, wire.Large):
            return value
        whole = BytesIO()  # whose value is had without another copy
        for part in self._parts(key, value):
            whole.write(part)
        return whole.getvalue()

    def _parts(self, key: str, value: wire.Large) -> Iterator[bytes]:
        done = 0
        while done < value.size:
            request = wire.GetPart(key, value.version, done)
            part = self._connection.request(request, wire.Values).values[0]
            if not isinstance(part, bytes) or not part:
                raise replaced(key)
            done += len(part)
            yield part


def part_of_wait(deadline: float) -> float:
    """Seconds to wait in one request."""
    return max(0.0, min(_POLL_S, deadline - time.monotonic()))
