"""Ending what stays warm between jobs: idle functions and the parameter store's process."""

from __future__ import annotations

import sys

_WARM = ("squall.functions.local.pool", "squall.functions.lithops.platform", "squall.store.process")


def shutdown() -> None:
    """End warm functions and the warm store of this process now; idempotent.

    They end by themselves after a minute without work, and when the process exits; the next
    job starts them again.
    """
    for name in _WARM:
        module = sys.modules.get(name)  # not loaded: nothing of it can be running
        if module is not None:
            module.shutdown()
