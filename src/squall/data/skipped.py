"""What is said about rows that were left out."""

from __future__ import annotations

from collections.abc import Iterable

MAX_SHOWN = 10
"""Rows that are told one by one."""


def skipped_warning(n_skipped: int, shown: Iterable[str]) -> str:
    """How many rows were left out, and the first of them."""
    listed = "".join(f"\n  {row}" for row in shown)
    noun = "row was" if n_skipped == 1 else "rows were"
    first = "" if n_skipped <= MAX_SHOWN else f"; the first {MAX_SHOWN} are"
    return f"{n_skipped:,} {noun} skipped, because they cannot be read{first}:{listed}"
