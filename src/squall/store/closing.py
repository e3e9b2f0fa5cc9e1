"""What is closed when the ``with`` block ends that it was opened for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Has a `close`, which the end of a ``with`` block calls."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Let go of all that is held; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
