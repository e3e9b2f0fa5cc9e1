"""`Dataset`: an immutable, lazily transformed view of rows, read one partition at a time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from squall.config import Problems
from squall.data import export, info, summary
from squall.data.concat import ConcatSource
from squall.data.hints import column_hint
from squall.data.info import short
from squall.data.labels import Classes
from squall.data.mixing import mixed_blocks
from squall.data.rows import count_missing, cut_blocks, take_raw
from squall.data.seeds import seed_from, seeded_order
from squall.data.select import Select
from squall.data.selection import Selection
from squall.data.sources import Source, digest
from squall.data.stored import open_stored, write_dataset
from squall.errors import DataError, SettingError
from squall.protocols import BlockTransform
from squall.records import CategoricalColumn, ColumnSpec, Int64, RawBlock

if TYPE_CHECKING:
    import pandas as pd


class Schema(NamedTuple):
    """What is known of every row of a data set."""

    columns: list[ColumnSpec]
    label: str | None
    classes: list[str | int | float | bool] | None


class Dataset:
    """Rows of one schema: a source, a choice of its rows, and transforms applied on the way.

    Data sets come from the readers, `from_arrays` and `open_dataset`; every method gives a new one and
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
    def schema(self) -> Schema:
        """Columns, label and label map: what a data set has to have in common with another."""
        return Schema(self.columns, self.label, None if self.classes is None else self.classes.tolist())

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
            for block in map(self._raw_partition, self.partitions()):
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
        strings = self.shared_strings(spec)
        if strings is None:
            raise SettingError(
                f"dictionary: column {column!r} has no dictionary that all blocks share",
                fix="columns from read_ratings, read_bow and read_text have one, as long as no transform "
                "changes them",
            )
        return strings.strings()

    @property
    def is_as_read(self) -> bool:
        """Whether columns are as they were read: no transform but a choice of them is applied."""
        return all(isinstance(transform, Select) for transform in self._transforms)

    def shared_strings(self, spec: ColumnSpec) -> CategoricalColumn | None:
        """What `dictionary` gives, as it is stored; None if there is none."""
        return self._source.dictionary(spec.name) if spec in self._source.columns else None

    def key(self) -> str:
        """A name (32 hexadecimal digits) for exactly these rows with exactly these transforms.

        Equal content gives an equal key on every machine, so derived data can be kept by it.
        """
        chosen = [[astuple(split) for split in self._selection.splits], self._selection.shuffle_seed]
        transforms = [(type(t).__qualname__, t.to_dict()) for t in self._transforms]
        return digest([self._source.key(), chosen, transforms])

    # ---------------------------------------------------------------------------------- rows

    def partition_rows(self) -> list[int]:
        """Rows that each partition of the source gives."""
        return self._selection.counts()

    def partitions(self) -> list[int]:
        """Numbers of the partitions that give rows, in their order."""
        counts = self._selection.counts()
        return [number for number in self._selection.order() if counts[number]]

    def partition(self, number: int) -> RawBlock:
        """The rows of one partition, transformed.

        Raises
        ------
        StoreError, CorruptError
            If it is missing or damaged.
        """
        return self._transformed(self._raw_partition(number))

    def _transformed(self, block: RawBlock) -> RawBlock:
        for transform in self._transforms:
            block = transform.apply(block)
        return block

    def _raw_partition(self, number: int) -> RawBlock:
        block = self._source.read(number)
        rows = self._selection.rows_of(number, block.labels)
        return block if rows is None else take_raw(block, rows)

    def blocks(self, seed: int | None = None) -> Iterator[RawBlock]:
        """The rows, one partition at a time, transformed; blocks without rows are left out.

        Parameters
        ----------
        seed : int, optional
            Partitions come in the random order that belongs to it; if None rows come in the data set's
            own order.

        Raises
        ------
        StoreError, CorruptError
            If a stored partition is missing or damaged.
        """
        numbers = self.partitions()
        if seed is not None:
            numbers = [numbers[i] for i in seeded_order(len(numbers), seed).tolist()]
        raw: Iterator[RawBlock] = map(self._raw_partition, numbers)
        if seed is None and self._selection.shuffle_seed is not None:
            raw = mixed_blocks(raw, self._selection.shuffle_seed)
        yield from map(self._transformed, raw)

    def iter_batches(self, batch_size: int = 1024) -> Iterator[tuple[Any, np.ndarray[Any, Any] | None]]:
        """The rows, in order, as ``(X, y)`` of ``batch_size`` rows each; the last has what is left.

        Memory holds about one partition.  `to_arrays` says what ``X`` and ``y`` are.

        Raises
        ------
        SettingError
            If ``batch_size`` is no integer above 0.
        DataError
            As `to_arrays`.
        """
        problems = Problems("iter_batches")
        problems.integer("batch_size", batch_size, 1)
        problems.raise_if_any()
        return (export.block_arrays(self, block) for block in cut_blocks(self.blocks(), batch_size))

    def head(self, n: int = 5) -> list[dict[str, Any]]:
        """The first rows, each as a dictionary by column; the label is its last entry.

        A missing value is None, a dense matrix's row a list, a sparse one's ``{feature: value}``.
        """
        problems = Problems("head")
        problems.integer("n", n, 0)
        problems.raise_if_any()
        return info.first_rows(self, n)

    def describe(self) -> summary.Description:
        """What is in each column, by one pass over the rows; shows itself as a table.

        Kind, missing values, smallest, mean, largest, deviation, quartiles, number of different
        values, the most frequent ones, a histogram; and how often each label turns up.
        """
        return summary.describe(self)

    def info(self) -> info.Info:
        """Rows, columns, labels, and where the data set is; reads no rows."""
        return info.info(self, self._source)

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

    def shuffle(self, random_state: Any = None) -> Dataset:
        """The same rows in a random order that belongs to a seed (None draws one).

        Partitions come in random order, and the rows of each 64 MB of them are mixed, in memory of two
        such windows: a data set of up to 64 MB is shuffled throughout, of a larger one the rows of
        some six partitions from anywhere stand together.  (`fit` shuffles for itself, likewise.)
        """
        shuffled = self._selection.shuffled(seed_from(random_state))
        return Dataset(self._source, shuffled, self._transforms)

    def concat(self, *others: Dataset) -> Dataset:
        """These rows, and then those of the others, which have the same columns by name.

        int64 beside float64 becomes float64, a sparse column is as wide as the widest, label maps and
        dictionaries (`dictionary`) are united.  Labels that are numbers to predict in one of the data
        sets are so in the result.

        Raises
        ------
        DataError
            If columns, kinds or labels do not go together.
        """
        return Dataset(ConcatSource([self, *others])) if others else self

    def write(self, url: str | os.PathLike[str]) -> Dataset:
        """Store the rows, with all transforms applied, as a data set of its own.

        Parameters
        ----------
        url : str or path
            The data set's own folder: a path, ``file:///folder`` or ``s3://bucket/prefix``.
            `squall.open_dataset` opens it.

        Returns
        -------
        Dataset
            The one that was stored.

        Raises
        ------
        StoreError
            If a data set is there already (they never change), or the store refuses.  What was not
            written to its end does not open.
        """
        return Dataset(write_dataset(self, url))

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
        return self.with_transform(Select(tuple(chosen)))

    def split(
        self, test: float = 0.2, random_state: Any = None, *, stratify: bool = False
    ) -> tuple[Dataset, Dataset]:
        """Split the rows at random into ``(train, test)``; each row is on exactly one side.

        Parameters
        ----------
        test : float or int
            Share of test rows, above 0 and below 1 (exactly ``round(test * n_rows)`` rows),
            or their number.
        random_state : int, NumPy random generator, or None
            Seed; the same seed gives the same split.  None draws one.
        stratify : bool, default False
            Whether each class gives the same share of its rows (to within one); it takes one pass
            over the labels.

        Raises
        ------
        SettingError
            If ``test`` is neither, or leaves one side without rows.
        DataError
            If ``stratify``, and there are no labels.
        """
        seed = seed_from(random_state)
        classes = self._class_counts() if stratify else None
        sides = self._selection.split(self._n_test(test), seed, classes)
        train, held_out = (Dataset(self._source, side, self._transforms) for side in sides)
        return train, held_out

    def _class_counts(self) -> Int64:
        """Rows of each class in each partition: (n_partitions, n_classes)."""
        if self.classes is None:
            raise DataError("there are no labels to stratify by", where="split")
        counts = np.zeros((len(self.partition_rows()), len(self.classes)), dtype=np.int64)
        for number in self.partitions():
            labels = self._raw_partition(number).labels
            assert labels is not None
            counts[number] = np.bincount(labels, minlength=len(self.classes))
        return counts

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
        return short(self)


def open_dataset(url: str | os.PathLike[str]) -> Dataset:
    """The data set that `Dataset.write` or ``squall ingest`` stored there.

    Its rows are read when they are needed, and each partition's checksum is verified then.

    Parameters
    ----------
    url : str or path
        The data set's folder: a path, ``file:///folder`` or ``s3://bucket/prefix``.

    Raises
    ------
    StoreError
        If there is no data set, or it cannot be reached.
    CorruptError
        If its manifest is damaged, or of another format version.
    """
    return Dataset(open_stored(url))
