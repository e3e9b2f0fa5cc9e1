"""The learning rate that "auto" finds on a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import squall
from squall.estimators import auto
from squall.estimators.auto import (
    SAMPLE_ROWS,
    choose_batch_size,
    choose_learning_rate,
    climb,
    validation_folds,
)
from squall.models.factorization import FactorizationModel
from squall.models.linear import LinearModel
from squall.models.logistic import LogisticModel
from squall.models.softmax import SoftmaxModel
from squall.records import Block, CsrBlock, DenseBlock, Int32, OptimizerSpec
from squall.store.table import ParameterTable
from squall.testing.clicks import FIELDS, N_FEATURES, ClickSource

RATES = {digits * 10.0**power for digits in (1, 1.8, 3, 5.5) for power in (-3, -2, -1, 0)} | {10.0}


def choose(block: Block, name: str = "adagrad", **more: float) -> float:
    penalties = {key: more.pop(key, 0.0) for key in ("l1", "l2")}
    settings = {"n_rows": block.n_rows, "batch_size": 16, "epochs": 5, "seed": 0} | more
    optimizer = OptimizerSpec(name, 0.0, **penalties)  # type: ignore[arg-type]
    return choose_learning_rate(LogisticModel(block.n_features), block, optimizer, **settings)


def planted(n: int = 2000, scale: float = 1.0) -> DenseBlock:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(n, 5)) * scale
    labels = draw.random(n) < 1 / (1 + np.exp(-(X @ draw.normal(size=5)) / scale))
    return DenseBlock(X.astype(np.float32), labels.astype(np.float32), None)


def rare(n: int = 2000) -> CsrBlock:
    """Rows of features that occur once: nothing in them helps with other rows."""
    draw = np.random.default_rng(0)
    labels = (draw.random(n) < 0.5).astype(np.float32)
    indices = np.arange(n * 20, dtype=np.int32)
    return CsrBlock(np.arange(n + 1, dtype=np.int64) * 20, indices, None, labels, None, n * 20)


def test_it_is_one_of_the_rates_tried_and_the_same_every_time() -> None:
    assert min(abs(choose(planted()) / rate - 1) for rate in RATES) < 1e-12
    assert choose(planted()) == choose(planted())


def test_weights_that_must_grow_get_a_larger_rate_than_small_ones() -> None:
    assert choose(planted(scale=0.01)) > choose(planted(scale=30.0))


def test_data_of_heavy_tails_gets_a_small_rate() -> None:
    rows = ClickSource(SAMPLE_ROWS, seed=0).make(0)
    indptr = np.arange(SAMPLE_ROWS + 1, dtype=np.int64) * FIELDS
    block = CsrBlock(indptr, rows.indices.reshape(-1), None, rows.labels.astype(np.float32), None, N_FEATURES)
    assert choose(block, batch_size=64) < 0.3


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adagrad", "adam", "ftrl"])
@pytest.mark.parametrize("penalty", [0.0, 1e-3])
def test_every_optimizer_and_penalty_has_a_rate(name: str, penalty: float) -> None:
    rate = choose(planted(), name, l1=penalty, l2=penalty)
    assert 0 < rate < 100


def test_the_rate_of_sgd_follows_the_size_of_the_rows() -> None:
    ratio = choose(planted(), "sgd") / choose(planted(scale=100.0), "sgd")
    assert 0.3e4 < ratio < 3e4  # but for the intercept's part


@pytest.mark.parametrize("block", [planted(10), rare(10)])
def test_a_handful_of_rows_gets_the_middle_of_the_range(block: Block) -> None:
    assert choose(block) == 0.1


def test_rows_of_zeros_have_a_rate_too() -> None:
    zeros = DenseBlock(np.zeros((100, 3), np.float32), (np.arange(100) % 2).astype(np.float32), None)
    assert choose(zeros, "sgd") > 0
    assert choose(zeros) > 0


@pytest.mark.parametrize(
    ("rows", "size"), [(10, 4), (300, 4), (2048, 8), (4096, 32), (8000, 64), (10**6, 244), (10**8, 512)]
)
def test_small_data_gets_small_minibatches(rows: int, size: int) -> None:
    assert choose_batch_size(rows) == size


@pytest.mark.parametrize(("n", "turns"), [(50, 5), (500, 4), (1257, 2), (3000, 1), (20_000, 1)])
@pytest.mark.parametrize("sparse", [False, True])
def test_few_rows_take_turns_in_judging(n: int, turns: int, sparse: bool) -> None:
    labels = np.arange(n + 7, dtype=np.float32)  # the last 7 are no part of it
    block: Block = DenseBlock(np.ones((n + 7, 1), np.float32), labels, None)
    if sparse:
        ids = np.arange(n + 8)
        block = CsrBlock(ids.astype(np.int64), ids[:-1].astype(np.int32), None, labels, None, n + 7)
    folds = validation_folds(block, n)
    assert len(folds) == turns
    for train, test in folds:
        assert test.n_rows == n // 5
        assert sorted([*train.labels, *test.labels]) == list(range(n))
    assert len({row for _, test in folds for row in test.labels}) == turns * (n // 5)


def test_a_fold_of_no_weight_is_no_judge() -> None:
    block = planted(400)
    weights = np.ones(400, np.float32)
    weights[-80:] = 0.0
    assert 0.03 <= choose(DenseBlock(block.features, block.labels, weights)) <= 3.0
    weights[:] = 0.0
    assert choose(DenseBlock(block.features, block.labels, weights)) == 0.001


@pytest.mark.parametrize(("n_rows", "tried"), [(1000, 200), (1001, 4)])
def test_the_minibatch_of_the_job_is_tried_unless_the_sample_is_a_part(
    n_rows: int, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = set()
    train = LogisticModel.train_shared

    def watched(model: LogisticModel, block: Block, order: Int32, batch_size: int, *rest: Any) -> Any:
        sizes.add(batch_size)
        return train(model, block, order, batch_size, *rest)

    monkeypatch.setattr(LogisticModel, "train_shared", watched)
    choose(planted(1000), batch_size=200, n_rows=n_rows)
    assert sizes == {tried}


MODELS: list[Any] = [
    LogisticModel(3000),
    LinearModel(3000),
    SoftmaxModel(3000, 3),
    FactorizationModel(3000, 4, seed=7),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("penalty", [0.0, 1e-3])
def test_trials_come_out_as_in_a_table_of_all_features(
    model: Any, begun: bool, penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    n, weights = 400, None
    block = CsrBlock(
        np.arange(0, 5 * n + 1, 5),
        np.sort(7 * draw.permuted(np.tile(np.arange(400, dtype=np.int32), (n, 1)), axis=1)[:, :5]).ravel(),
        draw.random(5 * n).astype(np.float32),
        draw.integers(0, 2, n).astype(np.float32),
        draw.random(n).astype(np.float32),
        3000,
    )
    optimizer = OptimizerSpec("adagrad", 0.1, l1=penalty, l2=penalty)
    spec = model.table("all", optimizer)
    if begun:
        weights = draw.normal(scale=0.1, size=(spec.rows, spec.dim)).astype(np.float32)
    seen: list[float] = []
    monkeypatch.setattr(auto, "climb", lambda rates, middle, losses: seen.extend(losses([0.1])))
    choose_learning_rate(model, block, optimizer, n_rows=n, batch_size=16, epochs=2, seed=5, weights=weights)
    sums = np.zeros(2)
    for train, test in validation_folds(block, n):
        table = ParameterTable.private(spec, 1)
        if weights is not None:
            table.replace(weights)
        orders = np.random.default_rng(5)
        for _ in range(2):
            order = orders.permutation(train.n_rows).astype(np.int32)
            model.train_shared(train, order, 16, 0, train.n_rows // 16, table.shared, np.zeros(1, np.int64))
        sums += model.loss(test, table.pull())[:2]
    assert seen == [sums[0] / sums[1]]


def test_features_of_very_different_sizes_are_warned_of() -> None:
    draw = np.random.default_rng(0)
    X = np.column_stack([draw.normal(5000, 1000, 500), draw.random(500)])
    with pytest.warns(UserWarning, match="MinMaxScaler"):
        squall.LogisticRegression(epochs=1).fit(X, X[:, 1] > 0.5)


INF = float("inf")


@pytest.mark.parametrize(
    ("losses", "chosen", "most"),
    [
        ((9, 8, 7, 6, 5, 4, 3, 2, 1), 8, 4),
        ((1, 2, 3, 4, 5, 6, 7, 8, 9), 0, 5),
        ((6, 5, 4, 3, 2, 3, 4, 5, 6), 4, 5),
        ((6, 5, 4, 3, 2, 1, 3, 5, 6), 5, 5),  # between those of the first steps
        ((6, 5, 4, 3, 2, 2.005, 4, 5, 6), 5, 5),  # as good as the best, and larger
        ((6, 5, 4, 3, 2, 1.99, 1.98, 1.97, 1.985), 7, 4),
        ((2, 3, 4, INF, INF, INF, INF, INF, INF), 0, 6),
        ((INF,) * 9, 0, 5),
        ((9, 8, 7, 6, 5, INF, INF, INF, INF), 3, 5),  # a step from divergence
    ],
)
def test_the_search_climbs_to_the_largest_good_rate(
    losses: tuple[float, ...], chosen: int, most: int
) -> None:
    asked: list[int] = []

    def ask(rates: Sequence[float]) -> list[float]:
        asked.extend(int(rate) for rate in rates)
        return [losses[int(rate)] for rate in rates]

    assert climb(range(9), 4, ask) == chosen
    assert len(asked) == len(set(asked)) <= most
