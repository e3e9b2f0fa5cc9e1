"""Text to stored partitions: a schema is assumed, all is parsed, and what it did not fit is parsed again.

Most schemas show in the first lines, so most sets are read once; none is read more than twice.
The work is cut into tasks, plain data that a function of any machine can be given: a task parses
its pieces and stores partitions of their rows, and says what it saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import msgspec

from squall.data.inputs import Input, Seen, changed, unseen
from squall.data.layouts import Scratch
from squall.data.objects import ObjectStore
from squall.data.partitions import SUFFIX, write_partition
from squall.data.pieces import Each
from squall.data.rows import count_missing
from squall.data.streams import Piece
from squall.records import Manifest, PartitionInfo, RawBlock, SparseColumn

BLOCK_BYTES = 10_000_000
"""Of a partition, about."""

Schema = TypeVar("Schema")
Evidence = TypeVar("Evidence")


class TextFormat(Protocol[Schema, Evidence]):
    """How one kind of text is read; plain data, that holds what was asked for.

    ``Schema`` is what must be known of the whole set to read any row of it, ``Evidence`` what a
    part of the set says about that; both are plain data.
    """

    @property
    def name(self) -> str:
        """Of the kind; part of what a stored set is found by."""

    @property
    def version(self) -> int:
        """Of what is made of a text; sets that were stored by another are read again."""

    def guess(self, inputs: list[Input]) -> Schema:
        """A schema after a short look."""

    def split(self, source: Input, cuts: list[int], each: Each) -> list[Piece]:
        """Pieces of an input that begin at about these places; see :mod:`squall.data.pieces`."""

    def parse(
        self, pieces: list[Piece], schema: Schema, write: Callable[[RawBlock], None], seen: Seen
    ) -> Evidence:
        """Give the rows of the pieces, in order, in blocks of about `BLOCK_BYTES`.

        The next block may be made in the memory of the last.  Once rows do not fit the schema no more
        need be given.
        """

    def decide(self, seen: list[Evidence], inputs: list[Input]) -> Schema:
        """The schema of the whole set, from what all parts of it say; or `DataError`."""

    def fits(self, seen: Evidence, assumed: Schema, decided: Schema) -> bool:
        """Whether rows read by the assumed schema are those that the decided one gives."""

    def manifest(self, schema: Schema, seen: list[Evidence], inputs: list[Input]) -> Manifest:
        """All but partitions, missing values and source."""


# ------------------------------------------------------------------------------------- tasks


@dataclass(frozen=True)
class Task:
    """Pieces to parse, and where their partitions go."""

    form: TextFormat[Any, Any]
    schema: Any
    pieces: list[Piece]
    storage: str
    prefix: str
    number: int


@dataclass
class Parsed:
    """What became of a task."""

    seen: Any
    partitions: list[PartitionInfo] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)


TaskMap = Callable[[list[Task]], list[Parsed]]


def run_task(task: Task, seen: Seen = unseen, store: ObjectStore | None = None) -> Parsed:
    """Parse and store; the same objects whenever and wherever it is run."""
    store = ObjectStore(task.storage) if store is None else store
    parsed, scratch = Parsed(None), Scratch()

    def write(block: RawBlock) -> None:
        key = f"{task.prefix}/part-{task.number:05d}-{len(parsed.partitions):05d}{SUFFIX}"
        parsed.partitions.append(write_partition(store, key, block, scratch))
        for name, column in block.columns.items():
            if not isinstance(column, SparseColumn):  # text holds no NaN among sparse values
                parsed.missing[name] += count_missing(column)

    parsed.seen = task.form.parse(task.pieces, task.schema, write, seen)
    return parsed


def write_all(
    form: TextFormat[Any, Any],
    inputs: list[Input],
    store: ObjectStore,
    prefix: str,
    groups: list[list[Piece]],
    run: TaskMap,
) -> Manifest:
    """Parse all pieces, store the partitions and give the manifest for them; it is left to store."""
    assumed = form.guess(inputs)
    tasks = [Task(form, assumed, group, store.url, prefix, i) for i, group in enumerate(groups)]
    parsed = run(tasks)
    decided = form.decide([p.seen for p in parsed], inputs)
    again = [i for i, p in enumerate(parsed) if not form.fits(p.seen, assumed, decided)]
    for i, better in zip(again, run([replace(tasks[i], schema=decided) for i in again]), strict=True):
        if not form.fits(better.seen, decided, decided):
            raise changed(tasks[i].pieces[0].source.name)
        kept = {info.key for info in better.partitions}
        for info in parsed[i].partitions:
            if info.key not in kept:
                store.delete(info.key)
        parsed[i] = better
    missing: Counter[str] = sum((p.missing for p in parsed), Counter())
    return msgspec.structs.replace(
        form.manifest(decided, [p.seen for p in parsed], inputs),
        partitions=[info for p in parsed for info in p.partitions],
        missing={name: n for name, n in missing.items() if n},
    )
