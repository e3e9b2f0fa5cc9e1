"""``squall train``: data in, a saved model, its quality and the bill out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import squall
from squall.cli.chaos import parse_chaos
from squall.cli.documents import check_documents, print_documents, print_topics, read_documents
from squall.cli.ingest import FORMATS_OF_TABLES, LABELLED, format_by_name, is_stored, open_given, read_given
from squall.cli.jobs import COMMAND, OUT
from squall.cli.plan import parse_plan
from squall.cli.quality import held_out_quality
from squall.cli.show import console, follow, print_end, print_metrics
from squall.cli.strategies import parse_strategy
from squall.cli.trainable import OPTIONS, SETTINGS, Trainable, check_options
from squall.config import DEFAULT_PRICES, Problems
from squall.data.dataset import Dataset
from squall.data.labels import LABEL_KINDS
from squall.data.objects import ObjectStore, default_storage
from squall.driver.ledger import load_prices
from squall.driver.resuming import find_interrupted
from squall.errors import DataError, SettingError, SquallError
from squall.estimators.persistence import check_target
from squall.paths import user_path
from squall.registry import ESTIMATORS

T = TypeVar("T")

N_FEATURES = 2**18
"""Slots for hashed text columns, unless set."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of the command, as typed; None is the model's own default."""

    model: str
    data: str
    label: str | None
    label_kind: str | None
    out: Path
    workers: str
    memory: str
    epochs: int | None
    batch_size: str | None
    learning_rate: str | None
    optimizer: str | None
    l1: float | None
    l2: float | None
    task: str | None
    n_factors: int | None
    n_components: int | None
    n_features: int | None
    early_stopping: int | None
    target_loss: float | None
    test: float
    deadline: str | None
    budget: str | None
    prices: str | None
    vocabulary: Path | None
    categorical: tuple[str, ...]
    delimiter: str | None
    header: bool | None
    impute: str | None
    storage: str | None
    seed: int
    fresh: bool = False
    chaos: str | None = None
    plan: str = "fixed"
    strategy: str = "parameter-server"
    consistency: str | None = None
    rho: str | None = None
    tol: float | None = None
    max_rounds: int | None = None


def run_train(options: TrainOptions) -> None:
    """Check the settings, read, train, measure, save."""
    run, model, trainable = _settings(options)
    _check_out(options.out, options.data)
    data = _read(options, trainable)
    (print_documents if trainable.reads == "documents" else _print_columns)(options.data, data)
    train, test = data.split(test=options.test, random_state=options.seed) if options.test else (data, None)
    whole = _pipeline(data, model, options) if trainable.reads == "table" else model
    tags = _tags(options, data)
    job = _resumed(options, tags) or squall.submit(whole, train, validation=test, run=run, tags=tags)
    console.print(f"job {job.id} (squall status {job.id} shows it from another terminal)", style="dim")
    workers = run.resolve_workers(train.n_rows)
    with _in_words_of_the_command(options):
        fitted = follow(job, f"{trainable.title} on {workers} local function{'s' if workers > 1 else ''}")
    saved = squall.save(fitted, options.out)
    console.print()
    if test is not None:
        print_metrics(f"On {test.n_rows:,} held-out rows", held_out_quality(fitted, test))
        console.print()
    if trainable.reads == "documents":
        print_topics(fitted)
        console.print()
    print_end(job, fitted.bill_ if data.bill is None else data.bill + fitted.bill_, saved)


@contextmanager
def _in_words_of_the_command(options: TrainOptions) -> Iterator[None]:
    """How to fill missing values is said in Python: say how it is typed."""
    try:
        yield
    except DataError as error:
        if error.fix and "Imputer" in error.fix and options.impute is None:
            error.fix += " (typed as --impute mean, or --categorical NAME)"
        raise


def _read(options: TrainOptions, trainable: Trainable) -> Dataset:
    if trainable.reads == "documents":
        documents = read_documents(options.data, options.vocabulary, options.storage)
        check_documents(options.data, documents)
        return documents
    if not is_stored(options.data):
        if trainable.reads == "ratings":
            return squall.read_ratings(options.data, storage=options.storage)
        form = format_by_name(options.data)
        form = form if form in FORMATS_OF_TABLES else "csv"
        if options.label is None and form not in LABELLED:
            raise SettingError("a file needs --label", where="squall train", fix="name the column to learn")
        return read_given(
            options.data,
            form,
            "squall train",
            label=options.label,
            label_kind=options.label_kind,
            header=options.header,
            delimiter=options.delimiter,
            categorical=options.categorical,
            storage=options.storage,
        )
    data = open_given(
        options.data,
        label_kind=options.label_kind,
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
    if is_stored(options.data) or "://" in options.data:
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


def _settings(options: TrainOptions) -> tuple[squall.Run, Any, Trainable]:
    problems = Problems("squall train")
    given = {name for name in OPTIONS if getattr(options, name) not in (None, ())}
    trainable = check_options(problems, options.model, given)
    workers = _parsed(problems, "--workers", options.workers, int)
    if not 0.0 <= options.test < 1.0:
        problems.add(f"--test {options.test:g} must be at least 0 and below 1")
    if not options.test and (options.early_stopping is not None or options.target_loss is not None):
        problems.add("--early-stopping and --target-loss need held-out rows, and --test 0 leaves none")
    if options.label_kind is not None:
        problems.choice("--label-kind", options.label_kind, LABEL_KINDS)
    strategy = parse_strategy(problems, options.strategy, asdict(options))
    model = None if trainable is None else _model(problems, trainable, options, given)
    if model is not None:
        model.set_params(strategy=strategy)
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
    if options.impute is not None:
        _collect(problems, squall.Imputer(strategy=options.impute)._check_settings)
    if options.n_features is not None:
        _collect(problems, squall.FeatureHasher(n_features=options.n_features)._check_settings)
    problems.raise_if_any()
    assert run is not None and trainable is not None
    return run, model, trainable


def _model(problems: Problems, trainable: Trainable, options: TrainOptions, given: set[str]) -> Any:
    """The estimator, with what was given of its settings."""
    known = trainable.settings()
    settings = {name: getattr(options, name) for name in SETTINGS if name in given and name in known}
    for name, kind in (("batch_size", int), ("learning_rate", float)):
        if name in settings:
            settings[name] = _parsed(problems, f"--{name.replace('_', '-')}", settings[name], kind)
    return ESTIMATORS.load(trainable.estimator)(**settings)


def _collect(problems: Problems, check: Callable[[], T]) -> T | None:
    try:
        return check()
    except SquallError as error:
        problems.include(error)
        return None


def _parsed(problems: Problems, name: str, text: str, kind: Callable[[str], Any]) -> Any:
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


def _pipeline(data: Dataset, model: Any, options: TrainOptions) -> squall.Pipeline:
    kinds, n_features = {c.kind for c in data.columns}, options.n_features
    steps: list[object] = [] if options.impute is None else [squall.Imputer(strategy=options.impute)]
    if kinds & {"int64", "float64"}:
        steps.append(squall.MinMaxScaler())
    if "categorical" in kinds:
        steps.append(squall.FeatureHasher(n_features=N_FEATURES if n_features is None else n_features))
    return squall.make_pipeline(*steps, model)
