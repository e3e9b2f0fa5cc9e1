"""The core of the blob store: named values and those who wait for them, without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from squall.errors import StoreError
from squall.records import Numbers
from squall.store.reductions import Form, KeptReduction, Reduction, check_same, holds_a_value, is_a_reduction

Waiter = Callable[[], None]

_COUNT = re.compile(rb"-?\d{1,19}")


class Stored(NamedTuple):
    """A value in the parts in which it came; no two that were ever stored have one ``version``."""

    parts: tuple[bytes | memoryview, ...]
    size: int
    version: int

    def whole(self) -> bytes:
        """The value."""
        first = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        return first if isinstance(first, bytes) else bytes(first)

    def cut(self, offset: int, size: int) -> bytes:
        """At most ``size`` bytes of the value from ``offset`` on."""
        pieces, start = [], 0
        for part in self.parts:
            low, high = max(0, offset - start), min(len(part), offset + size - start)
            if low < high:
                pieces.append(part[low:high])
            start += len(part)
        return b"".join(pieces)


class KeptBlobs(msgspec.Struct, frozen=True):
    """All values (with counters) and reductions in a snapshot."""

    values: dict[str, bytes]
    reductions: dict[str, KeptReduction]


class Folded(NamedTuple):
    """The result of a reduction of which enough has come."""

    form: Form
    value: Stored


class BlobCore:
    """Named values, counters and reductions in memory.

    Keys are any strings; one that begins with ``"<job>/"`` ends with its job.  A counter is a
    value of decimal digits.
    """

    def __init__(self) -> None:
        self._values: dict[str, Stored] = {}
        self._reductions: dict[str, Reduction] = {}
        self._results: dict[str, Folded] = {}  # of reductions, until the next contribution
        self._waiters: dict[str, list[Waiter]] = {}
        self._bytes = 0
        self._version = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of all values and reductions together."""
        return self._bytes

    def kept(self, prefix: str = "") -> KeptBlobs:
        """What a snapshot holds of keys with this prefix; may be called from another thread."""
        values, reductions = list(self._values.items()), list(self._reductions.items())
        return KeptBlobs(
            {key: value.whole() for key, value in values if key.startswith(prefix)},
            {key: reduction.kept() for key, reduction in reductions if key.startswith(prefix)},
        )

    def restore(self, kept: KeptBlobs) -> None:
        """Set all that a snapshot holds."""
        for key, value in kept.values.items():
            self.put(key, value)
        for key, reduction in kept.reductions.items():
            self._reductions[key] = Reduction.restored(key, reduction)
            self._bytes += self._reductions[key].n_bytes

    # ----------------------------------------------------------------------------- values

    def put(self, key: str, *parts: bytes) -> None:
        """Set a value, and wake those who wait for it."""
        self._check_no_reduction(key)
        value = self._stored(parts)
        known = self._values.get(key)
        self._bytes += value.size - (known.size if known is not None else 0)
        self._values[key] = value
        self._wake(key)

    def put_if_absent(self, key: str, *parts: bytes) -> bool:
        """Set a value unless the key has one; True if it was set."""
        if key in self._values:
            return False
        self.put(key, *parts)
        return True

    def compare_and_set(self, key: str, expected: bytes | None, *parts: bytes) -> bool:
        """Set a value if the present one is ``expected`` (None: there is none); True if it was set."""
        known = self._values.get(key)
        if known is None or expected is None:
            if known is not None or expected is not None:
                return False
        elif known.size != len(expected) or known.whole() != expected:
            return False
        self.put(key, *parts)
        return True

    def add(self, key: str, increment: int) -> int:
        """Add to a counter, which begins at 0; returns what it then is.

        Raises
        ------
        StoreError
            If the key holds something else, or the sum is not of 64 bits.
        """
        known = self._values.get(key)
        digits = known.whole() if known is not None and known.size <= 20 else b"0" if known is None else b""
        if not _COUNT.fullmatch(digits):
            raise no_counter(key)
        count = checked_count(key, int(digits) + increment)
        self.put(key, b"%d" % count)
        return count

    def get(self, key: str) -> Stored | None:
        """The value, or None."""
        return self._values.get(key)

    def part(self, key: str, version: int, offset: int, size: int) -> bytes | None:
        """A part of a value or of a reduction's result; None if that is not there any more."""
        result = self._results.get(key)
        value = self._values.get(key) if result is None else result.value
        return value.cut(offset, size) if value is not None and value.version == version else None

    # ------------------------------------------------------------------------- reductions

    def reduce(self, key: str, form: Form, contributor: int, array: Numbers) -> bool:
        """Take a contribution of that form, and wake those who wait; False for a repeat.

        Raises
        ------
        StoreError
            If it is of another form than those before it, or the key holds a value.
        """
        if key in self._values:
            raise holds_a_value(key)
        reduction = self._reductions.get(key)
        if reduction is None:
            reduction = self._reductions[key] = Reduction(form)
        check_same(key, reduction.form, form)
        self._bytes -= reduction.n_bytes
        taken = reduction.add(contributor, array)
        self._bytes += reduction.n_bytes
        if taken:
            self._forget_result(key)
            self._wake(key)
        return taken

    def reduced(self, key: str, n: int) -> Folded | None:
        """The result, if at least ``n`` (and at least one) have contributed."""
        reduction = self._reductions.get(key)
        if reduction is None or len(reduction.contributors) < n:
            return None
        known = self._results.get(key)
        if known is None:
            result = reduction.result().reshape(-1).view(np.uint8).data
            known = self._results[key] = Folded(reduction.form, self._stored((result,)))
            self._bytes += known.value.size
        return known

    # --------------------------------------------------------------------------- all kinds

    def delete(self, key: str) -> None:
        """Remove what the key holds; no error if that is nothing."""
        value = self._values.pop(key, None)
        self._bytes -= value.size if value is not None else 0
        self._forget_result(key)
        reduction = self._reductions.pop(key, None)
        self._bytes -= reduction.n_bytes if reduction is not None else 0

    def drop_job(self, job: str) -> None:
        """Remove all that a job holds."""
        prefix = f"{job}/"
        for key in [key for key in (*self._values, *self._reductions) if key.startswith(prefix)]:
            self.delete(key)

    def watch(self, key: str, waiter: Waiter) -> Callable[[], None]:
        """Call ``waiter`` once, when the key is next set or contributed to; returns the undo."""
        self._waiters.setdefault(key, []).append(waiter)

        def cancel() -> None:
            waiting = self._waiters.get(key)
            if waiting is not None and waiter in waiting:
                waiting.remove(waiter)
                if not waiting:
                    del self._waiters[key]

        return cancel

    def _wake(self, key: str) -> None:
        for waiter in self._waiters.pop(key, ()):
            waiter()

    def _stored(self, parts: tuple[bytes | memoryview, ...]) -> Stored:
        self._version += 1
        return Stored(parts, sum(map(len, parts)), self._version)

    def _forget_result(self, key: str) -> None:
        result = self._results.pop(key, None)
        self._bytes -= result.value.size if result is not None else 0

    def _check_no_reduction(self, key: str) -> None:
        if key in self._reductions:
            raise is_a_reduction(key)


def no_counter(key: str) -> StoreError:
    """The error for a counter whose key holds something else."""
    return StoreError(
        "it holds something else than a counter", where=f"counter {key!r}", fix="use another key"
    )


def checked_count(key: str, count: int) -> int:
    """``count`` itself; raises `StoreError` if it does not fit into 64 bits."""
    if not -(1 << 63) <= count < 1 << 63:
        raise StoreError(f"{count} is beyond 64 bits", where=f"counter {key!r}", fix="count in smaller steps")
    return count
