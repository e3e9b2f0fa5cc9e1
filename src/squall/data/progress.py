"""A line that shows how far the reading of files is."""

from __future__ import annotations

import threading
import time

from squall.terminal import REFRESH_S, end_line, rewrite, someone_looks
from squall.units import format_size

_SLOW_S = 1.0  # a reading of less time shows nothing


class Progress:
    """``reading libsvm: 1.2 GB of 2.0 GB  310 MB/s``, rewritten where someone looks at it.

    Parameters
    ----------
    what : str
        Is read.
    total : int
        Bytes there are.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._start = self._shown = time.monotonic()
        self._looks, self._has_line = someone_looks(), False
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_line:
            rewrite(self._line())
            end_line()

    def add(self, n_bytes: int) -> None:
        """So many more were read."""
        if not self._looks:
            return
        with self._lock:
            self._done += n_bytes
            now = time.monotonic()
            if now - self._start > _SLOW_S and now - self._shown > REFRESH_S:
                self._shown, self._has_line = now, True
                rewrite(self._line())

    def _line(self) -> str:
        rate = self._done / max(time.monotonic() - self._start, 1e-9)
        done = min(self._done, self._total)  # what did not fit the schema that was assumed is read twice
        return (
            f"reading {self._what}: {format_size(done)} of {format_size(self._total)}  {format_size(rate)}/s"
        )
