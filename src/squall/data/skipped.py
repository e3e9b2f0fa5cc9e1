"""Rows that cannot be read: an error, or left out, counted and told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from squall.errors import DataError

MAX_SHOWN = 10
"""Rows that are told one by one."""


@dataclass
class Skipped:
    """What was left out, or the rule that nothing is.

    Parameters
    ----------
    allowed : bool
        Whether anything may be left out.
    """

    allowed: bool
    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, error: DataError) -> None:
        """Leave one out.

        Raises
        ------
        DataError
            ``error`` itself, if nothing may be left out.
        """
        if not self.allowed:
            raise error
        self.count += 1
        if len(self.shown) < MAX_SHOWN:
            self.shown.append(f"{error.where}: {error.what}")


def skipped_warnings(skipped: Iterable[Skipped], what: str = "row") -> list[str]:
    """How many were left out in all parts of a set, and the first of them; nothing if none was."""
    parts = list(skipped)
    n = sum(part.count for part in parts)
    if not n:
        return []
    listed = "".join(f"\n  {row}" for row in [row for part in parts for row in part.shown][:MAX_SHOWN])
    were, they = (f"{what} was", "it") if n == 1 else (f"{what}s were", "they")
    first = "" if n <= MAX_SHOWN else f"; the first {MAX_SHOWN} are"
    return [f"{n:,} {were} skipped, because {they} cannot be read{first}:{listed}"]
