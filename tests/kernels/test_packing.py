from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall._kernels import pack_bits, packed_size, unpack_bits


def packed(numbers, bits):
    out = np.full(packed_size(len(numbers), bits), 255, np.uint8)
    pack_bits(np.asarray(numbers, np.int32), bits, out)
    return out


def oracle(numbers, bits):
    """The same bits, written one at a time."""
    flat = [(number >> k) & 1 for number in numbers for k in range(bits)]
    return np.packbits(np.array(flat, np.uint8), bitorder="little")


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 31).flatmap(lambda bits: st.tuples(st.just(bits), st.lists(st.integers(0, 2**bits - 1))))
)
def test_what_is_packed_comes_back(case):
    bits, numbers = case
    out = packed(numbers, bits)
    expected = oracle(numbers, bits)
    assert out.tolist() == expected.tolist() + [0] * 8
    back = np.full(len(numbers), -1, np.int32)
    unpack_bits(out, bits, back)
    assert back.tolist() == numbers


@pytest.mark.parametrize("number", [4, -1, 2**31 - 1, -(2**31)])
def test_a_number_that_has_too_many_bits(number):
    with pytest.raises(IndexError, match=f"numbers: {number} has more than 2 bits"):
        packed([1, number, 1], 2)


@pytest.mark.parametrize("bits", [0, 32, -1])
def test_bits(bits):
    with pytest.raises(ValueError, match="bits"):
        packed_size(3, bits)


@pytest.mark.parametrize("size", [0, 8, 10])
def test_arrays_that_do_not_fit(size):
    with pytest.raises(ValueError, match="packed"):
        pack_bits(np.zeros(2, np.int32), 3, np.zeros(size, np.uint8))
    with pytest.raises(ValueError, match="packed"):
        unpack_bits(np.zeros(size, np.uint8), 3, np.zeros(2, np.int32))


def test_arrays_of_other_types():
    with pytest.raises(TypeError, match="numbers"):
        pack_bits(np.zeros(2, np.int64), 3, np.zeros(9, np.uint8))
    with pytest.raises(TypeError, match="packed"):
        unpack_bits(np.zeros(9, np.int8), 3, np.zeros(2, np.int32))
