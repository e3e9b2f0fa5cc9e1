"""Storing what a reader reads: partitions first, the manifest last.

A data set exists when its manifest does.  A writer that dies leaves partitions that nothing
opens and that the next attempt overwrites with the same bytes; two writers at once write the
same bytes, and either's manifest is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from squall.data.dataset import Dataset
from squall.data.objects import ObjectStore
from squall.data.partitions import SUFFIX, write_partition
from squall.data.rows import count_missing
from squall.data.sources import MANIFEST, StoredSource, load_manifest
from squall.records import Manifest, PartitionInfo, RawBlock


def open_stored(store: ObjectStore, prefix: str) -> Dataset | None:
    """The data set below ``prefix``; None if it is not there, or lacks a partition.

    Raises
    ------
    CorruptError
        If its manifest cannot be read.
    """
    present = set(store.keys(prefix))
    if f"{prefix}/{MANIFEST}" not in present:
        return None
    manifest = load_manifest(store, f"{prefix}/{MANIFEST}")
    if any(p.key not in present for p in manifest.partitions):
        return None  # someone removed a part of the cache: it is written again
    return Dataset(StoredSource(store, manifest))


def store_blocks(
    store: ObjectStore, prefix: str, blocks: Iterator[RawBlock]
) -> tuple[list[PartitionInfo], dict[str, int]]:
    """Write each block as one partition; (their manifest entries, missing values by column)."""
    partitions: list[PartitionInfo] = []
    missing: Counter[str] = Counter()
    for block in blocks:
        partitions.append(write_partition(store, f"{prefix}/part-{len(partitions):05d}{SUFFIX}", block))
        missing.update({name: count_missing(column) for name, column in block.columns.items()})
    return partitions, {name: n for name, n in missing.items() if n}


def publish(store: ObjectStore, prefix: str, manifest: Manifest) -> Dataset:
    """Write the manifest, unless another writer of the same content has, and open the data set."""
    key = f"{prefix}/{MANIFEST}"
    if not store.create(key, msgspec.json.encode(manifest)):
        manifest = load_manifest(store, key)
    return Dataset(StoredSource(store, manifest))
