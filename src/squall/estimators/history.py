"""How a training's history is shown."""

from __future__ import annotations

from squall.records import HistoryRecord
from squall.units import format_count, format_duration, format_money

_TITLES = ("epoch", "loss", "held-out loss", "rows", "workers", "time", "cost")


class History(list[HistoryRecord]):
    """The records of a training, one an epoch: a list that is shown as a table."""

    def __repr__(self) -> str:
        rows = [_TITLES, *map(_cells, self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)


def _cells(record: HistoryRecord) -> tuple[str, ...]:
    return (
        str(record.epoch),
        f"{record.loss:.4f}",
        "" if record.validation_loss is None else f"{record.validation_loss:.4f}",
        format_count(record.rows),
        str(record.workers),
        format_duration(record.time_s),
        format_money(record.cost_usd),
    )
