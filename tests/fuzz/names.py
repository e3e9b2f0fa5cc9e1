"""All targets by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from random import Random

_MODULES = {
    "csv": "texts",
    "libsvm": "texts",
    "strings": "texts",
    "decimals": "texts",
    "packing": "arrays",
    "sparse": "arrays",
    "hashing": "arrays",
    "frames": "arrays",
    "readers": "readers",
}
NAMES = list(_MODULES)


def target(name: str) -> Callable[[Random], None]:
    """The function of that name; its module is loaded only where it runs."""
    found: Callable[[Random], None] = getattr(importlib.import_module(f"tests.fuzz.{_MODULES[name]}"), name)
    return found
