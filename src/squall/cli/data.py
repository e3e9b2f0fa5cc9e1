"""``squall data info | head | describe``: a stored data set in a terminal."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

import squall
from squall.cli.show import console
from squall.data.dataset import Dataset
from squall.data.summary import MAX_DISTINCT, ColumnSummary
from squall.records import CategoricalColumn, ColumnSpec

_SHOWN = 40
"""Columns of a table that are shown unless more are asked for."""
_CELL = 24
_GAP = 2
_BARS = 16
_ENTRIES = 8  # of a sparse row
_WIDE = 100


def run_info(url: str) -> None:
    """Show what the manifest says."""
    print_info(squall.open_dataset(url))


def print_info(data: Dataset) -> None:
    """Rows, columns, labels and places, one a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in data.info().lines():
        table.add_row(name, printable(text))
    console.print(table)


def run_head(url: str, n: int) -> None:
    """Show the first rows, with as many columns as fit."""
    data = squall.open_dataset(url)
    rows = data.head(n)
    names = [*(c.name for c in data.columns), *([] if data.label is None else [data.label])]
    limit = max(_CELL, console.width // max(1, len(names)) - _GAP)
    words = {spec.name: strings.strings() for spec in data.columns if (strings := _words(data, spec))}
    cells = [[_cut(printable(_cell(row[name], words.get(name))), limit) for name in names] for row in rows]
    heads = [_cut(printable(name), _CELL) for name in names]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    shown = _fitting(widths, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for number in shown:
        numeric = any(isinstance(row[names[number]], (int, float)) for row in rows)
        table.add_column(
            Text(heads[number], "dim"),
            justify="right" if numeric else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in cells:
        table.add_row(*(row[number] for number in shown))
    console.print(table)
    left_out = len(names) - len(shown)
    if left_out:
        console.print(f"{left_out:,} more columns do not fit", style="dim")


def _fitting(widths: list[int], room: int) -> list[int]:
    """Numbers of the columns that fit: the first ones, and always the last, which may be the label."""
    if not widths:
        return []
    last = len(widths) - 1
    shown, used = [], widths[last]
    for number, width in enumerate(widths[:last]):
        used += width + _GAP
        if used > room:
            break
        shown.append(number)
    return [*shown, last]


def run_describe(url: str, everything: bool) -> None:
    """Show statistics of each column, and how often each label turns up."""
    data = squall.open_dataset(url)
    found = data.describe()
    console.print(f"{found.rows:,} rows", style="bold")
    shown = found.columns if everything else found.columns[:_SHOWN]
    _print_columns([_described(column) for column in shown])
    if len(shown) < len(found.columns):
        console.print(f"{len(found.columns) - len(shown):,} more columns (--all shows them)", style="dim")
    if found.label is not None:
        _print_labels(found.label, found.labels, found.rows)


def _print_columns(rows: list[dict[str, str]]) -> None:
    """A line for each; numbers are never cut, so what does not fit costs names, values, then a column."""
    names = list(rows[0]) if rows else []
    wide = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    room = console.width - _GAP * (len(names) - 1)
    if names and sum(wide.values()) - wide["values"] + _BARS > room:
        wide["column"] = min(wide["column"], 14)
    if names and sum(wide.values()) - wide["values"] + _BARS > room:
        del wide["distinct"]
        room += _GAP
    wide["values"] = max(_BARS, room - sum(w for name, w in wide.items() if name != "values"))
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for name in wide:
        justify: Literal["left", "right"] = "left" if name in ("column", "kind", "values") else "right"
        table.add_column(Text(name, "dim"), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(_cut(row[name], width) for name, width in wide.items()))
    console.print(table)


def _described(column: ColumnSummary) -> dict[str, str]:
    digits = 4 if console.width >= _WIDE else 3
    kind = "text" if column.kind == "categorical" else column.kind
    distinct = "" if column.width > 1 else f">{MAX_DISTINCT:,}"
    top = column.most_frequent(lambda text: _cut(printable(text), 12))
    zeros = f"{column.zeros:.1%} zeros" if column.zeros else ""
    numbers = {name: getattr(column, name) for name in ("min", "mean", "max")}
    return {
        "column": _cut(printable(column.name), _CELL),
        "kind": kind if column.width == 1 else f"{kind} × {column.width:,}",
        "missing": f"{column.missing / column.rows:.1%}" if column.missing else "",
        "distinct": distinct if column.distinct is None else f"{column.distinct:,}",
        **{name: "" if number is None else f"{number:.{digits}g}" for name, number in numbers.items()},
        "values": top or zeros or column.bars(),
    }


def _print_labels(label: str, labels: list[tuple[str, int]], rows: int) -> None:
    console.print()
    table = Table(box=None, show_header=False, pad_edge=False)
    sides: list[Literal["left", "right"]] = ["left", "right", "right", "left"]
    for justify in sides:
        table.add_column(justify=justify, no_wrap=True)
    most = max((n for _, n in labels), default=1) or 1
    for name, n in labels[:20]:
        share = n / max(rows, 1)
        table.add_row(_cut(printable(name), _CELL), f"{n:,}", f"{share:.1%}", "█" * round(24 * n / most))
    console.print(Text(f"label {printable(label)}", "bold"))
    console.print(table)
    if len(labels) > 20:
        console.print(f"{len(labels) - 20:,} more labels", style="dim")


def _words(data: Dataset, spec: ColumnSpec) -> CategoricalColumn | None:
    """What the positions of a sparse column stand for, if that is known."""
    return data.shared_strings(spec) if spec.kind == "sparse" else None


def _cell(value: Any, words: list[str] | None = None) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        named = [(words[f] if words else f, number) for f, number in list(value.items())[:_ENTRIES]]
        shown = " ".join(f"{feature}:{number:g}" for feature, number in named) or "–"
        return shown + (f" … {len(value):,} entries" if len(value) > _ENTRIES else "")
    if isinstance(value, list):
        return _picture(value) if len(value) > _BARS else " ".join(f"{number:g}" for number in value)
    return str(value)


def _picture(numbers: list[float]) -> str:
    """A long row as blocks: the means of equal parts of it, from the smallest to the largest."""
    means = [
        float(np.mean(part)) for part in np.array_split(np.nan_to_num(np.asarray(numbers, np.float64)), _BARS)
    ]
    low, high = min(means), max(means)
    blocks = [int((mean - low) / (high - low) * 8) if high > low else 0 for mean in means]
    return "".join(" ▁▂▃▄▅▆▇█"[block] for block in blocks)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def printable(text: str) -> str:
    """The text with what a terminal would obey, or not show, written out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
