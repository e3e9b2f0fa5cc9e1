"""The command line: ``squall demo | train | predict | status | clean | doctor``."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``squall`` command."""
    from squall.cli.app import run

    run()
