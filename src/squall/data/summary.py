"""What is in a data set: its shape, its first rows, and statistics of each column by one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from squall.data.rows import count_missing
from squall.preprocessing.moments import Moments, merge_moments, moments
from squall.preprocessing.quantiles import QuantileSketch, merge_sketches, sketch
from squall.records import CategoricalColumn, Column, ColumnSpec, DenseColumn, Numbers, NumericColumn

if TYPE_CHECKING:
    from squall.data.dataset import Dataset

MAX_DISTINCT = 10_000
"""Different values that are counted one by one; of what has more, only that is known."""
_TOP = 5
_BARS = 16
_BLOCKS = "▁▂▃▄▅▆▇█"


class ColumnSummary(msgspec.Struct, frozen=True):
    """Statistics of one column; of a matrix over all its numbers, of a sparse one over those it stores.

    Numbers have no ``top``, text has none of the other statistics; what is not there is None.
    """

    name: str
    kind: str
    width: int
    rows: int
    missing: int
    min: float | None = None
    quartiles: tuple[float, float, float] | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None  # of the population
    zeros: float | None = None  # share of a matrix's numbers
    distinct: int | None = None  # None: more than 10,000, or not counted
    top: list[tuple[str, int]] = []  # the most frequent texts, and how often
    histogram: list[int] = []  # about how many are in each of 16 equal parts from min to max

    def most_frequent(self, shown: Callable[[str], str]) -> str:
        """The three most frequent texts, with their share of the rows, or how often they come."""
        if len(self.top) == _TOP and self.top[0][1] == 1:
            return "all different"
        shares = [f"{n / self.rows:.0%}" if n >= self.rows / 100 else f"{n:,}×" for _, n in self.top[:3]]
        return ", ".join(f"{shown(text)} {share}" for (text, _), share in zip(self.top, shares, strict=False))

    def bars(self) -> str:
        """The histogram as one line of blocks."""
        most = max(self.histogram, default=0)
        # Whoever is there at all shows: only an empty part is blank.
        return "".join(" " if not n else _BLOCKS[(n * 8 - 1) // most] for n in self.histogram)


class Description(msgspec.Struct, frozen=True):
    """What `Dataset.describe` found."""

    rows: int
    columns: list[ColumnSummary]
    label: str | None
    labels: list[tuple[str, int]]  # label → rows, the most frequent first

    def table(self) -> list[list[str]]:
        """A head, then a line for each column, all as text."""
        head = ["column", "kind", "missing", "distinct", "min", "mean", "max", "std", "values"]
        return [head, *(_cells(c) for c in self.columns)]

    def __repr__(self) -> str:
        table = self.table()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(w) if 2 <= i < 8 else cell.ljust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        if self.label is not None:
            rows = max(self.rows, 1)
            shares = [f"{label}: {n:,} ({n / rows:.1%})" for label, n in self.labels[:8]]
            lines.append(f"label {self.label}: {', '.join(shares)}{', …' if len(self.labels) > 8 else ''}")
        return "\n".join([f"{self.rows:,} rows", *lines])


def _cells(c: ColumnSummary) -> list[str]:
    kind = c.kind if c.width == 1 else f"{c.kind} × {c.width:,}"
    missing = f"{c.missing:,}" if c.missing else ""
    distinct = f"{c.distinct:,}" if c.distinct is not None else f"> {MAX_DISTINCT:,}" if c.width == 1 else ""
    numbers = ["" if x is None else f"{x:.4g}" for x in (c.min, c.mean, c.max, c.std)]
    top = c.most_frequent(str)
    zeros = f"{c.zeros:.1%} zeros" if c.zeros else ""
    return [c.name, kind, missing, distinct, *numbers, top or zeros or c.bars()]


# ---- statistics


class _Numbers(NamedTuple):
    """Of a column of numbers, all its features together."""

    cells: int
    zeros: int
    low: float
    high: float
    moments: Moments
    sketch: QuantileSketch
    values: Numbers | None  # different ones; None: too many


def describe(data: Dataset) -> Description:
    """See `Dataset.describe`."""
    missing: Counter[str] = Counter()
    texts: dict[str, Counter[str] | None] = {}
    numbers: dict[str, _Numbers] = {}
    labels = np.zeros(0 if data.classes is None else len(data.classes), dtype=np.int64)
    # Labels that are numbers to predict are looked at like a column.
    target = data.label if data.classes is None else None
    specs = data.columns + ([] if target is None else [ColumnSpec(target, "float64")])
    for block in data.blocks():
        missing.update({name: count_missing(column) for name, column in block.columns.items()})
        columns = dict(block.columns)
        if block.labels is not None and data.classes is None and data.label is not None:
            columns[data.label] = NumericColumn(block.labels)  # numbers to predict
        elif block.labels is not None:
            labels += np.bincount(block.labels, minlength=len(labels))
        for name, column in columns.items():
            if isinstance(column, CategoricalColumn):
                texts[name] = _texts(texts.get(name, Counter()), column)
            else:
                own = _numbers(name, column)
                numbers[name] = _merged(numbers[name], own) if name in numbers else own
    summaries = []
    specs = list(data.columns)
    if data.label in numbers and data.label is not None:
        specs.append(ColumnSpec(data.label, "float64"))
    for spec in specs:
        fixed = spec.name, spec.kind, spec.width, data.n_rows, missing[spec.name]
        if spec.name in numbers:
            summaries.append(ColumnSummary(*fixed, **_of_numbers(spec.kind, numbers[spec.name])))
        else:
            summaries.append(ColumnSummary(*fixed, **_of_texts(texts.get(spec.name, Counter()))))
    known = [] if data.classes is None else zip(map(str, data.classes.tolist()), labels.tolist(), strict=True)
    counted = sorted(known, key=lambda item: -item[1])
    return Description(data.n_rows, summaries, None if data.classes is None else data.label, counted)


def _texts(counts: Counter[str] | None, column: CategoricalColumn) -> Counter[str] | None:
    if counts is None:
        return None
    own = np.bincount(column.codes[column.codes >= 0], minlength=len(column.offsets) - 1)
    strings = column.strings()
    counts.update({strings[code]: int(own[code]) for code in np.flatnonzero(own).tolist()})
    return counts if len(counts) <= MAX_DISTINCT else None


def _of_texts(counts: Counter[str] | None) -> dict[str, Any]:
    if counts is None:
        return {}
    return {"distinct": len(counts), "top": counts.most_common(_TOP)}


def _numbers(name: str, column: Column) -> _Numbers:
    """Statistics of one block's column: of the entries of a sparse one, and its zeros beside them."""
    assert not isinstance(column, CategoricalColumn)
    if isinstance(column, (NumericColumn, DenseColumn)):
        cells = column.values.size
        values = column.values.reshape(-1).astype(np.float64)
    else:
        cells = (len(column.indptr) - 1) * column.width
        entries = len(column.indices)
        values = np.ones(entries) if column.values is None else column.values.astype(np.float64)
    finite = values[np.isfinite(values)]
    present = values[~np.isnan(values)]
    unique: Any = None
    if isinstance(column, NumericColumn):  # not as float64, which would make one of two large integers
        unique = np.unique(column.values[~np.isnan(values)])
    return _Numbers(
        cells,
        int(cells - np.count_nonzero(values)),
        float(present.min(initial=np.inf)),
        float(present.max(initial=-np.inf)),
        moments(name, NumericColumn(finite), "a mean"),
        sketch(finite),
        None if unique is None or len(unique) > MAX_DISTINCT else unique,
    )


def _merged(a: _Numbers, b: _Numbers) -> _Numbers:
    values: Any = None
    if a.values is not None and b.values is not None:
        values = np.union1d(a.values, b.values)
        values = values if len(values) <= MAX_DISTINCT else None
    return _Numbers(
        a.cells + b.cells,
        a.zeros + b.zeros,
        min(a.low, b.low),
        max(a.high, b.high),
        merge_moments(a.moments, b.moments),
        merge_sketches(a.sketch, b.sketch),
        values,
    )


def _of_numbers(kind: str, n: _Numbers) -> dict[str, Any]:
    matrix = kind in ("dense", "sparse")
    found: dict[str, Any] = {"distinct": None if n.values is None else len(n.values)}
    if matrix:
        found["zeros"] = n.zeros / n.cells if n.cells else 0.0
    if n.low > n.high:
        return found
    quartiles = n.sketch.quantiles(np.array([0.25, 0.5, 0.75]))
    return found | {
        "min": n.low,
        "max": n.high,
        "mean": float(n.moments.mean[0]),
        "std": float(np.sqrt(n.moments.variance[0])),
        "quartiles": tuple(quartiles.tolist()),
        "histogram": list(_histogram(n.sketch)),
    }


def _histogram(values: QuantileSketch) -> Iterator[int]:
    if not values.n:
        return
    low, high = values.quantiles(np.array([0.0, 1.0])).tolist()
    edges = np.linspace(low, high, _BARS + 1)
    below = values.ranks(edges[1:])
    yield from np.diff(below, prepend=0).tolist()
