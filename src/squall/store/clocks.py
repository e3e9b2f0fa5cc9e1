"""The core of consistency: how far each slot of a job is, and who waits for whom, without I/O.

Two things are counted.  A slot's *clock* ticks with its minibatches, and bounds how far others
may be ahead of it (SSP; Ho et al. 2013).  It is not the slot's position in the data: a slot
whose lease ends is not waited for, and whoever succeeds it takes the minimum clock but goes on
at its position.  *Barriers* are numbered places where all slots meet; nobody leaves them but by
finishing.
"""

from __future__ import annotations

LEASE_S = 2.0
"""For how long a slot that is not heard of is waited for, by the store's own clock."""

FINISHED = 1 << 62
"""The barrier at which a finished slot stands."""

_NEVER = float("-inf")


class Clocks:
    """One job's clocks and barriers.

    Times are seconds of any clock that does not go back, the same for all calls.

    Parameters
    ----------
    n_slots : int
        Slots of the job.

    Attributes
    ----------
    n_slots : int
    due : tuple of int
        Slots that all others wait for in a round: those at the lowest barrier, in order, unless
        they are finished.
    """

    # Lists, not arrays: most jobs have few slots, and every minibatch comes by here.

    def __init__(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self._clocks = [0] * n_slots
        self._lease_ends = [_NEVER] * n_slots
        self._barriers = [0] * n_slots
        self._lowest = 0
        self.due = tuple(range(n_slots))

    def clock(self, slot: int) -> int:
        """The slot's clock."""
        return self._clocks[slot]

    def join(self, slot: int, now: float) -> None:
        """A new attempt of the slot starts, or one that was given up is heard of again."""
        least = self.least(now)
        if least is not None:
            self._clocks[slot] = least
        self._lease_ends[slot] = now + LEASE_S

    def hear(self, slot: int, now: float) -> None:
        """The slot is alive."""
        if self._lease_ends[slot] <= now:
            self.join(slot, now)
        else:
            self._lease_ends[slot] = now + LEASE_S

    def tick(self, slot: int) -> None:
        """A minibatch of the slot has been applied."""
        self._clocks[slot] += 1

    def least(self, now: float) -> int | None:
        """The minimum clock of slots that are alive and not finished; None if there are none."""
        counted = zip(self._clocks, self._lease_ends, self._barriers, strict=True)
        return min((clock for clock, end, at in counted if end > now and at < FINISHED), default=None)

    def may_read(self, slot: int, staleness: int, now: float) -> bool:
        """Whether the slot is at most ``staleness`` ahead of the minimum."""
        least = self.least(now)
        return least is None or self._clocks[slot] - staleness <= least

    def arrive(self, slot: int, number: int) -> None:
        """The slot has come to a barrier."""
        self._barriers[slot] = max(self._barriers[slot], number)
        self._lowest = min(self._barriers)
        self.due = tuple(
            slot for slot, at in enumerate(self._barriers) if at == self._lowest and at < FINISHED
        )

    def passed(self, number: int) -> bool:
        """Whether all slots have come to a barrier."""
        return self._lowest >= number

    def kept(self) -> tuple[list[int], list[int]]:
        """Clocks and barriers of all slots, for a snapshot."""
        return list(self._clocks), list(self._barriers)

    def restore(self, clocks: list[int], barriers: list[int]) -> None:
        """As a snapshot has kept them; no slot has been heard of yet."""
        self._clocks[:] = clocks
        for slot, number in enumerate(barriers):
            self.arrive(slot, number)
