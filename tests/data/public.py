"""Public data sets that are not part of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

_FOLDER = Path.home() / ".cache" / "squall-sets"


def public(name: str) -> Path:
    """The file of that name; the test is skipped if nobody has fetched it."""
    path = _FOLDER / name
    if not path.is_file():
        pytest.skip(f"{name} is not there: python examples/public_sets.py fetches it")
    return path
