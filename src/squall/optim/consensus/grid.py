"""Vectors as small integers on a grid that all workers share.

What a worker sends is how far it has moved, x̂ − z, which goes to 0 as all come to agree.  So a grid that
shrinks with the distances of the round before is precise enough in the end, however few bits its numbers
have; and as a worker goes on from the point of the grid that it has sent, rounding is no more than an
inexact solution of its subproblem (Eckstein & Bertsekas, "On the Douglas–Rachford splitting method",
1992, on why these are harmless): the fixed point stays what it was.  Sums of integers are exact, so all
have the same ones, in whatever order they are added up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from squall.records import Float64, Int16

_MARGIN = 2.0  # of the distances of the round before
_INT16_MAX = int(np.iinfo(np.int16).max)


class Grid(NamedTuple):
    """The multiples of ``spacing``, up to ``most`` of them either way."""

    spacing: Float64  # (n,)
    most: int

    @staticmethod
    def of(diagonal: Float64, reach: float, n_slots: int) -> Grid | None:
        """The grid on which the sum of all slots' vectors fits into 16 bits; None if nobody has moved.

        Parameters
        ----------
        diagonal : ndarray of shape (n,)
            Of the metric: coordinates are as fine as it makes them dear.
        reach : float
            The largest coordinate to expect, in the metric.
        n_slots : int
        """
        most = _INT16_MAX // n_slots
        if not most or not np.isfinite(reach) or reach <= 0:
            return None
        return Grid(_MARGIN * reach / most / np.sqrt(diagonal), most)

    def integers(self, vector: Float64) -> Int16:
        """The nearest point of the grid."""
        return np.clip(np.rint(vector / self.spacing), -self.most, self.most).astype(np.int16)

    def values(self, integers: Int16) -> Float64:
        """What these stand for, or a sum of them."""
        return self.spacing * integers
