from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load

from squall.data.layouts import decode
from squall.data.objects import ObjectStore
from squall.data.partitions import encode, read_raw, read_training, write_partition
from squall.errors import CorruptError, StoreError
from squall.records import CsrBlock, DenseBlock

from .blocks import assert_same, csr_block, quick, raw_block


@quick
@given(st.integers(0, 30), st.integers(0, 1000), st.booleans(), st.booleans())
def test_raw_comes_back_exactly(tmp_path_factory, n, seed, labels, weights):
    store = ObjectStore(tmp_path_factory.mktemp("s"))
    block = raw_block(n, seed, labels, weights)
    info = write_partition(store, "p", block)
    assert (info.rows, info.bytes) == (n, len(store.get("p")))
    assert bytes(store.get("p")) == bytes(encode(block)), "in a folder or elsewhere it is the same object"
    assert_same(read_raw(store, info), block)


@pytest.mark.parametrize("n", [0, 1, 50])
@pytest.mark.parametrize("ones", [True, False])
@pytest.mark.parametrize("weights", [True, False])
def test_training_comes_back_exactly(store, n, ones, weights):
    block = csr_block(n, ones or n == 0, weights)
    info = write_partition(store, "c", block)
    assert info.nnz == len(block.indices)
    assert_same(read_training(store, info), block)
    rng = np.random.default_rng(1)
    dense = DenseBlock(rng.normal(size=(n, 4)).astype(np.float32), block.labels, block.weights)
    assert_same(read_training(store, write_partition(store, "d", dense)), dense)


def test_values_of_one_are_left_out(store):
    block = csr_block(10)
    ones = CsrBlock(block.indptr, block.indices, np.ones_like(block.values), block.labels, None, 20)
    info = write_partition(store, "c", ones)
    back = read_training(store, info)
    assert back.values is None and back.weights is None


def test_reading_copies_nothing(store):
    info = write_partition(store, "c", csr_block(1000))
    back = read_training(store, info)
    for array in (back.indptr, back.indices, back.values, back.labels):
        assert not array.flags.owndata and not array.flags.writeable and array.flags.aligned


def test_any_safetensors_reader_opens_it_and_the_same_block_gives_the_same_bytes():
    block = csr_block(20, weights=True)
    data = encode(block)
    assert data == encode(csr_block(20, weights=True))
    arrays = load(bytes(data))
    assert set(arrays) == {"indptr", "indices", "values", "labels", "weights"}
    assert np.array_equal(arrays["indices"], block.indices)
    assert encode(raw_block(5)) == encode(raw_block(5))


def test_unaligned_buffers_are_understood():
    data = encode(csr_block(20))
    shifted = memoryview(b"x" + bytes(data))[1:]
    _, arrays = decode(shifted, "here")
    assert all(a.flags.aligned for a in arrays.values())
    assert np.array_equal(arrays["indices"], csr_block(20).indices)


@pytest.mark.parametrize("position", [0, 9, 200, -1])
def test_a_flipped_byte_is_found_and_the_object_named(store, position):
    info = write_partition(store, "part/c", csr_block(100))
    data = bytearray(store.get("part/c"))
    data[position] ^= 1
    store.put("part/c", bytes(data))
    with pytest.raises(CorruptError, match=r"part/c: the object is damaged"):
        read_training(store, info)


def test_a_truncated_and_a_missing_object_are_named(store):
    info = write_partition(store, "part/c", csr_block(100))
    store.put("part/c", bytes(store.get("part/c")[:-8]))
    with pytest.raises(CorruptError, match=r"part/c: the object is damaged: [\d,]+ of"):
        read_training(store, info)
    store.delete("part/c")
    with pytest.raises(StoreError, match="part/c: the object does not exist"):
        read_training(store, info)


def test_an_unknown_format_version_is_refused():
    data = bytes(encode(csr_block(3))).replace(b'format_version\\":2', b'format_version\\":9')
    with pytest.raises(CorruptError, match="format version is 9"):
        decode(memoryview(data), "x")


def test_kinds_are_not_confused(store):
    raw = write_partition(store, "r", raw_block(3))
    csr = write_partition(store, "c", csr_block(3))
    with pytest.raises(CorruptError, match="training partition was expected"):
        read_training(store, raw)
    with pytest.raises(CorruptError, match="raw partition was expected"):
        read_raw(store, csr)


@quick
@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 400))
def test_decoding_rubbish_is_a_typed_error(rubbish, start, stop):
    data = bytes(encode(csr_block(3)))
    for damaged in (rubbish, data[:start], data[:start] + rubbish + data[stop:]):
        try:
            decode(memoryview(damaged), "object x")
        except CorruptError as error:
            assert "object x" in str(error)


def test_a_huge_header_length_allocates_nothing():
    with pytest.raises(CorruptError, match="header is truncated"):
        decode(memoryview((2**63).to_bytes(8, "little") + b"{}"), "x")
