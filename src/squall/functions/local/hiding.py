"""Hides the client's files, sockets and processes from the process that asks for it (Linux).

*Files*: a mount namespace of its own whose root holds only what is bound into it (the system's
programs, Python, what ``sys.path`` needs), all read-only, and an empty ``/tmp`` in memory.  A
user who may not make one makes a user namespace first, where the system permits that.
Sockets that have a name in the file system go with it.

*Processes*: a Landlock domain that keeps signals, ptrace (and with it the private parts of
``/proc``) and abstract Unix sockets inside; needs Linux 6.12.

None of this is a security boundary: process ids and command lines of the same user stay
visible, and so does the network.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import traceback
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS = 28, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_SECBIT_NOROOT, _SECBIT_NOROOT_LOCKED = 1, 2
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1, 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR, _LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 442, 444, 446  # on both

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/sys/devices/system",
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
    *(f"/etc/{name}" for name in (
        "alternatives", "ca-certificates", "group", "host.conf", "hosts", "ld.so.cache", "ld.so.conf",
        "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "passwd", "pki", "protocols",
        "resolv.conf", "services", "ssl", "timezone",
    )),
)  # fmt: skip
_TEMP = "/tmp/function"

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Hides:
    """What can be hidden on this machine by this user."""

    files: bool
    processes: bool

    def exposed(self) -> list[str]:
        """What functions can reach of the client all the same, in words."""
        found = []
        if not self.files:
            found.append("files and named Unix sockets (this user may not make a mount namespace)")
        if not self.processes:
            found.append("abstract Unix sockets, signals and /proc (needs Landlock of Linux 6.12)")
        return found


def what_can_be_hidden(folder: str) -> Hides:
    """Try both in children of this process; ``folder`` is an empty one to do it in."""
    return Hides(_works(lambda: hide_files(folder, [], 1)), _works(hide_processes))


def _works(attempt: object) -> bool:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            attempt()  # type: ignore[operator]
            status = 0
        except OSError:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


# ---------------------------------------------------------------------------------- files


def hide_files(root: str, readable: list[str], temp_mb: int) -> str:
    """Make ``root``, an empty folder, the root of what this process sees.

    Parameters
    ----------
    root : str
        Its absolute path; outside of this process it stays empty.
    readable : list of str
        Absolute paths of files and folders that are to be seen beside the system's.
    temp_mb : int
        Size of ``/tmp``, the only place that can be written to.

    Returns
    -------
    str
        An empty folder below ``/tmp``, as seen from now on.

    Raises
    ------
    OSError
        If it is not permitted, or the kernel is older than 5.12.
    """
    pivot_root = _PIVOT_ROOT.get(platform.machine())
    if pivot_root is None:
        raise OSError(errno.ENOSYS, f"not known how to on {platform.machine()}")
    _new_mount_namespace()
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=16m,mode=0755")
    Path(root, "tmp").mkdir()
    _mount("tmpfs", f"{root}/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={temp_mb}m,mode=1777")
    Path(root + _TEMP).mkdir(mode=0o700)
    Path(root, "proc").mkdir()
    _mount("/proc", f"{root}/proc", None, _MS_BIND | _MS_REC)
    for path in [*_SYSTEM, *sorted(set(readable), key=lambda p: (p.count("/"), p))]:
        _show(root, path)
    for name in ("fd", "stdin", "stdout", "stderr"):
        number = {"stdin": "/0", "stdout": "/1", "stderr": "/2"}.get(name, "")
        Path(root, "dev", name).symlink_to(f"/proc/self/fd{number}")
    _set_read_only(root, True, _AT_RECURSIVE)
    _set_read_only(f"{root}/tmp", False)
    _set_read_only(f"{root}/proc", False)
    os.chdir(root)
    _check(_libc.syscall(pivot_root, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")
    return _TEMP


def _new_mount_namespace() -> None:
    if _libc.unshare(_CLONE_NEWNS) == 0:
        return
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _show(root: str, path: str) -> None:
    """Bind what is at ``path`` to the same place below ``root``, if it is not to be seen yet."""
    target = root + path
    if os.path.lexists(target) or not os.path.exists(path):  # noqa: PTH110
        return
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    if path.count("/") == 1 and os.path.islink(path):  # noqa: PTH114 - /bin → usr/bin
        Path(target).symlink_to(os.path.relpath(os.path.realpath(path), "/"))
        return
    if os.path.isdir(path):  # noqa: PTH112
        Path(target).mkdir()
    else:
        Path(target).touch()
    _mount(path, target, None, _MS_BIND | _MS_REC)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    raw = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _check(_libc.mount(raw[0], raw[1], raw[2], ctypes.c_ulong(flags), raw[3]), f"mount {target}")


def _set_read_only(path: str, read_only: bool, flags: int = 0) -> None:
    change = (_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)
    attributes = struct.pack("4Q", *change, 0, 0)
    result = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, attributes, len(attributes))
    _check(result, f"mount_setattr {path}")


# ------------------------------------------------------------------------------ processes


def hide_processes() -> None:
    """Keep signals, ptrace and abstract Unix sockets of this process among its own.

    Raises
    ------
    OSError
        If the kernel is older than 6.12 or has no Landlock.
    """
    rules = struct.pack("3Q", 0, 0, _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL)
    ruleset = _libc.syscall(_LANDLOCK_CREATE_RULESET, rules, len(rules), 0)
    _check(ruleset, "landlock_create_ruleset")
    try:
        _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
        _check(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def give_up_privileges() -> None:
    """Let the next program have no capabilities, not even as root: functions have none.

    (Root's would let it read the memory of any process, whatever `hide_processes` has done.)
    """
    _libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NOROOT | _SECBIT_NOROOT_LOCKED, 0, 0, 0)  # refused to non-root
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
