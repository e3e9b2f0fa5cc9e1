"""Names for what a launcher owns, and the clearing up after launchers that were killed.

A launcher's folder and cgroup are called ``squall-<namespace>-<pid>-<start time>``: from the
name alone anyone can tell whether that very process still runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import time
from pathlib import Path

from squall import procfs
from squall.log import get_logger

_NAME = re.compile(r"squall-(\d+)-(\d+)-(\d+)(?:-\w+)?")
_log = get_logger("squall.functions.local")


def owner_name(pid: int) -> str:
    """The name for what process ``pid`` owns."""
    return f"squall-{procfs.pid_namespace()}-{pid}-{procfs.start_time(pid)}"


def is_orphaned(name: str) -> bool:
    """Whether ``name`` was given by a launcher that no longer runs.

    False for all other names, and for those of other containers: their processes cannot be
    seen from here.
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) != procfs.pid_namespace():
        return False
    pid = int(match[2])
    return not (procfs.is_running(pid) and procfs.start_time(pid) == int(match[3]))


def orphans_in(folder: Path) -> list[Path]:
    """Our user's folders in ``folder`` whose launcher no longer runs."""
    with os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if is_orphaned(entry.name) and _is_our_folder(entry)]


def _is_our_folder(entry: os.DirEntry[str]) -> bool:
    try:
        info = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # another launcher is clearing up as well
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, also what was made unreadable."""
    problem: OSError | None = None
    for _ in range(3):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError as error:  # removed by someone else: all of it, or a part
            problem = error
        except OSError as error:
            problem = error
            _open_up(folder)
        if not folder.exists():
            return
    _log.warning("cannot remove %s: %s", folder, problem)


def _open_up(folder: Path) -> None:
    """Give ourselves all rights to the folders below ``folder``."""
    for parent, names, _ in os.walk(folder):  # from the top down
        for path in (Path(parent, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o700)


def end_process(pid: int) -> None:
    """SIGKILL one process; no error if it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def end_group(pid: int) -> None:
    """SIGKILL all that is left in the process group of environment ``pid``."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: a group of zombies
        os.killpg(pid, signal.SIGKILL)


def clear_after(home: Path, timeout: float = 5.0) -> None:
    """End what a launcher that has just died left running, wait for that, remove its folder.

    To be called at once, while its environments' process ids cannot have been used again.
    """
    try:
        pids = [int(entry.name) for entry in home.iterdir() if entry.name.isdigit()]
    except FileNotFoundError:
        return
    for pid in pids:
        end_process(pid)
        end_group(pid)
    give_up = time.monotonic() + timeout
    while any(procfs.is_running(pid) for pid in pids) and time.monotonic() < give_up:
        time.sleep(0.002)
    remove_tree(home)
