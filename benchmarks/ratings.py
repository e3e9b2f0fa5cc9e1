"""Matrix factorisation beside scikit-surprise, Spark and implicit: error or recall, and time, in one run.

MovieLens 100K (python examples/public_sets.py movielens), 90/10 by default_rng(0).  scikit-surprise is
given the best of a few settings; Spark's ALS and implicit have their defaults but for the number of
factors.  All come from pip (Spark, pyspark, wants Java too); who is not installed is left out, and said
so.  Times are wall-clock of whole fits, functions and Spark's executors warm, medians of interleaved rounds.

    python benchmarks/ratings.py --rounds 3
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import squall

FILE = Path.home() / ".cache" / "squall-sets" / "ml-100k.inter"
SURPRISE = {20: (20, 0.02, 0.1), 100: (20, 0.02, 0.1)}  # epochs, rate, penalty: the best of a few


class Films:
    """The ratings as codes, split."""

    def __init__(self, path: Path) -> None:
        table = np.loadtxt(path, skiprows=1)
        self.X = np.stack([np.unique(table[:, i], return_inverse=True)[1] for i in (0, 1)], axis=1)
        self.y = table[:, 2]
        order = np.random.default_rng(0).permutation(len(self.y))
        self.test, self.train = order[:10_000], order[10_000:]


def ours(films: Films, n_factors: int, run: squall.Run) -> Callable[[], float]:
    def fit() -> float:
        model = squall.MatrixFactorization(n_factors, random_state=0)
        model.fit(films.X[films.train], films.y[films.train], run=run)
        return squall.rmse(model, films.X[films.test], films.y[films.test])

    return fit


def surprise(films: Films, n_factors: int) -> Callable[[], float]:
    from surprise import SVD, Dataset, Reader

    epochs, rate, penalty = SURPRISE[n_factors]
    import pandas as pd

    frame = pd.DataFrame({"u": films.X[films.train, 0], "i": films.X[films.train, 1]})
    frame["r"] = films.y[films.train]
    trainset = Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()

    def fit() -> float:
        model = SVD(n_factors=n_factors, n_epochs=epochs, lr_all=rate, reg_all=penalty, random_state=0)
        model.fit(trainset)
        pairs = zip(films.X[films.test], films.y[films.test], strict=True)
        errors = [model.predict(u, i).est - r for (u, i), r in pairs]
        return float(np.sqrt(np.mean(np.square(errors))))

    return fit


def spark(films: Films, n_factors: int) -> Callable[[], float]:
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import DataFrame, SparkSession

    if shutil.which("java") is None:
        raise ModuleNotFoundError(name="java")
    settings = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    settings["spark.ui.showConsoleProgress"] = "false"
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")

    def frame(rows: Any) -> DataFrame:
        pairs, told = films.X[rows].tolist(), films.y[rows].tolist()
        ratings = [(user, item, rating) for (user, item), rating in zip(pairs, told, strict=True)]
        cached = session.createDataFrame(ratings, ["user", "item", "rating"]).coalesce(2).cache()
        cached.count()
        return cached

    train, test, mean = frame(films.train), frame(films.test), films.y[films.train].mean()

    def fit() -> float:
        model = ALS(rank=n_factors, seed=0).fit(train)
        told = np.array(model.transform(test).select("rating", "prediction").collect(), dtype=float)
        expected = np.where(np.isnan(told[:, 1]), mean, told[:, 1])  # who is new has no prediction
        return float(np.sqrt(np.mean(np.square(expected - told[:, 0]))))

    return fit


def our_choices(films: Films, run: squall.Run) -> Callable[[], float]:
    def fit() -> float:
        model = squall.MatrixFactorization(implicit=True, random_state=0)
        model.fit(films.X[films.train], films.y[films.train], run=run)
        return squall.recall_at_k(model, films.X[films.test])

    return fit


def implicit(films: Films) -> Callable[[], float]:
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    users, items = films.X[films.train].T
    chosen = csr_matrix((films.y[films.train].astype(np.float32), (users, items)))

    def fit() -> float:
        model = AlternatingLeastSquares(20, random_state=0, num_threads=2)
        model.fit(chosen, show_progress=False)
        pairs, hits = films.X[films.test], []
        for user in np.unique(pairs[:, 0]):
            wanted = set(pairs[pairs[:, 0] == user, 1].tolist())
            best, _ = model.recommend(user, chosen[user], N=10)
            hits.append(len(wanted & set(best.tolist())) / min(10, len(wanted)))
        return float(np.mean(hits))

    return fit


def contest(title: str, contenders: dict[str, Callable[[], float]], rounds: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    quality = {name: fit() for name, fit in contenders.items()}  # warm
    for _ in range(rounds):
        for name, fit in contenders.items():
            began = time.perf_counter()
            fit()
            times[name].append(time.perf_counter() - began)
    first = statistics.median(next(iter(times.values())))
    for name, took in times.items():
        middle = statistics.median(took)
        print(f"{title}  {name:32s} {quality[name]:.4f}  {middle:6.2f} s  {middle / first:5.2f}", flush=True)


def available(make: Callable[..., Callable[[], float]], name: str, *given: Any) -> dict[str, Any]:
    try:
        return {name: make(*given)}
    except ModuleNotFoundError as error:
        print(f"{name} is left out: {error.name} is not installed")
        return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args()
    films = Films(options.file)
    print("set and measure, contender, quality, seconds with evaluation, Squall on one function = 1")
    for k in (20, 100):
        contenders = {
            "Squall, 1 function": ours(films, k, squall.Run(workers=1)),
            "Squall, 2 functions": ours(films, k, squall.Run(workers=2)),
            "Squall, 2 functions, TCP store": ours(films, k, squall.Run(workers=2, store="tcp")),
            **available(surprise, "scikit-surprise, tuned", films, k),
            **available(spark, "Spark ALS", films, k),
        }
        contest(f"k = {k}, RMSE", contenders, options.rounds)
    run = squall.Run(workers=1)
    choices = {"Squall, 1 function": our_choices(films, run), **available(implicit, "implicit, ALS", films)}
    contest("choices, recall@10", choices, options.rounds)


if __name__ == "__main__":
    main()
