"""Storing what a reader reads: partitions first, the manifest last.

A data set exists when its manifest does.  A writer that dies leaves partitions that nothing
opens and that the next attempt overwrites with the same bytes; two writers at once write the
same bytes, and either's manifest is right.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from squall.data.objects import ObjectStore
from squall.data.partitions import SUFFIX, write_partition
from squall.data.rows import count_missing
from squall.data.sources import MANIFEST, StoredSource, load_manifest
from squall.errors import CorruptError
from squall.records import CategoricalColumn, Manifest, PartitionInfo, RawBlock


def stored_source(
    store: ObjectStore, prefix: str, origin: str, write: Callable[[], Manifest]
) -> StoredSource:
    """The data set below ``prefix``, which ``write()`` makes if it is not there, or damaged.

    Parameters
    ----------
    store : ObjectStore
        A cache: all that is below ``prefix`` can be made again.
    prefix : str
        Where.
    origin : str
        What it is made from, for messages.
    write : callable
        Stores all partitions and gives the manifest for them.
    """

    def tell(damage: CorruptError) -> None:
        warnings.warn(f"{damage.where}: {damage.what}; it is read from {origin} again", stacklevel=3)

    def rebuild(damage: CorruptError) -> None:
        tell(damage)
        write()

    manifest = None
    try:
        manifest = _complete_manifest(store, prefix)
    except CorruptError as damage:
        store.delete(f"{prefix}/{MANIFEST}")
        tell(damage)
    if manifest is None:
        manifest = _publish(store, prefix, write())
    return StoredSource(store, manifest, rebuild)


def _complete_manifest(store: ObjectStore, prefix: str) -> Manifest | None:
    """The manifest, if it is there and all its partitions are."""
    present = set(store.keys(prefix))
    if f"{prefix}/{MANIFEST}" not in present:
        return None
    manifest = load_manifest(store, f"{prefix}/{MANIFEST}")
    if any(p.key not in present for p in [*manifest.partitions, *manifest.dictionaries.values()]):
        return None  # someone removed a part of the cache: it is written again
    store.touch(f"{prefix}/{MANIFEST}")  # `squall clean` removes what is not used
    return manifest


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


def store_dictionary(
    store: ObjectStore, prefix: str, number: int, strings: CategoricalColumn
) -> PartitionInfo:
    """Write the strings that a column's numbers stand for in all partitions."""
    return write_strings(store, f"{prefix}/dictionary-{number}{SUFFIX}", strings)


def write_strings(store: ObjectStore, key: str, strings: CategoricalColumn) -> PartitionInfo:
    """Write strings as one object: a partition of one categorical column."""
    n = len(strings.offsets) - 1
    column = CategoricalColumn(np.arange(n, dtype=np.int32), strings.offsets, strings.data)
    return write_partition(store, key, RawBlock(n, {"strings": column}))


def _publish(store: ObjectStore, prefix: str, manifest: Manifest) -> Manifest:
    """Write the manifest, unless another writer of the same content has: then it is theirs."""
    key = f"{prefix}/{MANIFEST}"
    if store.create(key, msgspec.json.encode(manifest)):
        return manifest
    return load_manifest(store, key)
