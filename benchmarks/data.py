"""Text to partitions: time until they exist, beside what people use instead, in the same run.

    python benchmarks/data.py                          # some minutes
    python benchmarks/data.py --mb 400 --only libsvm
    python benchmarks/data.py --only capped            # 2 GB with little memory; functions parse

Files are made from a seed and are in the page cache.  Contenders take turns; figures are the best of
``--repeat`` runs in CPU time of one process (wall time beside it), so that other tenants of the machine
count little; quote the ratios.  What was made, partitions or arrays, is removed after the clock has stopped.

pandas (since 3.1) and Squall parse large files in threads, one a core; with ``--cores 1`` all have one core.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import squall
from squall.data.objects import ObjectStore
from squall.data.training import write_training
from squall.preprocessing.layout import FeatureLayout
from squall.testing.criteo import write_criteo

Run = Callable[[], object]


def measured(runs: dict[str, Run], repeat: int) -> dict[str, tuple[float, float]]:
    """Least (CPU, wall) seconds of each, which take turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            cpu, wall = time.process_time(), time.perf_counter()
            made = run()
            times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
            if isinstance(made, tempfile.TemporaryDirectory):
                made.cleanup()
            del made
    return {name: (min(c for c, _ in pairs), min(w for _, w in pairs)) for name, pairs in times.items()}


def report(title: str, size: float, times: dict[str, tuple[float, float]]) -> None:
    ours = next(iter(times.values()))
    print(
        f"\n{title}, {size / 1e6:.0f} MB\n| | MB/s of CPU | MB/s of wall | × ours in CPU |\n|---|---|---|---|"
    )
    for name, (cpu, wall) in times.items():
        print(
            f"| {name} | {size / 1e6 / cpu:.0f} | {size / 1e6 / wall:.0f} | {cpu / ours[0]:.1f} |", flush=True
        )


def stored(read: Callable[..., object], *args: object, **settings: object) -> Run:
    """Reads into a store of its own."""

    def run() -> tempfile.TemporaryDirectory[str]:
        folder = tempfile.TemporaryDirectory(dir=SCRATCH)
        read(*args, storage=folder.name, **settings)
        return folder

    return run


# ------------------------------------------------------------------------------------- files


def libsvm_file(path: Path, megabytes: int, values: str) -> Path:
    """Some 75 entries a row of 47,236 features, as in RCV1."""
    draw = np.random.default_rng(0)
    with path.open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            lines = []
            for _ in range(1000):
                places = np.unique(draw.integers(1, 47_236, 75)).tolist()
                numbers = draw.random(len(places)).tolist()
                entries = " ".join(f"{i}:{values.format(v)}" for i, v in zip(places, numbers, strict=True))
                lines.append(f"{draw.integers(0, 2) * 2 - 1:+d} {entries}\n")
            file.write("".join(lines))
    return path


def csv_file(path: Path, megabytes: int) -> Path:
    """Twenty columns of numbers: integers, and decimals of six and of all digits."""
    draw = np.random.default_rng(0)
    with path.open("w") as file:
        file.write(",".join(f"c{i}" for i in range(20)) + "\n")
        while file.tell() < megabytes * 1_000_000:
            columns = [draw.integers(-9999, 100_000, 5000).astype(str).tolist() for _ in range(7)]
            columns += [[f"{v:.6f}" for v in draw.normal(0, 100, 5000).tolist()] for _ in range(7)]
            columns += [list(map(repr, draw.normal(0, 1, 5000).tolist())) for _ in range(6)]
            file.write("\n".join(map(",".join, zip(*columns, strict=True))) + "\n")
    return path


# ------------------------------------------------------------------------------- comparisons


def libsvm(folder: Path, options: argparse.Namespace) -> None:
    from sklearn.datasets import load_svmlight_file

    for title, values in (("LIBSVM, values of 8 digits", "{:.8g}"), ("LIBSVM, values all 1", "1")):
        path = libsvm_file(folder / "f.svm", options.mb, values)
        runs = {
            "squall.read_libsvm, partitions stored": stored(squall.read_libsvm, path),
            "scikit-learn load_svmlight_file, in memory": lambda path=path: load_svmlight_file(str(path)),
        }
        report(title, path.stat().st_size, measured(runs, options.repeat))


def csv(folder: Path, options: argparse.Namespace) -> None:
    import pandas as pd

    path = csv_file(folder / "f.csv", options.mb)
    runs = {
        "squall.read_csv, partitions stored": stored(squall.read_csv, path),
        "pandas C parser, in memory": lambda: pd.read_csv(path, engine="c"),
        "pandas C parser, one thread, in memory": lambda: one_thread(pd, path),
        "pandas C parser, exact (round_trip)": lambda: pd.read_csv(
            path, engine="c", float_precision="round_trip"
        ),
    }
    report("CSV of numbers", path.stat().st_size, measured(runs, options.repeat))


def one_thread(pandas: Any, path: Path) -> object:
    with pandas.option_context("mode.max_threads", 1):
        return pandas.read_csv(path, engine="c")


def criteo(folder: Path, options: argparse.Namespace) -> None:
    path = folder / "f.tsv"
    write_criteo(path, options.mb * 4400)
    runs: dict[str, Run] = {
        "squall.read_criteo(n_features=2**20), hashed partitions stored": stored(
            squall.read_criteo, path, n_features=2**20
        ),
        "the same, and training partitions of them": lambda: trained_on(path, 2**20),
        "squall.read_criteo, partitions of text stored": stored(squall.read_criteo, path),
        "the same, and hashed training partitions of them": lambda: trained_on(path, None),
    }
    try:
        import polars
    except ModuleNotFoundError:
        print("polars is not installed: pip install polars")
    else:
        runs["polars + scikit-learn FeatureHasher, in memory"] = lambda: polars_hashed(polars, path)
    report("Criteo TSV", path.stat().st_size, measured(runs, options.repeat))


def trained_on(path: Path, n_features: int | None) -> tempfile.TemporaryDirectory[str]:
    """All the way to what workers read: hashed while the file is read, or afterwards."""
    scratch = tempfile.TemporaryDirectory(dir=SCRATCH)
    data = squall.read_criteo(path, n_features=n_features, storage=scratch.name)
    data = squall.Imputer("constant", fill_value=0).fit(data).transform(data)
    if n_features is None:
        data = squall.FeatureHasher(n_features=2**20).fit(data).transform(data)
    layout = FeatureLayout.of(data.columns)
    write_training(map(layout.encode, data.blocks(seed=0)), ObjectStore(scratch.name), "train", seed=0)
    return scratch


def polars_hashed(polars: object, path: Path) -> object:
    from sklearn.feature_extraction import FeatureHasher

    frame = polars.read_csv(path, separator="\t", has_header=False)  # type: ignore[attr-defined]
    names = frame.columns[14:]
    rows = (
        [f"{n}={v}" for n, v in zip(names, row, strict=True) if v] for row in frame.select(names).iter_rows()
    )
    return FeatureHasher(2**20, input_type="string", alternate_sign=False).transform(rows)


def scaler(folder: Path, options: argparse.Namespace) -> None:
    """Standard scaling of a dense matrix, fit and transform: ours also of stored partitions."""
    from sklearn.preprocessing import StandardScaler

    X = np.random.default_rng(0).normal(3, 2, (options.mb * 1_000_000 // 800, 100))
    stored_rows = squall.from_arrays(X).write(folder / "scaled")

    def of_partitions() -> None:
        data = squall.StandardScaler().fit(stored_rows).transform(stored_rows)
        for _ in data.blocks():
            pass

    ours, theirs = squall.StandardScaler().fit_transform(X), StandardScaler().fit_transform(X)
    assert np.allclose(ours, theirs), "the scalers differ"
    runs: dict[str, Run] = {
        "squall.StandardScaler, of an array": lambda: squall.StandardScaler().fit_transform(X),
        "squall.StandardScaler, of stored partitions": of_partitions,
        "scikit-learn StandardScaler, of an array": lambda: StandardScaler().fit_transform(X),
    }
    report("Standard scaling, 100 columns", X.nbytes, measured(runs, options.repeat))


_CAP_MB = 300
_CAPPED = """
import sys, threading, time
import squall

peaks = {"VmRSS": 0, "RssAnon": 0}

def watch():
    while True:
        with open("/proc/self/status") as status:
            for line in status:
                name, _, value = line.partition(":")
                if name in peaks:
                    peaks[name] = max(peaks[name], int(value.split()[0]) >> 10)
        time.sleep(0.02)

def told(what):
    seconds = time.perf_counter() - began
    print(f"{what} after {seconds:.0f} s; peak of the client so far {peaks['RssAnon']} MB, "
          f"with pages of mapped files {peaks['VmRSS']} MB", flush=True)

threading.Thread(target=watch, daemon=True).start()
began = time.perf_counter()
run = squall.Run(workers=2, storage=sys.argv[2])
data = squall.read_libsvm(sys.argv[1], run=run, storage=sys.argv[2])
told(f"{len(data):,} rows read")
data = squall.MaxAbsScaler().fit_on(data, run).transform(data)
told("statistics made")
squall.LogisticRegression(epochs=1).fit(data, run=run)
told("trained")
if peaks["RssAnon"] > int(sys.argv[3]):
    sys.exit(f"more than {sys.argv[3]} MB")
"""


def capped(folder: Path, options: argparse.Namespace) -> None:
    """A file of 2 GB: the client's memory while functions parse it, look at it and train on it."""
    part = libsvm_file(folder / "part.svm", min(options.mb, 100), "{:.8g}").read_bytes()
    path = folder / "large.svm"
    with path.open("wb") as file:
        for _ in range(max(1, options.capped_mb * 1_000_000 // len(part))):
            file.write(part)
    print(f"\n{path.stat().st_size / 1e9:.1f} GB of LIBSVM text:", flush=True)
    subprocess.run([sys.executable, "-c", _CAPPED, path, folder / "store", str(_CAP_MB)], check=True)


COMPARISONS = {"libsvm": libsvm, "csv": csv, "criteo": criteo, "scaler": scaler, "capped": capped}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=100, help="of each file")
    parser.add_argument("--capped-mb", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="libsvm,csv,criteo,scaler", help=f"of {','.join(COMPARISONS)}")
    parser.add_argument("--scratch", default=None, help="a folder; memory (/dev/shm) where there is one")
    parser.add_argument("--cores", type=int, default=0, help="to use; all if 0")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    global SCRATCH
    SCRATCH = options.scratch or ("/dev/shm" if Path("/dev/shm").is_dir() else None)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        for name in options.only.split(","):
            COMPARISONS[name](Path(folder), options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nload {os.getloadavg()[0]:.1f}, peak {peak:.0f} MB")


SCRATCH: str | None = None

if __name__ == "__main__":
    main()
