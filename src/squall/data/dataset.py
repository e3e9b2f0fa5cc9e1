"""`Dataset`: what its users see and do; how its rows are read is in :mod:`squall.data.view`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from squall.config import Problems
from squall.data import export, info, summary
from squall.data.batches import Batches, Position, batches_of
from squall.data.concat import ConcatSource
from squall.data.hints import column_hint
from squall.data.info import short
from squall.data.seeds import seed_from
from squall.data.select import Select
from squall.data.stored import open_stored, write_dataset
from squall.data.view import View
from squall.errors import DataError, SettingError
from squall.protocols import BlockTransform
from squall.records import ColumnSpec, Int64

if TYPE_CHECKING:
    import pandas as pd


class Schema(NamedTuple):
    """What is known of every row of a data set."""

    columns: list[ColumnSpec]
    label: str | None
    classes: list[str | int | float | bool] | None


class Dataset(View):
    """Rows of one schema: a source, a choice of its rows, and transforms applied on the way.

    Data sets come from the readers, `from_arrays` and `open_dataset`; every method gives a new one and
    changes nothing.  Reading streams: memory holds one partition (about 10 MB) at a time.
    """

    @property
    def schema(self) -> Schema:
        """Columns, label and label map: what a data set has to have in common with another."""
        return Schema(self.columns, self.label, None if self.classes is None else self.classes.tolist())

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

    def iter_batches(
        self,
        batch_size: int = 1024,
        *,
        epochs: int = 1,
        shuffle: bool = False,
        random_state: Any = None,
        start: Position | Sequence[Any] | None = None,
    ) -> Batches:
        """The rows as ``(X, y)`` of ``batch_size`` rows each; the last of an epoch has what is left.

        Memory holds about one partition, with ``shuffle`` two times 64 MB.  `to_arrays` says what ``X``
        and ``y`` are.

        Parameters
        ----------
        batch_size : int
        epochs : int
            How often all rows come.
        shuffle : bool
            Whether rows come in another random order in each epoch, as `shuffle` makes it; otherwise they
            come in the data set's own order.
        random_state : int, NumPy random generator, or None
            Seed of all these orders; None draws one, or takes that of ``start``.
        start : Position, or a list of what it holds; optional
            The ``position`` of batches that were asked for with the same settings: what they had not given
            comes, to the bit.  ``epochs`` counts from the very beginning, and may be another number.

        Returns
        -------
        Batches
            An iterator; its ``position`` says at any time where the next batch begins, as a tuple of
            integers and text that JSON keeps.

        Raises
        ------
        SettingError
            If a setting is wrong, or ``start`` is of other rows or settings, or beyond the end.
        DataError
            As `to_arrays`.
        """
        return batches_of(self, batch_size, epochs, shuffle, random_state, start)

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
        return self.shuffled(seed_from(random_state))

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
