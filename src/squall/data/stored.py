"""Data sets at a place of their own: written once, opened by URL.

A folder holds partitions and one manifest, which is created last and never replaced: a writer
that dies leaves partitions that nothing opens.  Each writer names its partitions anew, so two at
once do not mix; the one whose manifest is there has won, and removes what others have left.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from squall.data.ingest import write_strings
from squall.data.objects import ObjectStore
from squall.data.partitions import FORMAT_VERSION, SUFFIX, write_partition
from squall.data.rows import count_missing, join_raw, raw_bytes
from squall.data.sources import MANIFEST, StoredSource, load_manifest
from squall.data.versions import check_format
from squall.errors import CorruptError, StoreError
from squall.records import CategoricalColumn, Manifest, PartitionInfo, RawBlock

if TYPE_CHECKING:
    from squall.data.dataset import Dataset

_PART_BYTES = 10_000_000
_PART = re.compile(r"(part|dictionary)-\d{5,}-[0-9a-f]{16}" + re.escape(SUFFIX))


def open_stored(url: str | os.PathLike[str]) -> StoredSource:
    """The source behind `squall.open_dataset`; errors as there."""
    store = ObjectStore(url)
    if store.folder is not None and store.folder.is_file():
        raise StoreError(
            "it is a file, and no data set", where=str(url), fix="read it, or squall ingest it first"
        )
    found = store.find(MANIFEST)
    if found is None:
        raise StoreError(
            "there is no data set",
            where=store.url,
            fix="give the folder that Dataset.write or squall ingest wrote to",
        )
    where = f"{store.url}/{MANIFEST}"
    check_format(found, where)
    manifest = load_manifest(store, MANIFEST)
    objects = [*manifest.partitions, *manifest.dictionaries.values()]
    strange = [p.key for p in objects if not _PART.fullmatch(p.key)]
    if strange:  # only what lies beside the manifest is its own
        raise CorruptError(
            f"{strange[0][:100]!r} is not the name of a partition",
            where=where,
            fix="write the data set again",
        )
    if any(p.rows < 0 for p in manifest.partitions) or manifest.rows != sum(
        p.rows for p in manifest.partitions
    ):
        raise CorruptError("its numbers of rows do not add up", where=where, fix="write the data set again")
    return StoredSource(store, manifest)


def write_dataset(data: Dataset, url: str | os.PathLike[str]) -> StoredSource:
    """The source behind `Dataset.write`; errors as there."""
    store = refuse_taken(url)
    token = secrets.token_hex(8)
    partitions: list[PartitionInfo] = []
    dictionaries: dict[str, PartitionInfo] = {}
    missing: Counter[str] = Counter()
    shared = _shared_strings(data)
    try:
        for name, strings in shared.items():
            key = f"dictionary-{len(dictionaries):05d}-{token}{SUFFIX}"
            dictionaries[name] = write_strings(store, key, strings)
        for block in _evened(data.blocks()):
            block = _without_strings(block, shared)
            key = f"part-{len(partitions):05d}-{token}{SUFFIX}"
            partitions.append(write_partition(store, key, block))
            missing.update({name: count_missing(column) for name, column in block.columns.items()})
        manifest = Manifest(
            rows=data.n_rows,
            columns=data.columns,
            partitions=partitions,
            label=data.label,
            classes=None if data.classes is None else data.classes.tolist(),
            dictionaries=dictionaries,
            missing={name: n for name, n in missing.items() if n},
            source=data.info().source,
            facts=data.info().facts,
            format_version=FORMAT_VERSION,
        )
        if not store.create(MANIFEST, msgspec.json.encode(manifest)):
            raise _taken(store)
    except BaseException:
        for info in (*partitions, *dictionaries.values()):
            store.delete(info.key)
        raise
    own = {info.key for info in (*partitions, *dictionaries.values())}
    for key in store.keys(""):
        if _PART.fullmatch(key) and key not in own:
            store.delete(key)
    return StoredSource(store, manifest)


def refuse_taken(url: str | os.PathLike[str]) -> ObjectStore:
    """The store of a place where there is no data set yet.

    Raises
    ------
    StoreError
        If there is one.
    """
    store = ObjectStore(url)
    if store.folder is not None and store.folder.is_file():
        raise StoreError("it is a file, and a data set is a folder", where=str(url), fix="name a new folder")
    if store.exists(MANIFEST):
        raise _taken(store)
    return store


def _shared_strings(data: Dataset) -> dict[str, CategoricalColumn]:
    """Strings by column, where they are the same in all blocks, transforms applied."""
    shared = {spec.name: strings for spec in data.columns if (strings := data.shared_strings(spec))}
    first = next(data.blocks(), None) if shared else None
    for name in list(shared):
        column = None if first is None else first.columns[name]
        if isinstance(column, CategoricalColumn) and column.data is not shared[name].data:
            del shared[name]  # a transform has given it strings of its own
    return shared


def _without_strings(block: RawBlock, shared: dict[str, CategoricalColumn]) -> RawBlock:
    """The block without the strings that are stored once for all partitions."""
    columns = dict(block.columns)
    for name in shared:
        column = columns[name]
        if isinstance(column, CategoricalColumn):
            columns[name] = CategoricalColumn.from_strings(column.codes, [])
    return RawBlock(block.n_rows, columns, block.labels, block.weights, block.qid)


def _taken(store: ObjectStore) -> StoreError:
    return StoreError(
        "a data set is there already, and data sets never change",
        where=store.url,
        fix="write to another folder, or remove that one first",
    )


def _evened(blocks: Iterator[RawBlock]) -> Iterator[RawBlock]:
    """The same rows, small blocks joined to about one partition's size."""
    waiting: list[RawBlock] = []
    size = 0
    for block in blocks:
        own = raw_bytes(block)
        if waiting and size + own > _PART_BYTES * 1.25:
            yield join_raw(waiting)
            waiting, size = [], 0
        waiting.append(block)
        size += own
    if waiting:
        yield join_raw(waiting)
