"""What can happen to a job (events), and what can be done about it (commands)."""

from __future__ import annotations

from dataclasses import dataclass

from squall.records import HeldOut, Outcome, OutcomeKind, Report

# ------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Start:
    """Data and store are ready: training may begin, on so many rows an epoch (0: not known)."""

    rows: int = 0


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker's report has arrived."""

    report: Report


@dataclass(frozen=True, slots=True)
class Ended:
    """An invocation has ended; ``minibatches`` is where its slot stands now."""

    slot: int
    attempt: int
    outcome: Outcome
    minibatches: int
    logs: str = ""

    @property
    def reports_sent(self) -> int:
        """Reports that the worker had sent when it returned; 0 if it died."""
        return int(self.outcome.value["reports"]) if self.outcome.kind is OutcomeKind.RETURNED else 0

    @property
    def rolled_back(self) -> bool:
        """Whether it ended because the store had lost some of its slot's updates."""
        return self.outcome.kind is OutcomeKind.RETURNED and self.outcome.value["end"] == "rolled back"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Held-out quality of the model as it was when epoch ``epoch`` was complete."""

    epoch: int
    held_out: HeldOut


@dataclass(frozen=True, slots=True)
class Stop:
    """Someone wants the job to end now and keep its model."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class StoreRestored:
    """A shard of the store has come back from a snapshot; ``told`` says which, and what it lost.

    Every connection that notices tells of it; ``incarnation`` is the same each time.
    """

    incarnation: str
    told: str


Event = Start | Reported | Ended | Evaluated | Stop | Tick | StoreRestored

# ---------------------------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class Launch:
    """Invoke a worker for a slot; a stand-by waits until its predecessor hands over."""

    slot: int
    attempt: int
    standby: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Tell a stand-by that it is its turn: the predecessor cannot say so any more."""

    slot: int
    attempt: int


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Raise the flag that workers poll."""


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Take the model as it is now and measure it on held-out rows."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CancelAll:
    """End all invocations that still run."""


Command = Launch | Release | RequestStop | Evaluate | CancelAll
