"""``squall train logistic``: a file in, a saved model, its quality and the bill out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import squall
from squall.cli.chaos import parse_chaos
from squall.cli.ingest import open_given
from squall.cli.jobs import COMMAND, OUT
from squall.cli.plan import parse_plan
from squall.cli.quality import held_out_quality
from squall.cli.show import console, follow, print_end, print_metrics
from squall.config import DEFAULT_PRICES, Problems
from squall.data.dataset import Dataset
from squall.data.objects import ObjectStore, default_storage
from squall.driver.ledger import load_prices
from squall.driver.resuming import find_interrupted
from squall.errors import SettingError, SquallError
from squall.estimators.persistence import check_target
from squall.paths import user_path

T = TypeVar("T")
N = TypeVar("N", int, float)


@dataclass(frozen=True)
class TrainOptions:
    """Options of the command, as typed."""

    data: str
    label: str | None
    out: Path
    workers: str
    memory: str
    epochs: int
    batch_size: str
    learning_rate: str
    optimizer: str
    l1: float
    l2: float
    n_features: int
    early_stopping: int | None
    target_loss: float | None
    test: float
    deadline: str | None
    budget: str | None
    prices: str | None
    categorical: tuple[str, ...]
    delimiter: str | None
    header: bool | None
    storage: str | None
    seed: int
    fresh: bool = False
    chaos: str | None = None
    plan: str = "fixed"
    consistency: str = "asp"


def train_logistic(options: TrainOptions) -> None:
    """Check the settings, read, train, measure, save."""
    run, model = _settings(options)
    _check_out(options.out, options.data)
    data = _read(options)
    _print_columns(options.data, data)
    train, test = data.split(test=options.test, random_state=options.seed) if options.test else (data, None)
    pipeline = _pipeline(data, model, options.n_features)
    tags = _tags(options, data)
    job = _resumed(options, tags) or squall.submit(pipeline, train, validation=test, run=run, tags=tags)
    console.print(f"job {job.id} (squall status {job.id} shows it from another terminal)", style="dim")
    workers = run.resolve_workers(train.n_rows)
    fitted = follow(job, f"logistic regression on {workers} local function{'s' if workers > 1 else ''}")
    saved = squall.save(fitted, options.out)
    console.print()
    if test is not None:
        print_metrics(f"On {test.n_rows:,} held-out rows", held_out_quality(fitted, test))
        console.print()
    print_end(job, fitted.bill_, saved)


def _is_stored(data: str) -> bool:
    """Whether it is the place of a data set, not a file."""
    return "://" in data or user_path(data).is_dir()


def _read(options: TrainOptions) -> Dataset:
    if not _is_stored(options.data):
        if options.label is None:
            raise SettingError(
                "a file needs --label", where="squall train logistic", fix="name the column to learn"
            )
        return squall.read_csv(
            options.data,
            label=options.label,
            header=options.header is not False,
            delimiter=(options.delimiter or ",").replace("\\t", "\t"),
            categorical=options.categorical,
            storage=options.storage,
        )
    data = open_given(
        options.data,
        delimiter=options.delimiter,
        header=options.header,
        categorical=options.categorical or None,
    )
    if options.label not in (None, data.label):
        raise SettingError(
            f"the data set's label is {data.label!r}, not {options.label!r}",
            where="--label",
            fix="leave it out, or ingest the source again with that label",
        )
    return data


def _tags(options: TrainOptions, data: Dataset) -> dict[str, str]:
    """What tells this very command, on this very data, from all others."""
    told: tuple[Any, ...]
    if _is_stored(options.data):
        told = (options, data.key())
    else:
        file = user_path(options.data).absolute()
        facts = file.stat() if file.exists() else None
        told = (replace(options, data=str(file)), facts and (facts.st_size, facts.st_mtime_ns))
    fingerprint = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
    return {OUT: str(user_path(options.out).absolute()), COMMAND: fingerprint}


def _resumed(options: TrainOptions, tags: dict[str, str]) -> squall.Job[Any] | None:
    """The job of the same command that was interrupted, if there is one."""
    if options.fresh:
        return None
    storage = default_storage() if options.storage is None else options.storage
    found = find_interrupted(ObjectStore(storage), tags)
    if not found:
        return None
    console.print(
        f"going on with job {found[-1]}, which was interrupted (--fresh starts anew)", style="yellow"
    )
    return squall.Job.open(f"{ObjectStore(storage).url}/jobs/{found[-1]}")


def _print_columns(path: str, data: Dataset) -> None:
    text = [c.name for c in data.columns if c.kind == "categorical"]
    numbers = len(data.columns) - len(text)
    listed = f" ({', '.join(text[:12])}{' …' if len(text) > 12 else ''})" if text else ""
    console.print(
        f"{path}: {data.n_rows:,} rows; {numbers} numeric and {len(text)} text columns{listed}\n",
        soft_wrap=True,
    )


def _settings(options: TrainOptions) -> tuple[squall.Run, squall.LogisticRegression]:
    problems = Problems("squall train logistic")
    workers = _parsed(problems, "--workers", options.workers, int)
    batch_size = _parsed(problems, "--batch-size", options.batch_size, int)
    learning_rate = _parsed(problems, "--learning-rate", options.learning_rate, float)
    if not 0.0 <= options.test < 1.0:
        problems.add(f"--test {options.test:g} must be at least 0 and below 1")
    if not options.test and (options.early_stopping is not None or options.target_loss is not None):
        problems.add("--early-stopping and --target-loss need held-out rows, and --test 0 leaves none")
    model = squall.LogisticRegression(
        epochs=options.epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        optimizer=options.optimizer,
        l1=options.l1,
        l2=options.l2,
        early_stopping=options.early_stopping,
        target_loss=options.target_loss,
        strategy=_collect(problems, lambda: squall.ParameterServer(options.consistency)),
    )
    _collect(problems, model._check_settings)
    prices = DEFAULT_PRICES if options.prices is None else options.prices
    chaos = None if options.chaos is None else parse_chaos(problems, options.chaos)
    plan = parse_plan(problems, options.plan)
    backend = _collect(problems, lambda: squall.LocalBackend(chaos=chaos)) or "local"
    run = _collect(
        problems,
        lambda: squall.Run(
            backend=backend,
            workers=workers,
            memory=options.memory,
            storage=options.storage,
            deadline=options.deadline,
            budget=options.budget,
            prices=prices,
            random_state=options.seed,
            plan=plan,
        ),
    )
    if options.storage:
        _collect(problems, lambda: ObjectStore(str(options.storage)))
    if prices:
        _collect(problems, lambda: load_prices(prices))
    _collect(problems, squall.FeatureHasher(n_features=options.n_features)._check_settings)
    problems.raise_if_any()
    assert run is not None
    return run, model


def _collect(problems: Problems, check: Callable[[], T]) -> T | None:
    try:
        return check()
    except SquallError as error:
        problems.include(error)
        return None


def _parsed(problems: Problems, name: str, text: str, kind: Callable[[str], N]) -> N | str:
    if text == "auto":
        return text
    try:
        return kind(text)
    except ValueError:
        noun = "an integer" if kind is int else "a number"
        problems.add(f'{name} {text!r} must be {noun} or "auto"')
        return "auto"


def _check_out(out: Path, data: str) -> None:
    target = user_path(out)
    check_target(target)
    source = user_path(data)
    if target.exists() and source.exists() and target.samefile(source):
        fix = "choose another file"
        raise SquallError("the model would replace the training data", where="--out", fix=fix)


def _pipeline(data: Dataset, model: squall.LogisticRegression, n_features: int) -> squall.Pipeline:
    kinds = {c.kind for c in data.columns}
    steps: list[object] = []
    if kinds & {"int64", "float64"}:
        steps.append(squall.MinMaxScaler())
    if "categorical" in kinds:
        steps.append(squall.FeatureHasher(n_features=n_features))
    return squall.make_pipeline(*steps, model)
