from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.data import packing
from squall.data.iterator import prefetch_depth
from squall.data.objects import ObjectStore
from squall.data.partitions import read_training
from squall.data.rows import slice_training, training_row_bytes
from squall.data.training import load_training, manifest_key, write_training
from squall.errors import CorruptError, DataError, StoreError
from squall.records import CsrBlock, DenseBlock, PartitionInfo, TrainingManifest

from .blocks import assert_same, csr_block, quick


def numbered(start: int, n: int, weights: bool = False, ones: bool = False) -> CsrBlock:
    """Rows with 0 to 3 cells that say which row they belong to, as does the label."""
    ids = np.arange(start, start + n)
    lengths = ids % 4
    indptr = np.append(0, np.cumsum(lengths)).astype(np.int64)
    indices = np.repeat(ids, lengths).astype(np.int32)
    values = None if ones else np.repeat(ids + 0.5, lengths).astype(np.float32)
    w = (ids + 0.25).astype(np.float32) if weights else None
    return CsrBlock(indptr, indices, values, ids.astype(np.float32), w, 1_000_000)


def rows_of(block: CsrBlock) -> list[tuple[float, ...]]:
    """Each row as (label, weight, its cells); also checks that the cells are its own."""
    rows = []
    for i in range(block.n_rows):
        cells = slice(block.indptr[i], block.indptr[i + 1])
        label = float(block.labels[i])
        weight = 1.0 if block.weights is None else float(block.weights[i])
        values = [1.0] * len(block.indices[cells]) if block.values is None else block.values[cells].tolist()
        assert block.indices[cells].tolist() == [int(label)] * (int(label) % 4)
        rows.append((label, weight, *values))
    return rows


@quick
@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.booleans()), min_size=1, max_size=8),
    st.integers(50, 2000),
    st.integers(1, 6),
    st.integers(0, 2**40),
    st.booleans(),
)
def test_every_row_is_kept_with_its_cells(tmp_path_factory, sizes, target, windows, seed, packed):
    store = ObjectStore(tmp_path_factory.mktemp("s"))
    blocks, start = [], 0
    for n, weights, ones in sizes:
        blocks.append(numbered(start, n, weights, ones))
        start += n
    manifest = write_training(iter(blocks), store, "t", seed, target, windows * target, packed)
    written = [row for p in manifest.partitions for row in rows_of(read_training(store, p))]
    assert sorted(written) == sorted(row for block in blocks for row in rows_of(block))
    assert manifest.rows == start == sum(p.rows for p in manifest.partitions)
    assert all(p.rows > 0 for p in manifest.partitions)
    assert load_training(store, manifest_key("t")) == manifest


def test_partitions_have_about_the_target_size(store):
    blocks = (csr_block(1000, seed=i) for i in range(20))
    manifest = write_training(blocks, store, "t", 0, target_bytes=50_000, window_bytes=200_000)
    sizes = [int(training_row_bytes(read_training(store, p)).sum()) for p in manifest.partitions]
    assert len(sizes) > 5
    assert max(sizes) <= 51_000 and min(sizes) > 20_000


def test_a_file_sorted_by_label_becomes_mixed_partitions(store):
    def halves():
        for label in (0, 1):
            for i in range(10):
                block = csr_block(500, seed=i)
                yield CsrBlock(
                    block.indptr, block.indices, block.values, np.full(500, label, np.float32), None, 20
                )

    manifest = write_training(halves(), store, "t", 1, target_bytes=20_000, window_bytes=10_000_000)
    shares = [read_training(store, p).labels.mean() for p in manifest.partitions]
    assert len(shares) > 5
    assert min(shares) > 0.35 and max(shares) < 0.65


def test_memory_stays_within_the_window(store):
    waiting = []

    def stream():
        for i in range(200):
            waiting.append(len(store.keys()))
            yield csr_block(500, seed=i)

    write_training(stream(), store, "t", 1, target_bytes=20_000, window_bytes=100_000)
    assert waiting[-1] > 0.8 * len(store.keys())  # partitions leave while blocks arrive


def test_the_seed_decides_the_order_and_nothing_else_does(store):
    def write(prefix, seed):
        return write_training(iter([numbered(0, 100), numbered(100, 50)]), store, prefix, seed, 2000)

    def labels(manifest):
        return np.concatenate([read_training(store, p).labels for p in manifest.partitions]).tolist()

    a, b, c = labels(write("a", 1)), labels(write("b", 1)), labels(write("c", 2))
    assert a == b != c
    assert a != sorted(a)


def test_rows_of_one_first_index_stay_together_in_random_order(store):
    draw = np.random.default_rng(0)
    pairs = np.column_stack([draw.integers(0, 9, 60), 9 + np.arange(60)]).astype(np.int32)
    block = CsrBlock(2 * np.arange(61), pairs.ravel(), None, np.arange(60, dtype=np.float32), None, 69)
    cut = [slice_training(block, 0, 25), slice_training(block, 25, 60)]
    orders = []
    for seed in (1, 2):
        manifest = write_training(iter(cut), store, f"g{seed}", seed, 400, 10_000, grouped=True)
        rows = np.concatenate([read_training(store, p).labels for p in manifest.partitions]).astype(int)
        assert len(manifest.partitions) > 1
        assert sorted(rows) == list(range(60))
        users = pairs[rows, 0]
        runs = users[np.append(True, np.diff(users) != 0)]
        assert len(runs) == len(set(users.tolist())), "each user is one run"
        orders.append(rows.tolist())
    assert orders[0] != orders[1]


def test_dense_rows(store):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)).astype(np.float32)
    block = DenseBlock(x, x[:, 0].copy(), np.abs(x[:, 1]))
    manifest = write_training(iter([block]), store, "d", 0, 1000)
    assert (manifest.kind, manifest.n_features, manifest.rows) == ("dense", 3, 300)
    back = [read_training(store, p) for p in manifest.partitions]
    features = np.concatenate([b.features for b in back])
    assert np.array_equal(features[:, 0], np.concatenate([b.labels for b in back]))
    assert np.array_equal(np.sort(features, axis=0), np.sort(x, axis=0))


def test_no_rows(store):
    with pytest.raises(DataError, match="no rows to train on"):
        write_training(iter([]), store, "t", 0)
    assert store.keys() == []
    manifest = write_training(iter([csr_block(0)]), store, "t", 0)
    assert (manifest.rows, manifest.partitions) == (0, [])


def test_blocks_must_agree(store):
    dense = DenseBlock(np.zeros((2, 20), np.float32), np.zeros(2, np.float32), None)
    wide = CsrBlock(
        *[getattr(csr_block(2), n) for n in ("indptr", "indices", "values", "labels", "weights")], 21
    )
    for odd in (dense, wide):
        with pytest.raises(DataError, match="blocks of one data set differ"):
            write_training(iter([csr_block(2), odd]), store, "t", 0)


def test_a_crash_leaves_nothing_that_opens_and_writing_again_works(store):
    def broken():
        yield numbered(0, 100)
        raise RuntimeError("the reader failed")

    with pytest.raises(RuntimeError):
        write_training(broken(), store, "t", 0, 500, 500)
    assert store.keys("t")  # partitions were written
    with pytest.raises(StoreError, match=r"t/manifest.json: the object does not exist"):
        load_training(store, manifest_key("t"))
    first = write_training(iter([numbered(0, 100)]), store, "t", 0, 500, 500)
    assert write_training(iter([numbered(0, 100)]), store, "t", 0, 500, 500) == first
    with pytest.raises(StoreError, match="other training data"):
        write_training(iter([numbered(0, 99)]), store, "t", 0, 500, 500)


@pytest.mark.parametrize("damage", [b"{", b"{}", b'{"rows": "many"}'])
def test_a_damaged_manifest_is_named(store, damage):
    store.put("t/manifest.json", damage)
    with pytest.raises(CorruptError, match=r"t/manifest.json"):
        load_training(store, "t/manifest.json")


def test_an_unknown_version_is_refused(store):
    manifest = write_training(iter([csr_block(3)]), store, "t", 0)
    store.put("u", msgspec.json.encode(msgspec.structs.replace(manifest, format_version=9)))
    with pytest.raises(CorruptError, match="unknown format version 9"):
        load_training(store, "u")


@quick
@given(st.integers(1, 30), st.data())
def test_slices_are_views_that_start_at_zero(n, data):
    block = numbered(0, n, weights=True)
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    part = slice_training(block, start, stop)
    assert part.indptr[0] == 0 and part.indptr[-1] == len(part.indices)
    assert rows_of(part) == rows_of(block)[start:stop]
    assert part.indices.base is not None and part.labels.base is not None


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("ones", [False, True])
def test_packed_rows_are_the_plain_ones(store, weights, ones):
    rows = [csr_block(500, ones=ones, weights=weights, seed=s) for s in (1, 2)]
    plain, packed = (
        write_training(iter(rows), store, f"t{p}", 3, target_bytes=9000, packed=p) for p in (False, True)
    )
    assert len(plain.partitions) == len(packed.partitions) > 2
    assert plain.memory_bytes == packed.memory_bytes
    assert (plain.format_version, packed.format_version) == (2, 3)
    assert load_training(store, "tTrue/manifest.json") == packed
    for a, b in zip(plain.partitions, packed.partitions, strict=True):
        assert_same(read_training(store, a), read_training(store, b))
        assert b.bytes < a.bytes


@pytest.mark.parametrize("n_features", [1, 2, 2**20, 2**31 - 1])
def test_any_width_is_packed(store, n_features):
    indices = np.array([0, n_features - 1, n_features // 2], np.int32)
    block = CsrBlock(np.array([0, 300, 303]), np.append(np.zeros(300, np.int32), indices), None,
                     np.array([0.5, 1e9], np.float32), None, n_features)  # fmt: skip
    manifest = write_training(iter([block]), store, "t", 0, packed=True)
    found = read_training(store, manifest.partitions[0])
    assert sorted(found.labels.tolist()) == [0.5, 1e9]
    assert sorted(found.indices.tolist()) == sorted(block.indices.tolist())


def test_a_store_on_a_network_gets_packed_rows_and_a_folder_plain_ones(store, monkeypatch):
    assert write_training(iter([csr_block(9)]), store, "a", 0).format_version == 2
    monkeypatch.setattr(ObjectStore, "folder", None)
    assert write_training(iter([csr_block(9)]), store, "b", 0).format_version == 3
    dense = DenseBlock(np.zeros((2, 20), np.float32), np.zeros(2, np.float32), None)
    assert write_training(iter([dense]), store, "c", 0).format_version == 2


def test_packed_rows_that_do_not_belong_together():
    arrays = packing.packed(np.array([0, 2]), np.array([1, 2], np.int32), np.zeros(1, np.float32), 3)
    for odd in ({"lengths": np.array([3], np.uint8)}, {"lengths": np.array([-1], np.int32)}):
        with pytest.raises(ValueError):
            packing.unpacked(arrays | odd, 3)


@pytest.mark.parametrize(("memory_mb", "depth"), [(128, 1), (256, 1), (400, 3), (1769, 4)])
def test_more_memory_prefetches_more(memory_mb, depth):
    manifest = TrainingManifest(1, 1, "csr", [PartitionInfo("k", 1, 1, 1, "")] * 5, 3, 50_000_000)
    assert prefetch_depth(manifest, memory_mb << 20) == depth
