"""The legs of a job, stretches of epochs under one plan each, and what its planner is asked; no I/O."""

from __future__ import annotations

from squall.driver.events import AskPlanner, Command, EndLeg, Leg, Proceed
from squall.records import Plan


class Legs:
    """Which plan holds for which epochs.

    Parameters
    ----------
    plan : Plan
        The first leg's.
    epochs : int
        Of the job.
    planned : bool
        Whether a planner is asked between epochs; otherwise the first leg is the whole job.

    Attributes
    ----------
    now : Leg
        The present one.
    end : int
        The epoch before which its workers end, as far as is known.
    held_from : int or None
        The first epoch that workers may not begin yet; None if nobody has to wait.
    following : Leg or None
        The next one, from when it is known that there is one until it has begun.
    told : str
        How the present leg differs from the one before.
    """

    def __init__(self, plan: Plan, epochs: int, *, planned: bool) -> None:
        self.now = Leg(0, 0, plan)
        self.end = self._epochs = epochs
        self.held_from = 1 if planned and epochs > 1 else None
        self.following: Leg | None = None
        self.told = ""
        self._asked = False

    def ask(self, complete: int) -> list[Command]:
        """So many epochs are complete: what there is to ask."""
        waited_for = complete == self.held_from and complete < self._epochs
        if not waited_for or self._asked or self.following is not None:
            return []
        self._asked = True
        return [AskPlanner(complete)]

    def forget_question(self) -> None:
        """Whoever has been asked will not answer any more."""
        self._asked = False

    def planned(self, epoch: int, plan: Plan) -> list[Command]:
        """The planner's answer for epochs from ``epoch`` on."""
        if epoch != self.held_from or not self._asked:
            return []  # it has answered before
        self._asked = False
        if plan == self.now.plan:
            self.held_from = epoch + 1 if epoch + 1 < self._epochs else None
            return [Proceed(epoch)]
        self.following, self.end, self.held_from = Leg(self.now.number + 1, epoch, plan), epoch, None
        return [EndLeg(epoch)]

    def arranged(self, number: int) -> Leg | None:
        """All is ready for a leg, which begins; None if it is not the next one."""
        leg = self.following
        if leg is None or leg.number != number:
            return None
        before, after = self.now.plan, leg.plan
        noun = "worker" if after.workers == 1 else "workers"
        self.told = (
            f"from epoch {leg.first_epoch + 1} on {after.workers} {noun} of {after.memory_mb:,} MB "
            f"instead of {before.workers} of {before.memory_mb:,} MB"
        )
        first = leg.first_epoch + 1
        self.now, self.following, self.end = leg, None, self._epochs
        self.held_from = first if first < self._epochs else None
        return leg
