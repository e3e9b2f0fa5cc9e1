"""(client) What a strictly isolated function must be able to read: Python, packages, code.

The client's folders are hidden from it, yet Python, a virtual environment or Squall's own
source may lie in them.  So only this is shown: the parts of Python's installation, whole
``site-packages`` folders, the ``squall`` package, and of every other entry of ``sys.path`` the
*modules and packages* in it.  Data, settings and everything else beside them stay hidden, as
they would be left out of what is uploaded to a cloud.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import squall

_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")
_PACKAGE_FOLDERS = ("site-packages", "dist-packages", "lib-dynload")


def readable(sys_path: Iterable[str], handler: str) -> list[str]:
    """Absolute paths, each as it is spelled and without symbolic links."""
    found = {*_installation(), *_own_source(), *_module(handler.partition(":")[0])}
    for entry in sys_path:
        found.update(_of_entry(Path(entry)))
    return sorted(found | {os.path.realpath(path) for path in found})


def _installation() -> Iterator[str]:
    for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
        yield from (str(path) for part in _PARTS if (path := Path(prefix, part)).exists())
    program = sys.executable
    for _ in range(40):  # a virtual environment's is a link to a link to …
        yield program
        if not os.path.islink(program):  # noqa: PTH114
            return
        target = Path(program).parent / Path(program).readlink()
        program = os.path.normpath(target)


def _own_source() -> Iterator[str]:
    yield str(Path(squall.__file__).parent)


def _module(name: str) -> Iterator[str]:
    """The handler's own module or package, however it is found (an editable install, say)."""
    top = name.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # the function meets the same error, and reports it
        return
    if spec is not None and spec.submodule_search_locations is not None:
        yield from spec.submodule_search_locations
    elif spec is not None and spec.has_location and spec.origin:
        yield spec.origin


def _of_entry(entry: Path) -> Iterator[str]:
    """What there is to be imported from one entry of ``sys.path``."""
    if entry.name in _PACKAGE_FOLDERS or str(entry) in _site_folders() or entry.is_file():
        yield str(entry)
        return
    try:
        children = sorted(entry.iterdir())
    except OSError:  # not there, or not ours to read
        return
    suffixes = tuple(importlib.machinery.all_suffixes())
    for child in children:
        if child.name.endswith(suffixes) or (child / "__init__.py").is_file():
            yield str(child)


def _site_folders() -> set[str]:
    return {*site.getsitepackages(), site.getusersitepackages()}
