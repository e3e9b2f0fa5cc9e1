"""What platforms allow, as dated data: one JSON file per platform beside this one."""

from __future__ import annotations

from importlib import resources

import msgspec


class PlatformLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a function platform, as its provider published them on ``date``."""

    name: str
    date: str
    source: str
    memory_mb_min: int
    memory_mb_max: int
    timeout_s: float
    temp_mb: int  # what a function may keep in /tmp
    concurrency: int  # invocations at once; further ones are throttled


def load_limits(name: str) -> PlatformLimits:
    """The limits of a platform that is known by name."""
    data = (resources.files(__name__) / f"{name}.json").read_bytes()
    return msgspec.json.decode(data, type=PlatformLimits)
