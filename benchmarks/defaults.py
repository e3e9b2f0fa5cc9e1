"""How good are the defaults?  Held-out loss with "auto" beside the best of a grid, same epochs.

Each repetition has a seed of its own and, where the data is split here, a split of its own.

    python benchmarks/defaults.py --sets census,digits,clicks-1e5
    python benchmarks/defaults.py --sets digits,cancer,wine,iris,diabetes --repeat 8
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

import squall
from squall import _kernels as kernels
from squall.testing.clicks import FIELDS, N_FEATURES, ClickSource, clicks

CENSUS = Path(__file__).parents[1] / "examples" / "data" / "adult.csv.gz"
RATES = (0.01, 0.018, 0.03, 0.055, 0.1, 0.18, 0.3, 0.55, 1.0, 1.8, 3.0)
SIZES = (4, 16, 64, 256, 1024)


Split = tuple[squall.Dataset, squall.Dataset]
Draw = Callable[[int], Split]  # by its seed


def census(seed: int) -> Split:
    return squall.read_csv(CENSUS, label="income-per-year").split(test=0.2, random_state=seed)


def digits(seed: int) -> Split:
    X, y = load_digits(return_X_y=True)
    return squall.from_arrays(X / 16.0, y).split(test=0.3, random_state=seed)


def standardized(load: Callable[..., Any]) -> Draw:
    def draw(seed: int) -> Split:
        X, y = load(return_X_y=True)
        return squall.from_arrays((X - X.mean(axis=0)) / X.std(axis=0), y).split(test=0.3, random_state=seed)

    return draw


def clicks_of(rows: int) -> Draw:
    @functools.cache  # in memory, for every fit of the grid would draw them again
    def made() -> Split:
        X, y = clicks(rows + 100_000, seed=1).to_arrays()
        X = X.astype(np.float32)
        return squall.from_arrays(X[:rows], y[:rows]), squall.from_arrays(X[rows:], y[rows:])

    return lambda seed: made()


def one_pass_of_clicks(rows: int, rates: Sequence[float], sizes: Sequence[int]) -> None:
    """The same for more rows than fit into memory, in one epoch.

    "auto" is a fit like any other.  The grid is trained side by side, part by part as the rows
    are drawn, by the kernel that the functions run.
    """
    source = ClickSource(rows + 100_000, seed=1)
    *parts, last = range(len(source.rows))
    held_out = source.make(last)
    indptr = np.arange(max(source.rows) + 1, dtype=np.int64) * FIELDS
    truth = held_out.labels.astype(np.float32)
    test = indptr[: len(truth) + 1], np.sort(held_out.indices, axis=1).reshape(-1), None

    def measure(coef: Any, intercept: float) -> float:
        margins = kernels.csr_margins(*test, np.ascontiguousarray(coef, np.float32), intercept)
        return kernels.logistic_loss(margins, truth, None)[0] / len(truth)

    model = squall.LogisticRegression(epochs=1, random_state=0)
    model.fit(clicks(rows, seed=1), run=squall.Run(workers=WORKERS))
    auto = measure(model.coef_[0], float(model.intercept_[0]))
    grid = list(itertools.product(rates, sizes))
    stride = kernels.table_stride(kernels.ADAGRAD, 1, False)
    tables = {key: np.zeros((N_FEATURES + 1, stride), np.float32) for key in grid}
    steps = {key: np.zeros(1, np.int64) for key in grid}
    draw = np.random.default_rng(0)
    for part in parts:
        made = source.make(part)
        n = len(made.labels)
        block = indptr[: n + 1], np.sort(made.indices, axis=1).reshape(-1), None
        labels, order = made.labels.astype(np.float32), draw.permutation(n).astype(np.int32)
        for rate, size in grid:
            rule = kernels.Rule(kernels.ADAGRAD, rate, 0.0, 0.0)
            where = tables[rate, size], rule, True, steps[rate, size], None
            kernels.logistic_minibatches(*block, labels, None, order, size, 0, -(-n // size), *where)
    losses = {key: measure(table[:-1, 0], float(table[-1, 0])) for key, table in tables.items()}
    best = min(grid, key=lambda key: losses[key])
    print(
        f"| clicks, {rows:,} rows, 1 epoch | {auto:.4f} (rate {model.learning_rate_:g}, minibatch "
        f"{model.batch_size_}) | {losses[best]:.4f} | {best} | {auto / losses[best]:.3f} |"
    )
    for size in sizes:
        print("    ", size, " ".join(f"{losses[rate, size]:.4f}" for rate in rates), flush=True)


WORKERS = 1  # so that every run can be repeated

SETS: dict[str, Draw] = {
    "census": census,
    "digits": digits,
    "cancer": standardized(load_breast_cancer),
    "wine": standardized(load_wine),
    "iris": standardized(load_iris),
    "diabetes": standardized(load_diabetes),
    "clicks-1e5": clicks_of(100_000),
    "clicks-1e6": clicks_of(1_000_000),
}


def loss(name: str, split: Split, **settings: Any) -> float:
    train, test = split
    steps: list[Any] = []
    if any(c.kind == "categorical" for c in train.columns):
        steps = [squall.MinMaxScaler(), squall.FeatureHasher()]
    estimator = squall.LinearRegression if name == "diabetes" else squall.LogisticRegression
    model = squall.make_pipeline(*steps, estimator(**settings))
    try:
        model.fit(train, validation=test, run=squall.Run(workers=WORKERS))
    except squall.SquallError:
        return float("inf")  # it diverged
    return float(model.history_[-1].validation_loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default="census,digits,clicks-1e5")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3, help="seeds; the mean is shown")
    parser.add_argument("--optimizer", default="adagrad")
    parser.add_argument("--rates", help="of the grid, instead of all")
    parser.add_argument("--sizes", help="of its minibatches, instead of all")
    options = parser.parse_args()
    rates = tuple(map(float, options.rates.split(","))) if options.rates else RATES
    sizes = tuple(map(int, options.sizes.split(","))) if options.sizes else SIZES
    print("| set | auto | best of the grid | at (rate, minibatch) | auto / best |")
    print("|---|---|---|---|---|")
    for name in options.sets.split(","):
        if name == "clicks-1e7":
            one_pass_of_clicks(10_000_000, rates, sizes)
            continue
        splits = [SETS[name](seed) for seed in range(options.repeat)]

        def mean(settings: dict[str, Any], name: str = name, splits: list[Split] = splits) -> float:
            common = {"epochs": options.epochs, "optimizer": options.optimizer}
            each = [loss(name, split, random_state=s, **common, **settings) for s, split in enumerate(splits)]
            return float(np.mean(each))

        auto = mean({})
        grid = {
            (rate, size): mean({"learning_rate": rate, "batch_size": size})
            for rate, size in itertools.product(rates, sizes)
        }
        best = min(grid, key=lambda key: grid[key])
        print(f"| {name} | {auto:.4f} | {grid[best]:.4f} | {best} | {auto / grid[best]:.3f} |", flush=True)
        for size in sizes:
            print("    ", size, " ".join(f"{grid[rate, size]:.4f}" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
