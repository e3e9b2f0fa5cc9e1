"""What models have in common whose table rows are several numbers wide."""

from __future__ import annotations

from typing import Any

import numpy as np

from squall import _kernels
from squall.records import Block, CsrBlock, DenseBlock, Int32, Int64


def rows_of(block: Block) -> _kernels.Rows:
    """A block's rows as the kernels take them."""
    if isinstance(block, DenseBlock):
        return (block.features,)
    return (block.indptr, block.indices, block.values)


def needed_rows(block: Block, rows: Int32) -> tuple[Int64, Any]:
    """Features of these rows (of dense ones all) and the intercept's row; and the rows, numbered so."""
    if isinstance(block, CsrBlock):
        needed, *taken = _kernels.csr_minibatch(
            block.indptr, block.indices, block.values, rows, block.n_features
        )
        return needed, tuple(taken)
    return np.arange(block.n_features + 1, dtype=np.int64), (block.features,)
