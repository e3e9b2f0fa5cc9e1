"""What is known of a data set without reading it all: its shape, and its first rows."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from squall.data.rows import slice_raw
from squall.records import Bill, CategoricalColumn, Column, DenseColumn, NumericColumn
from squall.units import format_money

if TYPE_CHECKING:
    from squall.data.dataset import Dataset
    from squall.data.sources import Source


class Info(msgspec.Struct, frozen=True):
    """What a data set's manifest says."""

    rows: int
    columns: int
    features: int  # numbers that a row has: matrices have many in one column
    kinds: dict[str, int]  # kind → columns
    label: str | None
    classes: list[Any] | None
    partitions: int
    bytes: int | None  # as stored; None of arrays in memory
    source: str
    location: str | None
    facts: dict[str, Any]  # what its reader decided or was told
    bill: Bill | None = None  # of functions that parsed it for this process

    def __str__(self) -> str:
        return "\n".join(f"{name:<11}{value}" for name, value in self.lines())

    def _labels(self) -> str:
        if self.classes is None:
            return "numbers"
        shown = ", ".join(repr(c) for c in self.classes[:8]) + (", …" if len(self.classes) > 8 else "")
        return f"{len(self.classes):,} classes: {shown}"

    def lines(self) -> list[tuple[str, str]]:
        """What there is to say, as (name, text)."""
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in self.kinds.items())
        lines = [("rows", f"{self.rows:,}"), ("columns", f"{self.columns:,} ({kinds})")]
        if self.features != self.columns:
            lines.append(("features", f"{self.features:,}"))
        if self.label is not None:
            lines.append(("label", f"{self.label} ({self._labels()})"))
        size = "" if self.bytes is None else f", {self.bytes:,} bytes"
        lines.append(("partitions", f"{self.partitions:,}{size}"))
        lines.append(("read from", self.source))
        if self.facts:
            lines.append(("as", ", ".join(filter(None, map(_fact, self.facts.items())))))
        if self.location is not None:
            lines.append(("stored at", self.location))
        if self.bill is not None:
            calls = _counted(self.bill.invocations, "invocation")
            lines.append(("parsed in", f"{calls} for {format_money(self.bill.total_usd)}"))
        return lines


def _fact(fact: tuple[str, Any]) -> str:
    name, value = fact
    if isinstance(value, bool):
        return name.replace("_", " ") if value else ""
    return str(value) if name == "format" else f"{name.replace('_', ' ')} {value}"


def info(data: Dataset, source: Source) -> Info:
    """See `Dataset.info`."""
    manifest, store = getattr(source, "manifest", None), getattr(source, "store", None)
    kinds = Counter(spec.kind for spec in data.columns)
    return Info(
        rows=data.n_rows,
        columns=len(data.columns),
        features=sum(spec.width for spec in data.columns),
        kinds={str(kind): n for kind, n in kinds.items()},
        label=data.label,
        classes=None if data.classes is None else data.classes.tolist(),
        partitions=len(data.partitions()),
        bytes=None if manifest is None else sum(p.bytes for p in manifest.partitions),
        source=manifest.source if manifest is not None else "arrays in memory",
        location=None if store is None else store.url,
        facts={} if manifest is None else manifest.facts,
        bill=data.bill,
    )


# ---------------------------------------------------------------------------------- first rows


def first_rows(data: Dataset, n: int) -> list[dict[str, Any]]:
    """See `Dataset.head`."""
    rows: list[dict[str, Any]] = []
    for block in data.blocks() if n else ():
        wanted = slice_raw(block, 0, min(block.n_rows, n - len(rows)))
        cells = {name: _cells_of(column) for name, column in wanted.columns.items()}
        if wanted.labels is not None and data.label is not None:
            own = wanted.labels if data.classes is None else data.classes[wanted.labels]
            cells[data.label] = own.tolist()
        rows += [{name: own[i] for name, own in cells.items()} for i in range(wanted.n_rows)]
        if len(rows) == n:
            break
    return rows


def _cells_of(column: Column) -> list[Any]:
    if isinstance(column, CategoricalColumn):
        strings = [*column.strings(), None]
        return [strings[code] for code in column.codes.tolist()]
    if isinstance(column, NumericColumn):
        return [None if value != value else value for value in column.values.tolist()]
    if isinstance(column, DenseColumn):
        return column.values.tolist()  # type: ignore[no-any-return]
    ends, indices = column.indptr.tolist(), column.indices.tolist()
    values = [1.0] * len(indices) if column.values is None else column.values.tolist()
    return [dict(zip(indices[a:b], values[a:b], strict=True)) for a, b in itertools.pairwise(ends)]


def short(data: Dataset) -> str:
    """One line about a data set."""
    kinds = Counter(spec.kind for spec in data.columns)
    parts = [_counted(data.n_rows, "row"), _counted(len(data.columns), "column")]
    parts[-1] += f" ({', '.join(f'{n:,} {kind}' for kind, n in kinds.items())})" if kinds else ""
    if data.label is not None and data.classes is not None:
        shown = [repr(c) for c in data.classes[:5].tolist()] + ["…"] * (len(data.classes) > 5)
        parts.append(f"label {data.label!r} ({_counted(len(data.classes), 'class')}: {', '.join(shown)})")
    elif data.label is not None:
        parts.append(f"label {data.label!r} (numbers)")
    return f"Dataset({', '.join(parts)})"


def _counted(n: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{n:,} {noun if n == 1 else plural}"
