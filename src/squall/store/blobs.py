"""The core of the blob store: named values and those who wait for them, without I/O."""

from __future__ import annotations

from collections.abc import Callable

Waiter = Callable[[bytes], None]


class BlobCore:
    """Named values in memory.

    Keys are any strings; one that begins with ``"<job>/"`` ends with its job.
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._waiters: dict[str, list[Waiter]] = {}
        self._bytes = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of all values together."""
        return self._bytes

    def values(self) -> dict[str, bytes]:
        """All values by their keys."""
        return dict(self._values)

    def put(self, key: str, value: bytes) -> None:
        """Set a value, and call those who wait for it."""
        self._bytes += len(value) - len(self._values.get(key, b""))
        self._values[key] = value
        for waiter in self._waiters.pop(key, ()):
            waiter(value)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """Set a value unless the key has one; True if it was set."""
        if key in self._values:
            return False
        self.put(key, value)
        return True

    def get(self, key: str) -> bytes | None:
        """The value, or None."""
        return self._values.get(key)

    def mget(self, keys: list[str]) -> list[bytes | None]:
        """Several values."""
        return [self._values.get(key) for key in keys]

    def delete(self, key: str) -> None:
        """Remove a value; no error if it is not there."""
        self._bytes -= len(self._values.pop(key, b""))

    def drop_job(self, job: str) -> None:
        """Remove all values of a job."""
        prefix = f"{job}/"
        for key in [key for key in self._values if key.startswith(prefix)]:
            self.delete(key)

    def watch(self, key: str, waiter: Waiter) -> Callable[[], None]:
        """Call ``waiter`` once, when the key is next set; returns how to take that back."""
        self._waiters.setdefault(key, []).append(waiter)

        def cancel() -> None:
            waiting = self._waiters.get(key)
            if waiting is not None and waiter in waiting:
                waiting.remove(waiter)
                if not waiting:
                    del self._waiters[key]

        return cancel
