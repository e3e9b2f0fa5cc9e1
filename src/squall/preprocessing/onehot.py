"""One-hot encoding: categorical columns become one sparse column, a slot for each category.

As in scikit-learn, categories are sorted, a missing value is a category of its own (the last), and
categories below a minimum frequency share one slot behind the others of their column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from squall.errors import DataError
from squall.preprocessing.columns import text_column
from squall.preprocessing.counting import TextCounts, count_text, merge_text
from squall.records import CategoricalColumn, ColumnSpec, Int32, RawBlock, SparseColumn

_TOO_MANY = "hash it: squall.FeatureHasher(columns=[…])"

Unknown = Literal["ignore", "error", "infrequent"]


@dataclass(frozen=True, slots=True)
class OneHotStatistics:
    """Counts of the categories of these columns."""

    columns: tuple[str, ...]
    output: str
    unknown: Unknown = "ignore"
    min_frequency: int | float | None = None

    def partial(self, block: RawBlock) -> dict[str, TextCounts]:
        """Statistics of one block.

        Raises
        ------
        DataError
            If a column has more than a million categories.
        """
        counts = {}
        for name in self.columns:
            counts[name] = count_text(name, text_column(name, block), _TOO_MANY)
        return counts

    def merge(self, a: dict[str, TextCounts], b: dict[str, TextCounts]) -> dict[str, TextCounts]:
        """Statistics of the rows of both."""
        return {name: merge_text(name, a[name], b[name], _TOO_MANY) for name in a}

    def finish(self, state: dict[str, TextCounts]) -> OneHotTransform:
        """The fitted transform."""
        categories, infrequent = {}, {}
        for name, counts in state.items():
            ordered = sorted(counts, key=lambda text: (text is None, text or ""))
            least = self._least(sum(counts.values()))
            categories[name] = [text for text in ordered if counts[text] >= least]
            infrequent[name] = [text for text in ordered if counts[text] < least]
        return OneHotTransform(list(self.columns), categories, infrequent, self.unknown, self.output)

    def _least(self, n_rows: int) -> float:
        if self.min_frequency is None:
            return 0.0
        share = isinstance(self.min_frequency, float)
        return self.min_frequency * n_rows if share else self.min_frequency


class OneHotTransform(msgspec.Struct, frozen=True, tag="onehot"):
    """Replace ``columns``, if any, by one sparse column ``output``.

    Slots: for each column its ``categories``, then one for all its ``infrequent`` ones, if any.
    """

    columns: list[str]
    categories: dict[str, list[str | None]]
    infrequent: dict[str, list[str | None]]
    unknown: Unknown
    output: str = "onehot"

    def apply(self, block: RawBlock) -> RawBlock:
        """Encode the columns; the others pass.

        Raises
        ------
        DataError
            If a column is not there or not categorical; with ``unknown="error"`` also if a category
            was not seen in fit.
        """
        if not self.columns:
            return block
        slots = np.empty((block.n_rows, len(self.columns)), dtype=np.int32)
        offset = 0
        for i, name in enumerate(self.columns):
            own = self._slots(name, text_column(name, block))
            slots[:, i] = np.where(own < 0, -1, own + offset)
            offset += self._width(name)
        known = slots >= 0
        indptr = np.zeros(block.n_rows + 1, dtype=np.int64)
        np.cumsum(known.sum(axis=1), out=indptr[1:])
        columns = {n: c for n, c in block.columns.items() if n not in self.columns}
        columns[self.output] = SparseColumn(indptr, slots[known], None, offset)
        return RawBlock(block.n_rows, columns, block.labels, block.weights, block.qid)

    def _width(self, name: str) -> int:
        return len(self.categories[name]) + bool(self.infrequent[name])

    def _slots(self, name: str, column: CategoricalColumn) -> Int32:
        """The slot of each row among those of its column; −1 for none."""
        last = len(self.categories[name])
        rare = last if self.infrequent[name] else -1
        slot_of = {text: slot for slot, text in enumerate(self.categories[name])}
        slot_of |= dict.fromkeys(self.infrequent[name], rare)
        other = rare if self.unknown == "infrequent" else -1
        strings: list[str | None] = [*column.strings(), None]  # code −1 finds the None at the end
        table = np.array([slot_of.get(text, other) for text in strings], dtype=np.int32)
        if self.unknown == "error":
            strange = {strings[code] for code in np.unique(column.codes).tolist()} - slot_of.keys()
            if strange:
                listed = ", ".join(sorted(map(repr, strange))[:5]) + (" …" if len(strange) > 5 else "")
                raise DataError(
                    f"{len(strange)} categories were not seen in fit: {listed}",
                    where=f"column {name!r}",
                    fix='use OneHotEncoder(handle_unknown="ignore"), which gives them no slot',
                )
        return table[column.codes]

    def slot_names(self) -> list[str]:
        """What each slot stands for."""
        names = []
        for name in self.columns:
            names += [f"{name}_{text}" for text in self.categories[name]]
            names += [f"{name}_infrequent"] * bool(self.infrequent[name])
        return names

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """The encoded columns make way for the one they become, at the end."""
        if not self.columns:
            return columns
        kept = [c for c in columns if c.name not in self.columns]
        return [*kept, ColumnSpec(self.output, "sparse", sum(map(self._width, self.columns)))]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]
