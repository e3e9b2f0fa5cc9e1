"""What all readers of files have in common: parsed once for each content and settings, then found again."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from squall.config import Run, current_run
from squall.data.dataset import Dataset
from squall.data.ingest import stored_source
from squall.data.inputs import Input, Seen
from squall.data.objects import ObjectStore, default_storage
from squall.data.partitions import FORMAT_VERSION
from squall.data.progress import Progress
from squall.data.remote import close_connections
from squall.data.sources import digest
from squall.records import Bill, Manifest

Storage = str | os.PathLike[str] | ObjectStore | None


def storage_of(storage: Storage, run: Run | None = None) -> ObjectStore:
    """Where a data set is kept: as asked for, else where the run keeps its objects."""
    if isinstance(storage, ObjectStore):
        return storage
    chosen = storage if storage is not None else (run or current_run()).storage
    return ObjectStore(default_storage() if chosen is None else chosen)


def stored_dataset(
    reader: str,
    version: int,
    inputs: Sequence[Input],
    settings: Any,
    store: ObjectStore,
    write: Callable[[str, Seen], Manifest],
    spent: Callable[[], Bill | None] | None = None,
) -> Dataset:
    """The data set of these inputs: as it is stored, or else made by ``write``.

    Parameters
    ----------
    reader : str
        Name of the format.
    version : int
        Of what the reader makes of a file; what another version has stored is read again.
    inputs : sequence of Input
        What is read.
    settings : plain data
        All else that the result depends on.
    store : ObjectStore
        Where the data set is kept, found by its content and settings.
    write : callable
        ``write(prefix, seen)`` stores all partitions below ``prefix`` and gives their manifest, without
        what is the same for all readers; ``seen`` is to be told how many bytes were read.
    spent : callable, optional
        What functions have cost that ``write`` had called.

    Raises
    ------
    DataError
        If an input changes while it is read; then nothing opens.
    """
    names = [found.name for found in inputs]
    marks = [f"\0{i}\0" for i in range(len(inputs))]

    def build() -> Manifest:
        try:
            for found in inputs:
                found.check_unchanged()  # much later, to mend what was damaged
            try:
                with Progress(reader, sum(found.size for found in inputs)) as progress:
                    manifest = write(prefix, progress.add)
            finally:
                for found in inputs:
                    found.check_unchanged()  # before the manifest is stored, and before another error is told
        finally:
            close_connections()
        return msgspec.structs.replace(
            manifest,
            warnings=_renamed(manifest.warnings, names, marks),
            facts={"format": reader, **manifest.facts},
            format_version=FORMAT_VERSION,
        )

    try:
        content = [found.identity() for found in inputs]
        prefix = f"datasets/{digest([reader, version, FORMAT_VERSION, content, settings])}"
        source = stored_source(store, prefix, names[0], build)
    finally:
        close_connections()
    # Each time: whoever reads now may not have read then, nor by these names.
    more = f" and {len(inputs) - 1:,} more" if len(inputs) > 1 else ""
    source.spent = spent
    source.manifest = msgspec.structs.replace(source.manifest, source=names[0] + more)
    for warning in _renamed(source.manifest.warnings, marks, names):
        warnings.warn(warning, UserWarning, stacklevel=3)
    return Dataset(source)


def _renamed(texts: list[str], old: list[str], new: list[str]) -> list[str]:
    """Texts in which names are exchanged; longer ones first, which may begin with others."""
    pairs = sorted(zip(old, new, strict=True), key=lambda pair: -len(pair[0]))
    for before, after in pairs:
        texts = [text.replace(before, after) for text in texts]
    return texts
