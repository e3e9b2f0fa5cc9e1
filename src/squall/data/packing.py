"""Packed sparse rows: what is as large as it has to be, for stores that are slower than unpacking.

Indices take the bits that the feature space needs (20 for 2**20 features) instead of 32, a row's
length and its label a byte where they fit one.  The rule of `squall.data.training`: packed where the
store is reached over a network, plain in a folder, whose files are mapped and never copied.
Measured on rows of 39 hashed entries of 1 in 2**20 slots: 168 bytes a row plain, 100 packed; so at
70 MB/s (what one function gets from S3) 1.7 times as many rows a second.  zlib or zstd on top would
save a fifth more at best, and writing would take ten times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squall._kernels import pack_bits, packed_size, unpack_bits
from squall.records import Float32, Int32, Int64

Arrays = dict[str, npt.NDArray[Any]]
_BYTE = 255


def index_bits(n_features: int) -> int:
    """Bits of an index into so many features."""
    return max(1, (n_features - 1).bit_length())


def packed(indptr: Int64, indices: Int32, labels: Float32, bits: int) -> Arrays:
    """The arrays of packed rows, but for values and weights, which stay as they are."""
    indices_packed = np.empty(packed_size(len(indices), bits), dtype=np.uint8)
    pack_bits(indices, bits, indices_packed)
    return {"packed": indices_packed, "lengths": _narrow(np.diff(indptr)), "labels": _narrow(labels)}


def _narrow(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """As bytes if all are whole numbers from 0 to 255, else int32 of integers, and floats as they are."""
    with np.errstate(invalid="ignore"):
        narrow = numbers.astype(np.uint8)
    if np.array_equal(narrow, numbers):
        return narrow
    return numbers if numbers.dtype.kind == "f" else numbers.astype(np.int32)


def unpacked(arrays: Arrays, bits: int) -> Arrays:
    """The arrays of plain rows: ``indptr, indices, labels``, and ``values, weights`` where there are.

    Raises
    ------
    ValueError
        If they do not belong together.
    """
    lengths = arrays["lengths"]
    if lengths.dtype.kind == "i" and (lengths < 0).any():
        raise ValueError("a row has a negative length")
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    indices = np.empty(indptr[-1], dtype=np.int32)
    unpack_bits(arrays["packed"], bits, indices)
    labels = arrays["labels"].astype(np.float32, copy=False)
    return {**arrays, "indptr": indptr, "indices": indices, "labels": labels}
