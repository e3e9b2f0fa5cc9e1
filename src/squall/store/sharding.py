"""One client for all shards of a store: each call is one round trip to all of them at once.

Rows are split by the table's rule (:mod:`squall.store.placement`), and a frame goes to every shard
even if none of its rows is asked for: so all shards count the same steps and minibatches, and a
slot's progress is the least of theirs.  Blobs are spread by a checksum of their keys.  Reports,
strategy state and whatever else control has lives on the first shard.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from squall.errors import StoreError
from squall.records import (
    Float32,
    Int64,
    Meeting,
    Numbers,
    ReduceOp,
    Registration,
    Stamp,
    Sync,
    TableContents,
    TableSpec,
    Update,
)
from squall.store import wire
from squall.store.calls import RowsCaller
from squall.store.closing import Closing
from squall.store.connection import Connection
from squall.store.contents import check_whole, dump_table, load_table
from squall.store.meetings import ENCODINGS, meet
from squall.store.placement import Placement, split, stretch
from squall.store.remote_blobs import RemoteBlobs
from squall.store.table import table_stride
from squall.store.tcp import StopFlags, TcpConnection, TcpControl

_Result = TypeVar("_Result")


class ShardedStore(Closing):
    """One process's view of a store of several shards; it belongs to the thread that made it.

    Parameters
    ----------
    shards : list of TcpConnection
        To each shard, in order; the store closes them.

    Attributes
    ----------
    tables : ShardedTables
        Implements :class:`squall.protocols.Tables`.
    blobs : ShardedBlobs
        Implements :class:`squall.protocols.AtomicBlobs`.
    control : ShardedControl
        Implements :class:`squall.protocols.Control`.
    """

    def __init__(self, shards: Sequence[TcpConnection]) -> None:
        self._shards = list(shards)
        flags = StopFlags()
        self.tables = ShardedTables(self._shards, flags)
        self.blobs = ShardedBlobs(self._shards)
        self.control = ShardedControl(self._shards, flags)

    @property
    def address(self) -> str:
        """Where it is connected."""
        return ",".join(shard.address for shard in self._shards)

    def open(self) -> None:
        """Connect to all shards now rather than with the first request."""
        for shard in self._shards:
            shard.open()

    def close(self) -> None:
        """Disconnect; idempotent."""
        for shard in self._shards:
            shard.close()


class ShardedTables:
    """Tables whose rows lie on several shards."""

    def __init__(self, shards: list[TcpConnection], flags: StopFlags) -> None:
        self._shards = shards
        self._flags = flags
        self._rows = RowsCaller(shards)
        self._specs: dict[str, TableSpec] = {}

    def create(self, spec: TableSpec, source: str | None = None) -> None:
        """See :meth:`squall.protocols.Tables.create`; the name is ``"<job>/<name>"``."""
        _of_all(
            self._shards,
            lambda shard, at: shard.request(wire.CreateTable(spec, at, len(self._shards), source), wire.Done),
        )
        self._specs[spec.name] = spec

    def drop(self, name: str) -> None:
        """See :meth:`squall.protocols.Tables.drop`."""
        self._specs.pop(name, None)
        _of_all(self._shards, lambda shard, _: shard.request(wire.DropTable(name), wire.Done))

    def describe(self, name: str) -> TableSpec:
        """See :meth:`squall.protocols.Tables.describe`."""
        described = self._shards[0].request(wire.DescribeTable(name), wire.Description)
        if (described.shard, described.n_shards) != (0, len(self._shards)):
            raise StoreError(
                f"it was made over {described.n_shards} shards; this client knows {len(self._shards)}",
                where=f"table {name!r}",
                fix="give all clients the same list of addresses, in the same order",
            )
        self._specs[name] = described.spec
        return described.spec

    def pull(self, name: str, rows: Int64 | None = None, *, half: bool = False) -> Float32:
        """See :meth:`squall.protocols.Tables.pull`; a large table comes in pieces."""
        if rows is None:
            return self._pull_all(name)
        return self._weights(name, wire.PULL, wire.HALF_REPLY * half, Stamp(0, 0, 0), None, rows)

    def push(self, name: str, rows: Int64, gradient: Float32, stamp: Stamp, *, half: bool = False) -> bool:
        """See :meth:`squall.protocols.Tables.push`."""
        return self._call(name, wire.PUSH, wire.HALF_VALUES * half, stamp, (rows, gradient), None)[1]

    def exchange(
        self,
        name: str,
        push: tuple[Int64, Float32] | None,
        pull: Int64,
        stamp: Stamp,
        *,
        half: bool = False,
    ) -> Float32:
        """See :meth:`squall.protocols.Tables.exchange`."""
        flags = (wire.HALF_REPLY | wire.HALF_VALUES) * half | (wire.NO_PUSH if push is None else 0)
        return self._weights(name, wire.EXCHANGE, flags, stamp, push, pull)

    def add(self, name: str, rows: Int64, deltas: Float32, stamp: Stamp, *, half: bool = False) -> bool:
        """See :meth:`squall.protocols.Tables.add`."""
        return self._call(name, wire.ADD, wire.HALF_VALUES * half, stamp, (rows, deltas), None)[1]

    def dump(self, name: str) -> TableContents:
        """See :meth:`squall.protocols.Tables.dump`: one shard after the other, in pieces."""
        spec = self._specs.get(name) or self.describe(name)
        whole = np.empty((spec.rows, table_stride(spec)), dtype=np.float32)
        step = 0
        for at, shard in enumerate(self._shards):
            place = Placement.of(spec, at, len(self._shards))
            part = dump_table(shard, name)
            if part.array.shape != (max(1, place.rows), whole.shape[1]):
                raise StoreError("it changed its shape while it was read", where=f"table {name!r}")
            whole[place.index] = part.array[: place.rows]
            step = max(step, part.step)
        return TableContents(whole, step)

    def load(self, name: str, contents: TableContents) -> None:
        """See :meth:`squall.protocols.Tables.load`: one shard after the other, in pieces."""
        spec = self._specs.get(name) or self.describe(name)
        check_whole(spec, contents)
        for at, shard in enumerate(self._shards):
            place = Placement.of(spec, at, len(self._shards))
            own = contents.array[place.index] if place.rows else np.zeros_like(contents.array[:1])
            load_table(shard, name, TableContents(own, contents.step))

    def meet(
        self, name: str, update: Update | None, pull: Int64, stamp: Stamp, sync: Sync, timeout: float
    ) -> Meeting:
        """See :meth:`squall.protocols.Tables.meet`: one shard after the other."""
        spec = self._specs.get(name) or self.describe(name)
        n_shards = len(self._shards)
        if spec.optimizer.clip_norm is not None:
            raise StoreError(
                "clip_norm needs the whole of a gradient that is put together in the store",
                where=f"table {name!r}",
                fix='use one shard, clip_value, or consistency="asp"',
            )
        _check(spec, pull)
        updates: list[Update | None] = [None] * n_shards
        if update is not None:
            _check(spec, update.rows)
            _check_values(spec, update)
            updates = [
                Update(local, update.values[at], update.scale)
                for at, local in split(spec, update.rows, n_shards)
            ]
        weights = np.empty((len(pull), spec.dim), dtype=np.float32)
        held, ready, stop = 0.0, True, False
        parts = zip(self._shards, updates, split(spec, pull, n_shards), strict=True)
        for shard, part, (at, local) in parts:
            met, stopping = meet(shard, name, part, local, stamp, sync, timeout)
            held, stop = held + met.held_s, stop or stopping
            if met.weights is None:
                ready = False
            else:
                weights[at] = met.weights
        self._flags.note(name, stop)
        return Meeting(weights if ready else None, held)

    def _weights(
        self,
        name: str,
        kind: int,
        flags: int,
        stamp: Stamp,
        push: tuple[Int64, Float32] | None,
        pull: Int64,
    ) -> Float32:
        weights, _ = self._call(name, kind, flags, stamp, push, pull)
        assert weights is not None
        return weights

    def _call(
        self,
        name: str,
        kind: int,
        flags: int,
        stamp: Stamp,
        push: tuple[Int64, Float32] | None,
        pull: Int64 | None,
    ) -> tuple[Float32 | None, bool]:
        """Send to all shards, then read from all: weights, and whether any has changed."""
        spec = self._specs.get(name) or self.describe(name)
        if push is not None:
            rows, values = push
            if values.ndim != 2 or values.shape[1] != spec.dim:
                raise StoreError(
                    f"values of shape {values.shape} were given",
                    where=f"table {name!r}",
                    fix=f"give (n, {spec.dim})",
                )
            if kind != wire.ADD:
                push = rows, _clipped(spec, values)
        part = 0 if spec.sharding == "hash" else stretch(spec.rows, len(self._shards))
        try:
            said, weights = self._rows.call(kind, flags, name, stamp, push, pull, spec.rows, part)
        except StoreError:
            self._specs.pop(name, None)  # another table may have its name by now
            raise
        self._flags.note(name, bool(said & wire.STOP))
        return weights, bool(said & wire.CHANGED)

    def _pull_all(self, name: str) -> Float32:
        spec = self._specs.get(name) or self.describe(name)
        whole = np.empty((spec.rows, spec.dim), dtype=np.float32)
        for at in range(len(self._shards)):
            place = Placement.of(spec, at, len(self._shards))
            part = self._rows.pull_all(name, at)
            if part.shape != (max(1, place.rows), spec.dim):
                raise StoreError("it changed its shape while it was pulled", where=f"table {name!r}")
            whole[place.index] = part[: place.rows]
        return whole


class ShardedBlobs:
    """Blobs, counters and reductions spread over the shards by a checksum of their keys."""

    def __init__(self, shards: list[TcpConnection]) -> None:
        self._blobs = [RemoteBlobs(shard) for shard in shards]

    def put(self, key: str, value: bytes) -> None:
        """See :meth:`squall.protocols.Blobs.put`."""
        self._of(key).put(key, value)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See :meth:`squall.protocols.Blobs.put_if_absent`."""
        return self._of(key).put_if_absent(key, value)

    def get(self, key: str) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.get`."""
        return self._of(key).get(key)

    def mget(self, keys: list[str]) -> list[bytes | None]:
        """See :meth:`squall.protocols.Blobs.mget`: one round trip for each shard that has any."""
        values: dict[str, bytes | None] = {}
        for blobs in self._blobs:
            own = [key for key in keys if self._of(key) is blobs]
            if own:
                values.update(zip(own, blobs.mget(own), strict=True))
        return [values[key] for key in keys]

    def wait(self, key: str, timeout: float) -> bytes | None:
        """See :meth:`squall.protocols.Blobs.wait`."""
        return self._of(key).wait(key, timeout)

    def delete(self, key: str) -> None:
        """See :meth:`squall.protocols.Blobs.delete`."""
        self._of(key).delete(key)

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """See :meth:`squall.protocols.Blobs.put_stream`."""
        self._of(key).put_stream(key, pieces)

    def get_stream(self, key: str) -> Iterator[bytes] | None:
        """See :meth:`squall.protocols.Blobs.get_stream`."""
        return self._of(key).get_stream(key)

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """See :meth:`squall.protocols.AtomicBlobs.compare_and_set`."""
        return self._of(key).compare_and_set(key, expected, value)

    def add(self, key: str, increment: int = 1) -> int:
        """See :meth:`squall.protocols.Reductions.add`."""
        return self._of(key).add(key, increment)

    def reduce(self, key: str, array: Numbers, op: ReduceOp, contributor: int) -> None:
        """See :meth:`squall.protocols.Reductions.reduce`."""
        self._of(key).reduce(key, array, op, contributor)

    def reduced(self, key: str, n: int, timeout: float) -> Numbers | None:
        """See :meth:`squall.protocols.Reductions.reduced`."""
        return self._of(key).reduced(key, n, timeout)

    def _of(self, key: str) -> RemoteBlobs:
        return self._blobs[zlib.crc32(key.encode("utf-8", "surrogatepass")) % len(self._blobs)]


class ShardedControl(TcpControl):
    """Control of a job whose slots every shard knows: each must fence, count and stop."""

    def __init__(self, shards: list[TcpConnection], flags: StopFlags) -> None:
        super().__init__(shards[0], flags)
        self._parts = [TcpControl(shard, flags, self._client) for shard in shards]

    def open_job(self, job: str, n_slots: int) -> None:
        """See :meth:`squall.protocols.Control.open_job`."""
        _of_all(self._parts, lambda part, _: TcpControl.open_job(part, job, n_slots))

    def close_job(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.close_job`."""
        _of_all(self._parts, lambda part, _: TcpControl.close_job(part, job))

    def register(self, job: str, slot: int, attempt: int, pid: int) -> Registration:
        """See :meth:`squall.protocols.Control.register`."""
        all_ = _of_all(self._parts, lambda part, _: TcpControl.register(part, job, slot, attempt, pid))
        return Registration(min(r.minibatches for r in all_), all_[0].state)

    def progress(self, job: str, slot: int) -> Int64:
        """See :meth:`squall.protocols.Control.progress`: what all shards have applied."""
        cells = _of_all(self._parts, lambda part, _: TcpControl.progress(part, job, slot))
        return min(cells, key=lambda cell: int(cell[0]))

    def look(self, job: str, slot: int) -> Registration:
        """See :meth:`squall.protocols.Control.look`."""
        seen = _of_all(self._parts, lambda part, _: TcpControl.look(part, job, slot))
        return Registration(min(r.minibatches for r in seen), seen[0].state)

    def advance(self, job: str, slot: int, attempt: int, minibatches: int) -> None:
        """See :meth:`squall.protocols.Control.advance`."""
        _of_all(self._parts, lambda part, _: TcpControl.advance(part, job, slot, attempt, minibatches))

    def barrier(self, job: str, slot: int, attempt: int, number: int, timeout: float) -> bool:
        """See :meth:`squall.protocols.Control.barrier`."""
        return all(
            _of_all(
                self._parts,
                lambda part, _: TcpControl.barrier(part, job, slot, attempt, number, timeout),
            )
        )

    def finish(self, job: str, slot: int, attempt: int) -> None:
        """See :meth:`squall.protocols.Control.finish`."""
        _of_all(self._parts, lambda part, _: TcpControl.finish(part, job, slot, attempt))

    def request_stop(self, job: str) -> None:
        """See :meth:`squall.protocols.Control.request_stop`."""
        _of_all(self._parts, lambda part, _: TcpControl.request_stop(part, job))


_Part = TypeVar("_Part", Connection, TcpControl)


def _of_all(parts: Sequence[_Part], call: Callable[[_Part, int], _Result]) -> list[_Result]:
    """One call on each shard, the first one first: it decides who of two contenders wins."""
    return [call(part, at) for at, part in enumerate(parts)]


def _check(spec: TableSpec, rows: Int64) -> None:
    """Refuse rows that the table has not, before any shard has changed."""
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise StoreError(f"rows: {rows.dtype} of shape {rows.shape}", fix="give an int64 vector")
    if len(rows) and not (rows.min() >= 0 and rows.max() < spec.rows):
        raise StoreError(
            f"rows from {rows.min()} to {rows.max()} were given",
            where=f"table {spec.name!r}",
            fix=f"give rows from 0 to {spec.rows - 1}",
        )


def _check_values(spec: TableSpec, update: Update) -> None:
    """Refuse values that no shard would take, before the first one has."""
    values, shape = update.values, (len(update.rows), spec.dim)
    if values.dtype.name not in ENCODINGS or values.shape != shape:
        raise StoreError(
            f"values: {values.dtype} of shape {values.shape}",
            where=f"table {spec.name!r}",
            fix=f"give {', '.join(ENCODINGS)} of shape {shape}",
        )


def _clipped(spec: TableSpec, gradient: Float32) -> Float32:
    """The gradient scaled down to the optimiser's norm, which no shard sees the whole of."""
    limit = spec.optimizer.clip_norm
    if limit is None:
        return gradient
    value = spec.optimizer.clip_value
    if value is not None:
        gradient = np.clip(gradient, -value, value).astype(np.float32)
    norm = float(np.linalg.norm(gradient.astype(np.float64)))
    return gradient if norm <= limit else (gradient * (limit / norm)).astype(np.float32)
