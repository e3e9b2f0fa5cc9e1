"""Matrix factorisation as a model: what its updates are, and that all ways to apply them agree."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from squall.data.rows import slice_training
from squall.models import model_from_dict
from squall.models.matrix_factorization import MatrixFactorizationModel
from squall.records import CsrBlock, OptimizerSpec, Stamp
from squall.store.table import ParameterTable

USERS, ITEMS, ROWS = 6, 5, 40
MODEL = MatrixFactorizationModel(
    USERS, ITEMS, 3, 0.05, 0.1, "cosine", 2 * ROWS, init_scale=0.3, target_scale=2.0
)
SGD = OptimizerSpec("sgd", 0.05)
EVERY = np.arange(ROWS, dtype=np.int32)


@pytest.fixture
def block() -> CsrBlock:
    draw = np.random.default_rng(0)
    pairs = np.column_stack([draw.integers(0, USERS, ROWS), USERS + draw.integers(0, ITEMS, ROWS)])
    return CsrBlock(
        2 * np.arange(ROWS + 1, dtype=np.int64),
        pairs.astype(np.int32).ravel(),
        None,
        draw.normal(size=ROWS).astype(np.float32),
        draw.choice([0.5, 1.0, 2.0], ROWS).astype(np.float32),
        USERS + ITEMS,
    )


@pytest.fixture
def weights() -> np.ndarray:
    drawn = 0.5 * np.random.default_rng(1).normal(size=(USERS + ITEMS + 1, 4))
    drawn[-1] = 0
    return drawn.astype(np.float32)


def test_it_travels_as_plain_data() -> None:
    assert model_from_dict(msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(MODEL)))) == MODEL


def test_the_update_of_one_rating_is_the_slope_of_its_loss(block: CsrBlock, weights: np.ndarray) -> None:
    one = slice_training(block, 3, 4)
    rows = np.zeros(1, dtype=np.int32)
    needed, handle = MODEL.needed_rows(one, rows)
    gradient, _, weight = MODEL.gradient(one, rows, handle, weights[needed], 1)
    pair = needed[:-1]

    def objective(at: np.ndarray) -> float:
        penalty = MODEL.l2 * np.square(at[pair].astype(np.float64)).sum()
        return MODEL.loss(one, at)[0] / MODEL.target_scale**2 / 2 + penalty / 2

    assert weight == one.weights[0]
    for i, row in enumerate(pair.tolist()):
        for column in range(4):
            ends = []
            for sign in (1, -1):
                moved = weights.copy()
                moved[row, column] += sign * 2.0**-6
                ends.append(objective(moved))
            slope = (ends[0] - ends[1]) / 2.0**-5
            assert gradient[i, column] == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_in_place_is_pull_gradient_and_push(block: CsrBlock) -> None:
    spec = MODEL.table("j/t", SGD)
    in_place, stepwise = ParameterTable.private(spec, 1), ParameterTable.private(spec, 1)
    order = np.random.default_rng(1).permutation(ROWS).astype(np.int32)
    progress = np.zeros(1, dtype=np.int64)
    sums = MODEL.train_shared(block, order, 16, 0, 3, in_place.shared, progress)
    total = np.zeros(2)
    for number, rows in enumerate(np.split(order, [16, 32])):
        needed, handle = MODEL.needed_rows(block, rows)
        gradient, *part = MODEL.gradient(block, rows, handle, stepwise.pull(needed), 16)
        stepwise.push(needed, gradient, Stamp(0, 0, number))
        total += part
    np.testing.assert_allclose(in_place.pull(), stepwise.pull(), rtol=1e-5, atol=1e-6)
    assert sums[:2] == pytest.approx(total, rel=1e-5)
    assert (sums[2], progress[0], in_place.step) == (ROWS, 3, 3)
    assert in_place.pull()[-1, 0] == pytest.approx(0.5), "half of what is planned is done"


def test_the_rate_falls_to_nothing(block: CsrBlock, weights: np.ndarray) -> None:
    needed, handle = MODEL.needed_rows(block, EVERY)
    weights[-1, 0] = 1.0
    gradient, *_ = MODEL.gradient(block, EVERY, handle, weights[needed], ROWS)
    assert np.abs(gradient[:-1]).max() == 0


def test_losses_are_in_the_units_of_ratings_and_add_up(block: CsrBlock, weights: np.ndarray) -> None:
    errors = 2.0 * (MODEL.outputs(block, weights) - block.labels)
    assert block.weights is not None
    loss, weight, right = MODEL.loss(block, weights)
    assert (loss, weight) == pytest.approx((block.weights @ errors**2, block.weights.sum()), rel=1e-5)
    assert right is None
    parts = [MODEL.loss(slice_training(block, *cut), weights)[0] for cut in ((0, 7), (7, 7), (7, ROWS))]
    assert sum(parts) == pytest.approx(loss, rel=1e-5)
    needed, handle = MODEL.needed_rows(block, EVERY)
    slow = msgspec.structs.replace(MODEL, learning_rate=1e-9)
    assert slow.gradient(block, EVERY, handle, weights[needed], 1)[1] == pytest.approx(loss, rel=1e-4)


def test_only_plain_descent_at_its_own_rate_will_do() -> None:
    for other in (
        OptimizerSpec("adagrad", 0.05),
        OptimizerSpec("sgd", 0.1),
        OptimizerSpec("sgd", 0.05, l2=0.1),
        OptimizerSpec("sgd", 0.05, schedule="cosine", steps=5),
    ):
        with pytest.raises(ValueError, match="does not apply steps as they are"):
            MODEL.table("t", other)
