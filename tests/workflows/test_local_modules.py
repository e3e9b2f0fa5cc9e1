"""Whose code is taken along, and whose is not."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall.workflows.local_modules import local_modules


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write modules of an own folder and import them; at the end they are forgotten."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def write(*names: str) -> None:
        for name in names:
            path = tmp_path / Path(*name.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            for package in [p for p in path.parents if p.is_relative_to(tmp_path) and p != tmp_path]:
                (package / "__init__.py").touch()
            path.write_text("def f(): return 1\n")
            made.append(name.partition(".")[0])
        importlib.invalidate_caches()
        for name in names:
            importlib.import_module(name)

    yield write
    for name in [n for n in sys.modules if n.partition(".")[0] in made]:
        del sys.modules[name]


def names() -> set[str]:
    return {module.__name__ for module in local_modules()}


def test_modules_and_packages_of_ones_own(project: Callable[..., None]) -> None:
    project("lm_alone", "lm_pack.sub.deep")
    assert {"lm_alone", "lm_pack", "lm_pack.sub", "lm_pack.sub.deep", __name__} <= names()


def test_nothing_of_pythons_of_packages_or_of_squall() -> None:
    tops = {name.partition(".")[0] for name in names()}
    assert not tops & {"json", "numpy", "pytest", "squall", "sklearn", "__main__", "encodings"}


def test_what_a_package_manager_has_put_beside_is_installed(
    project: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "lm_target-1.0.dist-info").mkdir()
    project("lm_target", "lm_other.sub")
    assert not {"lm_target", "lm_other", "lm_other.sub"} & names()


def test_an_alias_is_no_second_module(project: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    project("lm_real")
    monkeypatch.setitem(sys.modules, "lm_alias", sys.modules["lm_real"])
    assert [m.__name__ for m in local_modules()].count("lm_real") == 1


def test_what_is_no_longer_imported_is_not_taken(project: Callable[..., None]) -> None:
    project("lm_gone")
    assert "lm_gone" in names()
    del sys.modules["lm_gone"]
    assert "lm_gone" not in names()
