"""`read_csv`: CSV and TSV files as a stored data set of typed columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from squall.config import Problems, Run
from squall.data.csv_block import HASHED
from squall.data.csv_chunks import read_names, read_records
from squall.data.csv_columns import Chunk
from squall.data.csv_reader import CsvParser, Write, same_reading
from squall.data.csv_schema import Evidence, label_map
from squall.data.csv_usable import usable_records
from squall.data.dataset import Dataset
from squall.data.dialects import Dialect
from squall.data.encodings import encoding_problem, in_utf8
from squall.data.finding import Paths, find_inputs, path_problems
from squall.data.hints import column_hint
from squall.data.inputs import Input, Seen, unseen
from squall.data.labels import LABEL_KINDS, LabelKind
from squall.data.parsing import read_text
from squall.data.pieces import Each, split_csv
from squall.data.reading import Storage, storage_of
from squall.data.skipped import Skipped, skipped_warnings
from squall.data.streams import Piece
from squall.data.tasks import BLOCK_BYTES
from squall.data.text import is_storable
from squall.errors import DataError
from squall.records import ColumnSpec, Manifest

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")

_GUESS_CHUNKS = 4


def read_csv(
    path: Paths,
    *,
    label: str | int | None = None,
    label_kind: LabelKind = "auto",
    weight: str | int | None = None,
    header: bool = True,
    delimiter: str = ",",
    quoting: bool = True,
    missing: Sequence[str] = MISSING,
    categorical: Sequence[str] = (),
    encoding: str = "utf-8",
    errors: Literal["raise", "skip"] = "raise",
    storage: Storage = None,
    run: Run | None = None,
) -> Dataset:
    """Read CSV or TSV (RFC 4180) into a data set of typed columns.

    The text is streamed into partitions of about 10 MB with bounded memory.  The kind of each
    column is decided over the *whole* set: it is assumed from the first lines, and where later ones
    do not fit, the set is read a second time.  A second call with the same content and settings
    finds the partitions and parses nothing; what is found damaged is read again.

    Columns are int64 if every value is an integer and none is missing, float64 if all are
    numbers, else categories.  Blanks around unquoted fields are dropped.  Blank lines are
    skipped; there are no comment lines.

    Parameters
    ----------
    path : str, path or sequence of these
        Files, folders, patterns (``"part-*.csv"``) or URLs of these (``s3://``, ``gs://``, ``az://``,
        ``https://``, ``file://``); plain, gzip, bzip2, xz or zstandard, known by their first bytes.
        All must have the same columns.
    label : str or int, optional
        Name of the label column; without a header also its number, from 0 on (or from −1
        backwards).  It is removed from the features.
    label_kind : {"auto", "classes", "numbers"}
        What labels are: classes, which become the sorted label map, or numbers to predict.  ``"auto"``:
        classes, but for numbers with more than 10,000 different ones.
    weight : str or int, optional
        Name (or number) of the column that holds sample weights >= 0; removed from the features.
    header : bool
        Whether the first record holds the names; if not they are ``"0"``, ``"1"``, ….
    delimiter : str
        One ASCII character; ``"\\t"`` for TSV.
    quoting : bool
        Whether a field may be quoted (``"``); if not, quotes are as other characters.
    missing : sequence of str
        Texts that mean "no value".
    categorical : sequence of str
        Columns that are text whatever they look like, so that codes keep leading zeros.
    encoding : str
        Of the text, as Python names it (``"cp1252"``, ``"utf-16"``, …).  UTF-16 and UTF-32 are recognised by
        their byte-order mark.  Text that is not UTF-8 is read in one stream, and all of it must be
        in its encoding.
    errors : {"raise", "skip"}
        What to do about rows that have another number of fields, quotes that do not match, text that
        is not UTF-8, an infinite number, no label or no weight.  Skipped ones are counted, and the first ten
        told.
    storage : str, path or ObjectStore, optional
        Where to keep the data set; see :func:`squall.data.objects.default_storage`.
    run : Run, optional
        Where functions parse the ranges of large inputs; default: the ``with squall.Run(…)`` around
        the call.

    Raises
    ------
    SettingError
        If a setting is wrong; all of them are named at once.
    DataError
        If the text cannot be read as a table, or a number in it is infinite; names file, line
        and field.
    StoreError
        If the store refuses.

    Warns
    -----
    UserWarning
        If a column holds no value at all, numbers had to be kept as text (one of them is
        none, or they are written with decimal commas or separators), or rows were skipped; each
        time, not only when the text is parsed.
    """
    _check_settings(
        path, label, label_kind, weight, header, delimiter, quoting, missing, categorical, encoding, errors
    )
    dialect = Dialect(
        header, ord(delimiter), [m.encode() for m in dict.fromkeys(missing)], ord('"') if quoting else 0
    )
    form = CsvFormat(dialect, label, weight, sorted(set(categorical)), errors, label_kind=label_kind)
    return read_text(form, in_utf8(find_inputs(path), encoding), storage_of(storage, run), run)


def _check_settings(
    path: Any,
    label: Any,
    label_kind: Any,
    weight: Any,
    header: Any,
    delimiter: Any,
    quoting: Any,
    missing: Any,
    categorical: Any,
    encoding: Any,
    errors: Any,
) -> None:
    problems = Problems("read_csv")
    for problem in path_problems(path):
        problems.add(problem)
    for setting, value in (("label", label), ("weight", weight)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            problems.add(f"{setting}={value!r} is not a column's name")
        elif isinstance(value, int) and header is True:
            problems.add(
                f"{setting}={value!r} is a number, and the file has a header: give the column's name"
            )
        elif isinstance(value, str) and not is_storable(value):
            problems.add(f"{setting}={value!r} holds a lone surrogate, which no column's name can")
    for setting, value in (("header", header), ("quoting", quoting)):
        if not isinstance(value, bool):
            problems.add(f"{setting}={value!r} is neither True nor False")
    if (
        not (isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii())
        or delimiter in '"\r\n\0'
    ):
        problems.add(f"delimiter={delimiter!r} is not one ASCII character other than a quote or line end")
    for setting, value in (("missing", missing), ("categorical", categorical)):
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            problems.add(f"{setting}={value!r} is not a sequence of strings")
        elif not all(map(is_storable, value)):
            problems.add(f"{setting}={value!r} holds a lone surrogate, which no file can")
    if wrong := encoding_problem(encoding):
        problems.add(wrong)
    problems.choice("label_kind", label_kind, LABEL_KINDS)
    if label_kind == "numbers" and isinstance(label, str) and label in categorical:
        problems.add(f'label_kind="numbers", and categorical= names the label {label!r}: it cannot be both')
    problems.choice("errors", errors, ["raise", "skip"])
    problems.raise_if_any()


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
        )

    def _columns(self, schema: Evidence) -> list[ColumnSpec]:
        columns = [
            ColumnSpec(name, kind)
            for name, kind in zip(schema.names, schema.kinds(), strict=True)
            if kind != "label" and kind != "weight" and not (self.n_features and kind == "categorical")
        ]
        return [*columns, ColumnSpec(HASHED, "sparse", self.n_features)] if self.n_features else columns

    def _roles(self, names: list[str], where: str) -> list[str]:
        """What each column is said to be."""
        twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
        if twice is not None:
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
            fix="give files of the same columns, in the same order; of a folder that holds others, a pattern",
        )
