from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from squall import _kernels as kernels


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"\0\0\0\0", 0, 0x2362F9DE),
        (b"\0\0\0", 0, 0x85F0B427),
        (b"\0\0", 0, 0x30F4C306),
        (b"\0", 0, 0x514E28B7),
        (b"hello", 0, 0x248BFA47),
        (b"hello, world", 0, 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0, 0x2E4FF723),
    ],
)
def test_published_vectors(data, seed, expected):
    assert kernels.murmur3_32(data, seed) == expected


@given(st.binary(max_size=40), st.integers(0, 2**32 - 1))
def test_equals_scikit_learns(data, seed):
    assert kernels.murmur3_32(data, seed) == murmurhash3_32(data, seed, positive=True)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seed_is_checked(seed):
    with pytest.raises(ValueError, match="seed"):
        kernels.murmur3_32(b"", seed)


def arrow(strings):
    offsets = np.append(0, np.cumsum([len(s) for s in strings], dtype=np.int64)).astype(np.int64)
    return offsets, np.frombuffer(b"".join(strings), np.uint8)


@given(
    st.binary(max_size=9),
    st.lists(st.binary(max_size=12)),
    st.integers(1, 2**31 - 1),
    st.integers(0, 2**32 - 1),
)
def test_slots(prefix, strings, n_slots, seed):
    expected = [kernels.murmur3_32(prefix + s, seed) % n_slots for s in strings]
    slots = kernels.hash_slots(prefix, *arrow(strings), n_slots, seed)
    assert slots.tolist() == expected
    assert slots.dtype == np.int32


@pytest.mark.parametrize("offsets", [[0, 3, 2], [0, 2, 5], [-1, 2, 4], [0, 2**62, 4], [0, -(2**63), 4]])
def test_offsets_are_checked(offsets):
    with pytest.raises(ValueError, match="offsets: string"):
        kernels.hash_slots(b"", np.array(offsets, np.int64), np.zeros(4, np.uint8), 8, 0)


@pytest.mark.parametrize("n_slots", [0, -1, 2**31])
def test_n_slots_is_checked(n_slots):
    with pytest.raises(ValueError, match="n_slots"):
        kernels.hash_slots(b"", np.zeros(1, np.int64), b"", n_slots, 0)


def test_no_offsets():
    with pytest.raises(ValueError, match="offsets: is empty"):
        kernels.hash_slots(b"", np.zeros(0, np.int64), b"", 8, 0)
