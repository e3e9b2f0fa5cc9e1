"""Counts by the words of a model."""

from __future__ import annotations

import numpy as np

from squall.preprocessing.words import WordTransform
from squall.records import ColumnSpec, RawBlock, SparseColumn


def test_words_are_found_by_name_and_others_left_out():
    transform = WordTransform(["b", "x", "a", "y"], ["a", "b", "c"])
    indptr, indices = np.array([0, 3, 4, 4, 6]), np.array([0, 1, 2, 3, 0, 2], dtype=np.int32)
    weights = np.arange(4.0)
    for values, wanted in ((np.arange(1.0, 7.0), [3.0, 1.0, 6.0, 5.0]), (None, None)):
        block = RawBlock(4, {"counts": SparseColumn(indptr, indices, values, 4)}, None, weights)
        found = transform.apply(block)
        column = found.columns["counts"]
        assert isinstance(column, SparseColumn)
        assert column.width == 3
        assert column.indptr.tolist() == [0, 2, 2, 2, 4]
        assert column.indices.tolist() == [0, 1, 0, 1], "ascending in each row"
        assert (None if column.values is None else column.values.tolist()) == wanted
        assert found.weights is weights
        assert block.columns["counts"].indices is indices
    assert transform.schema([ColumnSpec("counts", "sparse", 4)]) == [ColumnSpec("counts", "sparse", 3)]
    assert transform.to_dict() != WordTransform(["b", "x", "a", "z"], ["a", "b", "c"]).to_dict()
