"""`View`: rows of one schema as all that works on data sets reads them, one partition at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from typing import Self

from squall.data.labels import Classes
from squall.data.mixing import Placed, mixed
from squall.data.rows import count_missing, take_raw
from squall.data.seeds import seeded_order
from squall.data.select import Select
from squall.data.selection import Selection
from squall.data.sources import Source, digest
from squall.protocols import BlockTransform
from squall.records import Bill, CategoricalColumn, ColumnSpec, RawBlock


class View:
    """A source, a choice of its rows, and transforms applied on the way; immutable.

    Reading streams: memory holds one partition (about 10 MB) at a time.
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
            for block in map(self._raw_partition, self.partitions()):
                counts.update({name: count_missing(column) for name, column in block.columns.items()})
            self._missing = {name: n for name, n in counts.items() if n}
        return dict(self._missing)

    @property
    def bill(self) -> Bill | None:
        """What functions cost (locally: would cost) that parsed the source for this process, by item.

        None if none did: the source is small, or was read before.
        """
        return self._source.bill()

    @property
    def is_as_read(self) -> bool:
        """Whether columns are as they were read: no transform but a choice of them is applied."""
        return all(isinstance(transform, Select) for transform in self._transforms)

    def shared_strings(self, spec: ColumnSpec) -> CategoricalColumn | None:
        """The strings that a column's numbers stand for in all blocks; None if there are none."""
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
        if seed is None:
            return (placed.block for placed in self.placed_blocks())
        numbers = self.partitions()
        order = seeded_order(len(numbers), seed).tolist()
        return (self.partition(numbers[i]) for i in order)

    def placed_blocks(self, first: int = 0) -> Iterator[Placed]:
        """What `blocks` gives, and where it stands, from a partition on where a window begins.

        Parameters
        ----------
        first : int
            Partitions (of `partitions`) that are left out.
        """
        raw = map(self._raw_partition, self.partitions()[first:])
        for placed in mixed(raw, self._selection.shuffle_seed, first):
            yield placed._replace(block=self._transformed(placed.block))

    def shuffled(self, seed: int) -> Self:
        """The same rows in the random order that belongs to a seed; see `Dataset.shuffle`."""
        return type(self)(self._source, self._selection.shuffled(seed), self._transforms)
