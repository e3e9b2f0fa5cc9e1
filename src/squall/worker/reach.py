"""What a function can reach: on clouds, and under strict isolation, only what has a network address."""

from __future__ import annotations

import os

from squall.errors import SettingError
from squall.records import WorkerTask

ISOLATION = "SQUALL_ISOLATION"
"""Environment variable, ``"strict"`` where functions do not share the client's machine."""


def check_reachable(task: WorkerTask) -> None:
    """Refuse a task whose storage or store lies on the client's machine.

    Raises
    ------
    SettingError
        Naming all that cannot be reached, and what to use instead.
    """
    if os.environ.get(ISOLATION) != "strict":
        return
    problems, fixes = [], []
    if task.storage.partition("://")[0] not in ("s3",):
        problems.append(f"storage {task.storage}")
        fixes.append('set storage="s3://bucket/prefix", in Run or as SQUALL_STORAGE')
    if not task.store.startswith(("tcp://", "tls://", "redis://", "rediss://", "s3://")):
        problems.append(f"the parameter store {task.store}")
        fixes.append('use one that is reached by TCP, Run(store="tcp")')
    if problems:
        raise SettingError(
            f"isolated functions share no files with their client, so they cannot reach "
            f"{' and '.join(problems)}",
            where=f"worker {task.slot}",
            fix="; ".join(fixes),
        )
