"""`Dataset`: an immutable, lazily transformed view of rows, read one partition at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from squall.data import export
from squall.data.hints import column_hint
from squall.data.labels import Classes
from squall.data.rows import count_missing, take_raw
from squall.data.seeds import seeded_order
from squall.data.selection import Selection
from squall.data.sources import Source, digest
from squall.errors import SettingError
from squall.protocols import BlockTransform
from squall.records import ColumnSpec, RawBlock

if TYPE_CHECKING:
    import pandas as pd


class Dataset:
    """Rows of one schema: a source, a choice of its rows, and transforms applied on the way.

    Data sets come from `read_csv` and `from_arrays`; every method gives a new one and
    changes nothing.  Reading streams: memory holds one partition (about 10 MB) at a time.
    """

    def __init__(
        self, source: Source, selection: Selection | None = None, transforms: tuple[BlockTransform, ...] = ()
    ) -> None:
        self._source = source
        self._selection = Selection(tuple(source.rows)) if selection is None else selection
        self._transforms = transforms
        self._n_rows = sum(self._selection.counts())
        columns = source.columns
        for transform in transforms:
            columns = transform.schema(columns)
        self._columns = columns
        self._missing: dict[str, int] | None = None if self._selection.splits else source.missing

    # -------------------------------------------------------------------------------- schema

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._n_rows

    def __len__(self) -> int:
        return self._n_rows

    @property
    def columns(self) -> list[ColumnSpec]:
        """Name, kind and width of each feature column, after the transforms."""
        return list(self._columns)

    @property
    def label(self) -> str | None:
        """Name of the label; None if the data has none."""
        return self._source.label

    @property
    def classes(self) -> Classes | None:
        """The sorted label map (n_classes,); None if there are no labels, or they are numbers to predict."""
        return self._source.classes

    @property
    def missing(self) -> dict[str, int]:
        """Missing values by column as read, before any transform; only columns that have some.

        Of a data set made by `split` they are counted by one pass, once.
        """
        if self._missing is None:
            counts: Counter[str] = Counter()
            for block in self._raw_blocks():
                counts.update({name: count_missing(column) for name, column in block.columns.items()})
            self._missing = {name: n for name, n in counts.items() if n}
        return dict(self._missing)

    def dictionary(self, column: str) -> list[str]:
        """The strings that a column's numbers stand for in all blocks.

        Of a categorical column from `read_ratings` they are the ids by code; of a sparse one from
        `read_bow` or `read_text`, the words by position.

        Raises
        ------
        SettingError
            If there is no such column, or it has no strings that are the same for all blocks.
        """
        spec = next((spec for spec in self._columns if spec.name == column), None)
        known = [spec.name for spec in self._columns]
        if spec is None:
            raise SettingError(f"dictionary: there is no column {column!r}", fix=column_hint(column, known))
        strings = self._source.dictionary(column) if spec in self._source.columns else None
        if strings is None:
            raise SettingError(
                f"dictionary: column {column!r} has no dictionary that all blocks share",
                fix="columns from read_ratings, read_bow and read_text have one, as long as no transform "
                "changes them",
            )
        return strings.strings()

    def key(self) -> str:
        """A name (32 hexadecimal digits) for exactly these rows with exactly these transforms.

        Equal content gives an equal key on every machine, so derived data can be kept by it.
        """
        splits = [astuple(split) for split in self._selection.splits]
        transforms = [(type(t).__qualname__, t.to_dict()) for t in self._transforms]
        return digest([self._source.key(), splits, transforms])

    # ---------------------------------------------------------------------------------- rows

    def blocks(self, seed: int | None = None) -> Iterator[RawBlock]:
        """The rows, one partition at a time, transformed; blocks without rows are left out.

        Parameters
        ----------
        seed : int, optional
            Partitions come in the random order that belongs to it; as they are if None.

        Raises
        ------
        StoreError, CorruptError
            If a stored partition is missing or damaged.
        """
        for block in self._raw_blocks(seed):
            for transform in self._transforms:
                block = transform.apply(block)
            yield block

    def _raw_blocks(self, seed: int | None = None) -> Iterator[RawBlock]:
        counts = self._selection.counts()
        order = range(len(counts)) if seed is None else seeded_order(len(counts), seed).tolist()
        for partition in order:
            if counts[partition]:
                block = self._source.read(partition)
                rows = self._selection.rows_of(partition)
                yield block if rows is None else take_raw(block, rows)

    def to_arrays(self) -> tuple[Any, np.ndarray[Any, Any] | None]:
        """All rows in memory, as ``(X, y)``.

        Returns
        -------
        X : array or CSR matrix (n_rows, n_columns)
            float64 if all columns are numbers; a SciPy CSR array if any is sparse; else an
            object array that holds numbers as they are, strings, and None where a string is
            missing.
        y : array (n_rows,) or None
            The labels as they were given.

        Raises
        ------
        DataError
            If an integer would have to be rounded, or columns of text stand beside sparse ones.
        """
        return export.to_arrays(self)

    def to_pandas(self) -> pd.DataFrame:
        """All rows in memory, as a DataFrame; the label is its last column.

        Integers stay int64, text becomes ``category``; a dense column of several numbers
        becomes ``name_0``, ``name_1``, ….

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        DataError
            If there are sparse columns.
        """
        return export.to_pandas(self)

    # ------------------------------------------------------------------------- derived views

    def with_transform(self, transform: BlockTransform) -> Dataset:
        """These rows with one more (fitted) transform, applied after those before it."""
        return Dataset(self._source, self._selection, (*self._transforms, transform))

    def select(self, names: Sequence[str]) -> Dataset:
        """These rows with the named columns only, in the order given.

        Raises
        ------
        SettingError
            If there is no such column, or a name comes twice.
        """
        chosen = [names] if isinstance(names, str) else list(names)
        known = [spec.name for spec in self._columns]
        for name in chosen:
            if name not in known:
                raise SettingError(f"select: there is no column {name!r}", fix=column_hint(name, known))
        if len(set(chosen)) != len(chosen):
            raise SettingError("select: a column is named twice", fix="name each column once")
        return self.with_transform(_Select(tuple(chosen)))

    def split(self, test: float = 0.2, random_state: Any = None) -> tuple[Dataset, Dataset]:
        """Split the rows at random into ``(train, test)``; each row is on exactly one side.

        Parameters
        ----------
        test : float or int
            Share of test rows, above 0 and below 1 (exactly ``round(test * n_rows)`` rows),
            or their number.
        random_state : int, NumPy random generator, or None
            Seed; the same seed gives the same split.  None draws one.

        Raises
        ------
        SettingError
            If ``test`` is neither, or leaves one side without rows.
        """
        seed = _seed(random_state)
        sides = self._selection.split(self._n_test(test), seed)
        train, held_out = (Dataset(self._source, side, self._transforms) for side in sides)
        return train, held_out

    def _n_test(self, test: Any) -> int:
        fix = "give a share above 0 and below 1, such as 0.2, or a number of rows"
        if isinstance(test, int | np.integer) and test is not True and test is not False:
            n_test = int(test)
        elif isinstance(test, float | np.floating) and 0 < test < 1:
            n_test = round(float(test) * self._n_rows)
        else:
            raise SettingError(f"split: test={test!r} is neither a share nor a number of rows", fix=fix)
        if not 0 < n_test < self._n_rows:
            raise SettingError(
                f"split: test={test!r} of {self._n_rows:,} rows leaves one side without rows", fix=fix
            )
        return n_test

    def __repr__(self) -> str:
        kinds = Counter(spec.kind for spec in self._columns)
        parts = [_counted(self._n_rows, "row"), _counted(len(self._columns), "column")]
        parts[-1] += f" ({', '.join(f'{n:,} {kind}' for kind, n in kinds.items())})" if kinds else ""
        if self.label is not None and self.classes is not None:
            shown = [repr(c) for c in self.classes[:5].tolist()] + ["…"] * (len(self.classes) > 5)
            parts.append(f"label {self.label!r} ({_counted(len(self.classes), 'class')}: {', '.join(shown)})")
        elif self.label is not None:
            parts.append(f"label {self.label!r} (numbers)")
        return f"Dataset({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class _Select:
    """The transform behind `Dataset.select`."""

    names: tuple[str, ...]

    def apply(self, block: RawBlock) -> RawBlock:
        columns = {name: block.columns[name] for name in self.names}
        return RawBlock(block.n_rows, columns, block.labels, block.weights)

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        by_name = {spec.name: spec for spec in columns}
        return [by_name[name] for name in self.names]

    def to_dict(self) -> dict[str, Any]:
        return {"names": list(self.names)}


def _counted(n: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{n:,} {noun if n == 1 else plural}"


def _seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, int | np.integer) and random_state is not True and 0 <= random_state < 2**64:
        return int(random_state)
    raise SettingError(
        f"random_state={random_state!r} is not a seed",
        fix="give an integer >= 0 and < 2**64, a NumPy generator or None",
    )
