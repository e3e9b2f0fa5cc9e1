"""ADMM beside the parameter server and scikit-learn's solvers: rounds, time and bytes to a precision.

    python benchmarks/admm.py                  # all of it, some minutes
    python benchmarks/admm.py --parts adult    # or: clicks
    python benchmarks/admm.py --svg docs/admm.svg

A contender's objective F is measured by one and the same code; "to 1e-4" is the time at which it is
first within 1e-4 · F* of F*, the least that anybody reached.  Jobs are real ones on warm functions of
this machine; their times are from the first round's start.  scikit-learn's solvers are stopped after
ever more iterations, each run from scratch.
How it scales: benchmarks/admm_scaling.py.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import squall
from squall.models.logistic import LogisticModel
from squall.models.objectives import ShareObjective
from squall.optim.consensus.metrics import Penalty
from squall.records import CsrBlock

ADULT = Path(__file__).parents[1] / "examples" / "data" / "adult.csv.gz"
GOALS = (1e-2, 1e-4, 1e-6)
WORKERS = (2, 4, 8)
PATIENCE_S = 45.0  # for one fit of scikit-learn, about

Curve = list[tuple[float, float, float]]  # (seconds, bytes, objective)


class Problem(NamedTuple):
    name: str
    X: csr_matrix
    y: np.ndarray
    l1: float
    l2: float

    def blocks(self, n: int) -> list[CsrBlock]:
        cuts = np.linspace(0, self.X.shape[0], n + 1).astype(int)
        return [self.block(slice(a, b)) for a, b in itertools.pairwise(cuts)]

    def block(self, rows: slice) -> CsrBlock:
        part = self.X[rows]
        labels = self.y[rows].astype(np.float32)
        indptr, indices = part.indptr.astype(np.int64), part.indices.astype(np.int32)
        return CsrBlock(indptr, indices, part.data.astype(np.float32), labels, None, self.X.shape[1])

    def value(self, coef: np.ndarray, intercept: float) -> float:
        x = np.append(coef.ravel().astype(np.float64), intercept)
        return self.loss_and_slopes(x)[0] + Penalty(self.l1, self.l2, len(x) - 1).value(x)

    def loss_and_slopes(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        whole = ShareObjective(LogisticModel(self.X.shape[1]), [self.block(slice(None))], self.X.shape[0])
        return whole.gradient(x)


def adult(l1: float, l2: float) -> Problem:
    """The census: 6 numbers scaled to [0, 1] and 8 one-hot columns."""
    data = squall.read_csv(ADULT, label="income-per-year")
    pipeline = squall.make_pipeline(squall.MinMaxScaler(), squall.OneHotEncoder())
    X, y = pipeline.fit_transform(data).to_arrays()
    return Problem(
        f"Adult, l1={l1:g}, l2={l2:g}",
        csr_matrix(X, dtype=np.float32),
        np.unique(y, return_inverse=True)[1],
        l1,
        l2,
    )


def clicks(rows: int, l1: float, l2: float, width: int = 10_000, k: int = 39) -> Problem:
    """Rows of 39 of 10,000 features, some far more frequent than others, and a planted model."""
    draw = np.random.default_rng(0)
    often = 1 / np.arange(1, width + 1) ** 0.8
    indices = draw.choice(width, size=(rows, k), p=often / often.sum())
    z = (draw.normal(size=width) * 0.5)[indices].sum(axis=1) - 0.5
    y = (draw.random(rows) < 1 / (1 + np.exp(-z))).astype(int)
    X = csr_matrix((np.ones(rows * k, np.float32), indices.ravel(), np.arange(rows + 1) * k), (rows, width))
    X.sum_duplicates()
    return Problem(f"{rows:,} rows of {k}, d={width:,}, l1={l1:g}, l2={l2:g}", X, y, l1, l2)


# ------------------------------------------------------------------------------------ contenders


def by_admm(problem: Problem, workers: int) -> tuple[Curve, int, float]:
    strategy = squall.ADMM(tol=1e-7)
    model = squall.LogisticRegression(l1=problem.l1, l2=problem.l2, strategy=strategy)
    model.fit(problem.X, problem.y, run=squall.Run(workers=workers, store="tcp"))
    history = model.history_
    # Rounds take alike; the first has the start of the functions in it.
    began = history[0].time_s - (history[-1].time_s - history[0].time_s) / max(1, len(history) - 1)
    sent = np.cumsum([r.phases.bytes_out + r.phases.bytes_in for r in history])
    # A record has the objective at the point that its round began with.
    curve = [
        (before.time_s - began, float(n), after.solver.objective)
        for before, n, after in zip(history, sent, history[1:], strict=False)
        if after.solver is not None
    ]
    end = problem.value(model.coef_, float(model.intercept_[0]))
    curve.append((history[-1].time_s - began, float(sent[-1]), end))
    return curve, model.n_iter_, sum(r.phases.compute for r in history)


def by_parameter_server(problem: Problem, workers: int) -> Curve:
    """The best of three rates, on a rate that falls to 0, for each number of epochs."""
    curve: Curve = []
    for epochs in (1, 3, 10, 30):
        for rate in ("auto", 0.1, 0.5):
            model = squall.LogisticRegression(
                epochs=epochs,
                learning_rate=rate,
                learning_rate_schedule="cosine",
                l1=problem.l1,
                l2=problem.l2,
            )
            model.fit(problem.X, problem.y, run=squall.Run(workers=workers, store="tcp"))
            work = sum(
                r.phases.compute + r.phases.push + r.phases.pull + r.phases.wait for r in model.history_
            )
            sent = sum(r.phases.bytes_out + r.phases.bytes_in for r in model.history_)
            value = problem.value(model.coef_, float(model.intercept_[0]))
            curve.append((work / workers, float(sent), value))
    return sorted(curve)


def by_scikit_learn(problem: Problem, solver: str) -> Curve:
    total = problem.l1 + problem.l2
    settings: dict[str, Any] = {"C": 1 / (total * problem.X.shape[0]), "solver": solver, "tol": 1e-12}
    if problem.l1:
        settings["l1_ratio"] = problem.l1 / total
    if solver == "liblinear":
        settings["intercept_scaling"] = 100.0  # so that it penalises the intercept next to nothing
    X = problem.X.astype(np.float64)
    curve: Curve = []
    for iterations in (3, 10, 30, 100, 300, 1000, 3000):
        started = time.perf_counter()
        model = LogisticRegression(max_iter=iterations, **settings).fit(X, problem.y)
        spent = time.perf_counter() - started
        curve.append((spent, 0.0, problem.value(model.coef_, float(model.intercept_[0]))))
        if spent > PATIENCE_S / 4:
            break
    return curve


def first(curve: Curve, best: float, goal: float, what: int) -> float:
    return min((point[what] for point in curve if point[2] <= best * (1 + goal)), default=math.nan)


def compare(problem: Problem) -> dict[str, Curve]:
    print(f"\n{problem.name}\n")
    curves: dict[str, Curve] = {}
    rounds: dict[str, int] = {}
    for n in WORKERS:
        name = f"ADMM, {n} workers"
        by_admm(problem, n)  # warm functions
        curves[name], rounds[name], _ = by_admm(problem, n)
    curves["ParameterServer, 2 workers"] = by_parameter_server(problem, 2)
    for solver in ("liblinear", "saga") if problem.l1 else ("lbfgs", "liblinear", "saga"):
        curves[solver] = by_scikit_learn(problem, solver)
    best = min(point[2] for curve in curves.values() for point in curve)
    print(f"{'':28}  {'rounds to 1e-2 / 1e-4 / 1e-6':30}  {'seconds to the same':28}  reached")
    for name, curve in curves.items():
        counts = ""
        if name in rounds:
            reached = [
                next((i + 1 for i, p in enumerate(curve) if p[2] <= best * (1 + g)), None) for g in GOALS
            ]
            counts = " / ".join("–" if i is None else str(i) for i in reached)
        seconds = " / ".join(shown(first(curve, best, goal, 0)) for goal in GOALS)
        gap = min(point[2] for point in curve) / best - 1
        print(f"{name:28}  {counts:30}  {seconds:28}  {gap:.1e}")
    return curves


def shown(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


# --------------------------------------------------------------------------------------- support


class Support(NamedTuple):
    """Which coefficients a solution has, and how far it is from being one.

    Where a coefficient is 0 the loss's slope is at most the penalty in size, elsewhere it is the penalty.
    """

    chosen: np.ndarray
    slopes: np.ndarray  # of the mean loss, by the penalty, in size
    violation: float  # the farthest that one is off, by the penalty

    @staticmethod
    def of(problem: Problem, coef: np.ndarray, intercept: float) -> Support:
        w = coef.ravel().astype(np.float64)
        slopes = problem.loss_and_slopes(np.append(w, intercept))[1][:-1] / problem.l1
        off = np.where(w != 0, np.abs(slopes + np.sign(w)), np.maximum(np.abs(slopes) - 1, 0.0))
        return Support(w != 0, np.abs(slopes), float(off.max()))


def supports(problem: Problem) -> None:
    """Which coefficients are not 0, of a tight solution by ADMM and of scikit-learn's.

    liblinear's tolerance is the one from which on its coefficients stay the same; it penalises the intercept,
    by so little that the objective is off by 1e-9.
    """
    model = squall.LogisticRegression(l1=problem.l1, strategy=squall.ADMM(tol=1e-12, max_rounds=500))
    model.fit(problem.X, problem.y, run=squall.Run(workers=2))
    ours = Support.of(problem, model.coef_, float(model.intercept_[0]))
    near = np.sort(1 - ours.slopes[~ours.chosen])[:3]
    print(
        f"\nnot 0, of {len(ours.chosen):,}: ADMM {ours.chosen.sum():,} ({model.n_iter_} rounds; slopes are "
        f"off by {ours.violation:.0e} of the penalty); where it is 0 they are below it by at least "
        f"{', '.join(f'{margin:.0e}' for margin in near)}, …"
    )
    for solver, settings in (
        ("liblinear", {"tol": 1e-6, "max_iter": 10_000, "intercept_scaling": 100.0}),
        ("saga", {"tol": 1e-10, "max_iter": 300}),
    ):
        started = time.perf_counter()
        peer = LogisticRegression(
            C=1 / (problem.l1 * problem.X.shape[0]), l1_ratio=1.0, solver=solver, **settings
        ).fit(problem.X.astype(np.float64), problem.y)
        spent = time.perf_counter() - started
        theirs = Support.of(problem, peer.coef_, float(peer.intercept_[0]))
        differ = ours.chosen != theirs.chosen
        margins = ", ".join(f"{margin:.0e}" for margin in 1 - ours.slopes[differ])
        print(
            f"{solver}: {theirs.chosen.sum():,} in {spent:.1f} s, off by {theirs.violation:.0e}; "
            f"{differ.sum()} not 0 in one only{f', margins {margins}' if margins else ''}",
            flush=True,
        )


# --------------------------------------------------------------------------------------- picture

COLOURS = ("#c2410c", "#ea580c", "#fdba74", "#1d4ed8", "#0f766e", "#7c3aed", "#52525b")
WIDTH, HEIGHT, LEFT, TOP, GAP, PLOT = 900, 380, 64, 44, 70, 330


def picture(curves: dict[str, Curve], path: Path) -> None:
    """Relative distance to F* against time, and against bytes where there are any; logarithmic."""
    best = min(point[2] for curve in curves.values() for point in curve)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 40}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for panel, (what, title) in enumerate(((0, "seconds"), (1, "bytes through the store"))):
        used = {
            n: [(p[what], max(p[2] / best - 1, 1e-9)) for p in c if p[what] > 0] for n, c in curves.items()
        }
        used = {name: points for name, points in used.items() if points}
        left = LEFT + panel * (PLOT + GAP)
        xs = [x for points in used.values() for x, _ in points]
        low, high = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))

        def place(x: float, gap: float, left: int = left, low: int = low, high: int = high) -> str:
            across = left + PLOT * (math.log10(x) - low) / (high - low)
            return f"{across:.1f},{TOP + (HEIGHT - TOP - 50) * -math.log10(gap) / 9:.1f}"

        bottom = TOP + HEIGHT - TOP - 50
        parts.append(f'<text x="{left}" y="{TOP - 14}">(F − F*) / F* against {title}</text>')
        for power in range(0, 10, 2):
            y = TOP + (bottom - TOP) * power / 9
            parts.append(f'<path d="M{left} {y:.1f}h{PLOT}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">1e−{power}</text>')
        for power in range(low, high + 1):
            x = left + PLOT * (power - low) / (high - low)
            parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">1e{power}</text>')
        for colour, name in zip(COLOURS, curves, strict=False):
            if name not in used:
                continue
            falling, least = [], math.inf
            for x, gap in sorted(used[name]):
                if gap < least:
                    least = gap
                    falling.append(place(x, gap))
            parts.append(
                f'<polyline points="{" ".join(falling)}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
            parts += [
                f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="2.5" fill="{colour}"/>'
                for p in falling
            ]
    for i, (colour, name) in enumerate(zip(COLOURS, curves, strict=False)):
        x, y = LEFT + 270 * (i % 3), HEIGHT + 2 + 16 * (i // 3)
        parts.append(f'<text x="{x}" y="{y}" fill="{colour}">● {name}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default="adult,clicks")
    parser.add_argument("--rows", type=int, default=100_000, help="of the set with 10,000 features")
    parser.add_argument("--supports", action="store_true", help="only compare which coefficients are not 0")
    parser.add_argument("--svg", type=Path, help="where to draw the comparison on Adult with l2")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    parts: dict[str, Callable[[], Iterator[Problem]]] = {
        "adult": lambda: (adult(l1, l2) for l1, l2 in ((0.0, 1e-4), (1e-3, 0.0))),
        "clicks": lambda: (clicks(options.rows, l1, l2) for l1, l2 in ((0.0, 1e-4), (3e-4, 0.0))),
    }
    for part in options.parts.split(","):
        for problem in parts[part]():
            if not options.supports:
                curves = compare(problem)
                if options.svg and part == "adult" and not problem.l1:
                    picture(curves, options.svg)
            if problem.l1:
                print(f"\n{problem.name}")
                supports(problem)


if __name__ == "__main__":
    main()
