"""What all readers of files have in common: parsed once for each content and settings, then found again."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from squall.data.dataset import Dataset
from squall.data.files import changed
from squall.data.ingest import stored_source
from squall.data.inputs import Input
from squall.data.objects import ObjectStore, default_storage
from squall.data.partitions import FORMAT_VERSION
from squall.data.sources import digest
from squall.records import Manifest

Storage = str | os.PathLike[str] | ObjectStore | None


def stored_dataset(
    reader: str,
    version: int,
    inputs: Sequence[Input],
    settings: Any,
    storage: Storage,
    write: Callable[[ObjectStore, str], Manifest],
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
    storage : str, path or ObjectStore, optional
        Where to keep the data set; see :func:`squall.data.objects.default_storage`.
    write : callable
        ``write(store, prefix)`` stores all partitions and gives their manifest.

    Raises
    ------
    DataError
        If an input changes while it is read; then nothing opens.
    """
    store = storage if isinstance(storage, ObjectStore) else ObjectStore(storage or default_storage())
    stamps = [found.stamp() for found in inputs]
    versions = [found.version() for found in inputs]
    prefix = f"datasets/{digest([reader, version, FORMAT_VERSION, versions, settings])}"

    def build() -> Manifest:
        now = [found.stamp() for found in inputs]
        for found, then, known, stamp in zip(inputs, stamps, versions, now, strict=True):
            if then != stamp and found.version() != known:  # much later, to mend what was damaged
                raise changed(found.name)
        manifest = write(store, prefix)
        for found, stamp in zip(inputs, now, strict=True):
            if found.stamp() != stamp:
                raise changed(found.name)  # before the manifest is stored
        return manifest

    origin = inputs[0].name + (f" and {len(inputs) - 1:,} more" if len(inputs) > 1 else "")
    source = stored_source(store, prefix, origin, build)
    for warning in source.manifest.warnings:  # each time: whoever reads now may not have read then
        warnings.warn(f"{origin}{warning}", UserWarning, stacklevel=3)
    return Dataset(source)
