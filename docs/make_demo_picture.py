"""Draw docs/demo.svg: what `squall demo` shows, as it was on the machine that ran this."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import squall
from squall.cli import demo, show

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Run the demo with a console that remembers what it printed."""
    console = Console(record=True, width=125, file=io.StringIO(), highlight=False)
    demo.console = show.console = console
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("examples").symlink_to(ROOT / "examples")
        demo.run_demo(workers=2, epochs=20, out=Path("census.squall"), storage=folder, seed=0)
        squall.shutdown()
    svg = console.export_svg(title="squall demo", theme=MONOKAI)
    (ROOT / "docs" / "demo.svg").write_text(svg)


if __name__ == "__main__":
    sys.exit(main())
