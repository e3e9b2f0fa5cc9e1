"""``squall map module:function items.txt``: one result for each line, in order."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import squall
from squall.cli.journal import Journal
from squall.cli.show import errors
from squall.config import DEFAULT_PRICES, Problems, did_you_mean
from squall.driver.spec import StoppedError
from squall.errors import DataError, SettingError, SquallError
from squall.paths import user_path
from squall.workflows.futures import MapFutures, progress_line
from squall.workflows.local_modules import local_modules
from squall.workflows.settings import map_settings

_TOLD = 20  # failed items that are told one by one
_SHOWN = 1000  # characters of what one of them raised


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
    fresh: bool


def run_map(options: MapOptions) -> int:
    """Check the settings, call the function for each line, write results; gives the exit code."""
    run = _run(options)
    fn = _function(options.function)
    lines = list(_lines(options.items))
    items: Sequence[Any] = lines
    if options.as_json:
        items = [_parsed(options.items, number, line) for number, line in enumerate(lines, 1)]
    if options.out is None:
        futures = _called(fn, items, run, options)
        with _billed(futures):
            return _ended(futures, _print(futures))
    # What cannot be written is told before any work.
    with Journal(options.out, _about(options, lines), fresh=options.fresh) as journal:
        return _into(journal, fn, items, run, options)


def _into(
    journal: Journal, fn: Callable[[Any], Any], items: Sequence[Any], run: squall.Run, options: MapOptions
) -> int:
    """Have called what the journal lacks, and complete it if all was called."""
    if journal.lines:
        errors.print(f"{_have(journal, items)} already (--fresh calls all)", style="yellow", soft_wrap=True)
    left = [number for number in range(len(items)) if number not in journal.lines]
    futures = _called(fn, [items[number] for number in left], run, options)
    complete = False
    try:
        with _billed(futures):
            failed = _keep(futures, left, journal)
        complete = not futures.status().reason
    finally:
        if journal.lines and not complete:
            told = f"{_have(journal, items)}, from where the same command goes on"
            errors.print(told, style="yellow", soft_wrap=True)
    if complete:
        journal.complete(len(items))
    return _ended(futures, failed)


def _have(journal: Journal, items: Sequence[Any]) -> str:
    return f"{len(journal.lines):,} of {len(items):,} results are in {journal.path}"


def _called(
    fn: Callable[[Any], Any], items: Sequence[Any], run: squall.Run, options: MapOptions
) -> MapFutures[Any]:
    return squall.map(
        fn,
        items,
        run=run,
        chunksize=_chunksize(options),
        timeout=options.timeout,
        retries=options.retries,
    )


@contextmanager
def _billed(futures: MapFutures[Any]) -> Iterator[None]:
    """What is interrupted has cost something, too."""
    try:
        yield
    except KeyboardInterrupt:  # by which whoever waited has ended the job
        _print_end(futures)
        raise


def _print_end(futures: MapFutures[Any]) -> None:
    errors.print(progress_line(futures.status()), style="dim", soft_wrap=True)


def _ended(futures: MapFutures[Any], failed: int) -> int:
    futures.job.join()
    _print_end(futures)
    status = futures.status()
    return 1 if failed or status.reason else 0


def _about(options: MapOptions, lines: Sequence[str]) -> dict[str, Any]:
    """What results are of: the function, its code as far as it is the user's own, and the items."""
    code = hashlib.sha256()
    for module in sorted(local_modules(), key=lambda module: module.__name__):
        code.update(module.__name__.encode() + b"\0" + Path(str(module.__file__)).read_bytes())
    items = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass"))
    return {
        "format_version": 1,
        "function": options.function,
        "code": code.hexdigest(),
        "items": items.hexdigest(),
        "json": options.as_json,
    }


def _run(options: MapOptions) -> squall.Run:
    """Where and with what it runs; all that is wrong with any option is told at once."""
    problems = Problems("squall map")
    workers: Any = int(options.workers) if options.workers.isdigit() else options.workers
    run = squall.Run()
    try:
        run = squall.Run(
            workers=workers,
            memory=options.memory,
            storage=options.storage,
            deadline=options.deadline,
            budget=options.budget,
            prices=DEFAULT_PRICES if options.prices is None else options.prices,
        )
    except SquallError as error:
        problems.include(error)
    try:
        map_settings(
            "squall map",
            squall.Run(),
            chunksize=_chunksize(options),
            timeout=options.timeout,
            retries=options.retries,
        )
    except SquallError as error:
        problems.include(error)
    problems.raise_if_any()
    return run


def _chunksize(options: MapOptions) -> Any:
    return int(options.chunksize) if options.chunksize.isdigit() else options.chunksize


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


def _lines(name: str) -> Iterator[str]:
    with _input(name) as lines:
        for line in lines:
            yield line.removesuffix("\n").removesuffix("\r")


def _parsed(name: str, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error}", where=f"{name}, line {number}") from error


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


def _print(futures: MapFutures[Any]) -> int:
    """Print a line for each item as soon as all before it are done; how many have failed."""
    failures = _Failures()
    for number, future in enumerate(futures, 1):
        error = future.exception()
        sys.stdout.write("\n" if error is not None else _line(future.result()) + "\n")
        if error is not None:
            failures.tell(number, error)
    return failures.end()


def _keep(futures: MapFutures[Any], numbers: Sequence[int], journal: Journal) -> int:
    """Keep each result as soon as it is there; how many have failed."""
    failures = _Failures()
    for future in squall.as_completed(futures):
        number, error = numbers[future.item], future.exception()
        if error is None:
            journal.add(number, _line(future.result()))
        else:
            failures.tell(number + 1, error)
    return failures.end()


class _Failures:
    """Tells of failed items, the first ones each by its line."""

    def __init__(self) -> None:
        self._count = 0

    def tell(self, number: int, error: BaseException) -> None:
        self._count += 1
        if self._count <= _TOLD and not isinstance(error, StoppedError):  # the end is told once
            errors.print(f"line {number}: {_told(error)}", soft_wrap=True)

    def end(self) -> int:
        if self._count > _TOLD:
            errors.print(f"and {self._count - _TOLD:,} more lines have failed", soft_wrap=True)
        return self._count


def _line(value: Any) -> str:
    """A result on one line: text as it is, all else as JSON where that can hold it."""
    if isinstance(value, str):
        return value.replace("\n", "\\n")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value).replace("\n", "\\n")


def _told(error: BaseException) -> str:
    if isinstance(error, SquallError):
        return error.what
    text = str(error)
    more = f"… (and {len(text) - _SHOWN:,} characters more)" if len(text) > _SHOWN else ""
    return f"{type(error).__name__}: {text[:_SHOWN]}{more}"
