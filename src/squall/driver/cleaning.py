"""What may be removed from an object store: dead jobs' folders, data sets that nobody uses.

A job's folder is dead when its owner is seen to be (:mod:`squall.driver.claims`), or else when
neither it nor the job's record has changed for long; one that can be resumed stays as long, too.
A data set can always be made again from its source; a local one notes when it was last opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from squall.data.objects import Entry, ObjectStore
from squall.driver.claims import owner_is_dead
from squall.driver.description import DESCRIPTION
from squall.driver.record import FOLDER as RECORDS


@dataclass(frozen=True)
class Removable:
    """A folder that may go."""

    folder: str
    why: str
    size: int  # bytes


def find_removable(
    objects: ObjectStore, unused_s: float, now: float, *, interrupted: bool = False
) -> list[Removable]:
    """All that may go, sorted by name.

    Parameters
    ----------
    objects : ObjectStore
        Where to look.
    unused_s : float
        Seconds without a sign of use after which something counts as unused.
    now : float
        Seconds since 1970.
    interrupted : bool
        Whether jobs go that could be resumed, too, however young.
    """
    long_ago = now - unused_s
    return [*_dead_jobs(objects, long_ago, interrupted), *_unused_data_sets(objects, long_ago)]


def _dead_jobs(objects: ObjectStore, long_ago: float, interrupted: bool) -> Iterator[Removable]:
    recorded = {entry.key: entry.modified for entry in objects.entries(RECORDS)}
    for folder, entries in _folders(objects, "jobs"):
        job = folder.partition("/")[2]
        last = max([*(e.modified for e in entries), recorded.get(f"{RECORDS}/{job}.json", 0.0)])
        dead = owner_is_dead(objects, folder)  # if that is not known its age decides
        resumable = any(e.key == f"{folder}/{DESCRIPTION}" for e in entries)
        if (dead and (interrupted or not resumable)) or (dead is not False and last < long_ago):
            why = ("interrupted" if resumable else "its process has ended") if dead else "no sign of life"
            yield Removable(folder, f"job {job}: {why}", sum(e.size for e in entries))


def _unused_data_sets(objects: ObjectStore, long_ago: float) -> Iterator[Removable]:
    if objects.folder is None:
        return  # when a remote one was last used is not known
    for folder, entries in _folders(objects, "datasets"):
        if max(e.modified for e in entries) < long_ago:
            yield Removable(folder, "data set: not used", sum(e.size for e in entries))


def _folders(objects: ObjectStore, parent: str) -> Iterator[tuple[str, list[Entry]]]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in objects.entries(parent):
        parts = entry.key.split("/")
        if len(parts) > 2:
            found["/".join(parts[:2])].append(entry)
    yield from sorted(found.items())
