"""``squall map module:function items.txt``: one result for each line, in order."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import squall
from squall.cli.show import errors
from squall.config import DEFAULT_PRICES, Problems, did_you_mean
from squall.errors import DataError, SettingError, SquallError
from squall.paths import user_path
from squall.workflows.futures import MapFutures, progress_line

_TOLD = 20  # failed items that are told one by one


@dataclass(frozen=True)
class MapOptions:
    """Options of the command, as typed."""

    function: str
    items: str
    out: Path | None
    as_json: bool
    workers: str
    memory: str
    chunksize: str
    timeout: str | None
    retries: int
    deadline: str | None
    budget: str | None
    prices: str | None
    storage: str | None


def run_map(options: MapOptions) -> int:
    """Check the settings, call the function for each line, write results; gives the exit code."""
    run = _run(options)
    fn = _function(options.function)
    items = list(_items(options))
    chunksize: Any = int(options.chunksize) if options.chunksize.isdigit() else options.chunksize
    with _output(options.out) as out:  # what cannot be written to is told before any work
        futures: MapFutures[Any] = squall.map(
            fn, items, run=run, chunksize=chunksize, timeout=options.timeout, retries=options.retries
        )
        failed = _write(futures, out)
    futures.job.join()
    errors.print(progress_line(futures.status()), style="dim", soft_wrap=True)
    return 1 if failed else 0


def _run(options: MapOptions) -> squall.Run:
    problems = Problems("squall map")
    workers: Any = int(options.workers) if options.workers.isdigit() else options.workers
    try:
        return squall.Run(
            workers=workers,
            memory=options.memory,
            storage=options.storage,
            deadline=options.deadline,
            budget=options.budget,
            prices=DEFAULT_PRICES if options.prices is None else options.prices,
        )
    except SquallError as error:
        problems.include(error)
        problems.raise_if_any()
        raise


def _function(name: str) -> Callable[[Any], Any]:
    """What ``module:function`` means, seen from the working folder."""
    module, _, path = name.partition(":")
    if not (module and path):
        raise SettingError(f"{name!r} names no function", where="squall map", fix='write "module:function"')
    sys.path.insert(0, str(Path.cwd()))
    try:
        target: Any = importlib.import_module(module)
    except ImportError as error:
        fix = "check the name, and run it in the folder that has the module"
        raise SettingError(f"{module} cannot be imported: {error}", where="squall map", fix=fix) from error
    for part in path.split("."):
        if not hasattr(target, part):
            raise SettingError(
                f"{module} has no {part!r}{did_you_mean(part, dir(target))}", where="squall map"
            )
        target = getattr(target, part)
    return target  # type: ignore[no-any-return]


def _items(options: MapOptions) -> Iterator[Any]:
    """One item a line: text, or JSON."""
    with _input(options.items) as lines:
        for number, line in enumerate(lines, 1):
            text = line.removesuffix("\n").removesuffix("\r")
            if not options.as_json:
                yield text
                continue
            try:
                yield json.loads(text)
            except json.JSONDecodeError as error:
                raise DataError(f"not JSON: {error}", where=f"{options.items}, line {number}") from error


@contextmanager
def _input(name: str) -> Iterator[TextIO]:
    if name == "-":
        yield sys.stdin
        return
    path = user_path(name)
    try:
        with path.open(encoding="utf-8") as file:
            yield file
    except (OSError, UnicodeDecodeError) as error:
        told = getattr(error, "strerror", None) or error
        raise DataError(f"the items cannot be read: {told}", where=name) from error


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears under its name when it is complete."""
    if path is None:
        yield sys.stdout
        return
    target = user_path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with partial.open("w", encoding="utf-8") as file:
            yield file
        partial.replace(target)
    except OSError as error:
        raise SquallError(f"the results cannot be written: {error.strerror}", where=str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def _write(futures: MapFutures[Any], out: TextIO) -> int:
    """Write a line for each item as soon as all before it are done; how many have failed."""
    failed = 0
    for number, future in enumerate(futures, 1):
        error = future.exception()
        out.write("\n" if error is not None else _line(future.result()))
        if error is not None:
            failed += 1
            if failed <= _TOLD:
                errors.print(f"line {number}: {_told(error)}", soft_wrap=True)
    if failed > _TOLD:
        errors.print(f"and {failed - _TOLD:,} more lines have failed", soft_wrap=True)
    return failed


def _line(value: Any) -> str:
    """A result on one line: text as it is, all else as JSON where that can hold it."""
    if isinstance(value, str):
        return value.replace("\n", "\\n") + "\n"
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError):
        return repr(value).replace("\n", "\\n") + "\n"


def _told(error: BaseException) -> str:
    if isinstance(error, SquallError):
        return error.what
    return f"{type(error).__name__}: {error}"
