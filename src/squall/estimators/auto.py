"""What ``"auto"`` means for the learning rate and the minibatch size.

The minibatch has 64 rows, enough to amortise a step, or fewer (n² / 2¹⁹, down to 4) of less than
5,800 rows, which need the steps, or more (up to 512) where a pass would make more than 4,096.

The learning rate is tried out.  No formula in the size of the rows fits all data: rare features
want a small rate, lest they be learned by heart, and frequent ones a large one.  So a sample of
the training rows (they are shuffled by then) is trained on at rates a quarter of a decade apart,
each for as many epochs as the job will run but five at the most, and the loss on a fifth of the
sample that was kept back decides.  Where a fifth has so few rows that chance would decide, several
take turns.  The search starts at the middle one of the rates, goes up, or else down, by half
decades as long as the loss falls, and then tries the two neighbours.  The job's data may be larger
than the sample, and more rows allow a larger rate: of rates whose losses differ by less than half
a percent, the largest wins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np

from squall import _kernels
from squall.config import available_cores
from squall.data.rows import join_training, slice_training
from squall.protocols import Model
from squall.records import Block, CsrBlock, Float32, OptimizerSpec
from squall.store.initial import initial_values
from squall.store.table import ParameterTable

SAMPLE_ROWS = 20_000
_LEAST_ROWS = 50
_FOLDS = 5
_JUDGES = 400  # rows kept back, at the least, if all folds have so many
_EPOCHS = 5
_CLOSE = 1.005
_RATES: Sequence[float] = (
    *(0.001, 0.0018, 0.003, 0.0055, 0.01, 0.018, 0.03, 0.055),
    *(0.1, 0.18, 0.3, 0.55, 1.0, 1.8, 3.0, 5.5, 10.0),
)
_STEEPEST = 3.0  # of plain descent, which a logistic loss lets go to 8 / ‖x‖₂²


def choose_batch_size(n_rows: int) -> int:
    """The minibatch that ``"auto"`` stands for."""
    return min(512, max(n_rows // 4096, min(64, max(4, n_rows**2 >> 19))))


def choose_learning_rate(
    model: Model,
    sample: Block,
    optimizer: OptimizerSpec,
    *,
    n_rows: int,
    batch_size: int,
    epochs: int,
    seed: int,
    weights: Float32 | None = None,
) -> float:
    """The rate that ``"auto"`` stands for.

    Parameters
    ----------
    model : Model
        Has one table row for each of its ``n_features``, and behind them the intercept's.
    sample : Block
        Shuffled training rows; the first 20,000 are used.
    optimizer : OptimizerSpec
        Its rate is not looked at; a schedule is left out of the trials.
    n_rows, batch_size, epochs, seed : int
        Of the job.
    weights : (rows, dim) float32, optional
        Those that it begins with, if not with the model's own.
    """
    rates = _candidates(sample, optimizer)
    middle = len(_RATES) // 2
    optimizer = msgspec.structs.replace(optimizer, schedule="constant", decay=0.0, warmup=0, steps=0)
    n = min(sample.n_rows, SAMPLE_ROWS)
    if n < _LEAST_ROWS:
        return rates[middle]
    tried_model, rows, begin = _without_absent_features(model, sample, n, optimizer, weights)
    folds = validation_folds(rows, n)
    if n < n_rows:  # so that the sample makes steps enough
        batch_size = min(batch_size, choose_batch_size(folds[0][0].n_rows))

    def trial(tried: tuple[float, tuple[Block, Block]]) -> tuple[float, float]:
        rate, fold = tried
        spec = msgspec.structs.replace(optimizer, learning_rate=rate)
        return _trial(tried_model, *fold, spec, batch_size, min(epochs, _EPOCHS), seed, begin)

    with ThreadPoolExecutor(available_cores()) as pool:

        def losses(tried: Sequence[float]) -> list[float]:
            sums = np.array(list(pool.map(trial, itertools.product(tried, folds)))).reshape(len(tried), -1, 2)
            loss, weight = sums.sum(axis=1).T
            return [
                float(x / w) if w and math.isfinite(x) else math.inf
                for x, w in zip(loss, weight, strict=True)
            ]

        return climb(rates, middle, losses)


def _without_absent_features(
    model: Any, sample: Block, n: int, optimizer: OptimizerSpec, weights: Float32 | None
) -> tuple[Model, Block, Float32 | None]:
    """Model, the first ``n`` rows, and the weights to begin with, in the space of these rows' features.

    A sample has a small part of the features of a wide table, which each trial would have to make and
    fill.  The others' weights play no part in any loss, so trials come out the same.
    """
    spec = model.table("trial", optimizer)
    taken = np.arange(spec.rows, dtype=np.int64)
    if isinstance(sample, CsrBlock):
        order = np.arange(n, dtype=np.int32)
        taken, indptr, indices, values = _kernels.csr_minibatch(
            sample.indptr, sample.indices, sample.values, order, model.n_features
        )
        labels, sample_weights = sample.labels[:n], None if sample.weights is None else sample.weights[:n]
        sample = CsrBlock(indptr, indices, values, labels, sample_weights, len(taken) - 1)
        model = msgspec.structs.replace(model, n_features=len(taken) - 1)
    if weights is not None:
        return model, sample, weights[taken]
    return model, sample, initial_values(spec.initial, taken, spec.dim) if spec.initial else None


def validation_folds(sample: Block, n: int) -> list[tuple[Block, Block]]:
    """The first ``n`` rows as those to train on and a fifth to measure on; in turns, if these are few."""
    fifth = n // _FOLDS
    cuts = [n - (k + 1) * fifth for k in range(min(_FOLDS, -(-_JUDGES // fifth)))]
    return [(_without(sample, n, cut, fifth), slice_training(sample, cut, cut + fifth)) for cut in cuts]


def _without(sample: Block, n: int, first: int, count: int) -> Block:
    before, after = slice_training(sample, 0, first), slice_training(sample, first + count, n)
    return join_training([part for part in (before, after) if part.n_rows])


def climb(rates: Sequence[float], middle: int, losses: Callable[[Sequence[float]], Sequence[float]]) -> float:
    """The largest of the rates (which rise) whose loss is within half a percent of the least.

    Losses are taken to fall and then rise along the rates, so few of them are asked for, and two at a
    time where both are needed: every second from the middle upwards until one is worse than that, or
    downwards if the first step up was, and then the neighbours.  A rate beyond which training diverges is
    too near that for data that are others: the one below is taken.
    """
    known: dict[int, float] = {}

    def ask(*asked: int) -> None:
        new = [i for i in asked if 0 <= i < len(rates) and i not in known]
        known.update(zip(new, losses([rates[i] for i in new]) if new else (), strict=True))

    def at(i: int) -> float:
        ask(i)
        return known.get(i, math.inf)

    best = middle
    ask(best, best + 2)
    while math.isfinite(at(best)) and at(best + 2) <= at(best) * _CLOSE:
        best += 2
    if best == middle:
        while not at(best) <= at(best - 2):
            best -= 2
    ask(best - 1, best + 1)
    least = min(known.values())
    if not math.isfinite(least):
        return rates[0]
    chosen = max(i for i, value in known.items() if value <= least * _CLOSE)
    diverges_next = chosen + 1 < len(rates) and not math.isfinite(at(chosen + 1))
    return rates[max(0, chosen - diverges_next)]


def _candidates(sample: Block, optimizer: OptimizerSpec) -> list[float]:
    """Quarter decades: of what a weight moves by (AdaGrad, Adam, FTRL), or of 1 / mean weight·‖x‖₂² (SGD)."""
    if optimizer.name in ("adagrad", "ftrl"):
        return list(_RATES)
    if optimizer.name == "adam":
        return [0.1 * rate for rate in _RATES]
    values = sample.values if isinstance(sample, CsrBlock) else sample.features
    if values is None:
        assert isinstance(sample, CsrBlock)
        total = float(len(sample.indices))
    else:
        total = float(np.square(values, dtype=np.float64).sum())
    if sample.weights is not None:  # a row of weight 2 has twice the curvature
        total *= float(sample.weights.mean(dtype=np.float64))
    scale = sample.n_rows / total if total else 1.0
    if optimizer.name in ("momentum", "nesterov"):
        # In the end a gradient moves the weights 1 / (1 - momentum) times as far.
        scale *= 1.0 - optimizer.momentum
    return [scale * rate * 3.0 for rate in _RATES if rate <= _STEEPEST]


def _trial(
    model: Model,
    train: Block,
    test: Block,
    optimizer: OptimizerSpec,
    batch_size: int,
    epochs: int,
    seed: int,
    weights: Float32 | None,
) -> tuple[float, float]:
    """Held-out loss after a short training in this process, infinite if it diverged; and its rows' weight.

    Weights begin at 0 unless they are given.
    """
    spec = msgspec.structs.replace(model.table("trial", optimizer), initial=None)
    parameters = ParameterTable.private(spec, 1)
    table = parameters.shared
    if weights is not None:
        table.array[:, : spec.dim] = weights
    draw = np.random.default_rng(seed)
    count = -(-train.n_rows // batch_size)
    for _ in range(epochs):
        order = draw.permutation(train.n_rows).astype(np.int32)
        loss, _, _ = model.train_shared(
            train, order, batch_size, 0, count, table, np.zeros(1, dtype=np.int64)
        )
        if not math.isfinite(loss):
            return math.inf, 1.0
    loss, weight, _ = model.loss(test, parameters.pull())
    return loss, weight
