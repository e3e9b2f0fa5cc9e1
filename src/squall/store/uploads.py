"""The core of values that come in parts: kept aside until they are whole, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from squall.errors import StoreError

_READS = 3  # of a value that is replaced while it is read, before that is an error
_Result = TypeVar("_Result")

PART_BYTES = 4 << 20
"""Most bytes of a value that travel in one request or reply."""

PATIENCE_S = 60.0
"""Seconds after which an upload to which nothing came is given up."""


@dataclass(slots=True)
class _Upload:
    key: str
    heard: float
    size: int = 0
    parts: list[bytes] = field(default_factory=list)


class Uploads:
    """Values of which not all parts have come.

    Times are seconds of any clock that does not go back.
    """

    def __init__(self) -> None:
        self._uploads: dict[int, _Upload] = {}

    @property
    def n_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(upload.size for upload in self._uploads.values())

    def add(self, number: int, key: str, offset: int, data: bytes, now: float) -> None:
        """Keep a part; a repeat of the latest one is dropped.

        Raises
        ------
        StoreError
            If it does not follow what is there.
        """
        self.sweep(now)
        upload = self._uploads.get(number)
        if upload is None:
            upload = self._uploads[number] = _Upload(key, now)
        upload.heard = now
        if offset + len(data) == upload.size and upload.parts and len(upload.parts[-1]) == len(data):
            return
        if offset != upload.size or key != upload.key:
            if not upload.parts:
                del self._uploads[number]
            raise incomplete(key)
        upload.parts.append(data)
        upload.size += len(data)

    def take(self, number: int, key: str, size: int) -> tuple[bytes, ...]:
        """All parts of a value of ``size`` bytes, which is no upload any more.

        Raises
        ------
        StoreError
            If they are not all there.
        """
        upload = self._uploads.get(number)
        if upload is None or (upload.key, upload.size) != (key, size):
            raise incomplete(key)
        del self._uploads[number]
        return tuple(upload.parts)

    def drop(self, number: int) -> None:
        """Give one up; no error if it is not there."""
        self._uploads.pop(number, None)

    def drop_job(self, job: str) -> None:
        """Give up all values of a job."""
        self._drop_all(lambda upload: upload.key.startswith(f"{job}/"))

    def sweep(self, now: float) -> None:
        """Give up those to which nothing has come for :data:`PATIENCE_S`."""
        self._drop_all(lambda upload: now - upload.heard > PATIENCE_S)

    def _drop_all(self, given_up: Callable[[_Upload], bool]) -> None:
        for number in [n for n, upload in self._uploads.items() if given_up(upload)]:
            del self._uploads[number]


def parts_of(value: bytes | memoryview) -> Iterator[memoryview]:
    """A value cut into parts of at most :data:`PART_BYTES`."""
    view = memoryview(value)
    for at in range(0, len(view), PART_BYTES):
        yield view[at : at + PART_BYTES]


def regrouped(pieces: Iterable[bytes | memoryview], size: int = PART_BYTES) -> Iterator[bytes]:
    """The same bytes in parts of ``size``, but for the last, which may be smaller or empty."""
    held = bytearray()
    for piece in pieces:
        for part in parts_of(piece):
            held += part
            while len(held) >= size:
                yield bytes(held[:size])
                del held[:size]
    yield bytes(held)


def incomplete(key: str) -> StoreError:
    """The error for parts that do not make a value."""
    return StoreError(
        "a value that was sent in parts is not whole",
        where=f"blob {key[:200]!r}",
        fix=f"send it again, with less than {PATIENCE_S:g} s between two parts",
    )


class ReplacedError(StoreError):
    """A value is not what it was when its first part was read."""


def replaced(key: str) -> ReplacedError:
    """The error for a value that is not there any more."""
    return ReplacedError(
        "it was replaced or removed while it was read", where=f"blob {key!r}", fix="read it again"
    )


def again(read: Callable[[], _Result]) -> _Result:
    """What ``read`` gives, called again if a value was replaced while it was read."""
    for _ in range(_READS - 1):
        try:
            return read()
        except ReplacedError:
            continue
    return read()
