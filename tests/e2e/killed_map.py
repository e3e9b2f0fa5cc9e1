"""A ``squall map`` that is killed at a chosen moment of its journal; run by test_map_clients as a process.

Arguments: the moment, then those of ``squall map``.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from squall.cli import journal
from squall.cli.app import run

RESULTS_BEFORE = 3


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(moment: str) -> None:
    write, complete = journal.Journal.add, Path.replace

    def add(self: journal.Journal, item: int, line: str) -> None:
        if len(self.lines) == RESULTS_BEFORE and moment in ("before", "during"):
            if moment == "during":
                os.write(self._file.fileno(), b'[9, "the begi')
            die()
        write(self, item, line)
        if len(self.lines) == RESULTS_BEFORE + 1 and moment == "after":
            die()

    def replace(self: Path, target: Any) -> Path:
        ours = self.suffix == ".new"
        if ours and moment == "completing":
            die()
        renamed = complete(self, target)
        if ours and moment == "completed":
            die()
        return renamed

    journal.Journal.add = add  # type: ignore[method-assign]
    journal.Path.replace = replace  # type: ignore[method-assign,attr-defined]


if __name__ == "__main__":
    die_at(sys.argv.pop(1))
    run()
