"""Images in a folder for each class; Pillow decodes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from squall.data.image_arrays import Array
from squall.data.inputs import files_below
from squall.errors import DataError, MissingExtraError

_SUFFIXES = (".png", ".jpg", ".jpeg")
_CHANNELS = {"L": (), "RGB": (3,), "RGBA": (4,)}


class FolderImages:
    """What is to be read of a folder; see `squall.data.image_arrays.Images`.

    Parameters
    ----------
    folder : Path
        With a folder for each class; or with images, which then have no labels.
    mode : str or None
        Pillow's mode to convert to.

    Attributes
    ----------
    paths : list of Path
        All images, sorted.
    names : list of str
        Their paths below the folder.
    warnings : list of str
        Of other files.

    Raises
    ------
    DataError
        If there are no images, or some are in a folder of a class and others in none.
    MissingExtraError
        If Pillow is not installed.
    """

    def __init__(self, folder: Path, mode: str | None) -> None:
        self.where, self._mode = str(folder), mode
        self._pillow = _pillow()
        files = files_below(folder, "*")
        self.paths = [path for path in files if path.suffix.lower() in _SUFFIXES]
        if not self.paths:
            raise DataError("the folder holds no PNG or JPEG files", where=self.where, fix="check the path")
        relative = [path.relative_to(folder) for path in self.paths]
        self.names = [path.as_posix() for path in relative]
        self.warnings = _told(folder, [path for path in files if path.suffix.lower() not in _SUFFIXES])
        loose = [len(path.parts) == 1 for path in relative]
        if any(loose) and not all(loose):
            raise DataError(
                "this image is in no class's folder, and others are",
                where=str(self.paths[loose.index(True)]),
                fix="put each image into the folder of its class",
            )
        self.labels = None if any(loose) else np.array([path.parts[0] for path in relative])
        self.n_images = len(self.paths)
        first = self._pixels(self.paths[0])
        self.shape, self.dtype = first.shape, first.dtype

    def read(self, rows: int) -> Iterator[Array]:
        """The images, up to ``rows`` at a time.

        Raises
        ------
        DataError
            If one is damaged, or of another size or mode than the first; names it.
        """
        for start in range(0, self.n_images, rows):
            yield np.stack([self._checked(path) for path in self.paths[start : start + rows]])

    def _checked(self, path: Path) -> Array:
        pixels = self._pixels(path)
        if pixels.shape != self.shape:
            own, first = ("×".join(map(str, shape)) for shape in (pixels.shape, self.shape))
            raise DataError(
                f"the image is {own} (height × width × channels), and {self.paths[0]} is {first}",
                where=str(path),
                fix="bring all images to one size first; mode= makes channels alike",
            )
        return pixels

    def _pixels(self, path: Path) -> Array:
        try:
            with self._pillow.open(path) as image:
                image.verify()  # sums and end of a PNG file, which decoding does not look at
            with self._pillow.open(path) as image:
                found = image.mode
                if found.startswith(("I", "F")):  # Pillow would cut them to 8 bits
                    raise DataError(f"its pixels have more than 8 bits (mode {found!r})", where=str(path))
                if self._mode is not None and found != self._mode:
                    image = image.convert(self._mode)
                pixels = np.array(image)
        # What Pillow raises for damaged files is not of one kind.
        except DataError:
            raise
        except (OSError, SyntaxError, ValueError, self._pillow.DecompressionBombError) as error:
            raise DataError(
                f"the image cannot be read: {error}", where=str(path), fix="remove or replace it"
            ) from error
        if self._mode is None and (found not in _CHANNELS or pixels.dtype != np.uint8):
            raise DataError(
                f"the image is of Pillow's mode {found!r}", where=str(path), fix='set mode="L" or mode="RGB"'
            )
        return pixels


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(
            "reading a folder of images needs Pillow", fix="pip install 'squall[images]'"
        ) from error
    return Image


def _told(folder: Path, others: list[Path]) -> list[str]:
    if not others:
        return []
    shown = ", ".join(str(path) for path in others[:3]) + (", …" if len(others) > 3 else "")
    return [f"{folder}: {len(others):,} files are neither PNG nor JPEG, and were left out: {shown}"]
