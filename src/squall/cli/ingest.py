"""``squall ingest``: any source that there is a reader for, as a data set at a place of its own."""

from __future__ import annotations

import inspect
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import squall
from squall.cli.data import print_info
from squall.cli.show import console, print_bill
from squall.config import Problems, did_you_mean
from squall.data.dataset import Dataset
from squall.data.finding import find_inputs, path_problems
from squall.data.stored import refuse_taken
from squall.errors import DataError, SettingError
from squall.paths import user_path
from squall.units import format_duration

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar", *(f".tar{suffix}" for suffix in _COMPRESSED))


class _Format(NamedTuple):
    reader: str  # of the package
    suffixes: tuple[str, ...] = ()
    settings: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    label: str = "label"  # the reader's setting that --label means


_FORMATS = {
    "csv": _Format("read_csv", (".csv",)),
    "tsv": _Format("read_csv", (".tsv", ".tab"), {"delimiter": "\t"}),
    "libsvm": _Format("read_libsvm", (".libsvm", ".svmlight", ".svm")),
    "criteo": _Format("read_criteo"),
    "parquet": _Format("read_parquet", (".parquet", ".pq")),
    "ratings": _Format("read_ratings", (".inter",)),
    "bow": _Format("read_bow", (".ldac", ".lda-c")),
    "text": _Format("read_text"),
    "images": _Format("read_images", (".npz", "-ubyte"), label="labels"),
}
"""Readers that this version has are offered; the others wait for theirs."""


LABELLED = ("libsvm",)
"""Formats whose files say themselves what the label is."""

FORMATS_OF_TABLES = ("csv", "tsv", "parquet", "images", *LABELLED)
"""Formats that are told by a file's name, with a row for each thing to learn from."""


@dataclass(frozen=True)
class IngestOptions:
    """Options of the command, as typed; None where nothing was."""

    sources: tuple[str, ...]
    to: str
    format: str
    label: str | None
    label_kind: str | None
    weight: str | None
    categorical: tuple[str, ...]
    delimiter: str | None
    header: bool | None
    errors: str | None
    options: tuple[str, ...]
    storage: str | None


def run_ingest(options: IngestOptions) -> None:
    """Check the settings, read, write, and show what there is now."""
    read, settings = _reader(options, "squall ingest")
    refuse_taken(options.to)  # before any work is done
    started = time.monotonic()
    source: Any = options.sources[0] if len(options.sources) == 1 else list(options.sources)
    with _in_words_of_the_command("any other as --option name=value"):
        data: Dataset = read(source, **settings)
    written = data.write(options.to)
    print_info(written)
    if data.bill is not None:
        console.print()
        print_bill(data.bill, local=True)
    console.print(
        f"\nread and written in {format_duration(time.monotonic() - started)}; "
        f'squall.open_dataset("{written.info().location}") opens it',
        soft_wrap=True,
    )


def read_given(
    path: str,
    form: str,
    command: str,
    *,
    label: str | None = None,
    label_kind: str | None = None,
    categorical: Sequence[str] = (),
    delimiter: str | None = None,
    header: bool | None = None,
    storage: str | None = None,
    **settings: Any,
) -> Dataset:
    """A file that another command was given, in one of the formats, with the options that it was given.

    Raises
    ------
    SettingError
        If the format's reader has no such options.
    DataError
        If the file is not as it should be.
    """
    options = IngestOptions(
        sources=(path,),
        to="",
        format=form,
        label=label,
        label_kind=label_kind,
        weight=None,
        categorical=tuple(categorical),
        delimiter=delimiter,
        header=header,
        errors=None,
        options=(),
        storage=storage,
    )
    read, typed = _reader(options, command)
    with _in_words_of_the_command("with any other, squall ingest … --option name=value first"):
        return read(path, **typed, **settings)


def _reader(options: IngestOptions, command: str) -> tuple[Callable[..., Dataset], dict[str, Any]]:
    """The reader, and the settings for it.

    Raises
    ------
    SettingError
        If the format is unknown or cannot be told, or its reader has no such settings.
    """
    problems = Problems(command)
    name = _format_of(options, problems)
    problems.raise_if_any()
    form = _FORMATS[name]
    read: Callable[..., Dataset] = getattr(squall, form.reader)
    known = inspect.signature(read).parameters
    settings = dict(form.settings)
    for setting, value in _given(options, problems).items():
        setting = form.label if setting == "label" else setting
        if setting in known:
            settings[setting] = value
        else:
            hint = did_you_mean(setting, known)
            hint = hint or f"; it has {', '.join(name for name in known if name != 'path')}"
            problems.add(f"{setting!r} is not a setting of squall.{form.reader}{hint}")
    problems.raise_if_any()
    return read, settings


def _format_of(options: IngestOptions, problems: Problems) -> str:
    there = {name: form for name, form in _FORMATS.items() if hasattr(squall, form.reader)}
    if "-" in options.sources:
        problems.add("'-': a source is read twice, and standard input cannot be: write it to a file first")
        return ""
    if options.format != "auto":
        problems.choice("--format", options.format, ["auto", *there])
        return options.format
    for problem in path_problems(options.sources):
        problems.add(problem)
    problems.raise_if_any()
    names = [source.name for source in find_inputs(options.sources)]
    if archive := next((name for name in names if name.lower().endswith(_ARCHIVES)), None):
        problems.add(f"{archive!r} is an archive of files: unpack it first")
        return ""
    found = sorted({name for path in names for name, form in there.items() if _is_named(path, form)})
    if len(found) == 1:
        return found[0]
    shown = repr(options.sources[0]) + (" and others" if len(options.sources) > 1 else "")
    why = f"the files are of several: {', '.join(found)}" if found else f"{shown} cannot be told by its name"
    problems.add(f"which format? {why}; give --format: {', '.join(there)}")
    return ""


def format_by_name(path: str) -> str | None:
    """The first of the formats that a file's name is of, if any."""
    return next((name for name, form in _FORMATS.items() if _is_named(path, form)), None)


def _is_named(path: str, form: _Format) -> bool:
    plain = path.lower()
    for suffix in _COMPRESSED:
        plain = plain.removesuffix(suffix)
    return plain.endswith(form.suffixes or ("\0",))


@contextmanager
def _in_words_of_the_command(others: str) -> Iterator[None]:
    """A reader's errors speak of its arguments: say how they are typed."""
    try:
        yield
    except (DataError, SettingError) as error:
        if error.fix and re.search(r"\b[a-z_]+=", error.fix):
            error.fix += f' (typed as --label y, --delimiter ";", --no-header; {others})'
        raise


def _given(options: IngestOptions, problems: Problems) -> dict[str, Any]:
    """Settings by name, of those that were typed."""
    given: dict[str, Any] = {
        "label": _place(options.label) if options.header is False else options.label,
        "label_kind": options.label_kind,
        "weight": options.weight,
        "categorical": list(options.categorical) or None,
        "delimiter": None if options.delimiter is None else options.delimiter.replace("\\t", "\t"),
        "header": options.header,
        "errors": options.errors,
        "storage": options.storage,
    }
    given = {name: value for name, value in given.items() if value is not None}
    for text in options.options:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            problems.add(f"--option {text!r} is not name=value")
        elif name in given:
            problems.add(f"{name!r} is set twice")
        else:
            given[name] = _parsed(value)
    return given


def _place(label: str | None) -> int | str | None:
    """Columns without names are numbered, from the end as well."""
    return int(label) if label is not None and re.fullmatch(r"-?\d+", label) else label


def _parsed(value: str) -> Any:
    """A number, true, false, null or a list as JSON has them, else the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def is_stored(data: str) -> bool:
    """Whether it is the place of a data set, not a file."""
    return format_by_name(data) is None if "://" in data else user_path(data).is_dir()


def open_given(url: str, **file_settings: Any) -> Dataset:
    """The data set at a URL or folder; ``file_settings`` are for reading files, and must be None.

    Raises
    ------
    SettingError
        If one of them is given.
    """
    typed = [f"--{name.replace('_', '-')}" for name, value in file_settings.items() if value is not None]
    if typed:
        raise SettingError(
            f"{', '.join(typed)}: for reading a file, and {url} is a data set that was read before",
            fix="leave it out, or ingest the file again with it",
        )
    return squall.open_dataset(url)
