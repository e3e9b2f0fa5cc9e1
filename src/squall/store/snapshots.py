"""Snapshots of one shard in an object store: written whole or not at all, checked when read.

A snapshot is two objects below the store's URL::

    <number>/shard-<i>-of-<n>.safetensors    rows of all tables with their optimisers' state
    <number>/shard-<i>-of-<n>.json           all else, and checksums; written last

What has no second object does not exist.  ``number`` is the time in milliseconds since 1970 at
which it was asked for; all shards of a store use the same one.  Tables that fit into
:data:`AT_ONCE_BYTES` together are copied between two requests; larger ones piece by piece while
requests go on, their words (sequence numbers, steps, clocks) after all rows.  So an update that
comes meanwhile may be lost by a restore, or be in some of its rows only, but is never applied
twice; nothing of that happens when no update comes, as at a barrier.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from squall import _kernels
from squall.errors import CorruptError, StoreError
from squall.log import get_logger
from squall.records import Float32, TableSpec
from squall.store import wire
from squall.store.blobs import KeptBlobs
from squall.store.control import KeptControl
from squall.store.placement import Placement

if TYPE_CHECKING:
    from squall.store.service import StoreService

FORMAT = 2
"""Version of the second object."""

PIECE_BYTES = 4 << 20
"""Bytes that are copied, sent and checked at a time."""

AT_ONCE_BYTES = 16 << 20
"""Bytes of rows up to which a snapshot is of one moment: they are copied in some 5 ms."""

_log = get_logger(__name__)
_NAME = re.compile(r"(\d+)/shard-(\d+)-of-(\d+)\.json")


class KeptJob(msgspec.Struct, frozen=True):
    """A job: the words that its processes share, and its control."""

    name: str
    n_slots: int
    cells: bytes
    control: KeptControl


@dataclass(frozen=True)
class KeptTable:
    """A table: its words and rows, still those in use."""

    spec: TableSpec
    shard: int
    n_shards: int
    head: memoryview
    array: Float32


class _Entry(msgspec.Struct, frozen=True):
    spec: TableSpec
    shard: int
    n_shards: int
    head: bytes
    offset: int
    size: int


class _Head(msgspec.Struct, frozen=True):
    format: int
    taken_at: float
    n_bytes: int
    checksums: list[str]  # of each piece of the first object
    jobs: list[KeptJob]
    tables: list[_Entry]
    blobs: KeptBlobs


class Archive:
    """The snapshots of one shard below a URL.

    Parameters
    ----------
    url : str
        A folder, ``file://`` or any URL of obstore's; credentials come from the environment.
    shard, n_shards : int
        Whose snapshots.
    """

    def __init__(self, url: str, shard: int, n_shards: int) -> None:
        self.url, self._name = url, f"shard-{shard}-of-{n_shards}"
        self._n_shards = n_shards
        self._store = open_objects(url)

    def numbers(self) -> list[int]:
        """Complete snapshots of this shard, the oldest first."""
        return sorted(n for n, name in self._listed() if name == self._name)

    def common_numbers(self) -> list[int]:
        """Those that all shards have, the oldest first.

        Raises
        ------
        StoreError
            If there are snapshots, but of another number of shards only.
        """
        listed = self._listed()
        names = {f"shard-{i}-of-{self._n_shards}" for i in range(self._n_shards)}
        found: dict[int, set[str]] = {}
        for number, name in listed:
            found.setdefault(number, set()).add(name)
        complete = sorted(n for n, have in found.items() if names <= have)
        if listed and not complete:
            counts = sorted({int(name.rpartition("-")[2]) for _, name in listed})
            raise StoreError(
                f"no snapshot is complete for {self._n_shards} shards; there are some of {counts} shards",
                where=self.url,
                fix="restore with as many shards as the snapshot was taken with",
            )
        return complete

    def write(self, number: int, pieces: Iterator[bytes], head: Any) -> None:
        """Send pieces as they come, then what ``head`` makes of their checksums and size."""
        import obstore

        checksums: list[str] = []
        n_bytes = 0

        def checked() -> Iterator[bytes]:
            nonlocal n_bytes
            for piece in pieces:
                checksums.append(_kernels.checksum(piece))
                n_bytes += len(piece)
                yield piece

        with _named(self.url):
            path = f"{number}/{self._name}"
            obstore.put(
                self._store, f"{path}.safetensors", checked(), chunk_size=PIECE_BYTES, max_concurrency=1
            )
            text = msgspec.json.encode(head(checksums, n_bytes))
            obstore.put(self._store, f"{path}.json", _kernels.checksum(text).encode() + b"\n" + text)

    def head(self, number: int) -> _Head:
        """The second object; raises `CorruptError` if it is damaged."""
        import obstore

        path = f"{number}/{self._name}.json"
        with _named(self.url):
            data = bytes(obstore.get(self._store, path).bytes())
        seal, _, text = data.partition(b"\n")
        if _kernels.checksum(text).encode() != seal:
            raise _damaged(f"{self.url}/{path}")
        head = msgspec.json.decode(text, type=_Head)
        if head.format != FORMAT:
            raise CorruptError(f"it is of format {head.format}, not {FORMAT}", where=f"{self.url}/{path}")
        return head

    def pieces(self, number: int, head: _Head) -> Iterator[bytes]:
        """The first object piece by piece; raises `CorruptError` where it is damaged."""
        import obstore

        path = f"{number}/{self._name}.safetensors"
        for at, expected in enumerate(head.checksums):
            start = at * PIECE_BYTES
            end = min(head.n_bytes, start + PIECE_BYTES)
            with _named(self.url):
                piece = bytes(obstore.get_range(self._store, path, start=start, end=end))
            if len(piece) != end - start or _kernels.checksum(piece) != expected:
                raise _damaged(f"{self.url}/{path}")
            yield piece

    def remove(self, number: int) -> None:
        """Remove a snapshot; from the first of its two deletions on it does not exist."""
        import obstore

        with _named(self.url):
            for ending in (".json", ".safetensors"):
                obstore.delete(self._store, f"{number}/{self._name}{ending}")

    def _listed(self) -> list[tuple[int, str]]:
        import obstore

        with _named(self.url):
            paths = [meta["path"] for batch in obstore.list(self._store) for meta in batch]
        return [(int(m[1]), f"shard-{m[2]}-of-{m[3]}") for path in paths if (m := _NAME.fullmatch(path))]


class Snapshots:
    """Takes snapshots of a service, or of one job in it, and puts the service back to one.

    Attributes
    ----------
    latest : int or None
        Number of the last one taken.
    error : str or None
        Why the last attempt failed, if it did.
    """

    def __init__(self, service: StoreService, archive: Archive, keep: int, *, job: str | None = None) -> None:
        self._service, self._archive, self._keep, self._job = service, archive, keep, job
        self._taking = asyncio.Lock()
        self.latest: int | None = None
        self.error: str | None = None

    async def take(self, number: int, *, whole: bool = False) -> wire.Snapshot:
        """Write a snapshot; others are served meanwhile, ``whole`` only after all has been copied."""
        async with self._taking:
            taken_at = time.time()
            try:
                if number != self.latest:  # it may have been asked for twice
                    await self._write(number, taken_at, whole)
            except (StoreError, OSError) as error:
                self.error = str(error)
                raise
            self.latest, self.error = number, None
            return wire.Snapshot(number, taken_at)

    async def every(self, seconds: float) -> None:
        """Take one at each multiple of ``seconds``, so that all shards of a host use one number."""
        while True:
            await asyncio.sleep(seconds - time.time() % seconds)
            number = 1000 * round(seconds * round(time.time() / seconds))
            if self._service.n_jobs:
                try:
                    await self.take(number)
                except (StoreError, OSError) as error:
                    _log.error("no snapshot was taken: %s", error)

    async def restore(self, number: int) -> wire.Snapshot:
        """Fill a service that is empty; raises `CorruptError` if the snapshot is damaged."""
        head = await asyncio.to_thread(self._archive.head, number)
        for job in head.jobs:
            self._service.restore_job(job)
        arrays = []
        for entry in head.tables:
            place = Placement.of(entry.spec, entry.shard, entry.n_shards)
            array = await self._service.restore_table(entry.spec, place, entry.head)
            arrays.append((entry, array.reshape(-1).view(np.uint8)))
        await asyncio.to_thread(self._fill, number, head, arrays)
        self._service.restore_blobs(head.blobs)
        self.latest = number
        return wire.Snapshot(number, head.taken_at)

    def _fill(self, number: int, head: _Head, arrays: list[tuple[_Entry, Any]]) -> None:
        start = 0
        for piece in self._archive.pieces(number, head):
            data = np.frombuffer(piece, dtype=np.uint8)
            for entry, array in arrays:
                low, high = max(start, entry.offset), min(start + len(data), entry.offset + entry.size)
                if low < high:
                    array[low - entry.offset : high - entry.offset] = data[low - start : high - start]
            start += len(data)

    async def _write(self, number: int, taken_at: float, whole: bool) -> None:
        tables = self._service.tables_kept(self._job)
        header, offsets = _header(tables)
        pieces = _cut(header, tables)
        if whole or sum(table.array.nbytes for table in tables) <= AT_ONCE_BYTES:
            rest = list(pieces)
            pieces, words = iter(rest), self._words(tables)
        else:
            words = None

        def head(checksums: list[str], n_bytes: int) -> _Head:
            jobs, heads, blobs = words or self._words(tables)
            entries = [
                _Entry(table.spec, table.shard, table.n_shards, word, offset, table.array.nbytes)
                for table, word, offset in zip(tables, heads, offsets, strict=True)
            ]
            return _Head(FORMAT, taken_at, n_bytes, checksums, jobs, entries, blobs)

        await asyncio.to_thread(self._archive.write, number, pieces, head)
        await asyncio.to_thread(self._prune)

    def _words(self, tables: list[KeptTable]) -> tuple[list[KeptJob], list[bytes], KeptBlobs]:
        service, job = self._service, self._job
        return service.jobs_kept(job), [bytes(t.head) for t in tables], service.blobs_kept(job)

    def _prune(self) -> None:
        for number in self._archive.numbers()[: -self._keep]:
            self._archive.remove(number)


def _header(tables: list[KeptTable]) -> tuple[bytes, list[int]]:
    """The beginning of a safetensors file, and where in the file each table's rows begin."""
    described: dict[str, Any] = {}
    at = 0
    for table in tables:
        end = at + table.array.nbytes
        described[table.spec.name] = {
            "dtype": "F32",
            "shape": list(table.array.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    offsets = [start + entry["data_offsets"][0] for entry in described.values()]
    return len(text).to_bytes(8, "little") + text, offsets


def _cut(header: bytes, tables: list[KeptTable]) -> Iterator[bytes]:
    """The file in pieces of :data:`PIECE_BYTES`, the last one shorter."""
    piece = bytearray(header)
    for table in tables:
        data = table.array.reshape(-1).view(np.uint8)
        at = 0
        while at < len(data):
            take = min(len(data) - at, PIECE_BYTES - len(piece) % PIECE_BYTES)
            piece += data[at : at + take].tobytes()
            at += take
            while len(piece) >= PIECE_BYTES:
                yield bytes(piece[:PIECE_BYTES])
                del piece[:PIECE_BYTES]
    while piece:
        yield bytes(piece[:PIECE_BYTES])
        del piece[:PIECE_BYTES]


def open_objects(url: str) -> Any:
    """An obstore client; a folder is made if it is not there."""
    from obstore.store import LocalStore, from_url

    with _named(url):
        if "://" not in url:
            return LocalStore(str(Path(url).expanduser().absolute()), mkdir=True, automatic_cleanup=True)
        if url.startswith("file://"):
            return LocalStore.from_url(url, mkdir=True, automatic_cleanup=True)
        return from_url(url)


class _named:  # noqa: N801 (a context manager)
    """Errors of the object store, with its URL."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from obstore.exceptions import BaseError

        if isinstance(error, (BaseError, OSError, ValueError)):
            text = str(error).partition("\n")[0]  # what follows in obstore's messages is for its authors
            raise StoreError(
                f"the snapshot store refused: {text}",
                where=self._url,
                fix="check the URL, rights, free space and, for S3, the AWS_* variables",
            ) from error


def _damaged(where: str) -> CorruptError:
    return CorruptError(
        "it is damaged: its checksum differs", where=where, fix="restore an earlier one with --number"
    )
