"""The objective of a share, which is left between two passes when the job is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from squall.models.objectives import ShareObjective, SmoothModel
from squall.records import Block, Float64

ASKED_EVERY_S = 0.05
"""Seconds between two questions whether to stop: with some stores each is a request."""


class StoppedSolvingError(Exception):
    """The job is over, whatever the solution would have been."""


class StoppableObjective(ShareObjective):
    """Its methods raise `StoppedSolvingError` when ``stopped`` says so.

    Parameters
    ----------
    model, blocks, n_rows
        Of :class:`squall.models.objectives.ShareObjective`.
    stopped : callable
        Whether the job is over.  Not whether this worker is to hand over: its successor would do again what
        was broken off.
    """

    def __init__(
        self, model: SmoothModel, blocks: Sequence[Block], n_rows: int, stopped: Callable[[], bool]
    ) -> None:
        super().__init__(model, blocks, n_rows)
        self._stopped, self._asked = stopped, time.monotonic()

    def gradient(self, x: Float64) -> tuple[float, Float64]:
        """See :class:`squall.models.objectives.ShareObjective`."""
        self._ask()
        return super().gradient(x)

    def hessian_product(self, v: Float64) -> Float64:
        """See :class:`squall.models.objectives.ShareObjective`."""
        self._ask()
        return super().hessian_product(v)

    def hessian(self) -> Float64:
        """See :class:`squall.models.objectives.ShareObjective`."""
        self._ask()
        return super().hessian()

    def _ask(self) -> None:
        now = time.monotonic()
        if now - self._asked >= ASKED_EVERY_S:
            self._asked = now
            if self._stopped():
                raise StoppedSolvingError
