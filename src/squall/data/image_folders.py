"""Images in a folder for each class; Pillow decodes them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from squall.data.finding import Found
from squall.data.image_arrays import Array
from squall.data.inputs import Input, Seen, unseen
from squall.errors import DataError, MissingExtraError

_SUFFIXES = (".png", ".jpg", ".jpeg")
_CHANNELS = {"L": (), "RGB": (3,), "RGBA": (4,)}


class FolderImages:
    """What is to be read of a folder; see `squall.data.image_arrays.Images`.

    Parameters
    ----------
    where : str
        The folder.
    found : list of (str, Input)
        The files below it: in a folder for each class, or all in none, and then without labels.
    mode : str or None
        Pillow's mode to convert to.

    Attributes
    ----------
    inputs : list of Input
        All images, by name.
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

    def __init__(self, where: str, found: Found, mode: str | None) -> None:
        self.where, self._mode = where, mode
        self._pillow = _pillow()
        images = [(name, source) for name, source in found if name.lower().endswith(_SUFFIXES)]
        if not images:
            raise DataError("the folder holds no PNG or JPEG files", where=where, fix="check the path")
        self.names = [name for name, _ in images]
        self.inputs = [source for _, source in images]
        self.warnings = _told(where, [s.name for n, s in found if not n.lower().endswith(_SUFFIXES)])
        loose = ["/" not in name for name in self.names]
        if any(loose) and not all(loose):
            raise DataError(
                "this image is in no class's folder, and others are",
                where=self.inputs[loose.index(True)].name,
                fix="put each image into the folder of its class",
            )
        self.labels = None if any(loose) else np.array([name.partition("/")[0] for name in self.names])
        self.n_images = len(images)
        first = self._pixels(self.inputs[0], unseen)
        self.shape, self.dtype = first.shape, first.dtype

    def read(self, rows: int, seen: Seen) -> Iterator[Array]:
        """The images, up to ``rows`` at a time.

        Raises
        ------
        DataError
            If one is damaged, or of another size or mode than the first; names it.
        """
        for start in range(0, self.n_images, rows):
            yield np.stack([self._checked(source, seen) for source in self.inputs[start : start + rows]])

    def _checked(self, source: Input, seen: Seen) -> Array:
        pixels = self._pixels(source, seen)
        if pixels.shape != self.shape:
            own, first = ("×".join(map(str, shape)) for shape in (pixels.shape, self.shape))
            raise DataError(
                f"the image is {own} (height × width × channels), and {self.inputs[0].name} is {first}",
                where=source.name,
                fix="bring all images to one size first; mode= makes channels alike",
            )
        return pixels

    def _pixels(self, source: Input, seen: Seen) -> Array:
        with source.open(0, seen) as file:
            raw = io.BytesIO(file.readall())
        try:
            with self._pillow.open(raw) as image:
                image.verify()  # sums and end of a PNG file, which decoding does not look at
            with self._pillow.open(raw) as image:
                found = image.mode
                if found.startswith(("I", "F")):  # Pillow would cut them to 8 bits
                    raise DataError(f"its pixels have more than 8 bits (mode {found!r})", where=source.name)
                if self._mode is not None and found != self._mode:
                    image = image.convert(self._mode)
                pixels = np.array(image)
        # What Pillow raises for damaged files is not of one kind.
        except DataError:
            raise
        except (OSError, SyntaxError, ValueError, self._pillow.DecompressionBombError) as error:
            raise DataError(
                f"the image cannot be read: {error}", where=source.name, fix="remove or replace it"
            ) from error
        if self._mode is None and (found not in _CHANNELS or pixels.dtype != np.uint8):
            raise DataError(
                f"the image is of Pillow's mode {found!r}",
                where=source.name,
                fix='set mode="L" or mode="RGB"',
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


def _told(where: str, others: list[str]) -> list[str]:
    if not others:
        return []
    shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    return [f"{where}: {len(others):,} files are neither PNG nor JPEG, and were left out: {shown}"]
