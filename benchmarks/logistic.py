"""One pass of sparse logistic regression: Squall beside scikit-learn and Vowpal Wabbit.

Synthetic clicks (39 entries a row, 2**20 slots, heavy tails, a planted model whose loss is the
lowest possible), the same rows in memory for everyone, held-out rows measured afterwards with
the same formula.  Peak memory is that of a fresh process for each contender.  Then what a fit of
little data takes, where starting and looking for a learning rate is all there is.

    python benchmarks/logistic.py --rows 1000000
    pip install vowpalwabbit        # to have it in the table, too
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from squall.testing.clicks import FIELDS, N_FEATURES, ClickSource

HELD_OUT = 200_000


def make(rows: int, seed: int, folder: Path) -> float:
    """Write the rows as arrays that every contender maps; returns the best reachable loss."""
    source = ClickSource(rows + HELD_OUT, seed)
    indices = np.lib.format.open_memmap(
        folder / "indices.npy", "w+", dtype=np.int32, shape=(rows + HELD_OUT, FIELDS)
    )
    labels = np.empty(rows + HELD_OUT, dtype=np.int32)
    margins = np.empty(rows + HELD_OUT, dtype=np.float32)
    start = 0
    for part, size in enumerate(source.rows):
        block = source.make(part)
        indices[start : start + size] = np.sort(block.indices, axis=1)
        labels[start : start + size] = block.labels
        margins[start : start + size] = block.margins
        start += size
    np.save(folder / "labels.npy", labels)
    return log_loss(labels[rows:], margins[rows:])


def load(folder: Path, rows: int, *, held_out: bool) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows as scikit-learn wants them: a CSR matrix of ones in float32."""
    part = slice(rows, None) if held_out else slice(0, rows)
    indices = np.load(folder / "indices.npy", mmap_mode="r")[part].reshape(-1).copy()
    labels = np.load(folder / "labels.npy")[part]
    indptr = np.arange(len(labels) + 1, dtype=np.int64) * FIELDS
    data = np.ones(len(indices), dtype=np.float32)
    return sp.csr_matrix((data, indices, indptr), shape=(len(labels), N_FEATURES)), labels


def log_loss(labels: np.ndarray, margins: np.ndarray) -> float:
    """Mean log-loss of margins."""
    signed = np.where(labels == 1, -margins, margins).astype(np.float64)
    return float(np.mean(np.logaddexp(0.0, signed)))


def run_squall(folder: Path, rows: int, workers: int, use: int) -> dict[str, float]:
    import squall

    X, y = load(folder, rows, held_out=False)
    if use < rows:
        X, y = X[:use], y[:use]
    model = squall.LogisticRegression(epochs=1)
    began = time.perf_counter()
    job = squall.submit(model, (X, y), run=squall.Run(workers=workers, storage=str(folder)))
    model = job.wait()
    total = time.perf_counter() - began
    attempts = job.status().attempts
    training = max(a.ended_s or 0.0 for a in attempts) - min(a.started_s for a in attempts)
    X, y = load(folder, rows, held_out=True)
    loss = log_loss(y, model.decision_function(X))
    worker = max(a.outcome.peak_memory for a in attempts if a.outcome)
    squall.shutdown()
    return {"total_s": total, "train_s": training, "loss": loss, "worker_mb": worker / 2**20}


def time_to_loss(folder: Path, rows: int, loss: float, repeat: int) -> tuple[int, float]:
    """(rows, seconds with start-up) of the smallest share of the rows that is enough for ``loss``."""
    for share in (32, 16, 8, 4, 2, 1):
        runs = [contend("squall-2", folder, rows, rows // share) for _ in range(repeat)]
        if np.median([run["loss"] for run in runs]) <= loss:
            break
    return rows // share, float(np.median([run["total_s"] for run in runs]))


def run_sklearn(folder: Path, rows: int, *_: int) -> dict[str, float]:
    from sklearn.linear_model import SGDClassifier

    X, y = load(folder, rows, held_out=False)
    best: dict[str, float] = {}
    for alpha in (1e-4, 1e-5):
        model = SGDClassifier(loss="log_loss", alpha=alpha, max_iter=1, tol=None, random_state=0)
        began = time.perf_counter()
        model.fit(X, y)
        total = time.perf_counter() - began
        held, truth = load(folder, rows, held_out=True)
        loss = log_loss(truth, model.decision_function(held))
        if not best or loss < best["loss"]:
            best = {"total_s": total, "train_s": total, "loss": loss}
    return best


def run_vw(folder: Path, rows: int, *_: int) -> dict[str, float]:
    from vowpalwabbit import Workspace

    text, cache, model = (str(folder / name) for name in ("train.vw", "train.cache", "vw.model"))
    held, predictions = str(folder / "test.vw"), str(folder / "vw.predictions")
    if not Path(text).exists():
        write_vw(folder, rows, Path(text), Path(held))
    common = "--loss_function logistic -b 20 --quiet"
    # The first pass parses the text and leaves the cache; the second, timed, reads only that.
    times = []
    for _pass in range(2):
        began = time.perf_counter()
        work = Workspace(f"-d {text} --cache_file {cache} {common} -f {model}")
        work.run_parser()
        work.finish()
        times.append(time.perf_counter() - began)
    work = Workspace(f"-d {held} -t -i {model} --quiet -r {predictions}")
    work.run_parser()
    work.finish()
    margins = np.loadtxt(predictions, dtype=np.float64)
    labels = np.load(folder / "labels.npy")[rows:]
    return {"total_s": times[0], "train_s": times[1], "loss": log_loss(labels, margins)}


def write_vw(folder: Path, rows: int, train: Path, test: Path) -> None:
    """Vowpal Wabbit's text format; its own index per slot."""
    indices = np.load(folder / "indices.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy")
    names = np.char.mod("%d", np.arange(N_FEATURES))
    for path, start, stop in ((train, 0, rows), (test, rows, len(labels))):
        with path.open("w") as file:
            for i in range(start, stop):
                file.write("1 | " if labels[i] else "-1 | ")
                file.write(" ".join(names[indices[i]]))
                file.write("\n")


VW = "Vowpal Wabbit (from its cache)"
CONTENDERS: dict[str, tuple[Any, int]] = {
    "squall-1": (run_squall, 1),
    "squall-2": (run_squall, 2),
    "scikit-learn SGDClassifier": (run_sklearn, 1),
    VW: (run_vw, 1),
}


def contend(name: str, folder: Path, rows: int, use: int | None = None) -> dict[str, Any]:
    """Run one contender in a process of its own, on the first ``use`` rows."""
    command = [sys.executable, __file__, "--contender", name, "--folder", str(folder), "--rows", str(rows)]
    command += ["--use", str(use or rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def small_fits(repeat: int = 20) -> None:
    """``fit`` of 1,000 x 20 numbers with all defaults, once warm."""
    from sklearn.linear_model import SGDClassifier

    import squall

    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 20))
    y = X @ rng.normal(size=20) + rng.logistic(size=1000) > 0
    print("\n| fit of 1,000 x 20 with all defaults, warm | median | slowest |")
    print("|---|---|---|")
    for name, model in (
        ("Squall", squall.LogisticRegression()),
        ("scikit-learn SGDClassifier", SGDClassifier(loss="log_loss")),
    ):
        model.fit(X, y)
        times = []
        for _ in range(repeat):
            began = time.perf_counter()
            model.fit(X, y)
            times.append(1e3 * (time.perf_counter() - began))
        print(f"| {name} | {np.median(times):.1f} ms | {max(times):.1f} ms |")
    squall.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, in turn; the median is shown")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--use", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        run, workers = CONTENDERS[options.contender]
        result = run(Path(options.folder), options.rows, workers, options.use)
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(result | {"peak_mb": own}))
        return
    names = [n for n in CONTENDERS if "Vowpal" not in n or importlib.util.find_spec("vowpalwabbit")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        best = make(options.rows, options.seed, folder)
        print(f"{options.rows:,} rows, {os.cpu_count()} cores; lowest reachable held-out loss {best:.4f}\n")
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(options.repeat):
            for name in names:
                runs[name].append(contend(name, folder, options.rows))
        table(runs, options.rows)
        if VW in runs:
            peer = {key: float(np.median([run[key] for run in runs[VW]])) for key in ("loss", "train_s")}
            used, seconds = time_to_loss(folder, options.rows, peer["loss"], options.repeat)
            print(
                f"\nTime to the {peer['loss']:.4f} of Vowpal Wabbit's pass: {peer['train_s']:.2f}"
                f" s from its cache; Squall with 2 functions, start-up included: {seconds:.2f} s"
                f" ({used:,} of the rows), {peer['train_s'] / seconds:.1f} times as fast"
            )
    small_fits()


def table(runs: dict[str, list[dict[str, Any]]], rows: int) -> None:
    """Medians, as Markdown, with ratios to scikit-learn in the same run."""
    peer = np.median([r["total_s"] for r in runs["scikit-learn SGDClassifier"]])
    print("| | rows/s | with start-up | × scikit-learn | held-out loss | client MB | worker MB |")
    print("|---|---|---|---|---|---|---|")
    for name, results in runs.items():
        train, total = (np.median([r[key] for r in results]) for key in ("train_s", "total_s"))
        loss = np.median([r["loss"] for r in results])
        own = np.median([r["peak_mb"] for r in results])
        worker = max(r.get("worker_mb", 0.0) for r in results)
        shown = name.replace("squall-", "Squall, functions: ")
        print(
            f"| {shown} | {rows / train / 1e6:.2f} M | {rows / total / 1e6:.2f} M | {peer / total:.1f} | "
            f"{loss:.4f} | {own:,.0f} | {f'{worker:.0f}' if worker else ''} |"
        )


if __name__ == "__main__":
    main()
