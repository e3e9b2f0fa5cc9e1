"""Hints for names that are not there."""

from __future__ import annotations

import difflib


def column_hint(name: str, known: list[str]) -> str:
    """The column that was probably meant, or else the columns there are."""
    if close := difflib.get_close_matches(name, known, n=1):
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(repr(k) for k in known[:20]) + (", …" if len(known) > 20 else "")
    return f"the columns are {shown}"
