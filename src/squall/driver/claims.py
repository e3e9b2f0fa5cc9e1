"""Whose a job's folder is: written into it first, so that others can tell when nobody's."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from squall import procfs
from squall.data.objects import ObjectStore
from squall.errors import SquallError

NAME = "owner.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Owner(msgspec.Struct, frozen=True):
    """A process, told apart from all others of its machine since that was started."""

    boot: str
    namespace: int
    pid: int
    started: int


def claim(objects: ObjectStore, folder: str) -> None:
    """Note in ``folder`` that it belongs to a job of this process."""
    objects.put(f"{folder}/{NAME}", msgspec.json.encode(_owner(os.getpid())))


def release(objects: ObjectStore, folder: str) -> None:
    """Note that no process drives the job any more, although this one lives on."""
    owner = _owner(os.getpid())
    objects.put(f"{folder}/{NAME}", msgspec.json.encode(Owner(owner.boot, owner.namespace, 0, 0)))


def remove(objects: ObjectStore, folder: str) -> None:
    """Remove the folder, the claim last: were it gone before, nobody could tell whose the rest is."""
    objects.delete_prefix(folder, last=NAME)


def is_dead(owner: Owner) -> bool | None:
    """Whether that process has ended; None if that cannot be seen from here."""
    here = _owner(os.getpid())
    if not owner.boot or (owner.boot, owner.namespace) != (here.boot, here.namespace):
        return None
    return not procfs.is_running(owner.pid) or procfs.start_time(owner.pid) != owner.started


def owner_is_dead(objects: ObjectStore, folder: str) -> bool | None:
    """Whether the process that claimed ``folder`` has ended; None if that cannot be told."""
    try:
        return is_dead(msgspec.json.decode(objects.get(f"{folder}/{NAME}"), type=Owner))
    except (SquallError, msgspec.MsgspecError):  # not there (any more), or cut off
        return None


def _owner(pid: int) -> Owner:
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return Owner(boot, procfs.pid_namespace(), pid, procfs.start_time(pid))
