"""One safetensors object: its header, the arrays in it, and what they mean.

The file is plain safetensors (any reader of that format opens it); what the arrays mean is in
its metadata under ``squall``.  Reading is done here rather than by the library because the
library copies every array, and these are views of the mapped object.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from squall.data.versions import FORMAT_VERSION, KNOWN_VERSIONS
from squall.errors import CorruptError
from squall.records import ColumnSpec

_DTYPES = {"I64": np.int64, "F64": np.float64, "I32": np.int32, "F32": np.float32, "U8": np.uint8}
_TAGS = {np.dtype(kind).str: tag for tag, kind in _DTYPES.items()}
_MAX_HEADER = 100_000_000  # the limit of the safetensors format
FIX = "remove the data set's folder and read the source again"
"""Of a partition that is damaged."""

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Shapes = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]


class Layout(msgspec.Struct, frozen=True):
    """What the arrays of one partition mean; stored as JSON in its metadata."""

    kind: Literal["raw", "csr", "dense"]
    rows: int
    columns: list[ColumnSpec] = []  # of a raw partition
    n_features: int = 0  # of a training partition
    format_version: int = FORMAT_VERSION
    index_bits: int = 0  # of a packed partition: bits of an index


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def header_of(layout: Layout, arrays: Shapes) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """What an object begins with, and where in it each array begins and ends, in their order.

    Made here rather than by the safetensors library, which copies everything twice more; the
    result is for that library, or any other, to read.
    """
    # As the library does: the widest types first, so that every array is aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name][0].itemsize, name))
    entries: dict[str, Any] = {"__metadata__": {"squall": msgspec.json.encode(layout).decode()}}
    ends = np.cumsum([arrays[name][0].itemsize * math.prod(arrays[name][1]) for name in names]).tolist()
    for name, start, stop in zip(names, [0, *ends], ends, strict=False):
        dtype, shape = arrays[name]
        entries[name] = _Tensor(_TAGS[dtype.str], list(shape), (start, stop))
    header = msgspec.json.encode(entries)
    header += b" " * (-len(header) % 8)
    header = len(header).to_bytes(8, "little") + header
    return header, {
        name: (len(header) + start, len(header) + stop)
        for name, start, stop in zip(names, [0, *ends], ends, strict=False)
    }


def allocate(layout: Layout, arrays: Shapes, scratch: Scratch | None = None) -> tuple[memoryview, Arrays]:
    """A safetensors object with its header, and views of where its arrays go.

    Parameters
    ----------
    layout : Layout
        What the arrays mean.
    arrays : dict of name to (dtype, shape)
        What there is to hold.
    scratch : Scratch, optional
        Memory to use, whose last object is overwritten; new memory if None.
    """
    header, spans = header_of(layout, arrays)
    size = max((stop for _, stop in spans.values()), default=len(header))
    out = np.empty(size, dtype=np.uint8) if scratch is None else scratch.take(size)
    out[: len(header)] = np.frombuffer(header, dtype=np.uint8)
    places = {}
    for name, (start, stop) in spans.items():
        dtype, shape = arrays[name]
        places[name] = out[start:stop].view(dtype).reshape(shape)
    return out.data, places


class Scratch(threading.local):
    """Each thread's own memory, used again and again: the system takes its time to give new."""

    def __init__(self) -> None:
        self._memory = np.empty(0, dtype=np.uint8)

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """``size`` bytes of any content."""
        if len(self._memory) < size:
            self._memory = np.empty(size + size // 8, dtype=np.uint8)
        return self._memory[:size]


def decode(data: memoryview, where: str) -> tuple[Layout, Arrays]:
    """(layout, arrays as views of ``data``) of a partition; ``where`` names it in errors.

    Raises
    ------
    CorruptError
        If it is not a partition of a known format version.
    """
    try:
        entries, body = _header(data)
        layout = msgspec.json.decode(entries.pop("__metadata__")["squall"], type=Layout)
        if layout.format_version not in KNOWN_VERSIONS:
            raise CorruptError(
                f"its format version is {layout.format_version}, and this Squall reads {KNOWN_VERSIONS}",
                where=where,
                fix="use the version of Squall that wrote it, or read the source again",
            )
        body = _aligned(body)
        tensors = msgspec.convert(entries, dict[str, _Tensor])
        return layout, {name: _view(body, tensor) for name, tensor in tensors.items()}
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CorruptError):
            raise
        raise CorruptError(f"the object is not a partition: {error}", where=where, fix=FIX) from error


def _header(data: memoryview) -> tuple[dict[str, Any], memoryview]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _MAX_HEADER):
        raise ValueError("its header is truncated")
    header: dict[str, Any] = msgspec.json.decode(data[8 : 8 + length], type=dict[str, Any])
    return header, data[8 + length :]


def _aligned(body: memoryview) -> memoryview:
    # Mapped objects are aligned (the header is padded); what came over the network may not be.
    if len(body) == 0 or np.frombuffer(body, np.uint8).ctypes.data % 8 == 0:
        return body
    return np.frombuffer(body, np.uint8).copy().data


def _view(body: memoryview, tensor: _Tensor) -> Array:
    start, stop = tensor.data_offsets
    dtype = np.dtype(_DTYPES[tensor.dtype])
    size = math.prod(tensor.shape)
    if not 0 <= start <= stop <= len(body) or stop - start != size * dtype.itemsize:
        raise ValueError("an array lies outside the object")
    return np.frombuffer(body, dtype, size, start).reshape(tensor.shape)
