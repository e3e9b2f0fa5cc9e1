"""One line on the terminal that is rewritten, where someone looks."""

from __future__ import annotations

import shutil
import sys

REFRESH_S = 0.1
"""Seconds between two versions of the line."""


def someone_looks() -> bool:
    """Whether standard error is a terminal or a notebook's."""
    if "ipykernel" in sys.modules:  # a notebook shows a line that is rewritten, too
        return True
    return sys.stderr is not None and sys.stderr.isatty()


def rewrite(line: str) -> None:
    """Show a line in the place of the one before."""
    # A line that wraps could not be rewritten; spaces blot out what was there, also in a notebook.
    width = shutil.get_terminal_size().columns - 1
    sys.stderr.write("\r" + line[:width].ljust(width))
    sys.stderr.flush()


def end_line() -> None:
    """Leave the line as it is, and go on below it."""
    sys.stderr.write("\n")
