"""Quantile binning: numbers become the number of their bin, all bins of about as many rows.

The edges are quantiles from a :mod:`squall.preprocessing.quantiles` sketch: exact for up to 4096
values, and else each wrong by no more rows than the sketch's own bound says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from squall.errors import DataError
from squall.preprocessing.columns import SAME_COLUMNS, as_matrix, learnable, like, width_of
from squall.preprocessing.quantiles import QuantileSketch, merge_sketches, sketch
from squall.records import ColumnSpec, Float64, RawBlock, SparseColumn

_ROUNDING = 1e-8
"""Edges closer than this (of their range, where that is below 1) are one: scikit-learn's bound."""


@dataclass(frozen=True, slots=True)
class BinStatistics:
    """Quantiles of these columns."""

    columns: tuple[str, ...]
    output: str
    n_bins: int = 32
    encode: Literal["onehot", "ordinal"] = "onehot"

    def partial(self, block: RawBlock) -> dict[str, list[QuantileSketch]]:
        """Sketches of one block, a list of one for each feature.

        Raises
        ------
        DataError
            If a value is infinite.
        """
        sketches = {}
        for name in self.columns:
            values = learnable(name, block.columns[name], "a bin")
            assert values is not None
            sketches[name] = [sketch(feature) for feature in values.T]
        return sketches

    def merge(
        self, a: dict[str, list[QuantileSketch]], b: dict[str, list[QuantileSketch]]
    ) -> dict[str, list[QuantileSketch]]:
        """Statistics of the rows of both."""
        return {name: [merge_sketches(x, y) for x, y in zip(a[name], b[name], strict=True)] for name in a}

    def finish(self, state: dict[str, list[QuantileSketch]]) -> BinTransform:
        """The fitted transform; where quantiles are equal, their bins are one."""
        edges = {name: [self._inner_edges(s) for s in sketches] for name, sketches in state.items()}
        return BinTransform(list(self.columns), edges, self.encode, self.output)

    def _inner_edges(self, feature: QuantileSketch) -> list[float]:
        if not feature.n:
            return []
        edges = feature.quantiles(np.linspace(0, 100, self.n_bins + 1) / 100)
        least = _ROUNDING * min(1.0, float(edges[-1]) - float(edges[0]))
        inner = edges[np.ediff1d(edges, to_begin=np.inf) > least][1:-1]
        return inner.tolist()  # type: ignore[no-any-return]


class BinTransform(msgspec.Struct, frozen=True, tag="bin"):
    """Fitted binning.  ``edges`` are those between bins, ascending, by column and feature.

    A value equal to an edge is in the bin above it; the first and the last bin go on for ever.
    A missing value is in no bin: no slot with ``"onehot"``, still missing with ``"ordinal"``.
    With ``"onehot"`` the columns become one sparse column ``output``.
    """

    columns: list[str]
    edges: dict[str, list[list[float]]]
    encode: Literal["onehot", "ordinal"]
    output: str = "binned"

    def apply(self, block: RawBlock) -> RawBlock:
        """Bin the columns; the others pass.

        Raises
        ------
        DataError
            If a column is not the one of fit.
        """
        if not self.columns:
            return block
        columns = dict(block.columns)
        bins = {name: self._bins(name, block) for name in self.columns}
        if self.encode == "ordinal":
            columns |= {name: like(columns[name], own) for name, own in bins.items()}
        else:
            columns = {n: c for n, c in columns.items() if n not in bins}
            columns[self.output] = self._onehot(np.concatenate(list(bins.values()), axis=1))
        return RawBlock(block.n_rows, columns, block.labels, block.weights, block.qid)

    def _bins(self, name: str, block: RawBlock) -> Float64:
        """The bin of each value, NaN where it is missing: (n_rows, width)."""
        column, edges = block.columns.get(name), self.edges[name]
        values = None if column is None else as_matrix(column)
        if column is None or values is None or width_of(column) != len(edges):
            raise DataError(
                f"it is not the column of {len(edges)} number(s) that the binner was fitted on",
                where=f"column {name!r}",
                fix=SAME_COLUMNS,
            )
        bins = np.empty(values.shape)
        for j, inner in enumerate(edges):
            bins[:, j] = np.searchsorted(np.asarray(inner), values[:, j], side="right")
        bins[np.isnan(values)] = np.nan
        return bins

    def _onehot(self, bins: Float64) -> SparseColumn:
        widths = [len(inner) + 1 for name in self.columns for inner in self.edges[name]]
        offsets = np.cumsum([0, *widths])
        known = ~np.isnan(bins)
        indptr = np.zeros(len(bins) + 1, dtype=np.int64)
        np.cumsum(known.sum(axis=1), out=indptr[1:])
        indices = (bins + offsets[:-1])[known].astype(np.int32)
        return SparseColumn(indptr, indices, None, int(offsets[-1]))

    def slot_names(self) -> list[str]:
        """What each slot stands for."""
        names = []
        for name in self.columns:
            for j, inner in enumerate(self.edges[name]):
                feature = name if len(self.edges[name]) == 1 else f"{name}{j}"
                names += [f"{feature}_{number}" for number in range(len(inner) + 1)]
        return names

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """Binned columns are float64, or make way for the one they become, at the end."""
        if not self.columns:
            return columns
        if self.encode == "ordinal":
            return [
                ColumnSpec(c.name, "float64") if c.name in self.edges and c.kind == "int64" else c
                for c in columns
            ]
        kept = [c for c in columns if c.name not in self.columns]
        return [*kept, ColumnSpec(self.output, "sparse", len(self.slot_names()))]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]
