"""Where a data set's rows come from: stored partitions, or blocks that are in memory."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import numpy as np

from squall.data.labels import Classes
from squall.data.objects import ObjectStore
from squall.data.partitions import FORMAT_VERSION, encode, read_raw
from squall.data.rows import column_spec, slice_raw
from squall.errors import CorruptError
from squall.records import (
    Bill,
    CategoricalColumn,
    ColumnSpec,
    Manifest,
    PartitionInfo,
    RawBlock,
    SparseColumn,
)

MANIFEST = "manifest.json"


class Source(Protocol):
    """Numbered partitions under one schema; immutable."""

    @property
    def columns(self) -> list[ColumnSpec]:
        """Name and kind of each feature column."""

    @property
    def label(self) -> str | None:
        """Name of the label; None if there is none."""

    @property
    def classes(self) -> Classes | None:
        """Sorted label map."""

    @property
    def missing(self) -> dict[str, int] | None:
        """Missing values by column, if that is known without reading."""

    @property
    def rows(self) -> list[int]:
        """Rows of each partition."""

    def read(self, partition: int) -> RawBlock:
        """All rows of one partition."""

    def dictionary(self, column: str) -> CategoricalColumn | None:
        """The strings that the column's numbers stand for in all partitions, if it has such."""

    def key(self) -> str:
        """A name for the content: equal for equal rows in equal partitions."""

    def bill(self) -> Bill | None:
        """What functions cost that this process had read it; None if none did."""


class StoredSource:
    """Partitions in an object store, as their manifest says.

    Parameters
    ----------
    store : ObjectStore
        Where they are.
    manifest : Manifest
        What they are.
    rebuild : callable, optional
        Writes them anew, from what they were made of; called once, when one is found damaged.
    """

    def __init__(
        self, store: ObjectStore, manifest: Manifest, rebuild: Callable[[CorruptError], None] | None = None
    ) -> None:
        self.store, self.manifest = store, manifest
        self._rebuild = rebuild
        self.spent: Callable[[], Bill | None] | None = None
        self._dictionaries: dict[str, CategoricalColumn] = {}
        self.columns, self.label = manifest.columns, manifest.label
        self.classes: Classes | None = None if manifest.classes is None else np.array(manifest.classes)
        self.missing: dict[str, int] | None = manifest.missing
        self.rows = [p.rows for p in manifest.partitions]

    def read(self, partition: int) -> RawBlock:
        """All rows of one partition; views of the stored object.

        Raises
        ------
        StoreError, CorruptError
            If it is missing or damaged, and cannot be made again.
        """
        block = self._widened(self._read(self.manifest.partitions[partition]))
        for name in self.manifest.dictionaries:
            column, shared = block.columns[name], self.dictionary(name)
            if isinstance(column, CategoricalColumn) and shared is not None:
                block.columns[name] = CategoricalColumn(column.codes, shared.offsets, shared.data)
        return block

    def dictionary(self, column: str) -> CategoricalColumn | None:
        """The strings that the column's numbers stand for in all partitions, if it has such."""
        info = self.manifest.dictionaries.get(column)
        if info is None:
            return None
        if column not in self._dictionaries:
            (strings,) = self._read(info).columns.values()
            assert isinstance(strings, CategoricalColumn)
            self._dictionaries[column] = strings
        return self._dictionaries[column]

    def _read(self, info: PartitionInfo) -> RawBlock:
        try:
            return read_raw(self.store, info)
        except CorruptError as damage:
            if self._rebuild is None:
                raise
            rebuild, self._rebuild = self._rebuild, None
            rebuild(damage)
            return read_raw(self.store, info)

    def _widened(self, block: RawBlock) -> RawBlock:
        """A partition knows only its own largest index; the width is the data set's."""
        for spec in self.columns:
            column = block.columns.get(spec.name)
            if isinstance(column, SparseColumn) and column.width != spec.width:
                block.columns[spec.name] = dataclasses.replace(column, width=spec.width)
        return block

    def key(self) -> str:
        """A name for the content."""
        m = self.manifest
        content = [(p.rows, p.checksum) for p in [*m.partitions, *m.dictionaries.values()]]
        return digest(["stored", m.format_version, m.columns, m.label, m.classes, content])

    def bill(self) -> Bill | None:
        """What functions cost that this process had read it; none did where it was found as it is stored."""
        return None if self.spent is None else self.spent()


class MemorySource:
    """Blocks that someone else's arrays back; nothing is copied.

    Parameters
    ----------
    block : RawBlock
        All rows.
    part_rows : int
        Rows of a partition; the last one has what is left.
    label : str or None
        Name of the label.
    classes : array or None
        Sorted label map.
    """

    def __init__(self, block: RawBlock, part_rows: int, label: str | None, classes: Classes | None) -> None:
        self._block, self._part_rows = block, part_rows
        self.columns = [column_spec(name, column) for name, column in block.columns.items()]
        self.label, self.classes = label, classes
        self.missing: dict[str, int] | None = None
        n = block.n_rows
        self.rows = [min(part_rows, n - start) for start in range(0, n, part_rows)]
        self._key = ""

    def read(self, partition: int) -> RawBlock:
        """All rows of one partition: views, but for columns whose memory is not contiguous."""
        start = partition * self._part_rows
        return slice_raw(self._block, start, start + self.rows[partition])

    def dictionary(self, column: str) -> CategoricalColumn | None:
        """None: what is in memory has none that is shared."""
        return None

    def key(self) -> str:
        """A name for the content; reads all of it the first time."""
        if not self._key:
            parts = (encode(self.read(i)) for i in range(len(self.rows)))
            sums = [hashlib.blake2b(part, digest_size=16).digest() for part in parts]
            classes = None if self.classes is None else self.classes.tolist()
            self._key = digest(["memory", self.label, classes, sums])
        return self._key

    def bill(self) -> Bill | None:
        """None: arrays are not read."""
        return None


def digest(content: Any) -> str:
    """BLAKE2b-128, in hexadecimal, of plain data and arrays; dictionaries in any order."""
    encoded = msgspec.msgpack.encode(content, enc_hook=_plain, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, value.tobytes() if value.dtype != object else value.tolist()]
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value).__qualname__} is not plain data")


def load_manifest(store: ObjectStore, key: str) -> Manifest:
    """The manifest of that name.

    Raises
    ------
    StoreError
        If it does not exist.
    CorruptError
        If it is not a manifest of a known format version.
    """
    where, fix = f"{store.url}/{key}", "remove the data set's folder and read the source again"
    try:
        manifest = msgspec.json.decode(store.get(key), type=Manifest)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the object is not a manifest: {error}", where=where, fix=fix) from error
    if manifest.format_version != FORMAT_VERSION:
        raise CorruptError(f"unknown format version {manifest.format_version}", where=where, fix=fix)
    return manifest
