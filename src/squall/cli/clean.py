"""``squall clean``: free what dead jobs have left, and data sets that nobody uses."""

from __future__ import annotations

import time

from rich.table import Table

from squall.cli.show import console
from squall.data.objects import ObjectStore, default_storage
from squall.driver.claims import remove
from squall.driver.cleaning import find_removable
from squall.units import format_size

_DAY_S = 86_400.0


def run_clean(*, days: float, interrupted: bool, dry_run: bool, storage: str | None) -> None:
    """Show what goes and how much that frees; unless it is a dry run, remove it."""
    objects = ObjectStore(default_storage() if storage is None else storage)
    found = find_removable(objects, days * _DAY_S, time.time(), interrupted=interrupted)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for item in found:
        table.add_row(item.folder, format_size(item.size), item.why)
        if not dry_run:
            remove(objects, item.folder)
    console.print(objects.url, soft_wrap=True, style="bold")
    if found:
        console.print(table)
    freed = format_size(sum(item.size for item in found))
    verb = "would be removed" if dry_run else "removed"
    console.print(f"{len(found)} folder{'' if len(found) == 1 else 's'} {verb}, {freed}")
    if objects.folder is None:
        console.print("data sets in a remote store are left: when one was last used is not known there")
