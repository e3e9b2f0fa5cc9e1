"""(client) Modules of the user's own, which functions cannot be expected to have.

Local is what was imported from a file that is neither Python's own, nor an installed package's
(``site-packages``, or where a package manager has left its notes), nor Squall's: the script's
neighbours, packages in the working folder, and packages that are installed as editable.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
import threading
from pathlib import Path
from types import ModuleType

import squall

_INSTALLED = ("site-packages", "dist-packages")
_lock = threading.Lock()
_looked_at: set[str] = set()
_local: list[str] = []


def local_modules() -> list[ModuleType]:
    """All that are imported now (the main script aside, which is taken along anyway)."""
    with _lock:
        for name in set(sys.modules) - _looked_at:
            _looked_at.add(name)
            module = sys.modules.get(name)
            if isinstance(module, ModuleType) and _is_local(name, module):
                _local.append(name)
        return [sys.modules[name] for name in _local if name in sys.modules]


def _is_local(name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    # An alias is taken along under its own name; machine code cannot be.
    if not isinstance(file, str) or module.__name__ != name or name == "__main__":
        return False
    path = Path(os.path.realpath(file))
    if path.suffix not in (".py", ".pyc") or any(part in _INSTALLED for part in path.parts):
        return False
    if any(path.is_relative_to(folder) for folder in _not_local()):
        return False
    depth = name.count(".") + (path.stem == "__init__")
    return len(path.parents) <= depth or not _is_installed_to(path.parents[depth])


@functools.cache
def _is_installed_to(folder: Path) -> bool:
    """Whether a package manager looks after the folder, as with ``pip install --target``."""
    return any(folder.glob("*.dist-info"))


@functools.cache
def _not_local() -> list[str]:
    """Folders of Python, of installed packages and of Squall."""
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages(), str(Path(squall.__file__).parent)]
    return [os.path.realpath(folder) for folder in folders]
