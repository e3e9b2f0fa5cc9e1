"""Features that occur: what is left out, and back again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from squall.records import CsrBlock, DenseBlock
from squall.store import connect
from squall.worker.occurring import Occurring


def block(indices: list[int], width: int = 10) -> CsrBlock:
    """A row of some features, and one of none."""
    n, labels = len(indices), np.array([0, 1], dtype=np.float32)
    indptr, values = np.array([0, n, n], dtype=np.int64), np.arange(1, n + 1, dtype=np.float32)
    return CsrBlock(indptr, np.array(indices, dtype=np.int32), values, labels, None, width)


def test_shares_are_numbered_by_what_occurs_in_any_of_them() -> None:
    shares = [block([7, 2]), block([3]), block([])]
    occurring = Occurring.of(np.sum([Occurring.marks(share) for share in shares], axis=0, dtype=np.int16))
    assert occurring.features.tolist() == [2, 3, 7] and not occurring.all
    narrow = [occurring.narrowed(share) for share in shares]
    assert [n.indices.tolist() for n in narrow if isinstance(n, CsrBlock)] == [[2, 0], [1], []]
    assert {n.n_features for n in narrow} == {3}
    assert isinstance(narrow[0], CsrBlock) and narrow[0].values is shares[0].values
    coefficients = np.arange(22.0).reshape(11, 2)
    taken = occurring.taken(coefficients)
    assert taken[:, 0].tolist() == [4, 6, 14, 20], "and the intercepts"
    whole = occurring.spread((10 * taken).astype(np.float32), coefficients.astype(np.float32))
    factor = np.where(np.isin(np.arange(11), [2, 3, 7, 10]), 10.0, 1.0)
    np.testing.assert_array_equal(whole, coefficients * factor[:, None])


def test_rows_without_features_and_dense_rows() -> None:
    nothing = Occurring.of(Occurring.marks(block([])))
    assert nothing.features.tolist() == [0] and not nothing.all
    dense = DenseBlock(np.zeros((2, 4), np.float32), np.zeros(2, np.float32), None)
    every = Occurring.of(Occurring.marks(dense))
    assert every.all and every.narrowed(dense) is dense
    full = block([0, 1], width=2)
    assert Occurring.of(Occurring.marks(full)).narrowed(full) is full


def test_an_index_beyond_the_width_is_an_error() -> None:
    with pytest.raises(IndexError):
        Occurring.marks(block([10]))


def test_the_driver_is_told(tmp_path: Path) -> None:
    with connect((tmp_path / "store").as_uri()) as store:
        assert Occurring.get(store, "job") is None
        Occurring(np.array([2, 5], dtype=np.int32), 9).put(store, "job")
        known = Occurring.get(store, "job")
        assert known is not None and known.features.tolist() == [2, 5] and known.n_features == 9
