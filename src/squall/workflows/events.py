"""What can happen to a map job (events), and what can be done about it (commands)."""

from __future__ import annotations

from dataclasses import dataclass

from squall.errors import SquallError
from squall.records import Outcome


@dataclass(frozen=True, slots=True)
class Call:
    """One invocation: some items of one group.  ``slot`` is the first item's number."""

    slot: int
    attempt: int
    group: int
    items: tuple[int, ...]
    careful: bool = False  # each result is stored before the next item begins

    @property
    def key(self) -> tuple[int, int]:
        """Unique name."""
        return self.slot, self.attempt


# ------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Submitted:
    """A group of new items; ``sizes`` in bytes.  ``chunksize`` None lets the machine choose."""

    first: int
    sizes: tuple[int, ...]
    chunksize: int | None


@dataclass(frozen=True, slots=True)
class Closed:
    """No more items will come."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Nobody wants these items any more."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """An invocation has ended; ``values`` and ``raised`` are the items whose ends are stored."""

    call: Call
    outcome: Outcome
    values: frozenset[int] = frozenset()
    raised: frozenset[int] = frozenset()
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stop:
    """The job is to end now; what is not done fails."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Submitted | Closed | Cancelled | Ended | Stop | Tick

# ---------------------------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class Launch:
    """Invoke a function."""

    call: Call


@dataclass(frozen=True, slots=True)
class Deliver:
    """What has been stored of this item, a value or an exception, is its end."""

    item: int


@dataclass(frozen=True, slots=True)
class Fail:
    """This item ends without a value or an exception of its own."""

    item: int
    error: SquallError


@dataclass(frozen=True, slots=True)
class Kill:
    """Nobody waits for this call any more."""

    call: Call


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This call should have ended long ago: see what it has stored, and take it for lost."""

    call: Call


Command = Launch | Deliver | Fail | Kill | GiveUp
