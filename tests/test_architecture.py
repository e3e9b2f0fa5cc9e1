"""The house holds: each floor imports only floors below it, and running functions stay small."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "squall"

# From the roof down.  Packages of one floor do not import each other, but for the kernels,
# which lie below the rest of pure mathematics.
FLOORS = [
    {"cli", "dashboard", "__main__", "testing"},
    {"estimators", "tuning", "workflows"},
    {"planning", "simulation"},
    {"driver", "functions"},
    {"worker"},
    {"store", "data"},
    {"models", "preprocessing"},
    {"optim"},
    {"_kernels"},
    {
        "protocols",
        "records",
        "errors",
        "config",
        "units",
        "paths",
        "procfs",
        "heap",
        "log",
        "registry",
        "terminal",
    },
]
FLOOR_OF = {name: level for level, names in enumerate(FLOORS) for name in names}


def imports_of(path: Path) -> set[str]:
    """Names of squall's parts that a file imports anywhere, type checking included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    parts = [name.split(".") for name in found if name.split(".")[0] == "squall"]
    return {part[1] for part in parts if len(part) > 1}


def part_of(path: Path) -> str:
    relative = path.relative_to(SRC)
    return relative.parts[0].removesuffix(".py")


FILES = [p for p in sorted(SRC.rglob("*.py")) if p != SRC / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_file_imports_only_floors_below_its_own(path: Path) -> None:
    own = part_of(path)
    assert own in FLOOR_OF, f"{own} is on no floor"
    if FLOOR_OF[own] == 0:
        return
    for other in imports_of(path) - {own, "__version__"}:
        assert other in FLOOR_OF, f"{path} imports {other}, which is on no floor"
        if FLOOR_OF[own] == FLOOR_OF["protocols"]:
            assert FLOOR_OF[other] == FLOOR_OF[own], f"the ground floor imports {other}"
        else:
            assert FLOOR_OF[other] > FLOOR_OF[own], f"{own} imports {other}, which is not below it"


@pytest.mark.parametrize("loop", ["worker/loop.py", "driver/loop.py"])
def test_the_two_main_loops_are_read_in_one_sitting(loop: str) -> None:
    assert len((SRC / loop).read_text().splitlines()) < 300


def test_importing_squall_loads_no_library() -> None:
    code = "import sys, squall; print(sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numpy", "sklearn", "rich", "typer", "obstore", "msgspec"):
        assert f"'{heavy}'" not in loaded


CLIENT_ONLY = {
    "sklearn", "scipy", "pandas", "rich", "typer", "click", "boto3", "joblib", "pickle", "multiprocessing",
}  # fmt: skip
IN_FUNCTION = {"numpy", "obstore", "safetensors", "msgspec", "typing_extensions", "squall"}


def test_what_a_running_function_has_imported_stays_tiny() -> None:
    from squall.functions.local.pool import shared
    from squall.records import Shape

    endpoint = shared().prepare(Shape("squall.testing.handlers:worker_modules", 512, 30.0))
    outcome = endpoint.invoke({}).outcome(30)
    assert outcome.kind == "returned", outcome
    loaded = {name.partition(".")[0] for name in outcome.value}
    assert "squall" in loaded and "numpy" in loaded
    check_tiny(loaded, IN_FUNCTION)


def test_a_function_of_map_has_cloudpickle_beside_that() -> None:
    import squall

    def roots(_: object) -> set[str]:
        import sys

        return {name.partition(".")[0] for name in sys.modules}

    loaded = squall.call(roots, None).result(30)
    assert "cloudpickle" in loaded
    check_tiny(loaded, IN_FUNCTION | {"cloudpickle"})


def check_tiny(loaded: set[str], allowed: set[str]) -> None:
    standard = set(sys.stdlib_module_names) | {"__main__"}
    foreign = {n for n in loaded - standard - allowed if not n.startswith(("_", "nb_"))}
    assert not foreign, f"a running function has imported {sorted(foreign)}"
    assert not loaded & (CLIENT_ONLY - {"pickle"}), loaded & CLIENT_ONLY


def test_pickle_is_used_in_one_module() -> None:
    users = [p for p in FILES if {"pickle", "cloudpickle", "marshal", "shelve"} & _top_imports(p)]
    assert users == [SRC / "worker" / "pickles.py"]


def _top_imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_the_lazy_names_are_those_declared_for_type_checkers() -> None:
    import squall

    tree = ast.parse((SRC / "__init__.py").read_text())
    declared: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("squall"):
            declared.update({str(a.asname): f"{node.module}:{a.name}" for a in node.names})
    assert declared == squall._NAMES
    assert sorted([*declared, "__version__"]) == sorted(squall.__all__)
    for name in squall.__all__:
        assert getattr(squall, name) is not None


def test_price_lists_are_plain_json() -> None:
    for path in (SRC / "driver" / "prices").glob("*.json"):
        assert json.loads(path.read_text())["date"]
