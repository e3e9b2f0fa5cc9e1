"""``squall demo``: the whole path on real data, from a compressed CSV file to the bill."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import squall
from squall.cli.quality import held_out_quality
from squall.cli.show import console, follow, print_bill, print_metrics
from squall.errors import SquallError
from squall.estimators.persistence import check_target
from squall.paths import user_path
from squall.units import format_duration

LABEL = "income-per-year"
_FILE = "adult.csv.gz"


def census_file() -> Path:
    """The example data: in the source tree, or where the package was installed.

    Raises
    ------
    SquallError
        If it is in neither place.
    """
    package = Path(squall.__file__).parent
    for folder in (Path("examples/data"), package.parents[1] / "examples" / "data", package / "examples"):
        if (folder / _FILE).is_file():
            return folder / _FILE
    raise SquallError(f"{_FILE} is not there", where="demo", fix="run it in a checkout, or reinstall Squall")


def run_demo(*, workers: int, epochs: int, out: Path, storage: str | None, seed: int) -> None:
    """Read, split, scale, hash, train, measure, save; then say how to do it again."""
    began = time.perf_counter()
    check_target(user_path(out))
    run = squall.Run(backend="local", workers=workers, storage=storage, random_state=seed)
    path = census_file()
    console.print(f"Squall {squall.__version__}", style="bold", end=": ")
    console.print("will a person earn more than $50,000 a year?\n")
    data = squall.read_csv(path, label=LABEL, storage=storage)
    train, test = data.split(test=0.2, random_state=seed)
    text = sum(c.kind == "categorical" for c in data.columns)
    console.print(
        f"{path}: {data.n_rows:,} rows, {len(data.columns) - text} numeric and {text} text columns; "
        f"{train.n_rows:,} rows to train on, {test.n_rows:,} held out\n",
        soft_wrap=True,
    )
    model = squall.make_pipeline(
        squall.MinMaxScaler(),
        squall.FeatureHasher(n_features=2**18),
        squall.LogisticRegression(epochs=epochs, batch_size=64, learning_rate=0.5),
    )
    job = squall.submit(model, train, validation=test, run=run)
    functions = f"{workers} local function{'s' if workers > 1 else ''}"
    fitted = follow(job, f"logistic regression on {functions}, AdaGrad, minibatch 64, rate 0.5")
    quality = held_out_quality(fitted, test)
    saved = squall.save(fitted, out)
    quality["time, file to model"] = format_duration(time.perf_counter() - began)
    quality["model"] = str(saved)
    console.print()
    print_metrics("On held-out rows", quality)
    console.print()
    print_bill(fitted.bill_, local=True)
    _print_how_to_repeat(path, workers, epochs, out, seed)


def _print_how_to_repeat(path: Path, workers: int, epochs: int, out: Path, seed: int) -> None:
    console.print("\nThe same in Python", style="bold")
    console.print(
        f"""    import squall
    data = squall.read_csv({str(path)!r}, label={LABEL!r})
    train, test = data.split(test=0.2, random_state={seed})
    model = squall.make_pipeline(
        squall.MinMaxScaler(), squall.FeatureHasher(n_features=2**18),
        squall.LogisticRegression(epochs={epochs}, batch_size=64, learning_rate=0.5))
    with squall.Run(backend="local", workers={workers}, random_state={seed}):
        model.fit(train, validation=test)
    print(model.score(test), model.cost_usd_)
    squall.save(model, {str(out)!r})""",
        soft_wrap=True,
    )
    file, model = shlex.quote(str(path)), shlex.quote(str(out))
    console.print("\nThe same on the command line", style="bold")
    console.print(
        f"    squall train logistic {file} --label {LABEL} --workers {workers} --epochs {epochs} "
        f"--batch-size 64 --learning-rate 0.5 --seed {seed} --out {model}\n"
        f"    squall predict {model} {file} --out predictions.csv",
        soft_wrap=True,
    )
