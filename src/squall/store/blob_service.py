"""What the store's server does for each request about blobs, counters and reductions."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from squall.store import wire
from squall.store.blobs import BlobCore, Stored
from squall.store.reductions import check_contributor, check_n, checked_form
from squall.store.uploads import PART_BYTES, Uploads

MAX_CLIENTS = 1 << 16
"""Clients whose latest request is remembered, in case they send it again."""


class BlobService:
    """Blobs by requests.

    Parameters
    ----------
    check_room : callable
        Raises `StoreFullError` unless so many bytes more fit; the second argument says of what.
    """

    def __init__(self, check_room: Callable[[int, str], None]) -> None:
        self.core = BlobCore()
        self._uploads = Uploads()
        self._check_room = check_room
        self._latest: OrderedDict[int, tuple[int, wire.Reply]] = OrderedDict()

    @property
    def n_bytes(self) -> int:
        """Bytes of all that is held."""
        return self.core.n_bytes + self._uploads.n_bytes

    def drop_job(self, job: str) -> None:
        """Remove all that a job holds."""
        self.core.drop_job(job)
        self._uploads.drop_job(job)

    def answer(self, request: wire.BlobRequest) -> wire.Reply:
        """Do what a request asks for, without waiting."""
        match request:
            case wire.PutBlob() | wire.CompareAndSet() | wire.AddToCounter() | wire.Reduce():
                return self._once(request)
            case wire.PutPart(key, upload, offset, data):
                self._check_room(len(data), f"blob {key!r}")
                self._uploads.add(upload, key, offset, bytes(data), time.monotonic())
                return wire.Done()
            case wire.DropUpload():
                self._uploads.drop(request.upload)
                return wire.Done()
            case wire.GetBlobs():
                return self._values(request.keys)
            case wire.GetPart(key, version, offset):
                return wire.Values([self.core.part(key, version, offset, PART_BYTES)])
            case wire.DeleteBlob():
                self.core.delete(request.key)
                return wire.Done()
            case wire.WaitBlob():
                return self._values([request.key])
            case wire.GetReduced():
                return self._reduced(request) or wire.Reduced()

    def ready(self, request: wire.WaitBlob | wire.GetReduced) -> wire.Reply | None:
        """The answer to a request that may have to wait, if it need not."""
        if isinstance(request, wire.GetReduced):
            return self._reduced(request)
        return self._values([request.key]) if self.core.get(request.key) is not None else None

    def _once(self, request: wire.BlobUpdate) -> wire.Reply:
        """Carry an update out, or say again what came of it."""
        client, number = request.once.client, request.once.number
        latest = self._latest.get(client)
        if latest is not None and latest[0] == number:
            return latest[1]
        reply = self._update(request)
        self._latest[client] = (number, reply)
        self._latest.move_to_end(client)
        if len(self._latest) > MAX_CLIENTS:
            self._latest.popitem(last=False)
        return reply

    def _update(self, request: wire.BlobUpdate) -> wire.Reply:
        core = self.core
        match request:
            case wire.PutBlob(key, value, _, if_absent):
                parts = self._parts(key, value)  # also of what is refused: it is no upload any more
                if if_absent:
                    return wire.Done(core.put_if_absent(key, *parts))
                core.put(key, *parts)
                return wire.Done()
            case wire.CompareAndSet(key, expected, value):
                return wire.Done(core.compare_and_set(key, expected, *self._parts(key, value)))
            case wire.AddToCounter(key, increment):
                return wire.Counted(core.add(key, increment))
            case wire.Reduce():
                return self._reduce(request)

    def _reduce(self, request: wire.Reduce) -> wire.Reply:
        key = request.key
        check_contributor(key, request.contributor)
        form = checked_form(request.op, request.dtype, request.shape, key)
        array = form.array(b"".join(self._parts(key, request.values)))
        return wire.Done(self.core.reduce(key, form, request.contributor, array))

    def _parts(self, key: str, value: bytes | wire.Upload) -> tuple[bytes, ...]:
        if isinstance(value, wire.Upload):
            return self._uploads.take(value.number, key, value.size)
        self._check_room(len(value), f"blob {key!r}")
        return (value,)

    def _values(self, keys: list[str]) -> wire.Values:
        """As much of the values as fits into one reply; what does not is asked for in parts."""
        values: list[bytes | wire.Large | None] = []
        room = PART_BYTES
        for key in keys:
            value = self.core.get(key)
            values.append(None if value is None else _said(value, room))
            room -= value.size if value is not None and value.size <= room else 0
        return wire.Values(values)

    def _reduced(self, request: wire.GetReduced) -> wire.Reduced | None:
        check_n(request.key, request.n)
        folded = self.core.reduced(request.key, request.n)
        if folded is None:
            return None
        return wire.Reduced(folded.form.dtype, folded.form.shape, _said(folded.value, PART_BYTES))


def _said(value: Stored, room: int) -> bytes | wire.Large:
    return value.whole() if value.size <= room else wire.Large(value.size, value.version)
