"""What a job's functions wrote, kept beside the job's record for other terminals."""

from __future__ import annotations

import msgspec

from squall.data.objects import ObjectStore
from squall.driver.record import FOLDER
from squall.errors import CorruptError

MAX_CHARACTERS = 100_000
"""Of one attempt's output: the last ones are kept."""


def write_logs(objects: ObjectStore, job: str, logs: dict[tuple[int, int], str]) -> None:
    """Write all of it; raises `StoreError` if the object store refuses."""
    kept = [(slot, attempt, text[-MAX_CHARACTERS:]) for (slot, attempt), text in sorted(logs.items())]
    objects.put(_key(job), msgspec.json.encode(kept))


def read_logs(objects: ObjectStore, job: str) -> dict[tuple[int, int], str]:
    """Output by (slot, attempt), as it was some seconds ago.

    Raises
    ------
    CorruptError
        If it cannot be read.
    """
    key = _key(job)
    if not objects.exists(key):
        return {}
    try:
        kept = msgspec.json.decode(objects.get(key), type=list[tuple[int, int, str]])
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the logs cannot be read: {error}", where=f"{objects.url}/{key}") from error
    return {(slot, attempt): text for slot, attempt, text in kept}


def _key(job: str) -> str:
    return f"{FOLDER}/{job}.logs"
