"""Platforms shared by all runs of this process, so that they find each other's warm functions.

They end at exit, by `shutdown`, and (as every local platform) after a minute of idleness.
"""

from __future__ import annotations

import atexit
import os
import threading

from squall.config import Isolation, LocalBackend
from squall.functions.local.chaos import ChaosPlatform
from squall.functions.local.platform import LocalPlatform
from squall.protocols import FunctionPlatform

_lock = threading.Lock()
_platforms: dict[tuple[int | None, float | None, str, bool], LocalPlatform] = {}


def shared(
    concurrency: int | None = None,
    lifetime_s: float | None = None,
    isolation: Isolation = "off",
    *,
    emulate_cpu: bool = False,
) -> LocalPlatform:
    """The platform with these settings, which the pool owns: do not close it.

    See Also
    --------
    LocalPlatform : for the parameters.
    """
    key = (concurrency, lifetime_s, isolation, emulate_cpu)
    with _lock:
        if key not in _platforms:
            _platforms[key] = LocalPlatform(
                concurrency, lifetime_s, isolation=isolation, emulate_cpu=emulate_cpu
            )
        return _platforms[key]


def open_platform(backend: LocalBackend) -> FunctionPlatform:
    """The shared platform that a run's backend asks for (the registry's entry)."""
    platform = shared(
        backend.concurrency, backend.lifetime_s, backend.isolation, emulate_cpu=backend.emulate_cpu
    )
    return platform if backend.chaos is None else ChaosPlatform(platform, backend.chaos)


def shutdown() -> None:
    """End all shared platforms and what runs on them.  The next `shared` makes a new one."""
    with _lock:
        platforms = list(_platforms.values())
        _platforms.clear()
    for platform in platforms:
        platform.close()


def _forget() -> None:
    """In a forked child the platforms are still the parent's, and the lock may be held."""
    global _lock
    _lock = threading.Lock()
    _platforms.clear()


atexit.register(shutdown)
os.register_at_fork(after_in_child=_forget)
