"""What the documentation says can be typed, can be typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.data.public import public

ROOT = Path(__file__).parents[1]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/tutorial.md",
        "docs/scikit-learn.md",
        "docs/consistency.md",
        "docs/admm.md",
        "docs/map.md",
        "docs/models.md",
        "docs/fitting.md",
        "docs/topics.md",
        "docs/data.md",
        "docs/data-formats-more.md",
        "docs/data-formats.md",
    ],
)
def test_python_in_the_docs_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_page(name, monkeypatch, tmp_path)


@pytest.mark.slow
def test_the_page_on_ratings_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    public("ml-100k.inter")
    run_page("docs/ratings.md", monkeypatch, tmp_path)


@pytest.mark.slow
def test_the_page_on_clicks_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its commands too, between the blocks of Python."""
    public("ml-100k.inter")
    monkeypatch.chdir(tmp_path)
    session: dict[str, object] = {}
    found = re.findall(r"```(python|bash)\n(.*?)```", (ROOT / "docs/clicks.md").read_text(), flags=re.DOTALL)
    commands = 0
    for language, block in found:
        if language == "python":
            exec(compile(block, "docs/clicks.md", "exec"), session)
            continue
        for line in block.splitlines():
            if line.startswith("squall "):
                command = [sys.executable, "-m", "squall", *shlex.split(line)[1:]]
                subprocess.run(command, check=True, timeout=60)
                commands += 1
    assert commands == 2
    assert len((tmp_path / "likely.csv").read_text().splitlines()) == 80_001


def run_page(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = blocks(ROOT / name, "python")
    assert code
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    session: dict[str, object] = {}
    for block in code:
        exec(compile(block, name, "exec"), session)


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
