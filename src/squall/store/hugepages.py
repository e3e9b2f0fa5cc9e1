"""Shared memory in huge pages: a sparse model's rows are touched at random all over its table.

With pages of 4 kB nearly each touch also misses the processor's cache of address translations,
which can cost more than the row itself; with pages of 2 MB hardly any does.  Memory files get
huge pages only where an administrator has said so, but a mounted tmpfs has an option of its
own for it.  So one is mounted here that has no name anywhere, and goes with its last file.
Where the system does not permit that, tables have ordinary pages, and are slower.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path

HUGE_PAGE = 2 << 20
"""Bytes of a huge page on x86-64, and on arm64 with base pages of 4 kB."""

# System calls since Linux 5.2, with the same numbers on x86-64 and arm64.
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC = 1, 1
_SET_STRING, _CREATE = 1, 6
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000


def mount_huge() -> int | None:
    """Descriptor of the root of a new tmpfs of huge pages; None where that is not permitted.

    Call it while this process has one thread: an ordinary user may mount only in a user
    namespace, which a forked child makes for it.
    """
    if sys.platform != "linux":
        return None
    if os.geteuid() == 0:
        try:
            return _mount()
        except OSError:
            return None
    return _mount_in_child()


def huge_file(root: int) -> int:
    """Descriptor of a new file without a name below ``root``."""
    return os.open(".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=root)


def _mount() -> int:
    context = _call(_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC)
    try:
        for key, value in ((b"huge", b"always"), (b"size", b"0"), (b"mode", b"0700")):  # 0: no limit
            _call(_FSCONFIG, context, _SET_STRING, key, value, 0)
        _call(_FSCONFIG, context, _CREATE, None, None, 0)
        return _call(_FSMOUNT, context, _FSMOUNT_CLOEXEC, _NOSUID | _NODEV | _NOEXEC)
    finally:
        os.close(context)


def _mount_in_child() -> int | None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _enter_user_namespace()
                socket.send_fds(theirs, [b"."], [_mount()])
                status = 0
            finally:
                os._exit(status)  # silently: it was only an attempt
        if os.waitpid(child, 0)[1] != 0:
            return None
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _enter_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    _check(_libc().unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    # Files below the mount can only belong to users whom the namespace knows.
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: int | bytes | None) -> int:
    syscall = _libc().syscall
    syscall.restype = ctypes.c_long
    return _check(syscall(ctypes.c_long(number), *arguments))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
