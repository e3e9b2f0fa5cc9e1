from __future__ import annotations

import gc
import itertools
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.data.iterator import (
    MinibatchStream,
    Share,
    block_rows,
    epoch_minibatches,
    n_minibatches,
    shares,
)
from squall.data.objects import ObjectStore
from squall.data.training import write_training
from squall.errors import CorruptError, StoreError
from squall.records import PartitionInfo, TrainingManifest

from .blocks import quick
from .test_training import numbered, rows_of


def manifest_of(sizes, row_bytes=100) -> TrainingManifest:
    parts = [PartitionInfo(f"p{i}", n, n, n * row_bytes, "") for i, n in enumerate(sizes)]
    return TrainingManifest(sum(sizes), 10, "csr", parts)


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("squall-fetch")]


sizes = st.lists(st.integers(0, 60), max_size=6)
slots = st.integers(1, 9)
seeds = st.integers(0, 2**64)

# ------------------------------------------------------------------------------------- shares


@quick
@given(sizes, st.integers(1, 25), seeds, st.integers(0, 1000), slots)
def test_every_row_is_in_exactly_one_share(sizes, rows, seed, epoch, n_slots):
    manifest = manifest_of(sizes)
    dealt = [shares(manifest, rows, seed, epoch, n_slots, slot) for slot in range(n_slots)]
    seen = Counter((b.partition, row) for share in dealt for b in share for row in range(b.start, b.stop))
    assert seen == Counter((p, row) for p, n in enumerate(sizes) for row in range(n))
    assert all(0 < b.stop - b.start <= rows and b.start % rows == 0 for share in dealt for b in share)


@quick
@given(sizes, st.integers(1, 25), seeds, st.integers(0, 3), slots)
def test_shares_are_balanced_and_everyone_is_fed(sizes, rows, seed, epoch, n_slots):
    dealt = [shares(manifest_of(sizes), rows, seed, epoch, n_slots, slot) for slot in range(n_slots)]
    counts = [sum(b.stop - b.start for b in share) for share in dealt]
    assert max(counts) < sum(sizes) / n_slots + rows + 1e-9
    n_blocks = sum(len(share) for share in dealt)
    assert [len(share) > 0 for share in dealt].count(True) == min(n_slots, n_blocks)
    if n_blocks < n_slots:  # the same slots go without in every epoch
        assert [len(share) for share in dealt] == [1] * n_blocks + [0] * (n_slots - n_blocks)


def test_shares_with_full_blocks_differ_by_one_block():
    manifest = manifest_of([400, 400, 400])
    for epoch in range(20):
        counts = [len(shares(manifest, 10, 3, epoch, 7, slot)) for slot in range(7)]
        assert max(counts) - min(counts) <= 1 and sum(counts) == 120


def test_one_partition_feeds_every_slot():
    assert all(len(shares(manifest_of([1000]), 10, 0, 0, 8, slot)) in (12, 13) for slot in range(8))


def test_order_changes_with_epoch_and_seed_only():
    manifest = manifest_of([200] * 5)
    first = shares(manifest, 10, 0, 0, 1, 0)
    assert first == shares(manifest, 10, 0, 0, 1, 0)
    for other in (shares(manifest, 10, 0, 1, 1, 0), shares(manifest, 10, 1, 0, 1, 0)):
        assert other != first and sorted(other) == sorted(first)
    partitions = [b.partition for b in first]
    assert sum(p != q for p, q in itertools.pairwise(partitions)) == 4  # each is fetched once
    assert [b.start for b in first[:20]] != sorted(b.start for b in first[:20])


def test_no_rows_at_all():
    assert shares(manifest_of([]), 10, 0, 0, 3, 1) == []
    assert block_rows(manifest_of([]), 3, 64) == 64


@quick
@given(sizes, slots, st.integers(1, 64), st.integers(1, 100_000))
def test_block_rows_is_a_multiple_of_the_batch(sizes, n_slots, batch, row_bytes):
    manifest = manifest_of(sizes, row_bytes)
    rows = block_rows(manifest, n_slots, batch)
    assert rows % batch == 0 and rows >= batch
    assert rows == batch or rows * row_bytes <= 512 * 1024
    if rows > batch:
        assert manifest.rows // rows >= 8 * n_slots


def test_block_rows_fits_the_cache():
    assert block_rows(manifest_of([1_000_000], row_bytes=128), 2, 64) == 4096


def test_minibatches_are_counted_without_reading():
    assert [n_minibatches(rows, 10) for rows in (0, 1, 10, 11)] == [0, 1, 1, 2]
    assert epoch_minibatches([Share(0, 0, 25), Share(1, 0, 10)], 10) == 4


# ------------------------------------------------------------------------------------- stream


def written(store, sizes, **kwargs) -> TrainingManifest:
    """Training data whose partitions hold about these many rows."""
    blocks, start = [], 0
    for n in sizes:
        blocks.append(numbered(start, n, **kwargs))
        start += n
    return write_training(
        iter(blocks or [numbered(0, 0)]), store, "t", 0, target_bytes=600, window_bytes=1200
    )


def settings(**changes):
    plain = {"batch_size": 4, "block_rows": 8, "n_slots": 1, "slot": 0, "epochs": 1, "seed": 0}
    return plain | changes


def minibatches(stream) -> list[tuple[int, list[float]]]:
    """(epoch, labels) of each minibatch that is left to do."""
    done = []
    for visit in stream:
        size = stream._batch_size
        assert visit.order.dtype == np.int32
        assert sorted(visit.order.tolist()) == list(range(visit.block.n_rows))
        assert (
            visit.n_minibatches == -(-visit.block.n_rows // size) and 0 <= visit.first < visit.n_minibatches
        )
        rows_of(visit.block)
        for i in range(visit.first, visit.n_minibatches):
            labels = visit.block.labels[visit.order[i * size : (i + 1) * size]].tolist()
            done.append((visit.epoch, labels))
    return done


stream_cases = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 7),
        "n_slots": st.integers(1, 4),
        "epochs": st.integers(0, 3),
        "seed": st.integers(0, 2**40),
    }
)


@quick
@given(st.lists(st.integers(0, 60), max_size=4), stream_cases, st.integers(1, 4))
def test_each_row_once_per_epoch_over_all_slots(tmp_path_factory, sizes, case, batches_per_block):
    store = ObjectStore(tmp_path_factory.mktemp("s"))
    manifest = written(store, sizes, weights=True)
    seen: Counter[tuple[int, float]] = Counter()
    for slot in range(case["n_slots"]):
        rows = batches_per_block * case["batch_size"]
        with MinibatchStream(store, manifest, **case, slot=slot, block_rows=rows) as stream:
            done = minibatches(stream)
        for epoch in range(case["epochs"]):
            share = shares(manifest, rows, case["seed"], epoch, case["n_slots"], slot)
            assert epoch_minibatches(share, case["batch_size"]) == len([e for e, _ in done if e == epoch])
        seen.update((epoch, label) for epoch, labels in done for label in labels)
    assert seen == Counter((e, float(row)) for e in range(case["epochs"]) for row in range(sum(sizes)))
    assert threads() == []


@quick
@given(st.lists(st.integers(0, 60), max_size=4), stream_cases, st.integers(1, 4), st.data())
def test_a_stream_resumed_at_k_goes_on_exactly(tmp_path_factory, sizes, case, batches_per_block, data):
    store = ObjectStore(tmp_path_factory.mktemp("s"))
    manifest = written(store, sizes)
    slot = data.draw(st.integers(0, case["n_slots"] - 1))
    rest = {"slot": slot, "block_rows": batches_per_block * case["batch_size"]}
    with MinibatchStream(store, manifest, **case, **rest) as stream:
        full = minibatches(stream)
    k = data.draw(st.integers(0, len(full)))
    with MinibatchStream(store, manifest, **case, **rest, start_minibatch=k) as stream:
        assert minibatches(stream) == full[k:]


def test_the_last_block_of_each_epoch_says_so(store):
    manifest = written(store, [100])
    for start in (0, 1, 3, 24):
        with MinibatchStream(store, manifest, **settings(epochs=3), start_minibatch=start) as stream:
            visits = [(v.epoch, v.last_of_epoch) for v in stream]
        assert [e for e, last in visits if last] == [0, 1, 2]
        assert all(
            last == (i + 1 == len(visits) or visits[i + 1][0] > e) for i, (e, last) in enumerate(visits)
        )


def test_order_differs_between_blocks_and_epochs(store):
    manifest = written(store, [60])
    with MinibatchStream(store, manifest, **settings(block_rows=8, epochs=2)) as stream:
        orders = [tuple(v.order.tolist()) for v in stream if v.block.n_rows == 8]
    assert len(set(orders)) == len(orders) > 1


def test_blocks_are_views_of_the_mapped_partition(store):
    manifest = written(store, [100])
    with MinibatchStream(store, manifest, **settings()) as stream:
        for visit in stream:
            for array in (visit.block.indices, visit.block.values, visit.block.labels):
                assert not array.flags.owndata and not array.flags.writeable


def test_a_single_partition_is_fetched_once(store):
    manifest = written(store, [20])
    assert len(manifest.partitions) == 1
    before = store.gets
    with MinibatchStream(store, manifest, **settings(epochs=10)) as stream:
        assert sum(v.block.n_rows for v in stream) == 200
    assert store.gets == before + 1
    assert stream.bytes_in == manifest.partitions[0].bytes
    assert stream.fetch_s > 0 and stream.wait_s > 0


def test_at_most_two_partitions_wait_beside_the_one_in_use(store):
    manifest = written(store, [200])
    assert len(manifest.partitions) > 5
    before = store.gets
    with MinibatchStream(store, manifest, **settings()) as stream:
        next(iter(stream))
        for _ in range(50):
            threading.Event().wait(0.002)
            assert store.gets - before <= 3


@pytest.mark.parametrize("leave", ["break", "raise", "close", "drop", "never started"])
def test_no_thread_outlives_the_stream(store, leave):
    manifest = written(store, [200])
    stream = MinibatchStream(store, manifest, **settings(epochs=5))
    if leave == "break":
        with stream:
            for _ in stream:
                break
    elif leave == "raise":
        with pytest.raises(KeyboardInterrupt), stream:
            for _ in stream:
                raise KeyboardInterrupt
    elif leave == "close":
        visits = iter(stream)
        next(visits)
        stream.close()
        stream.close()
    elif leave == "drop":
        visits = iter(stream)
        next(visits)
        del visits, stream
        gc.collect()
    assert threads() == []


def test_going_on_after_close_is_an_error_not_an_end(store):
    manifest = written(store, [200])
    stream = MinibatchStream(store, manifest, **settings())
    visits = iter(stream)
    next(visits)
    stream.close()
    with pytest.raises(RuntimeError, match="closed before its end"):
        list(visits)


def test_a_damaged_partition_stops_the_consumer_with_its_name(store):
    manifest = written(store, [200])
    order = [b.partition for b in shares(manifest, 8, 0, 0, 1, 0)]
    last = manifest.partitions[order[-1]].key
    store.put(last, bytes(store.get(last)[:-1]))
    seen = 0
    with MinibatchStream(store, manifest, **settings()) as stream:
        with pytest.raises(CorruptError, match=last):
            for visit in stream:
                seen += visit.block.n_rows
    assert seen == manifest.rows - manifest.partitions[order[-1]].rows
    store.delete(last)
    with MinibatchStream(store, manifest, **settings()) as stream:
        with pytest.raises(StoreError, match="does not exist"):
            list(stream)
    assert threads() == []


def test_more_slots_than_blocks_is_an_empty_stream_at_once(store):
    manifest = written(store, [3])
    with MinibatchStream(store, manifest, **settings(n_slots=5, slot=4)) as stream:
        assert list(stream) == []
