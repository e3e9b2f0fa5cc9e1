"""(client) Modules of the user's own, which functions cannot be expected to have.

Local is what was imported from a file that is neither Python's own nor an installed package's
(``site-packages``), nor Squall's: the script's neighbours, packages in the working folder,
and packages that are installed as editable.
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
    if not isinstance(file, str) or name == "__main__":
        return False
    path = Path(os.path.realpath(file))
    if any(part in _INSTALLED for part in path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in _not_local())


@functools.cache
def _not_local() -> list[str]:
    """Folders of Python, of installed packages and of Squall."""
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages(), str(Path(squall.__file__).parent)]
    return [os.path.realpath(folder) for folder in folders]
