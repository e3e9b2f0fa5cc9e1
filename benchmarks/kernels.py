"""Speed of the kernels beside what people use instead, measured in the same run.

    python benchmarks/kernels.py                       # a minute
    python benchmarks/kernels.py --rows 1000000 --only sparse

Every figure is CPU time on one core, the best of ``--repeat`` runs; machines are noisy, so quote the ratios.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core each, before NumPy is imported

import numpy as np

from squall import _kernels as kernels

CENSUS = Path(__file__).parents[1] / "examples" / "data" / "adult.csv.gz"


def best(run: Callable[[], object], repeat: int) -> float:
    seconds = []
    for _ in range(repeat):
        start = time.thread_time()
        run()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def report(
    name: str, amount: float, unit: str, ours: float, theirs: float | None = None, peer: str = ""
) -> None:
    line = f"{name:44s} {amount / ours:10.2f} {unit}"
    if theirs is not None:
        line += f"   {peer} {amount / theirs:.2f} {unit}   ratio {theirs / ours:.1f}"
    print(line, flush=True)


# Distinct values of the fields of the Criteo (Kaggle) data: 13 counts in bins, 26 categories.
CARDINALITIES = [50] * 13 + [
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10,
    5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
]  # fmt: skip


def clicks(rows: int, n_features: int, seed: int = 0) -> dict[str, np.ndarray | None]:
    """Criteo-like rows: 39 fields, their values Zipf-distributed (exponent 1) and hashed to slots."""
    rng = np.random.default_rng(seed)
    indices = np.empty((rows, 39), np.int32)
    for field, cardinality in enumerate(CARDINALITIES):
        value = np.floor(cardinality ** rng.random(rows)).astype(np.uint64)
        mixed = (value * np.uint64(39) + np.uint64(field)) * np.uint64(0x9E3779B97F4A7C15)
        indices[:, field] = (mixed >> np.uint64(32)) % np.uint64(n_features)
    truth = rng.normal(scale=0.4, size=n_features)
    margins = truth[indices].sum(axis=1) - 1
    labels = (rng.random(rows) < 1 / (1 + np.exp(-margins))).astype(np.float32)
    return {
        "indptr": np.arange(0, rows * 39 + 1, 39, dtype=np.int64), "indices": indices.ravel(), "values": None,
        "labels": labels, "weights": None,
    }  # fmt: skip


def settings(
    rows: int, batch_size: int, table: np.ndarray, optimizer: int, penalty: float
) -> dict[str, object]:
    return {
        "order": np.arange(rows, dtype=np.int32), "batch_size": batch_size, "first_batch": 0,
        "n_batches": -(-rows // batch_size), "table": table, "optimizer": optimizer, "learning_rate": 0.05,
        "l1": penalty, "l2": penalty, "fit_intercept": True, "step": np.zeros(1, np.int64), "progress": None,
    }  # fmt: skip


def new_table(rows: int, optimizer: int, penalty: float) -> np.ndarray:
    return np.zeros((rows, kernels.table_stride(optimizer, 1, penalty > 0)), np.float32)


def sparse(options: argparse.Namespace) -> None:
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import SGDClassifier

    n, n_features = options.rows, 1 << options.bits
    block = clicks(n, n_features)
    X = csr_matrix(
        (np.ones(n * 39, np.float32), block["indices"], block["indptr"].astype(np.int32)), (n, n_features)
    )

    def peer() -> None:
        model = SGDClassifier(loss="log_loss", penalty=None, max_iter=1, tol=None, shuffle=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, block["labels"])

    theirs = best(peer, options.repeat)
    touched = np.mean(
        [len(np.unique(block["indices"][i : i + 64 * 39])) for i in range(0, 20 * 64 * 39, 64 * 39)]
    )
    print(f"# {n} rows of 39 features, table of {n_features} rows, {touched:.0f} different per 64 rows")
    for batch_size in (64, 1024):
        for name, optimizer in (("SGD", kernels.SGD), ("AdaGrad", kernels.ADAGRAD)):
            for penalty in (0.0, 1e-6):
                table = new_table(n_features + 1, optimizer, penalty)
                arguments = settings(n, batch_size, table, optimizer, penalty)
                ours = best(lambda a=arguments: kernels.logistic_minibatches(**block, **a), options.repeat)
                title = f"sparse {name}, batch {batch_size}{', l1 and l2' if penalty else ''}"
                report(title, n / 1e6, "M rows/s", ours, theirs, "SGDClassifier")

    def pull_and_push() -> None:
        table = new_table(n_features + 1, kernels.ADAGRAD, 0)
        rule = kernels.Rule(kernels.ADAGRAD, 0.05)
        for step, begin in enumerate(range(0, n - 63, 64)):
            rows = np.arange(begin, begin + 64, dtype=np.int32)
            csr = block["indptr"], block["indices"], None
            needed, *taken = kernels.csr_minibatch(*csr, rows, n_features)
            pulled = kernels.table_pull(table, needed, 1, rule, step, n_features)
            grad, *_ = kernels.csr_logistic_gradient(*taken, block["labels"], None, rows, pulled, True, 64)
            kernels.table_update(table, needed, grad, rule, step, n_features)

    report(
        "sparse AdaGrad, batch 64, pull and push",
        n / 1e6,
        "M rows/s",
        best(pull_and_push, 1),
        theirs,
        "SGDClassifier",
    )


def dense(options: argparse.Namespace) -> None:
    from sklearn.linear_model import SGDClassifier

    for d in (14, options.width):
        n = options.rows // (1 + d // 50)
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, d)).astype(np.float32)
        y = (rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(size=d) / np.sqrt(d)))).astype(np.float32)

        def peer(X=X, y=y) -> None:
            model = SGDClassifier(loss="log_loss", penalty=None, max_iter=1, tol=None, shuffle=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)

        def numpy(X=X, y=y, n=n, d=d) -> None:
            w, G = np.zeros(d, np.float32), np.zeros(d, np.float32)
            for begin in range(0, n, 64):
                x = X[begin : begin + 64]
                g = (1 / (1 + np.exp(-(x @ w))) - y[begin : begin + 64]) @ x / np.float32(64)
                G += g * g
                w -= np.float32(0.05) * g / (np.sqrt(G) + np.float32(1e-10))

        arguments = settings(n, 64, new_table(d + 1, kernels.ADAGRAD, 0), kernels.ADAGRAD, 0)
        ours = best(
            lambda X=X, y=y, a=arguments: kernels.logistic_minibatches_dense(X, y, None, **a), options.repeat
        )
        title = f"dense AdaGrad, {d} columns, batch 64"
        report(title, n / 1e6, "M rows/s", ours, best(peer, options.repeat), "SGDClassifier")
        report(title, n / 1e6, "M rows/s", ours, best(numpy, options.repeat), "NumPy")


def text(options: argparse.Namespace) -> None:
    import pandas

    raw = gzip.decompress(CENSUS.read_bytes())
    raw = raw[: raw.index(b"\n") + 1] + raw[raw.index(b"\n") + 1 :] * options.copies
    size = len(raw) / 1e6

    def scan_and_parse() -> None:
        fields = kernels.csv_scan(raw)
        body = [a[fields.n_columns :] for a in fields[:3]]
        for j in range(fields.n_columns):
            at = raw, *body, j, fields.n_columns, [b"?"]
            if kernels.csv_kind(kernels.csv_classify(*at)[0]) == "integer":
                kernels.csv_parse_int64(*at)
            else:
                kernels.StringDictionary().encode(*at)

    report("CSV scan only", size, "MB/s", best(lambda: kernels.csv_scan(raw), options.repeat))
    ours = best(scan_and_parse, options.repeat)
    report(
        "CSV scan, classify, parse",
        size,
        "MB/s",
        ours,
        best(lambda: pandas.read_csv(io.BytesIO(raw)), 1),
        "pandas",
    )
    plain = raw.decode()
    report(
        "CSV scan, classify, parse",
        size,
        "MB/s",
        ours,
        best(lambda: list(csv.reader(io.StringIO(plain))), 1),
        "csv",
    )


def hashing(options: argparse.Namespace) -> None:
    from sklearn.utils import murmurhash3_32

    strings = [f"value-{i}".encode() for i in range(200_000)]
    offsets = np.append(0, np.cumsum([len(s) for s in strings]))
    data = b"".join(strings)
    ours = best(lambda: kernels.hash_slots(b"column=", offsets, data, 1 << 20, 0), options.repeat)
    theirs = best(lambda: [murmurhash3_32(b"column=" + s, 0, True) % (1 << 20) for s in strings], 1)
    report("hash_slots", len(strings) / 1e6, "M strings/s", ours, theirs, "sklearn.utils")


def main() -> None:
    parts = {"sparse": sparse, "dense": dense, "csv": text, "hashing": hashing}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--bits", type=int, default=20, help="log2 of the number of features")
    parser.add_argument("--width", type=int, default=1000, help="columns of the wide dense set")
    parser.add_argument("--copies", type=int, default=4, help="how often the census rows are repeated")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=parts, action="append")
    options = parser.parse_args()
    for name, part in parts.items():
        if options.only is None or name in options.only:
            part(options)


if __name__ == "__main__":
    main()
