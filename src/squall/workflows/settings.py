"""What a map job is asked for: checked, all at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from squall.config import Problems, Run, available_cores, checked_run, is_auto, is_isolated
from squall.data.objects import ObjectStore, default_storage
from squall.errors import SettingError, SquallError
from squall.units import parse_duration
from squall.worker import calls
from squall.workflows.machine import Limits

_START_S = 60.0  # for a call to be started by its platform, beyond its own time


@dataclass(frozen=True, slots=True)
class MapSettings:
    """A run, and what is set for its calls.

    Attributes
    ----------
    run : Run
    timeout_s : float or None
        Longest time for one item.
    retries : int
        How often a failed item is called again.
    chunksize : int or None
        Items that share a call; None: as is measured.
    workers : int
        Calls at the same time.
    """

    run: Run
    timeout_s: float | None
    retries: int
    chunksize: int | None
    workers: int

    def limits(self) -> Limits:
        """What the machine is to keep to."""
        backend = self.run.resolve_backend()
        return Limits(
            workers=min(self.workers, backend.concurrency or self.workers),
            retries=self.retries,
            lease_s=backend.lifetime_s + _START_S,
            deadline_s=self.run.deadline_s,
            budget_usd=self.run.budget_usd,
        )

    def objects(self, where: str) -> ObjectStore:
        """The object store, which functions have to reach, too.

        Raises
        ------
        SettingError
            If it is a folder, and functions do not share this machine's.
        """
        objects = ObjectStore(default_storage() if self.run.storage is None else self.run.storage)
        if is_isolated(self.run.resolve_backend()) and objects.folder is not None:
            raise SettingError(
                f"isolated functions share no files with their client, so they cannot reach {objects.url}",
                where=where,
                fix='set storage="s3://bucket/prefix", in Run or as SQUALL_STORAGE',
            )
        return objects


def map_settings(
    where: str,
    run: Any,
    *,
    functions: Iterable[Any] = (),
    items: Any = (),
    chunksize: Any = "auto",
    timeout: Any = None,
    retries: Any = 0,
    max_workers: Any = None,
) -> MapSettings:
    """Check everything.

    Raises
    ------
    SettingError
        Naming everything that is wrong; or inside a function of `squall.map`.
    """
    _refuse_nesting(where)
    problems = Problems(where)
    for function in functions:
        if not callable(function):
            problems.add(f"{function!r} is not callable")
    try:
        iter(items)
    except TypeError:
        problems.add(f"items={items!r:.80} cannot be gone through: give a list or another iterable")
    problems.integer("chunksize", chunksize, 1, auto=True)
    timeout_s = None if timeout is None else problems.check(parse_duration, "timeout", timeout)
    if timeout_s is not None and not timeout_s > 0:
        problems.add(f"timeout={timeout!r} leaves no time at all")
    problems.integer("retries", retries, 0)
    if max_workers is not None:
        problems.integer("max_workers", max_workers, 1)
    try:
        run = checked_run(run, where)
    except SquallError as error:
        problems.include(error)
    problems.raise_if_any()
    return MapSettings(
        run=run,
        timeout_s=timeout_s,
        retries=int(retries),
        chunksize=None if is_auto(chunksize) else int(chunksize),
        workers=run_workers(run) if max_workers is None else int(max_workers),
    )


def run_workers(run: Run) -> int:
    """Calls at the same time: the run's workers, or one for each core."""
    return available_cores() if is_auto(run.workers) else int(run.workers)


def _refuse_nesting(where: str) -> None:
    """A function that starts functions would wait for them at its own cost, and nobody would end them."""
    if calls.inside:
        raise SettingError(
            "it was called inside a function of squall.map",
            where=where,
            fix="return what is to be done next, and map over that in the client",
        )
