"""Freed memory: kept for the next minibatch, or given back to the system after each."""

from __future__ import annotations

import ctypes

MOST_KEPT = 32 << 20
"""Bytes of freed memory that a process may keep, at most: what a few minibatches of wide rows take."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def keep_freed(n_bytes: int = MOST_KEPT) -> None:
    """Keep up to so many bytes of freed memory instead of giving them back to the system at once.

    A worker or a store's server takes and frees the same megabytes for every minibatch.  glibc gives
    them back each time, and what comes back is cleared page by page: for topic models that was a third
    of a worker's time.  Where the C library is another one this does nothing.

    Parameters
    ----------
    n_bytes : int
        At most :data:`MOST_KEPT` count.  Arrays of more than half of it are mapped one by one, as before.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    kept = min(n_bytes, MOST_KEPT)
    # The first call also ends glibc's own guessing of both.
    mallopt(_M_TRIM_THRESHOLD, kept)
    mallopt(_M_MMAP_THRESHOLD, kept // 2)
