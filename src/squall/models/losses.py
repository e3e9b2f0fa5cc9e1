"""Losses of rows whose outputs are known, as `Model.loss` tells them."""

from __future__ import annotations

import numpy as np

from squall import _kernels
from squall.records import Block, Float32


def logistic_quality(margins: Float32, block: Block) -> tuple[float, float, float]:
    """Log-loss: its sum, that of the sample weights, and the weight of rows predicted right."""
    loss, total = _kernels.logistic_loss(margins, block.labels, block.weights)
    right = (margins > 0) == (block.labels > 0.5)
    if block.weights is None:
        return loss, total, float(np.count_nonzero(right))
    return loss, total, float(block.weights[right].sum(dtype=np.float64))


def squared_quality(outputs: Float32, block: Block) -> tuple[float, float, None]:
    """Half the squared error: its sum, and that of the sample weights."""
    loss, total = squared_loss(outputs, block.labels, block.weights)
    return loss, total, None


def squared_loss(outputs: Float32, labels: Float32, weights: Float32 | None) -> tuple[float, float]:
    """(Σ weight · (output − label)² / 2, Σ weight), in double."""
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite loss says it
        errors = np.square(outputs.astype(np.float64) - labels) / 2.0
    if weights is None:
        return float(errors.sum()), float(len(errors))
    used = weights > 0  # whatever the others' losses, they have no part
    return float(errors[used] @ weights[used].astype(np.float64)), float(weights.sum(dtype=np.float64))
