"""CSV text to blocks of typed columns: what `read_csv` asks for, done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from squall.data.csv_block import HASHED
from squall.data.csv_chunks import read_names, read_records
from squall.data.csv_columns import Chunk
from squall.data.csv_delimiter import COMMA, told_delimiter
from squall.data.csv_reader import CsvParser, Write, same_reading
from squall.data.csv_schema import Evidence, label_map
from squall.data.csv_usable import usable_records
from squall.data.dialects import Dialect
from squall.data.hints import column_hint
from squall.data.inputs import Input, Seen, unseen
from squall.data.labels import LabelKind
from squall.data.pieces import Each, split_csv
from squall.data.skipped import Skipped, skipped_warnings
from squall.data.streams import Piece
from squall.data.tasks import BLOCK_BYTES
from squall.errors import DataError
from squall.records import ColumnSpec, Manifest

_GUESS_CHUNKS = 4


@dataclass
class CsvSeen:
    """What was seen in a part of the set."""

    evidence: Evidence
    n_rows: int
    fits: bool
    skipped: Skipped


@dataclass(frozen=True)
class CsvFormat:
    """The settings of `read_csv`; a `squall.data.tasks.TextFormat` whose schema is `Evidence`."""

    dialect: Dialect
    label: str | int | None = None
    weight: str | int | None = None
    categorical: list[str] = field(default_factory=list)
    errors: str = "raise"
    columns: list[tuple[str, str]] | None = None  # names and roles, where they are known beforehand
    name: str = "csv"
    n_features: int = 0  # to which text is hashed while it is read; 0: it stays text
    label_kind: LabelKind = "auto"

    version = 4

    def guess(self, inputs: list[Input]) -> Evidence:
        """From the first chunks."""
        if self.columns is None:
            names = read_names(inputs[0], self.dialect)
            evidence = Evidence.none(names, self._roles(names, inputs[0].name))
        else:
            names = [name for name, _ in self.columns]
            evidence = Evidence.none(names, [role for _, role in self.columns])
        evidence.label_kind = self.label_kind
        evidence.many_numbers = self.label_kind == "numbers" and "label" in evidence.roles
        skipped = Skipped(self.errors == "skip")
        parser = CsvParser(evidence, self._forced_text(names), lambda _: None, BLOCK_BYTES, skipped)
        parser.fits = False  # nothing is known to be tried
        chunks = self._records(Piece(inputs[0]), parser, skipped)
        for chunk in islice(chunks, _GUESS_CHUNKS):
            parser.add(chunk)
        return parser.evidence

    def split(self, source: Input, cuts: list[int], each: Each) -> list[Piece]:
        """Between records."""
        return split_csv(self.dialect, source, cuts, each)

    def parse(self, pieces: list[Piece], schema: Evidence, write: Write, seen: Seen) -> CsvSeen:
        """Rows as typed columns."""
        skipped = Skipped(self.errors == "skip")
        parser = CsvParser(
            schema, self._forced_text(schema.names), write, BLOCK_BYTES, skipped, self.n_features
        )

        for piece in pieces:
            if piece.start == 0 and self.dialect.header:
                self._check_names(piece.source, schema.names)
            for chunk in self._records(piece, parser, skipped, seen):
                parser.add(chunk)
        parser.flush()
        return CsvSeen(parser.evidence, parser.n_rows, parser.fits, skipped)

    def _records(
        self, piece: Piece, parser: CsvParser, skipped: Skipped, seen: Seen = unseen
    ) -> Iterator[Chunk]:
        for chunk in read_records(piece, self.dialect, len(parser.evidence.names), skipped, seen):
            good = usable_records(chunk, parser.evidence, skipped) if skipped.allowed else chunk
            if good.n_rows:
                yield good

    def decide(self, seen: list[CsvSeen], inputs: list[Input]) -> Evidence:
        """All evidence together."""
        if not any(s.n_rows for s in seen):
            header = self.dialect.header
            raise DataError(
                "the file has a header and no rows" if header else "there are no rows",
                where=inputs[0].name,
                fix="if its first line is data, set header=False" if header else None,
            )
        evidence = seen[0].evidence.copy()
        for other in seen[1:]:
            evidence.include(other.evidence)
        evidence.judge_labels(self._forced_text(evidence.names), inputs[0].name)
        return evidence

    def fits(self, seen: CsvSeen, assumed: Evidence, decided: Evidence) -> bool:
        """Whether rows were read as they are to be."""
        return seen.fits and same_reading(assumed, decided)

    def manifest(self, schema: Evidence, seen: list[CsvSeen], inputs: list[Input]) -> Manifest:
        """The feature columns, the label map, and what is to be said of them."""
        warnings = schema.warnings(inputs[0].name) + skipped_warnings(s.skipped for s in seen)
        label = schema.names[schema.roles.index("label")] if "label" in schema.roles else None
        classes = None
        if label is not None and not schema.many_numbers:
            classes = label_map(schema, self._forced_text(schema.names))[0].tolist()
        return Manifest(
            rows=sum(s.n_rows for s in seen),
            columns=self._columns(schema),
            partitions=[],
            label=label,
            classes=classes,
            warnings=warnings,
            facts=self._facts(),
        )

    def _facts(self) -> dict[str, Any]:
        between = self.dialect.delimiter
        return {} if self.dialect.is_fixed or between == COMMA else {"cut at": told_delimiter(between)}

    def _columns(self, schema: Evidence) -> list[ColumnSpec]:
        columns = [
            ColumnSpec(name, kind)
            for name, kind in zip(schema.names, schema.kinds(), strict=True)
            if kind != "label" and kind != "weight" and not (self.n_features and kind == "categorical")
        ]
        return [*columns, ColumnSpec(HASHED, "sparse", self.n_features)] if self.n_features else columns

    def _roles(self, names: list[str], where: str) -> list[str]:
        """What each column is said to be."""
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise DataError(
                f"two columns are named {twice!r}", where=f"{where}:1", fix="give every column its own name"
            )
        for name in self.categorical:
            self._find("categorical", name, names, where)
        roles = ["categorical" if name in self.categorical else "auto" for name in names]
        for setting, wanted in (("label", self.label), ("weight", self.weight)):
            if wanted is not None:
                roles[self._find(setting, wanted, names, where)] = setting
        if not {"categorical", "auto"} & set(roles):
            raise DataError("there is no feature column", where=where, fix="check `delimiter` and `label`")
        return roles

    def _find(self, setting: str, wanted: str | int, names: list[str], where: str) -> int:
        if isinstance(wanted, int) and -len(names) <= wanted < len(names):
            return wanted % len(names)
        if str(wanted) in names:
            return names.index(str(wanted))
        hint = column_hint(str(wanted), names)
        if len(names) == 1:  # the line was not cut at all: probably it is cut elsewhere
            other = max("\t;|,", key=names[0].count)
            if other in names[0]:
                hint = f"the file looks separated by {other!r}: give delimiter={other!r}"
        if setting == "label":
            hint += " (leave `label` out to read rows without labels)"
        raise DataError(f"{setting}: there is no column {str(wanted)!r}", where=where, fix=hint)

    def _forced_text(self, names: list[str]) -> bool:
        """Whether the label is to be text."""
        return isinstance(self.label, str) and self.label in self.categorical

    def _check_names(self, source: Input, names: list[str]) -> None:
        """All files must have the columns of the first."""
        own = read_names(source, self.dialect)
        if own == names:
            return
        at = next((i for i, (a, b) in enumerate(zip(own, names, strict=False)) if a != b), None)
        what = (
            f"it has {len(own)} columns, the first file has {len(names)}"
            if at is None
            else f"column {at + 1} is {own[at]!r}, in the first file it is {names[at]!r}"
        )
        raise DataError(
            what,
            where=source.name,
            fix="give files of the same columns, in the same order, cut by the same delimiter; of a folder "
            "that holds others, a pattern",
        )
