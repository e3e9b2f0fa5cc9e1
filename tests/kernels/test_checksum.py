from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import _kernels as kernels

MASK = 2**64 - 1


def rotl(x, n):
    return (x << n | x >> (64 - n)) & MASK


def oracle(data: bytes) -> str:
    """MurmurHash3 x64 128-bit in plain Python."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for i in range(0, whole, 16):
        k1, k2 = (int.from_bytes(data[j : j + 8], "little") for j in (i, i + 8))
        h1 ^= rotl(k1 * c1 & MASK, 31) * c2 & MASK
        h1 = ((rotl(h1, 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 ^= rotl(k2 * c2 & MASK, 33) * c1 & MASK
        h2 = ((rotl(h2, 31) + h1) * 5 + 0x38495AB5) & MASK
    k1, k2 = (int.from_bytes(data[j : min(j + 8, len(data))], "little") for j in (whole, whole + 8))
    h2 ^= rotl(k2 * c2 & MASK, 33) * c1 & MASK
    h1 ^= rotl(k1 * c1 & MASK, 31) * c2 & MASK
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & MASK
    h2 = (h1 + h2) & MASK

    def mix(h):
        h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK
        h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & MASK
        return h ^ h >> 33

    h1, h2 = mix(h1), mix(h2)
    h1 = (h1 + h2) & MASK
    return f"{h1:016x}{(h1 + h2) & MASK:016x}"


@given(st.binary(max_size=100))
def test_checksum_equals_the_oracle(data):
    assert kernels.checksum(data) == oracle(data)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_a_checksum_of_pieces_is_that_of_the_whole(pieces):
    whole = kernels.Checksum()
    for i, piece in enumerate(pieces):
        whole.update(piece)
        assert whole.hexdigest() == oracle(b"".join(pieces[: i + 1]))
    assert whole.n_bytes == len(b"".join(pieces))


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (b"", "0" * 32),
        (b"The quick brown fox jumps over the lazy dog", "e34bbc7bbc071b6c7a433ca9c49a9347"),
    ],
)
def test_published_values(data, known):
    assert kernels.checksum(data) == known


def test_one_bit_changes_it():
    data = np.random.default_rng(0).integers(0, 256, 1000, dtype=np.uint8)
    before = kernels.checksum(data.data)
    for bit in range(0, 8000, 97):
        data[bit // 8] ^= 1 << bit % 8
        assert kernels.checksum(data.data) != before
        data[bit // 8] ^= 1 << bit % 8
    assert kernels.checksum(data.data) == before
