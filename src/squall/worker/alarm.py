"""A time limit for this process that holds whatever it does: also stopped by a signal, or in C code.

The kernel's timers (POSIX ``timer_create``, which Python does not have) send three signals.  SIGVTALRM,
which next to nobody handles and which is not the alarm that programs set for themselves, ends the
process and tells why.  SIGCONT wakes it if it is stopped, so that the first can act; SIGKILL ends
it if it has blocked the first.  Elsewhere than on Linux there is only the first, sent by ``setitimer``.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import signal
import sys
from collections.abc import Callable

SIGNALS = (signal.SIGVTALRM, signal.SIGALRM)
"""Those by which a process that took too long has ended: on Linux, and elsewhere."""

_AFTER = ((signal.SIGVTALRM, 0.0), (signal.SIGCONT, 0.05), (signal.SIGKILL, 1.0))  # seconds
_CLOCK_MONOTONIC = 1
_SIGEV_SIGNAL = 0


class _Event(ctypes.Structure):  # struct sigevent, 64 bytes
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class _Time(ctypes.Structure):  # struct itimerspec: the period, the time until it goes off
    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "s", "ns"))


def arm(seconds: float) -> None:
    """End this process that many seconds from now, unless it is `disarm`-ed; main thread only."""
    first = SIGNALS[0] if sys.platform == "linux" else SIGNALS[1]
    signal.signal(first, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {first})
    _set(seconds)


def disarm() -> None:
    """It has done in time what it had to do."""
    _set(None)


def _set(seconds: float | None) -> None:
    if sys.platform != "linux":
        signal.setitimer(signal.ITIMER_REAL, seconds or 0.0)
        return
    set_time, timers = _timers(os.getpid())
    for timer, time in zip(timers, _times(seconds), strict=True):
        _checked(set_time(timer, 0, time, None))


@functools.lru_cache(4)
def _times(seconds: float | None) -> list[_Time]:
    """For each signal; None: never."""
    split = [math.modf(0.0 if seconds is None else max(1e-6, seconds + later)) for _, later in _AFTER]
    return [_Time(0, 0, int(whole), int(1e9 * fraction)) for fraction, whole in split]


@functools.cache
def _timers(pid: int) -> tuple[Callable[..., int], list[ctypes.c_void_p]]:
    """What sets a timer, and one for each signal: they are this process's alone, a child makes its own."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "timer_create"):  # before glibc 2.34
        library = ctypes.CDLL("librt.so.1", use_errno=True)
    timers = []
    for number, _ in _AFTER:
        event, timer = _Event(signal=number, notify=_SIGEV_SIGNAL), ctypes.c_void_p()
        _checked(library.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)))
        timers.append(timer)
    library.timer_settime.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Time), ctypes.c_void_p)
    return library.timer_settime, timers


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
