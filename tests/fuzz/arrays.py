"""Targets: what takes arrays and frames that others made."""

from __future__ import annotations

import contextlib
import struct
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from squall import _kernels as kernels
from tests.fuzz.mutation import csr, exact, integers, mutated
from tests.fuzz.texts import CSV

_REFUSALS = (ValueError, IndexError, TypeError, OverflowError)
_HEADER, _REPLY = struct.Struct(">IBBHiqqqIII"), struct.Struct(">IBBHIq")


def packing(draw: Random) -> None:
    """Numbers of any width, in memory of any size."""
    bits, n = draw.choice([1, 2, 7, 8, 13, 31, 31, 0, 32, -5]), draw.randrange(70)
    numbers = integers(draw, n, 0, (1 << max(0, min(bits, 31))) - 1, np.int32)
    try:
        size = kernels.packed_size(n, bits)
        packed = exact(draw.randbytes(size + draw.choice([0, 0, 0, 0, -1, 1, 8, -8]) * (size > 8)))
        kernels.pack_bits(numbers, bits, packed)
    except _REFUSALS:
        return
    back = np.zeros(n, np.int32)
    kernels.unpack_bits(packed, bits, back)
    assert np.array_equal(back, numbers)
    with contextlib.suppress(*_REFUSALS):
        other = np.zeros(draw.randrange(80), np.int32)
        kernels.unpack_bits(exact(draw.randbytes(draw.randrange(300))), draw.choice([bits, 3, 31]), other)
        assert (other >= 0).all()


def sparse(draw: Random) -> None:
    """Sums and statistics of sparse rows beside NumPy's, and rows that are not sound."""
    indptr, indices, values, width = csr(draw)
    spans = list(pairwise(indptr.tolist()))
    is_sound = len(indptr) > 0 and all(0 <= a <= b <= len(indices) for a, b in spans)
    cells = [range(a, b) for a, b in spans] if is_sound else []
    is_sound = is_sound and all(0 <= indices[k] < width for row in cells for k in row)
    try:
        summed = kernels.csr_summed(indptr, indices, values, width)
        moments = kernels.csr_moments(indptr, indices, values, width)
        largest = kernels.csr_largest(indptr, indices, values, width)
        assert is_sound, (indptr, indices, width)
    except _REFUSALS:
        assert not is_sound, (indptr, indices, width)
    else:
        _check_statistics(cells, indices, values, width, summed, moments, largest)
    single = None if values is None else values.astype(np.float32)
    rows = integers(draw, draw.randrange(6), 0, len(indptr) - 2, np.int32)
    with contextlib.suppress(*_REFUSALS):
        kernels.csr_minibatch(indptr, indices, single, rows, width)
    with contextlib.suppress(*_REFUSALS):
        kernels.csr_margins(indptr, indices, single, np.ones(width, np.float32), 0.5)
    _gather(draw, indptr, indices, single)
    with contextlib.suppress(*_REFUSALS):
        distinct, local = kernels.localize(indices)
        assert np.array_equal(distinct[local], indices)


def _check_statistics(
    cells: list[range], indices: Any, values: Any, width: int, summed: Any, moments: Any, largest: Any
) -> None:
    dense = np.zeros((len(cells), width))
    with np.errstate(all="ignore"):
        for row, own in enumerate(cells):
            np.add.at(dense[row], indices[own], 1.0 if values is None else values[own].astype(np.float64))
    if summed is None:
        assert all(len(set(indices[own].tolist())) == len(own) for own in cells)
    else:
        kernels.csr_validate(summed[0], summed[1], None, width)
        again = np.zeros_like(dense)
        again[np.repeat(np.arange(len(dense)), np.diff(summed[0])), summed[1]] = summed[2]
        assert np.array_equal(again, dense, equal_nan=True)
    if summed is None and (values is None or np.isfinite(values).all()) and cells:
        n, mean, _ = moments
        assert (n == len(dense)).all()
        np.testing.assert_allclose(
            mean, dense.mean(axis=0), rtol=1e-9, atol=1e-12 * (1 + np.abs(dense).max())
        )
        assert np.array_equal(largest, np.abs(dense).max(axis=0))


def _gather(draw: Random, indptr: Any, indices: Any, values: Any) -> None:
    """Rows of several matrices, put into arrays that may not be of their size."""
    blocks = [(indptr, indices, draw.choice([None, values])) for _ in range(draw.randrange(1, 4))]
    n = draw.randrange(8)
    rows = integers(draw, n, 0, len(blocks) * (len(indptr) - 1) - 1, np.int64)
    with contextlib.suppress(*_REFUSALS):
        lengths = np.diff(indptr)[rows % max(1, len(indptr) - 1)]
        nnz = int(lengths.sum()) + draw.choice([0, 0, 0, 1, -1])
        out = np.zeros(n + 1, np.int64), np.zeros(nnz, np.int32), np.zeros(nnz, np.float32)
        kernels.csr_gather(blocks, rows, *out)


def hashing(draw: Random) -> None:
    """Slots of strings with any offsets; the hash itself beside one written in Python."""
    data = mutated(draw, CSV)
    seed = draw.choice([0, 1, 2**32 - 1, draw.randrange(2**32)])
    assert kernels.murmur3_32(data, seed) == _murmur3_32(data, seed)
    offsets = integers(draw, draw.randrange(20), 0, len(data), np.int64)
    if draw.random() < 0.8:
        offsets = np.sort(offsets)
    n_slots, prefix = draw.choice([1, 2, 1000, 2**31 - 1, 2**31, 0, -1]), draw.choice([b"", b"column="])
    with contextlib.suppress(*_REFUSALS):
        slots = kernels.hash_slots(prefix, offsets, exact(data), n_slots, seed)
        texts = [data[a:b] for a, b in pairwise(offsets)]
        assert slots.tolist() == [_murmur3_32(prefix + text, seed) % n_slots for text in texts]
    assert len(kernels.checksum(exact(data))) == 32


def _murmur3_32(data: bytes, seed: int) -> int:
    """MurmurHash3 x86 32-bit (Austin Appleby, public domain), as its description has it."""

    def scrambled(k: int) -> int:
        k = k * 0xCC9E2D51 & 0xFFFFFFFF
        return (k << 15 | k >> 17) * 0x1B873593 & 0xFFFFFFFF

    h, whole = seed, len(data) // 4 * 4
    for at in range(0, whole, 4):
        h ^= scrambled(int.from_bytes(data[at : at + 4], "little"))
        h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= scrambled(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def frames(draw: Random) -> None:
    """Frames of a stranger to a server, and replies of one to a client."""
    rows, dim = 40, 3
    rule = kernels.Rule(draw.choice([kernels.ADAGRAD, kernels.SGD, kernels.ADAM, kernels.FTRL]), 0.5)
    optimizers = (kernels.SGD, kernels.ADAGRAD, kernels.ADAM, kernels.FTRL)
    stride = max(kernels.table_stride(optimizer, dim, False) for optimizer in optimizers)
    words = np.zeros((3, 3), np.int64).T.copy()
    fence = kernels.Fence(words[0], words[1], words[2])
    server = kernels.FrameServer([kernels.Histogram(8, 8, 100) for _ in range(5)])
    with contextlib.suppress(*_REFUSALS):  # a width that is not the rule's
        table = np.ones((rows, draw.choice([dim + dim, dim, stride])), np.float32)
        served = kernels.ServedTable(
            table, np.array([5]), dim, rule, draw.choice([rows, 0, 41]), fence, np.zeros(1, np.int64)
        )
        server.add(b"a/b", served)
    client = kernels.FrameClient(draw.choice([1, 1, 2]))
    kind, flags = draw.randrange(7), draw.choice([0, 1, 2, 4, 8, 255])
    pushed, pulled = (integers(draw, draw.randrange(9), 0, rows - 1, np.int64) for _ in range(2))
    values = np.ones((len(pushed), dim), np.float32)
    with contextlib.suppress(*_REFUSALS):
        stamp = 0, 1, 1, 1
        client.pack(kind, flags, b"a/b", *stamp, pushed, values, pulled, rows, draw.choice([0, 10]))
        frame = bytearray(client.request(0))
        for _ in range(draw.choice([0, 1, 1, 3])):
            frame[draw.randrange(len(frame))] = draw.choice([0, 1, 255, draw.randrange(256)])
        frame = frame[: draw.choice([len(frame), len(frame), draw.randrange(len(frame) + 1)])]
        size = server.serve(exact(bytes(frame)), draw.choice([len(frame), len(frame), len(frame) - 1]))
        if size > 0:
            client.accept(0, exact(bytes(server.reply[:size])))
            client.weights()
    with contextlib.suppress(*_REFUSALS):
        reply = bytearray(_REPLY.pack(_REPLY.size - 4, draw.choice([9, 0]), flags & 7, 0, dim, len(pulled)))
        reply += draw.randbytes(
            draw.choice([4 * dim * len(pulled), 2 * dim * len(pulled), draw.randrange(99)])
        )
        reply[:4] = struct.pack(">I", len(reply) - 4)
        client.accept(0, exact(bytes(reply)))
        client.weights()
