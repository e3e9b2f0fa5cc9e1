"""`read_images`: images as rows of pixels, as a stored data set."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from squall.config import Problems
from squall.data.dataset import Dataset
from squall.data.finding import find_below, find_one, path_problems
from squall.data.image_arrays import Images, idx_images, idx_labels, npz_images, npz_labels
from squall.data.image_folders import FolderImages
from squall.data.ingest import store_blocks
from squall.data.inputs import Input, Seen
from squall.data.labels import Classes, encode_labels
from squall.data.reading import Storage, storage_of, stored_dataset
from squall.errors import DataError, SettingError
from squall.records import ColumnSpec, DenseColumn, Float64, Int32, Manifest, RawBlock

COLUMN = "pixels"
_READER_VERSION = 1
_PART_BYTES = 10_000_000

_Path = str | os.PathLike[str]


def read_images(
    path: _Path,
    *,
    labels: _Path | None = None,
    images: str | None = None,
    mode: Literal["L", "RGB"] | None = None,
    storage: Storage = None,
) -> Dataset:
    """Read images into a data set: one dense column ``pixels``, a row for each image.

    Three sorts of sources: an IDX file, as MNIST comes in; an npz file of NumPy; or a folder with a folder
    of PNG and JPEG files for each class (``pip install 'squall[images]'``).  All images must be of one
    size.  Bytes stay bytes, float32 stays float32; memory holds one partition at a time.

    Parameters
    ----------
    path : str or path
        A file, a folder, or a URL of either; IDX also compressed by gzip, bzip2, xz or zstandard.
    labels : str or path, optional
        IDX: the file of labels, or its URL.  npz: the name of the array of labels.  A folder's images have
        the names of their folders as labels.
    images : str, optional
        npz: the name of the array of images; may be left out where only one has more than one dimension.
    mode : str, optional
        Folder: ``"L"`` (grey) or ``"RGB"``, into which all images are converted; all must be alike if None.
    storage : str, path or ObjectStore, optional
        Where to keep the data set; see :func:`squall.data.objects.default_storage`.

    Raises
    ------
    SettingError
        If a setting is wrong.
    DataError
        If a file cannot be read, is damaged or cut short, an image is of another size than the others, or
        there are more or fewer labels than images; names the file.
    MissingExtraError
        If Pillow is not installed and there is a folder to read.
    StoreError
        If the store refuses.

    Warns
    -----
    UserWarning
        Of files in the folder that are neither PNG nor JPEG.
    """
    _check_settings(path, labels, images, mode)
    found, place = find_below(path), str(path)
    if found[0][0]:
        _refuse(place, "a folder", labels=labels, images=images)
        folder = FolderImages(place, found, mode)
        for told in folder.warnings:
            warnings.warn(told, UserWarning, stacklevel=2)
        return _stored(folder.inputs, ["folder", folder.names, mode], storage, lambda: folder)
    if len(found) > 1:
        raise SettingError(f"path={place!r} means {len(found):,} files: name one, or a folder")
    source = found[0][1]
    with source.open(0, lambda _: None) as opened:
        is_zip = opened.read(4) == b"PK\x03\x04"
    if is_zip:
        _refuse(place, "an npz file", mode=mode)
        name = None if labels is None else str(labels)
        return _stored([source], ["npz", name, images], storage, lambda: _from_npz(source, name, images))
    _refuse(place, "an IDX file", images=images, mode=mode)
    labels_file = None if labels is None else find_one(labels, "labels")
    inputs = [source] if labels_file is None else [source, labels_file]
    settings = ["idx", labels_file is not None]
    return _stored(inputs, settings, storage, lambda: _from_idx(source, labels_file))


def _from_idx(source: Input, labels: Input | None) -> Images:
    return idx_images(source, None if labels is None else idx_labels(labels))


def _from_npz(source: Input, labels: str | None, images: str | None) -> Images:
    return npz_images(source, images, None if labels is None else npz_labels(source, labels))


def _stored(inputs: list[Input], settings: Any, storage: Storage, make: Any) -> Dataset:
    store = storage_of(storage)

    def write(prefix: str, seen: Seen) -> Manifest:
        found: Images = make()
        classes: Classes | None = None
        codes: Int32 | Float64 | None = None
        if found.labels is not None:
            classes, codes = encode_labels(found.labels, found.n_images, found.where)
        width = int(np.prod(found.shape, dtype=np.int64))
        if found.n_images == 0 or width == 0:
            raise DataError(f"there are no images (their shape is {found.shape})", where=found.where)
        partitions, missing = store_blocks(store, prefix, _blocks(found, width, codes, seen))
        return Manifest(
            rows=found.n_images,
            columns=[ColumnSpec(COLUMN, "dense", width)],
            partitions=partitions,
            label=None if codes is None else "label",
            classes=None if classes is None else classes.tolist(),
            missing=missing,
        )

    return stored_dataset("images", _READER_VERSION, inputs, settings, store, write)


def _blocks(found: Images, width: int, codes: Int32 | Float64 | None, seen: Seen) -> Iterator[RawBlock]:
    at = 0
    for pixels in found.read(max(1, _PART_BYTES // (width * found.dtype.itemsize)), seen):
        rows = slice(at, at + len(pixels))
        at += len(pixels)
        values: Any = np.ascontiguousarray(pixels.reshape(len(pixels), width))
        yield RawBlock(len(pixels), {COLUMN: DenseColumn(values)}, None if codes is None else codes[rows])


def _check_settings(path: Any, labels: Any, images: Any, mode: Any) -> None:
    problems = Problems("read_images")
    if isinstance(path, str | os.PathLike):
        for problem in path_problems(path):
            problems.add(problem)
    else:
        problems.add(f"path={path!r} is not one path")
    if labels is not None and not isinstance(labels, str | os.PathLike):
        problems.add(f"labels={str(labels)[:80]!r} is neither a path nor a name (arrays: from_arrays)")
    if images is not None and not isinstance(images, str):
        problems.add(f"images={str(images)[:80]!r} is not the name of an array")
    if mode is not None:
        problems.choice("mode", mode, ["L", "RGB"])
    problems.raise_if_any()


def _refuse(place: str, what: str, **settings: Any) -> None:
    given = [f"{name}=" for name, value in settings.items() if value is not None]
    if given:
        raise SettingError(f"read_images: {place} is {what}, for which there is no {', '.join(given)}")
