"""The command line: ``squall demo | train | predict | map | status | clean | doctor``."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C, also when the model was kept: a script can tell."""


def main() -> None:
    """Entry point of the ``squall`` command."""
    try:
        from squall.cli.app import run
    except KeyboardInterrupt:  # loading takes long enough for a Ctrl-C
        sys.exit(INTERRUPTED)
    run()
