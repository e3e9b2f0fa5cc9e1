"""Commands and their options; what they do is in a module for each, loaded when called."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

import squall
from squall import __version__
from squall.cli import INTERRUPTED
from squall.errors import SquallError

app = typer.Typer(
    name="squall",
    help="Train machine-learning models on short-lived functions.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Look into a data set that was ingested.", no_args_is_help=True)
app.add_typer(data_app, name="data")
store_app = typer.Typer(help="Run a parameter store of one's own, and look after it.", no_args_is_help=True)
app.add_typer(store_app, name="store")

Workers = Annotated[str, typer.Option(help="Number of functions that train, or [bold]auto[/bold].")]
Memory = Annotated[str, typer.Option(help='Memory of each function, such as "1769MB".')]
Storage = Annotated[
    str | None, typer.Option(help="Object store for partitions: a folder or URL. Default: the user's cache.")
]
Deadline = Annotated[str | None, typer.Option(help='Longest time, such as "10min".')]
Budget = Annotated[str | None, typer.Option(help='Most it may cost, such as "$0.25".')]
Prices = Annotated[str | None, typer.Option(help="A price list by name, or a file.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split and of the shuffles.")]
Categorical = Annotated[
    list[str] | None, typer.Option(help="Read this column as text, whatever it holds; may be repeated.")
]
MaybeLabel = Annotated[
    str | None, typer.Option("--label", help="Name of the label column (its number with --no-header).")
]
MaybeLabelKind = Annotated[
    str | None,
    typer.Option(
        "--label-kind", help="Labels are [bold]classes[/bold], [bold]numbers[/bold] or [bold]auto[/bold]."
    ),
]
MaybeDelimiter = Annotated[
    str | None,
    typer.Option("--delimiter", help=r"Field separator of a file, such as \t. Default: it is found out."),
]
MaybeHeader = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether a file's first line names the columns.")
]
DataSet = Annotated[str, typer.Argument(help="A data set: the folder or URL that it was ingested to.")]


Job = Annotated[str, typer.Argument(help="Name of a job, as `squall train` and `squall jobs` show it.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"squall {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train machine-learning models on short-lived functions."""


@app.command()
def demo(
    workers: Annotated[int, typer.Option(min=1, help="Number of functions that train.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="How often each row is visited.")] = 20,
    out: Annotated[Path, typer.Option(help="Where to save the model.")] = Path("census.squall"),
    storage: Storage = None,
    seed: Seed = 0,
) -> None:
    """Train logistic regression on census data with local functions, and show the bill."""
    from squall.cli.demo import run_demo

    run_demo(workers=workers, epochs=epochs, out=out, storage=storage, seed=seed)


@app.command()
def ingest(
    source: Annotated[list[str], typer.Argument(help="Files or folders to read, as the format has them.")],
    to: Annotated[str, typer.Option(help="Folder or URL of the data set to be; there must be none yet.")],
    format_: Annotated[
        str, typer.Option("--format", help="csv, tsv, …, or [bold]auto[/bold]: by the file's name.")
    ] = "auto",
    label: MaybeLabel = None,
    label_kind: MaybeLabelKind = None,
    weight: Annotated[str | None, typer.Option(help="Name of the column of sample weights.")] = None,
    categorical: Categorical = None,
    delimiter: MaybeDelimiter = None,
    header: MaybeHeader = None,
    errors: Annotated[
        str | None, typer.Option(help="Malformed rows: [bold]raise[/bold] or [bold]skip[/bold].")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Another setting of the format's reader, as name=value; may be repeated."),
    ] = None,
    storage: Storage = None,
) -> None:
    """Read a source once, and store it as a data set: typed, compact, checked, never changed."""
    from squall.cli.ingest import IngestOptions, run_ingest

    run_ingest(
        IngestOptions(
            sources=tuple(source),
            to=to,
            format=format_,
            label=label,
            label_kind=label_kind,
            weight=weight,
            categorical=tuple(categorical or ()),
            delimiter=delimiter,
            header=header,
            errors=errors,
            options=tuple(option or ()),
            storage=storage,
        )
    )


@data_app.command("info")
def data_info(url: DataSet) -> None:
    """Show rows, columns, labels and size, as the manifest says."""
    from squall.cli.data import run_info

    run_info(url)


@data_app.command("head")
def data_head(
    url: DataSet,
    n: Annotated[int, typer.Option("-n", min=0, help="How many rows.")] = 5,
) -> None:
    """Show the first rows, with as many columns as fit."""
    from squall.cli.data import run_head

    run_head(url, n)


@data_app.command("describe")
def data_describe(
    url: DataSet,
    everything: Annotated[bool, typer.Option("--all", help="All columns, however many.")] = False,
) -> None:
    """Show what is in each column (one pass over the rows), and how often each label turns up."""
    from squall.cli.data import run_describe

    run_describe(url, everything)


@app.command()
def train(
    model: Annotated[
        str,
        typer.Argument(
            help="logistic (classes), linear (numbers), fm (factorisation machine), mf (ratings) or "
            "lda (topics).",
            show_default=False,
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            help="A file, plain or compressed: CSV, or what its name says (.svm, .parquet, .npz …); or a "
            "data set's folder or URL."
        ),
    ],
    label: MaybeLabel = None,
    label_kind: MaybeLabelKind = None,
    out: Annotated[Path, typer.Option(help="Where to save the model.")] = Path("model.squall"),
    workers: Workers = "auto",
    memory: Memory = "1769MB",
    epochs: Annotated[int | None, typer.Option(help="How often each row is visited.")] = None,
    batch_size: Annotated[str | None, typer.Option(help="Rows of a minibatch, or [bold]auto[/bold].")] = None,
    learning_rate: Annotated[str | None, typer.Option(help="A number, or [bold]auto[/bold].")] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="adagrad, sgd, momentum, nesterov, adam or ftrl.")
    ] = None,
    l1: Annotated[float | None, typer.Option(help="Weight of the L1 penalty.")] = None,
    l2: Annotated[float | None, typer.Option(help="Weight of the L2 penalty.")] = None,
    task: Annotated[str | None, typer.Option(help="Of fm: classification or regression.")] = None,
    n_factors: Annotated[int | None, typer.Option(help="Of fm and mf: length of the vectors.")] = None,
    n_components: Annotated[int | None, typer.Option(help="Of lda: number of topics.")] = None,
    impute: Annotated[
        str | None,
        typer.Option(help="Fill missing values: mean, median, most_frequent or constant (0)."),
    ] = None,
    n_features: Annotated[
        int | None, typer.Option(help="Slots for hashed text columns. Default: 262144.")
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Of lda: the words of a bag of words, one on each line.")
    ] = None,
    early_stopping: Annotated[
        int | None, typer.Option(help="Stop after so many epochs without a better held-out loss.")
    ] = None,
    target_loss: Annotated[
        float | None, typer.Option(help="Stop when the held-out loss is this low.")
    ] = None,
    test: Annotated[float, typer.Option(help="Share of rows held out to measure quality; 0 for none.")] = 0.2,
    deadline: Deadline = None,
    budget: Budget = None,
    prices: Prices = None,
    categorical: Categorical = None,
    delimiter: MaybeDelimiter = None,
    header: MaybeHeader = None,
    storage: Storage = None,
    seed: Seed = 0,
    chaos: Annotated[
        str | None,
        typer.Option(
            help="Faults to inject into the functions, as probabilities: "
            "[bold]kill=0.05,dup=0.05,drop=0.05,delay=0.1,throttle=0.1[/bold]; also seed, quota, max."
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help='"parameter-server" (minibatches), or "admm": to the precision of the best solvers in few '
            "rounds; logistic and linear only."
        ),
    ] = "parameter-server",
    consistency: Annotated[
        str | None,
        typer.Option(
            help='Whom workers wait for: "asp" nobody, "ssp" the slowest, "hsp" all at the end of an epoch, '
            '"bsp" all at each minibatch (the same bits every time). Default: asp.'
        ),
    ] = None,
    rho: Annotated[
        str | None, typer.Option(help="ADMM: weight of the proximal term, or [bold]auto[/bold].")
    ] = None,
    tol: Annotated[float | None, typer.Option(help="ADMM: relative precision of the objective.")] = None,
    max_rounds: Annotated[int | None, typer.Option(help="ADMM: rounds after which it ends.")] = None,
    plan: Annotated[
        str,
        typer.Option(
            help='"fixed", or changes between epochs: [bold]3:4,6:8@3008MB[/bold] is 4 workers after '
            "3 epochs, 8 of that memory after 6."
        ),
    ] = "fixed",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew, also if the same command was interrupted before.")
    ] = False,
) -> None:
    """Train a model and save it; of tables numbers are scaled and text is hashed.

    Topics are of a text whose lines are documents, of a folder of texts, or of a bag of words.

    Options that are not given have the model's own defaults.
    """
    from squall.cli.train import TrainOptions, run_train

    run_train(
        TrainOptions(
            model=model,
            data=data,
            label=label,
            label_kind=label_kind,
            out=out,
            workers=workers,
            memory=memory,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            optimizer=optimizer,
            l1=l1,
            l2=l2,
            task=task,
            n_factors=n_factors,
            n_components=n_components,
            impute=impute,
            n_features=n_features,
            vocabulary=vocabulary,
            early_stopping=early_stopping,
            target_loss=target_loss,
            test=test,
            deadline=deadline,
            budget=budget,
            prices=prices,
            categorical=tuple(categorical or ()),
            delimiter=delimiter,
            header=header,
            storage=storage,
            seed=seed,
            fresh=fresh,
            chaos=chaos,
            plan=plan,
            strategy=strategy,
            consistency=consistency,
            rho=rho,
            tol=tol,
            max_rounds=max_rounds,
        )
    )


StoreAddress = Annotated[str, typer.Argument(help='Where the store is, such as "tcp://127.0.0.1:7000".')]
TokenFile = Annotated[
    Path | None, typer.Option(help="File with the store's token. Default: SQUALL_STORE_TOKEN or …_FILE.")
]
Listen = Annotated[str, typer.Option(help='"tcp://HOST:PORT" (0: a free port) or "unix:PATH".')]
Shards = Annotated[int, typer.Option(help="Processes that share the tables; each takes one port.")]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate (PEM): connections by TLS.")]
TlsKey = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]
StoreMemory = Annotated[
    str | None, typer.Option("--memory", help='Most that tables may take in all, such as "4GB".')
]
SnapshotEvery = Annotated[str | None, typer.Option(help='How often to take one, such as "30s".')]
Keep = Annotated[int, typer.Option(help="Snapshots that are kept.")]


@store_app.command("serve")
def store_serve(
    listen: Listen = "tcp://127.0.0.1:0",
    shards: Shards = 1,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    memory: StoreMemory = None,
    snapshot: Annotated[str | None, typer.Option(help="Object store for snapshots: a folder or URL.")] = None,
    snapshot_every: SnapshotEvery = None,
    keep: Keep = 3,
) -> None:
    """Serve an empty store until Ctrl-C; a shard that dies is started again from its snapshot."""
    from squall.cli.store import run_serve
    from squall.store.auth import store_token
    from squall.store.cluster import ServeSettings

    run_serve(
        ServeSettings(
            listen=listen,
            shards=shards,
            token=store_token(token_file),
            tls_cert=tls_cert,
            tls_key=tls_key,
            memory=memory,
            snapshot=snapshot,
            snapshot_every=snapshot_every,
            keep=keep,
        )
    )


@store_app.command("restore")
def store_restore(
    snapshot: Annotated[str, typer.Argument(help="Object store with snapshots: a folder or URL.")],
    number: Annotated[int, typer.Option(min=0, help="Which one; 0 for the latest complete one.")] = 0,
    listen: Listen = "tcp://127.0.0.1:0",
    shards: Shards = 1,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    memory: StoreMemory = None,
    snapshot_every: SnapshotEvery = None,
    keep: Keep = 3,
) -> None:
    """Serve a store that begins with a snapshot, of as many shards as it was taken with."""
    from squall.cli.store import run_serve
    from squall.store.auth import store_token
    from squall.store.cluster import ServeSettings

    run_serve(
        ServeSettings(
            listen=listen,
            shards=shards,
            token=store_token(token_file),
            tls_cert=tls_cert,
            tls_key=tls_key,
            memory=memory,
            snapshot=snapshot,
            snapshot_every=snapshot_every,
            keep=keep,
            restore=number,
        )
    )


@store_app.command("snapshot")
def store_snapshot(address: StoreAddress, token_file: TokenFile = None) -> None:
    """Have all shards write a snapshot now, and print its number."""
    from squall.cli.store import run_snapshot

    run_snapshot(address, token_file)


@store_app.command("stat")
def store_stat(
    address: StoreAddress,
    token_file: TokenFile = None,
    interval: Annotated[float, typer.Option(min=0.01, help="Seconds over which requests are counted.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show a store's shards, requests and how long they take, tables, and workers."""
    from squall.cli.store import run_stat

    run_stat(address, token_file, interval, as_json)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A file that squall train or squall.save wrote.")],
    data: Annotated[
        str,
        typer.Argument(
            help="A file with the columns of training, labelled or not, or a data set's folder or URL."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; default: standard output.")] = None,
    delimiter: MaybeDelimiter = None,
    header: MaybeHeader = None,
    storage: Storage = None,
) -> None:
    """Predict every row: a class with probabilities, a number, or shares of topics, as the model has it."""
    from squall.cli.predict import run_predict

    run_predict(model, data, out=out, delimiter=delimiter, header=header, storage=storage)


@app.command("map")
def map_(
    function: Annotated[str, typer.Argument(help='"module:function" of this folder, or installed.')],
    items: Annotated[str, typer.Argument(help="A text file, one item a line; - for standard input.")],
    out: Annotated[Path | None, typer.Option(help="Where results go; default: standard output.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Each line is JSON, not text.")] = False,
    workers: Annotated[str, typer.Option(help="Functions at the same time, or [bold]auto[/bold].")] = "auto",
    memory: Memory = "1769MB",
    chunksize: Annotated[str, typer.Option(help="Items that share a call, or [bold]auto[/bold].")] = "auto",
    timeout: Annotated[str | None, typer.Option(help='Longest time for one item, such as "30s".')] = None,
    retries: Annotated[int, typer.Option(help="How often a failed item is called again.")] = 0,
    deadline: Deadline = None,
    budget: Budget = None,
    prices: Prices = None,
    storage: Storage = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the results of an interrupted one.")] = False,
) -> None:
    """Call a function for each line of a file, on functions; one line of results each.

    The line of an item that has failed stays empty; the error is told on standard error.
    With --out, the same command goes on where an interrupted one has ended.
    """
    from squall.cli.map import MapOptions, run_map

    raise typer.Exit(
        run_map(
            MapOptions(
                function=function,
                items=items,
                out=out,
                as_json=as_json,
                workers=workers,
                memory=memory,
                chunksize=chunksize,
                timeout=timeout,
                retries=retries,
                deadline=deadline,
                budget=budget,
                prices=prices,
                storage=storage,
                fresh=fresh,
            )
        )
    )


@app.command()
def status(job: Job, storage: Storage = None) -> None:
    """Show a job that runs or has run: epochs, workers, where the time went, and the bill."""
    from squall.cli.status import run_status

    run_status(job, storage)


@app.command()
def plot(
    job: Job,
    storage: Storage = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="[bold]time[/bold], rows, cost or epochs; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A .png, .svg or .pdf to write (needs matplotlib) instead.")
    ] = None,
) -> None:
    """Draw a job's losses, in the terminal or into a file."""
    from squall.cli.plot import run_plot

    run_plot(job, storage, against or [], out)


@app.command()
def jobs(
    storage: Storage = None,
    last: Annotated[int, typer.Option(min=1, help="How many of the newest to show.")] = 20,
) -> None:
    """List jobs that run or have run; those that were interrupted can be resumed."""
    from squall.cli.jobs import run_jobs

    run_jobs(storage, last)


@app.command()
def resume(
    job: Job,
    storage: Storage = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to save the model; default: where it was to be saved.")
    ] = None,
) -> None:
    """Go on with a job whose process was killed or lost, from its latest checkpoint."""
    from squall.cli.jobs import run_resume

    run_resume(job, storage, out)


@app.command()
def stop(job: Job, storage: Storage = None) -> None:
    """Ask a job that another terminal runs to stop; it keeps its model."""
    from squall.cli.jobs import run_stop

    run_stop(job, storage)


@app.command()
def logs(
    job: Job,
    storage: Storage = None,
    worker: Annotated[int | None, typer.Option(min=0, help="Only this worker's.")] = None,
    keep_on: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
) -> None:
    """Show what a job's functions wrote, attempt by attempt."""
    from squall.cli.jobs import run_logs

    run_logs(job, storage, worker, keep_on)


@app.command()
def cost(job: Job, storage: Storage = None) -> None:
    """Show what a job has cost so far, or would have cost on the cloud of its price list."""
    from squall.cli.jobs import run_cost

    run_cost(job, storage)


@app.command()
def clean(
    days: Annotated[
        float, typer.Option(min=1, help="Days without a sign of use after which something goes.")
    ] = 30,
    interrupted: Annotated[
        bool, typer.Option("--interrupted", help="Also jobs that could be resumed, however young.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    storage: Storage = None,
) -> None:
    """Remove what killed jobs have left, and stored data sets that nobody uses; never a live job's."""
    from squall.cli.clean import run_clean

    run_clean(days=days, interrupted=interrupted, dry_run=dry_run, storage=storage)


@app.command()
def doctor(storage: Storage = None) -> None:
    """Check the installation and this machine, and say how to mend what is missing."""
    from squall.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(storage))


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"warning: {message}\n")


def _give_up_full_output() -> None:
    """What standard output does not take is dropped, lest Python complains again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123 (a device)
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def run() -> None:
    """Run the command line; Squall's own errors become one clear message and exit code 1."""
    warnings.showwarning = _show_warning
    if sys.stderr is None:  # it was closed, as by 2>&-
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (a device, for the life of the process)
    if sys.stdout is None:
        sys.exit("error: standard output is closed\n  fix: send it to a file, or to /dev/null")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter is no error
    try:
        app()
        sys.stdout.flush()
    except SquallError as error:
        from squall.cli.show import print_error
        from squall.driver.spec import StoppedError

        print_error(error)
        interrupted = isinstance(error, StoppedError) and error.reason == "interrupted"
        sys.exit(INTERRUPTED if interrupted else 1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        # Of our output: files are dealt with where they are read and written.
        with contextlib.suppress(OSError):
            sys.stderr.write(f"error: {error.filename or 'standard output'}: {error.strerror or error}\n")
        sys.exit(1)
    finally:
        _give_up_full_output()
        # What is warm ends now, and a Ctrl-C that comes late does not break into that.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        squall.shutdown()
