"""What can happen to a job (events), and what can be done about it (commands).

Events are plain data: a job's log (:mod:`squall.driver.joblog`) is made of them.
"""

from __future__ import annotations

import msgspec

from squall.records import HeldOut, Outcome, OutcomeKind, Plan, Report


class Leg(msgspec.Struct, frozen=True):
    """A stretch of a job's epochs under one plan; ``number`` counts from 0."""

    number: int
    first_epoch: int
    plan: Plan


# ------------------------------------------------------------------------------------ events


class Start(msgspec.Struct, frozen=True, tag=True):
    """Data and store are ready: training may begin, on so many rows an epoch (0: not known)."""

    rows: int = 0


class Reported(msgspec.Struct, frozen=True, tag=True):
    """A worker's report has arrived."""

    report: Report


class Ended(msgspec.Struct, frozen=True, tag=True):
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


class Evaluated(msgspec.Struct, frozen=True, tag=True):
    """Held-out quality of the model as it was when epoch ``epoch`` was complete."""

    epoch: int
    held_out: HeldOut


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Someone wants the job to end now and keep its model."""

    reason: str


class Planned(msgspec.Struct, frozen=True, tag=True):
    """The planner has said by which plan epochs from ``epoch`` on are trained."""

    epoch: int
    plan: Plan


class Arranged(msgspec.Struct, frozen=True, tag=True):
    """Store and platform are ready for leg number ``leg`` of the job, under its new plan."""

    leg: int


class Tick(msgspec.Struct, frozen=True, tag=True):
    """Time has passed."""


class StoreRestored(msgspec.Struct, frozen=True, tag=True):
    """A shard of the store has come back from a snapshot; ``told`` says which, and what it lost.

    Every connection that notices tells of it; ``incarnation`` is the same each time.
    """

    incarnation: str
    told: str


class Resumed(msgspec.Struct, frozen=True, tag=True):
    """Another process drives the job from now on; all workers of before are out of its reach.

    ``positions`` are the minibatches that each slot has applied according to the store, and
    ``restored`` says that the store itself was put back to an earlier moment.
    """

    positions: list[int]
    restored: bool


Event = Start | Reported | Ended | Evaluated | Stop | Planned | Arranged | Tick | StoreRestored | Resumed

# ---------------------------------------------------------------------------------- commands


class Launch(msgspec.Struct, frozen=True):
    """Invoke a worker for a slot; a stand-by waits until its predecessor hands over."""

    slot: int
    attempt: int
    standby: bool = False


class Release(msgspec.Struct, frozen=True):
    """Tell a stand-by that it is its turn: the predecessor cannot say so any more."""

    slot: int
    attempt: int


class RequestStop(msgspec.Struct, frozen=True):
    """Raise the flag that workers poll."""


class Evaluate(msgspec.Struct, frozen=True):
    """Take the model as it is now and measure it on held-out rows."""

    epoch: int


class AskPlanner(msgspec.Struct, frozen=True):
    """Ask how to go on with epochs from ``epoch`` on; all before are complete, and workers wait."""

    epoch: int


class Proceed(msgspec.Struct, frozen=True):
    """Let the workers that wait begin an epoch."""

    epoch: int


class EndLeg(msgspec.Struct, frozen=True):
    """Tell the workers that wait before an epoch to leave it to others, who go on under another plan."""

    epoch: int


class Arrange(msgspec.Struct, frozen=True):
    """Make store and platform ready for a leg; all workers of the one before have ended."""

    leg: Leg


class Switch(msgspec.Struct, frozen=True):
    """From now on commands are about this leg; give back what the one before held."""

    leg: Leg


class Cancel(msgspec.Struct, frozen=True):
    """End one invocation, which has been given up; the platform may not be able to."""

    slot: int
    attempt: int


class CancelAll(msgspec.Struct, frozen=True):
    """End all invocations that still run."""


Command = (
    Launch
    | Release
    | RequestStop
    | Evaluate
    | AskPlanner
    | Proceed
    | EndLeg
    | Arrange
    | Switch
    | Cancel
    | CancelAll
)
