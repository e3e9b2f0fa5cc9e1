"""The contract suite of `Model`: mathematics that every family must have right.

An implementation subclasses :class:`ModelContract` in its tests, with a name that pytest collects,
and says how to make a model of a width and the labels it trains on.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import astuple, fields
from typing import Any

import msgspec
import numpy as np
import pytest

from squall.data.rows import slice_training
from squall.models import model_from_dict
from squall.optim import CODES
from squall.protocols import Model
from squall.records import (
    Block,
    CsrBlock,
    DenseBlock,
    Float32,
    Float64,
    Int32,
    OptimizerSpec,
    SharedTable,
    Stamp,
)
from squall.store.table import ParameterTable

ROWS, WIDTH = 40, 6
_H = 2.0**-6  # of finite differences: exact in float32, and large beside its rounding
_EVERY: Int32 = np.arange(ROWS, dtype=np.int32)
PENALTIES = [(0.0, 0.0), (1e-3, 1e-2)]  # (l1, l2)


class ModelContract:
    """What every implementation of `Model` must do."""

    def make(self, n_features: int) -> Model:
        """A model of this width."""
        raise NotImplementedError

    def labels(self, draw: np.random.Generator, n: int) -> Float32:
        """What the model trains on: (n,)."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------- what it is given

    @pytest.fixture
    def model(self) -> Model:
        """A model of :data:`WIDTH` features."""
        return self.make(WIDTH)

    @pytest.fixture(params=["dense", "sparse", "ones"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        """How rows are kept: a matrix, CSR, or CSR whose values are all 1."""
        return str(request.param)

    @pytest.fixture
    def block(self, kind: str) -> Block:
        """Rows, the first of them all zero, with sample weights."""
        draw = np.random.default_rng(0)
        X = draw.normal(size=(ROWS, WIDTH)) * (draw.random((ROWS, WIDTH)) < 0.6)
        X[0] = 0
        weights = draw.choice([0.5, 1.0, 2.0], ROWS).astype(np.float32)
        return block_of(kind, X, self.labels(draw, ROWS), weights)

    @pytest.fixture
    def weights(self, model: Model) -> Float32:
        """Parameters away from 0, the whole table's."""
        return some_weights(model)

    # -------------------------------------------------------------------------------------- its sums

    def test_it_travels_as_plain_data(self, model: Model) -> None:
        plain = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(model)))
        assert model_from_dict(plain) == model

    def test_the_gradient_is_the_slope_of_the_loss(
        self, model: Model, block: Block, weights: Float32
    ) -> None:
        gradient, _, _ = full_gradient(model, block, _EVERY, weights)
        for at in np.ndindex(*weights.shape):
            ends = []
            for sign in (1, -1):
                moved = weights.copy()
                moved[at] += sign * _H
                ends.append(model.loss(block, moved)[0])
            slope = (ends[0] - ends[1]) / (2 * _H) / ROWS
            assert gradient[at] == pytest.approx(slope, rel=5e-3, abs=5e-5), at

    def test_the_gradients_loss_is_the_loss(self, model: Model, block: Block, weights: Float32) -> None:
        _, loss, weight = full_gradient(model, block, _EVERY, weights)
        assert (loss, weight) == pytest.approx(model.loss(block, weights)[:2], rel=1e-5)

    def test_a_gradient_is_divided_by_the_nominal_batch_size(
        self, model: Model, block: Block, weights: Float32
    ) -> None:
        few = np.array([3, 17, 4], dtype=np.int32)
        own, _, _ = full_gradient(model, block, few, weights, 3)
        of_ten, _, _ = full_gradient(model, block, few, weights, 10)
        np.testing.assert_allclose(own * 0.3, of_ten, rtol=1e-5, atol=1e-8)

    def test_gradients_and_losses_of_parts_add_up(self, model: Model, block: Block, weights: Float32) -> None:
        whole, *_ = full_gradient(model, block, _EVERY, weights)
        parts = [full_gradient(model, block, rows, weights, ROWS)[0] for rows in np.split(_EVERY, [7, 20])]
        np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-4, atol=1e-6)
        cuts = itertools.pairwise([0, 7, 20, ROWS])
        losses = [model.loss(slice_training(block, *cut), weights)[:2] for cut in cuts]
        np.testing.assert_allclose(np.sum(losses, axis=0), model.loss(block, weights)[:2], rtol=1e-5)

    def test_rows_it_does_not_need_do_not_matter(self, model: Model, block: Block, weights: Float32) -> None:
        needed, _ = model.needed_rows(block, np.array([3], dtype=np.int32))
        assert needed.dtype == np.int64
        assert len(set(needed.tolist())) == len(needed)
        assert 0 <= needed.min() <= needed.max() < len(weights)
        other = np.full_like(weights, 1e3)
        other[needed] = weights[needed]
        one = slice_training(block, 3, 4)
        np.testing.assert_array_equal(model.outputs(one, weights), model.outputs(one, other))

    def test_sample_weights_count_as_repetitions(self, model: Model, block: Block, weights: Float32) -> None:
        times = np.random.default_rng(3).integers(0, 4, ROWS)
        weighted = with_weights(block, times.astype(np.float32))
        repeated = np.repeat(_EVERY, times)
        one_by_one, loss, weight = full_gradient(model, with_weights(block, None), repeated, weights, ROWS)
        at_once, *sums = full_gradient(model, weighted, _EVERY, weights)
        np.testing.assert_allclose(at_once, one_by_one, rtol=1e-4, atol=1e-6)
        assert sums == pytest.approx([loss, weight], rel=1e-5)
        assert model.loss(weighted, weights)[:2] == pytest.approx((loss, weight), rel=1e-5)

    def test_arguments_are_left_alone_and_results_the_same_every_time(
        self, model: Model, block: Block, weights: Float32
    ) -> None:
        before = copy.deepcopy((astuple(block), weights))
        results = [(full_gradient(model, block, _EVERY, weights), model.loss(block, weights)) for _ in "ab"]
        assert np.array_equal(results[0][0][0], results[1][0][0])
        assert results[0][0][1:] == results[1][0][1:]
        assert results[0][1] == results[1][1]
        for was, now in zip(*map(_arrays, (before, (astuple(block), weights))), strict=True):
            np.testing.assert_array_equal(was, now)

    def test_dense_and_sparse_rows_give_the_same(self, model: Model, weights: Float32) -> None:
        draw = np.random.default_rng(5)
        X = draw.normal(size=(ROWS, WIDTH)) * (draw.random((ROWS, WIDTH)) < 0.6)
        labels = self.labels(draw, ROWS)
        blocks = [block_of(kind, X, labels, None) for kind in ("dense", "sparse")]
        dense, csr = (model.outputs(b, weights) for b in blocks)
        np.testing.assert_allclose(dense, csr, rtol=1e-4, atol=1e-5)
        of_dense, of_csr = (full_gradient(model, b, _EVERY, weights)[0] for b in blocks)
        np.testing.assert_allclose(of_dense, of_csr, rtol=1e-4, atol=1e-6)

    def test_weight_predicted_right_is_within_the_whole_or_there_is_none(
        self, model: Model, block: Block, weights: Float32
    ) -> None:
        _, weight, right = model.loss(block, weights)
        assert right is None or 0 <= right <= weight

    # --------------------------------------------------------------------------------- special rows

    def test_a_block_without_rows(self, model: Model, kind: str, weights: Float32) -> None:
        none = np.empty(0, dtype=np.float32)
        block = block_of(kind, np.empty((0, WIDTH)), none, None)
        assert model.loss(block, weights)[:2] == (0, 0)
        assert len(model.outputs(block, weights)) == 0
        table = new_table(model, OptimizerSpec("adagrad", 0.5))
        before = table.array.copy()
        progress = np.zeros(1, dtype=np.int64)
        order = np.empty(0, dtype=np.int32)
        assert model.train_shared(block, order, 8, 0, 0, table, progress) == (0, 0, 0)
        np.testing.assert_array_equal(table.array, before)

    def test_rows_of_zeros(self, model: Model, kind: str) -> None:
        labels = self.labels(np.random.default_rng(0), ROWS)
        block = block_of(kind, np.zeros((ROWS, WIDTH)), labels, None)
        table = new_table(model, OptimizerSpec("adagrad", 0.5))
        dim = table.spec.dim
        before = table.array[:-1, :dim].copy()
        losses = train(model, block, table, 8, epochs=5)
        assert losses[-1] <= losses[0]
        np.testing.assert_array_equal(table.array[:-1, :dim], before)

    def test_rows_of_weight_zero_have_no_part(self, model: Model, block: Block, weights: Float32) -> None:
        none = with_weights(block, np.zeros(ROWS, dtype=np.float32))
        gradient, loss, weight = full_gradient(model, none, _EVERY, weights)
        assert (loss, weight) == (0, 0)
        assert not gradient.any()

    def test_a_loss_that_is_not_finite_ends_it_before_the_update(self, model: Model, block: Block) -> None:
        table = new_table(model, OptimizerSpec("sgd", 0.5))
        table.array[:] = 1
        before, progress = table.array.copy(), np.zeros(1, dtype=np.int64)
        with np.errstate(all="ignore"):
            infinite = with_scale(block, np.inf)
            loss, _, rows = model.train_shared(infinite, _EVERY, ROWS, 0, 1, table, progress)
        assert not math.isfinite(loss)
        assert (rows, progress[0]) == (0, 0)
        np.testing.assert_array_equal(table.array, before)

    # ----------------------------------------------------------------------------------- in a table

    @pytest.mark.parametrize("penalties", PENALTIES, ids=["plain", "penalised"])
    @pytest.mark.parametrize("optimizer", sorted(CODES))
    def test_in_place_is_pull_gradient_and_push(
        self, model: Model, block: Block, optimizer: Any, penalties: tuple[float, float]
    ) -> None:
        spec = model.table("j/t", OptimizerSpec(optimizer, 0.05, *penalties, clip_norm=0.8))
        in_place, stepwise = ParameterTable.private(spec, 1), ParameterTable.private(spec, 1)
        order = np.random.default_rng(1).permutation(ROWS).astype(np.int32)
        progress = np.zeros(1, dtype=np.int64)
        sums = model.train_shared(block, order, 16, 0, 3, in_place.shared, progress)
        total = np.zeros(2)
        for number, rows in enumerate(np.split(order, [16, 32])):
            needed, handle = model.needed_rows(block, rows)
            gradient, *part = model.gradient(block, rows, handle, stepwise.pull(needed), 16)
            stepwise.push(needed, gradient, Stamp(0, 0, number))
            total += part
        everything = np.arange(spec.rows, dtype=np.int64)
        np.testing.assert_allclose(in_place.pull(everything), stepwise.pull(everything), rtol=1e-3, atol=1e-5)
        assert sums[:2] == pytest.approx(total, rel=1e-4)
        assert (sums[2], progress[0], in_place.shared.step[0]) == (ROWS, 3, 3)

    def test_the_minibatches_asked_for_and_no_others(self, model: Model, block: Block) -> None:
        at_once, in_turns = (new_table(model, OptimizerSpec("adagrad", 0.1)) for _ in "ab")
        progress = np.zeros(1, dtype=np.int64)
        whole = model.train_shared(block, _EVERY, 7, 0, 6, at_once, progress)
        parts = [
            model.train_shared(block, _EVERY, 7, *piece, in_turns, progress) for piece in [(0, 2), (2, 4)]
        ]
        np.testing.assert_array_equal(at_once.array, in_turns.array)
        assert [whole[2], parts[0][2], parts[1][2]] == [ROWS, 14, 26]
        assert progress[0] == 12

    def test_training_lowers_the_loss(self, model: Model, block: Block) -> None:
        table = new_table(model, OptimizerSpec("adagrad", 0.1))
        before, _, _ = model.loss(block, _weights_of(table))
        train(model, block, table, 8, epochs=20)
        assert model.loss(block, _weights_of(table))[0] < 0.9 * before


# --------------------------------------------------------------------------------------- helpers


def block_of(kind: str, X: Float64, labels: Float32, weights: Float32 | None) -> Block:
    """Rows as a block: ``"dense"``, ``"sparse"``, or ``"ones"``, where what is not 0 is 1."""
    if kind == "dense":
        return DenseBlock(X.astype(np.float32), labels, weights)
    rows, columns = np.nonzero(X)
    indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=len(X)))).astype(np.int64)
    values = None if kind == "ones" else X[rows, columns].astype(np.float32)
    return CsrBlock(indptr, columns.astype(np.int32), values, labels, weights, X.shape[1])


def with_weights(block: Block, weights: Float32 | None) -> Block:
    """The rows with other sample weights."""
    return _replaced(block, weights=weights)


def with_scale(block: Block, scale: float) -> Block:
    """The rows with values of one magnitude, where there are any."""
    name = "features" if isinstance(block, DenseBlock) else "values"
    values = getattr(block, name)
    if values is None:
        values = np.ones(len(block.indices), dtype=np.float32)  # type: ignore[union-attr]
    return _replaced(block, **{name: np.sign(values) * np.float32(scale)})


def _replaced(block: Block, **changes: Any) -> Block:
    values = {field.name: getattr(block, field.name) for field in fields(block)}
    return type(block)(**values | changes)


def some_weights(model: Model, seed: int = 1) -> Float32:
    """Parameters of the shape of the model's table."""
    spec = model.table("t", OptimizerSpec("sgd", 0.1))
    draw = np.random.default_rng(seed)
    return (0.5 * draw.normal(size=(spec.rows, spec.dim))).astype(np.float32)


def full_gradient(
    model: Model, block: Block, rows: Int32, weights: Float32, batch_size: int | None = None
) -> tuple[Float64, float, float]:
    """A minibatch's gradient for the whole table, with (loss, weight)."""
    needed, handle = model.needed_rows(block, rows)
    size = len(rows) if batch_size is None else batch_size
    pulled = np.ascontiguousarray(weights[needed])
    gradient, loss, weight = model.gradient(block, rows, handle, pulled, size)
    assert gradient.shape == pulled.shape
    assert gradient.dtype == np.float32
    full = np.zeros(weights.shape)
    full[needed] = gradient
    return full, loss, weight


def new_table(model: Model, optimizer: OptimizerSpec) -> SharedTable:
    """A table of this process's own, at its initial values."""
    return ParameterTable.private(model.table("t", optimizer), 1).shared


def train(model: Model, block: Block, table: SharedTable, batch_size: int, epochs: int) -> list[float]:
    """Train in order; the loss of each epoch."""
    order = np.arange(block.n_rows, dtype=np.int32)
    count = -(-block.n_rows // batch_size)
    progress = np.zeros(1, dtype=np.int64)
    return [model.train_shared(block, order, batch_size, 0, count, table, progress)[0] for _ in range(epochs)]


def _weights_of(table: SharedTable) -> Float32:
    return np.ascontiguousarray(table.array[:, : table.spec.dim])


def _arrays(things: Any) -> list[Any]:
    """All arrays in nested tuples."""
    if isinstance(things, tuple):
        return [array for thing in things for array in _arrays(thing)]
    return [things] if isinstance(things, np.ndarray) else []
