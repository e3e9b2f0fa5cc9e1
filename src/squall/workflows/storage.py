"""A map job's objects: the function and the items on their way there, the results on their way back."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from squall.data.objects import ObjectStore
from squall.errors import FunctionError, SerializationError
from squall.records import CallTask, ItemEnd
from squall.worker.pickles import Seal, Verified, loads, python_version
from squall.workflows.events import Call


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of one item's end: a pickled value or exception, verified, not yet loaded."""

    end: ItemEnd
    data: Verified

    def load(self, item: int) -> tuple[Any, BaseException | None]:
        """(value, None), or (None, exception)."""
        if not self.end.ok:
            return None, self._exception(item)
        try:
            return loads(self.data), None
        except Exception as error:  # noqa: BLE001 (a class's own __setstate__ may raise anything)
            return None, SerializationError(
                f"its result cannot be loaded here: {type(error).__name__}: {error}",
                where=f"item {item}",
                fix="return plain data, or install what the result's class needs",
            )

    def _exception(self, item: int) -> BaseException:
        """What was raised, with the traceback there as its cause; or else only that."""
        told = FunctionError(
            f"{self.end.error_type}: {self.end.error}",
            where=f"item {item}",
            remote_type=self.end.error_type,
            remote_traceback=self.end.traceback,
        )
        if not len(self.data):
            return told
        try:
            error = loads(self.data)
        except Exception:  # noqa: BLE001 (as above; what was raised is told in words)
            return told
        if not isinstance(error, Exception):
            return told
        error.__cause__ = told
        return error


class CallStorage:
    """Writes and reads the objects of one job below its folder.  May be used from several threads.

    Parameters
    ----------
    objects : ObjectStore
    folder : str
        The job's, such as ``jobs/0123456789ab``.
    """

    def __init__(self, objects: ObjectStore, folder: str) -> None:
        self.objects, self.folder = objects, folder
        self._key = secrets.token_bytes(32)
        self._seal = Seal(self._key)
        self._where: dict[int, tuple[str, int]] = {}  # of items: key of an object, position in it

    def put_function(self, group: int, pickled: bytes) -> str:
        """Store a group's function; returns its key."""
        name = f"{self.folder}/functions/{group}"
        self.objects.put(name, self._seal.close(name, [pickled]))
        return name

    def put_items(self, items: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Store items together, for all calls that are made of them."""
        name = f"{self.folder}/items/{items[0]}"
        self.objects.put(name, self._seal.close(name, payloads))
        self._where.update({item: (name, position) for position, item in enumerate(items)})

    def forget(self, item: int) -> None:
        """It will not be called again."""
        self._where.pop(item, None)

    def task(self, call: Call, function: str, timeout_s: float | None) -> CallTask:
        """The event that makes this call."""
        name, _ = self._where[call.items[0]]
        return CallTask(
            job=self.folder,
            slot=call.slot,
            attempt=call.attempt,
            storage=self.objects.url,
            function=function,
            items=name,
            ranges=_ranges(self._where[item][1] for item in call.items),
            key=self._key.hex(),
            python=python_version(),
            timeout_s=timeout_s,
            careful=call.careful,
        )

    def results(self, task: CallTask, parts: int | None) -> dict[int, Stored]:
        """What a call has stored, by position; all there is, where nobody says how many parts.

        Raises
        ------
        StoreError, CorruptError
            If it cannot be read, or was not written by a function of this job.
        """
        found: dict[int, Stored] = {}
        number = 0
        while parts is None or number < parts:
            name = f"{task.results}-{number}"
            data = self.objects.find(name) if parts is None else self.objects.get(name)
            if data is None:
                break
            ends, *pickles = self._seal.open(name, data)
            for end, pickled in zip(msgspec.msgpack.decode(ends, type=list[ItemEnd]), pickles, strict=True):
                found.setdefault(end.position, Stored(end, pickled))
            number += 1
        return found


def _ranges(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Half-open stretches of rising numbers."""
    found: list[tuple[int, int]] = []
    for position in positions:
        if found and found[-1][1] == position:
            found[-1] = (found[-1][0], position + 1)
        else:
            found.append((position, position + 1))
    return found
