"""A worker's whole share: the rows of its first epoch's blocks, as one block, in each epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from squall.data.iterator import Deal
from squall.data.objects import ObjectStore
from squall.data.training import load_training, manifest_key, write_training
from squall.data.whole import WholeShare
from squall.errors import DataError
from squall.records import Block, CsrBlock, DenseBlock

ROWS, WIDTH = 500, 7


def csr(values: bool, weights: bool) -> CsrBlock:
    lengths = np.arange(ROWS) % 4
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    n = int(indptr[-1])
    return CsrBlock(
        indptr,
        (np.arange(n) % WIDTH).astype(np.int32),
        np.arange(n, dtype=np.float32) if values else None,
        np.arange(ROWS, dtype=np.float32),
        np.arange(ROWS, dtype=np.float32) + 1 if weights else None,
        WIDTH,
    )


def dense() -> DenseBlock:
    features = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    return DenseBlock(features, np.arange(ROWS, dtype=np.float32), None)


def rows_of(block: Block) -> list[tuple[float, ...]]:
    """Rows as they were, by their labels, which number them."""
    if isinstance(block, DenseBlock):
        return [
            (*row, label) for row, label in zip(block.features.tolist(), block.labels.tolist(), strict=True)
        ]
    ones = np.ones(len(block.indices), dtype=np.float32)
    values = ones if block.values is None else block.values
    weights = np.ones(block.n_rows) if block.weights is None else block.weights
    return [
        (label, weight, *block.indices[low:high].tolist(), *values[low:high].tolist())
        for label, weight, low, high in zip(
            block.labels.tolist(), weights.tolist(), block.indptr[:-1], block.indptr[1:], strict=True
        )
    ]


@pytest.mark.parametrize(
    "block", [csr(True, True), csr(False, False), dense()], ids=["weighted", "ones", "dense"]
)
@pytest.mark.parametrize("n_slots", [1, 3])
def test_shares_are_all_rows_once(tmp_path: Path, block: Block, n_slots: int) -> None:
    store = ObjectStore(tmp_path)
    write_training(iter([block]), store, "train", seed=0, target_bytes=2_000)
    deal = Deal.of(load_training(store, manifest_key("train")), n_slots, 8, seed=5)
    seen = []
    for slot in range(n_slots):
        with WholeShare(store, deal, slot, 2, 4, 1 << 28) as share:
            visits = list(share)
        assert [(v.epoch, v.first, v.n_minibatches, v.last_of_epoch) for v in visits] == [
            (2, 0, 1, True),
            (3, 0, 1, True),
        ]
        assert visits[0].block is visits[1].block
        assert share.bytes_in > 0 and share.fetch_s > 0
        seen += rows_of(visits[0].block)
    assert sorted(seen) == sorted(rows_of(block))
    assert deal.has_rows(7) == [1] * n_slots


def test_a_slot_without_rows_visits_nothing(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    write_training(iter([dense()]), store, "train", seed=0)
    deal = Deal.of(load_training(store, manifest_key("train")), 3, 400, seed=5)
    assert deal.has_rows(0) == [1, 1, 0]
    assert list(WholeShare(store, deal, 2, 0, 4, 1 << 28)) == []
    assert list(WholeShare(store, deal, 0, 4, 4, 1 << 28)) == [], "all epochs are done"


def test_a_share_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    write_training(iter([dense()]), store, "train", seed=0)
    deal = Deal.of(load_training(store, manifest_key("train")), 1, 8, seed=5)
    with pytest.raises(DataError, match="does not fit into a function of 0 MB"):
        WholeShare(store, deal, 0, 0, 1, 8_000)
