"""``squall plot JOB``: a training as a picture, in the terminal or in a file."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.text import Text

import squall
from squall.cli.chart import chart, fits
from squall.cli.documents import print_topics
from squall.cli.jobs import OUT, state_of
from squall.cli.show import console
from squall.data.objects import ObjectStore, default_storage
from squall.driver.record import JobRecord, read_record
from squall.errors import DataError, SettingError, SquallError
from squall.estimators.curves import AGAINST, curves
from squall.estimators.persistence import check_target
from squall.estimators.pictures import check_against, draw_losses, finish, new_axes
from squall.paths import user_path
from squall.units import format_count, format_duration, format_money

_HIGHEST, _LOWEST = 20, 6  # lines
_FORMATS = (".png", ".svg", ".pdf")


def run_plot(job: str, storage: str | None, against: list[str], out: Path | None) -> None:
    """Draw a job's losses as text or, with ``out``, into a file."""
    asked = check_against(against or (["time"] if out is None else ["time", "rows", "cost"]))
    if out is not None and user_path(out).suffix not in _FORMATS:
        raise SettingError(
            f"{str(out)!r} does not end with {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}", where="--out"
        )
    objects = ObjectStore(default_storage() if storage is None else storage)
    record = read_record(objects, job)
    if record.items is not None:
        raise DataError("it is a map, which has no losses", where=f"job {job}", fix="see `squall status`")
    if not curves(record.history, asked[0]):
        raise DataError("no epoch has ended yet that could be drawn", where=f"job {job}")
    if out is not None:
        _write(record, asked, user_path(out))
        return
    console.print(Text(_heading(objects, record), "bold"), soft_wrap=True)
    for name in asked:
        console.print()
        _print(record, name)
    _print_topics(record)


def _print_topics(record: JobRecord) -> None:
    """If it trained a topic model that is still where it was saved, what topics it has found."""
    saved = Path(record.tags.get(OUT, ""))
    if not saved.is_file():
        return
    try:
        model = squall.load(saved)
    except SquallError:  # whatever is there now, it is not what this job has saved
        return
    if isinstance(model, squall.LatentDirichletAllocation) and model.history_ == record.history:
        console.print()
        print_topics(model)


def _heading(objects: ObjectStore, record: JobRecord) -> str:
    last = record.history[-1]
    spent = f"{format_duration(last.time_s)}, {format_count(record.rows)} rows, {format_money(last.cost_usd)}"
    return f"job {record.id} ({state_of(objects, record)}): loss over {len(record.history)} epochs; {spent}"


def _print(record: JobRecord, against: str) -> None:
    spent = AGAINST[against]
    height = max(_LOWEST, min(_HIGHEST, console.height - 6))
    braille = fits(getattr(sys.stdout, "encoding", None))
    lines = chart(
        curves(record.history, against),
        console.width,
        height,
        against=spent,
        braille=braille,
    )
    for line in lines:
        console.print(line, soft_wrap=True)


def _write(record: JobRecord, asked: list[str], target: Path) -> None:
    check_target(target)
    panels = new_axes(1, len(asked), shown=False)
    for axes, name in zip(panels, asked, strict=True):
        draw_losses(axes, record.history, name)
    finish(panels)
    try:
        panels[0].figure.savefig(target, dpi=150)
    except OSError as error:
        raise SquallError(
            f"the picture cannot be written: {error.strerror or error}", where=str(target)
        ) from error
    console.print(f"saved to {target}", soft_wrap=True)
