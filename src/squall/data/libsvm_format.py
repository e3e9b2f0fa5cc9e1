"""LIBSVM and SVMlight text to blocks of one sparse column: what `read_libsvm` asks for, done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from squall._kernels import LibsvmParser
from squall.data.inputs import Input, Seen
from squall.data.labels import MAX_CLASSES, LabelKind, are_numbers
from squall.data.pieces import Each, split_lines
from squall.data.skipped import Skipped, skipped_warnings
from squall.data.streams import Piece, is_splittable, line_chunks, lines_before
from squall.data.tasks import BLOCK_BYTES
from squall.errors import DataError
from squall.records import ColumnSpec, Manifest, RawBlock, SparseColumn

COLUMN = "x"  # of the one matrix, as `from_arrays` names it
LABEL = "y"

_CHUNK_BYTES = 1 << 18  # in a core's own cache
_FEW_LABELS = 1000
_LOOKS = 16  # places of an input that a guess looks at
_LOOK_BYTES = 1 << 14
_SORTS = [(True, True), (True, False), (False, True), (False, False)]  # of rows: with a label, with a qid


@dataclass(frozen=True)
class LibsvmSchema:
    """What must be known to read a row: the index of the first feature, and what labels are.

    ``labels`` is the sorted label map, empty where they are numbers, too many to be classes.  Whether rows
    have labels and qids is None only where there is no row.
    """

    base: int
    labels: list[float]
    many_numbers: bool = False
    has_labels: bool | None = None
    has_qids: bool | None = None


@dataclass
class LibsvmSeen:
    """What was seen in a part of the set."""

    n_rows: int = 0
    least: int | None = None
    largest: int = -1
    has_labels: bool | None = None
    has_qids: bool | None = None
    labels: list[float] = field(default_factory=list)  # different ones, empty if they are too many
    many_numbers: bool = False  # whether they are
    n_dropped: int = 0
    n_skipped: int = 0
    problems: list[str] = field(default_factory=list)  # the first ten


@dataclass(frozen=True)
class LibsvmFormat:
    """The settings of `read_libsvm`; a `squall.data.tasks.TextFormat`."""

    base: int | None
    n_features: int | None
    wider: str = "raise"
    duplicates: str = "raise"
    errors: str = "raise"
    label_kind: LabelKind = "auto"

    name = "libsvm"
    version = 3

    def guess(self, inputs: list[Input]) -> LibsvmSchema:
        """From the lines at some places; rows of the set are of the sort that is most frequent there."""
        parsers = [
            self._parser(LibsvmSchema(1 if self.base is None else self.base, [], False, *sort), skip=True)
            for sort in _SORTS
        ]
        for lines in _first_lines(_places(inputs)):
            _look(parsers, lines)
        if not any(map(_n_rows, parsers)):
            for lines in _all_lines(inputs):
                _look(parsers, lines)
                if any(map(_n_rows, parsers)):
                    break
        parser = max(parsers, key=_n_rows)
        seen = parser.seen()
        base = (0 if seen["least"] == 0 else 1) if self.base is None else self.base
        sort = (seen["has_labels"], seen["has_qids"]) if seen["n_rows"] else (None, None)
        labels = sorted(seen["labels"])
        # Where most rows have a label of their own the rest will hardly share them.
        many = len(labels) > MAX_CLASSES or len(labels) > max(_FEW_LABELS, seen["n_rows"] / 2)
        if sort[0] and (self.label_kind == "numbers" or (many and self.label_kind == "auto")):
            return LibsvmSchema(base, [], True, *sort)
        return LibsvmSchema(base, labels, False, *sort)

    def split(self, source: Input, cuts: list[int], each: Each) -> list[Piece]:
        """Anywhere."""
        return split_lines(source, cuts, each)

    def parse(
        self, pieces: list[Piece], schema: LibsvmSchema, write: Callable[[RawBlock], None], seen: Seen
    ) -> LibsvmSeen:
        """Rows as one sparse column, with labels and query ids where there are some."""
        parser = self._parser(schema, skip=self.errors == "skip")
        problems: list[str] = []
        labels = _Labels()
        for piece in pieces:
            before = parser.seen()
            for lines in line_chunks(piece, seen, _CHUNK_BYTES):
                if parser.feed(lines) < len(lines):
                    raise _refusal(piece, parser.seen(), before["n_lines"])
                if parser.n_bytes >= BLOCK_BYTES:
                    _give(parser, schema, write, labels)
            problems += _told(piece, parser.seen(), before)
        _give(parser, schema, write, labels)
        found = parser.seen()
        del found["n_lines"]
        told = {"problems": problems, "labels": list(labels.values), "many_numbers": labels.are_many}
        return LibsvmSeen(**{**found, **told})

    def decide(self, seen: list[LibsvmSeen], inputs: list[Input]) -> LibsvmSchema:
        """One index base, and one label map if labels are not too many."""
        where = inputs[0].name
        if not any(s.n_rows for s in seen):
            raise DataError("there are no rows", where=where, fix="check how the file was written")
        base = self.base
        if base is None:
            base = 0 if any(s.least == 0 for s in seen) else 1
        labels = sorted({label for s in seen for label in s.labels})
        n_different = MAX_CLASSES + 1 if any(s.many_numbers for s in seen) else len(labels)
        sort = (seen[0].has_labels, seen[0].has_qids)  # as the guess said to all
        if sort[0] and are_numbers(self.label_kind, n_different, True, where):
            return LibsvmSchema(base, [], True, *sort)
        return LibsvmSchema(base, labels, False, *sort)

    def fits(self, seen: LibsvmSeen, assumed: LibsvmSchema, decided: LibsvmSchema) -> bool:
        """Whether codes and places are the same."""
        return assumed == decided and seen.least != assumed.base - 1

    def manifest(self, schema: LibsvmSchema, seen: list[LibsvmSeen], inputs: list[Input]) -> Manifest:
        """One sparse column as wide as the largest index, unless a width was given."""
        largest = max(s.largest for s in seen)
        width = max(largest - schema.base + 1, 0) if self.n_features is None else self.n_features
        labels = schema.labels
        whole = all(label == int(label) for label in labels)
        return Manifest(
            rows=sum(s.n_rows for s in seen),
            columns=[ColumnSpec(COLUMN, "sparse", width)],
            partitions=[],
            label=LABEL if labels or schema.many_numbers else None,
            classes=([int(label) for label in labels] if whole else list(labels)) if labels else None,
            warnings=_warnings(self, seen, inputs),
            facts={"index_base": schema.base, "index_base_given": self.base is not None},
        )

    def _parser(self, schema: LibsvmSchema, *, skip: bool) -> LibsvmParser:
        width = -1 if self.n_features is None else self.n_features
        drop = self.wider == "drop"
        sort = (schema.has_labels, schema.has_qids)
        fixed = self.base is not None
        return LibsvmParser(schema.base, fixed, width, drop, self.duplicates, skip, schema.labels, *sort)


class _Labels:
    """The different labels of some rows, as long as they may be classes."""

    def __init__(self) -> None:
        self.values: set[float] = set()
        self.are_many = False

    def add(self, labels: list[float]) -> None:
        """Take up more of them."""
        if not self.are_many:
            self.values.update(labels)
            self.are_many = len(self.values) > MAX_CLASSES
        if self.are_many:
            self.values.clear()


def _give(
    parser: LibsvmParser, schema: LibsvmSchema, write: Callable[[RawBlock], None], labels: _Labels
) -> None:
    """Write what was read, if it fits the schema; in ``labels`` it is noted what they were."""
    seen = parser.seen()
    labels.add(seen["labels"])
    is_map = not schema.many_numbers
    if (is_map and len(seen["labels"]) > len(schema.labels)) or seen["least"] == schema.base - 1:
        parser.clear()
        if labels.are_many:
            parser.forget_labels()
        return
    indptr, indices, values, codes, qids = parser.take()
    n_rows = len(indptr) - 1
    given: Any = codes
    if schema.many_numbers:
        given = None if codes is None else np.array(seen["labels"], dtype=np.float64)[codes]
        parser.forget_labels()
    if n_rows:
        width = int(indices.max()) + 1 if len(indices) else 0
        write(RawBlock(n_rows, {COLUMN: SparseColumn(indptr, indices, values, width)}, given, qid=qids))


def _places(inputs: list[Input]) -> Iterator[Piece]:
    """Where a guess looks, at no row twice: sets are often sorted by label."""
    for source in inputs[:_LOOKS]:
        looks = min(_LOOKS // len(inputs), source.size // _LOOK_BYTES) if is_splittable(source) else 1
        looks = max(1, looks)
        for i in range(looks):
            yield Piece(source, i * source.size // looks)


def _first_lines(pieces: Iterator[Piece]) -> Iterator[memoryview]:
    for piece in pieces:
        yield from islice(line_chunks(piece, size=_LOOK_BYTES), 1)


def _all_lines(inputs: list[Input]) -> Iterator[memoryview]:
    for source in inputs:
        yield from line_chunks(Piece(source), size=_CHUNK_BYTES)


def _n_rows(parser: LibsvmParser) -> int:
    return int(parser.seen()["n_rows"])


def _look(parsers: list[LibsvmParser], lines: memoryview) -> None:
    for parser in parsers:
        parser.feed(lines)
        parser.clear()


def _refusal(piece: Piece, seen: dict[str, Any], first_line: int) -> DataError:
    line, column, token, what = seen["problems"][-1]
    where = f"{piece.source.name}:{_line(piece, line - first_line)}:{column + 1}"
    return DataError(
        f"expected {what}; found {token.decode(errors='replace')!r}",
        where=where,
        fix='correct the row, or leave such rows out: errors="skip"',
    )


def _told(piece: Piece, seen: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Where the rows are that were skipped in this piece, and why."""
    return [
        f"{piece.source.name}:{_line(piece, line - before['n_lines'])}:{column + 1}: expected {what}; "
        f"found {token.decode(errors='replace')!r}"
        for line, column, token, what in seen["problems"][len(before["problems"]) :]
    ]


def _line(piece: Piece, line: int) -> int:
    """Of the file, from 1, for a line of the piece, from 0."""
    if piece.start == 0:
        return line + 1
    # The first line of the piece begins behind the first line end from the byte before it on.
    return lines_before(piece.source, piece.start - 1) + line + 2


def _warnings(form: LibsvmFormat, seen: list[LibsvmSeen], inputs: list[Input]) -> list[str]:
    warnings = skipped_warnings(Skipped(True, s.n_skipped, s.problems) for s in seen)
    if n_dropped := sum(s.n_dropped for s in seen):
        warnings.append(
            f"{inputs[0].name}: {n_dropped:,} entries beyond n_features={form.n_features} were dropped"
        )
    return warnings
