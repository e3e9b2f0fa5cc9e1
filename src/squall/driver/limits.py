"""What ends a job early, and what it survives."""

from __future__ import annotations

from dataclasses import dataclass

from squall.driver.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Stopping:
    """What ending a job takes, all of which has to fit into its limits.

    Attributes
    ----------
    takes_s : float
        Time until it has ended.
    bills_s : float
        Time for which functions are billed until then: longer while one is still starting, which hears of
        the stop only when it has.
    records : int
        Records of the end that go to the object store.
    """

    takes_s: float = 0.0
    bills_s: float = 0.0
    records: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What ends a job early, and what it survives.

    Attributes
    ----------
    deadline_s, budget_usd : float, optional
        Time and money that it may take.
    target_loss : float, optional
        Held-out loss at which it is good enough.
    patience : int, optional
        Epochs without a better held-out loss after which it stops.
    max_restarts : int
        How often in a row a worker may die without progress before the job fails.
    grace_s : float
        How long workers may take to stop before they are ended.
    silence_s : float
        How long a worker may say nothing, once it has spoken, before it is given up and replaced; and
        at least ten times as long as it ever did before.
    throttled_s : float
        How long the platform may refuse workers while no other gets further.
    replaces_stragglers : bool
        Whether a worker that is much slower than the others is relieved by a successor.
    ramp : int
        Launches that may be under way at once in the beginning; see :class:`~squall.driver.ramp.Ramp`.
    """

    deadline_s: float | None = None
    budget_usd: float | None = None
    target_loss: float | None = None
    patience: int | None = None
    max_restarts: int = 3
    grace_s: float = 5.0
    silence_s: float = 30.0
    throttled_s: float = 300.0
    replaces_stragglers: bool = False
    ramp: int = 100

    def reached(self, ledger: Ledger, now: float, stops: Stopping) -> str:
        """The limit of time or money that would be passed if stopping began later: its name, or nothing."""
        if self.deadline_s is not None and now + stops.takes_s > self.deadline_s:
            return "deadline"
        if self.budget_usd is not None:
            ended = ledger.bill(now + stops.bills_s).total_usd + stops.records * ledger.record_usd
            if ended > self.budget_usd:
                return "budget"
        return ""

    def good_enough(self, best: tuple[float, int], epoch: int) -> str:
        """Why training may end now that ``epoch`` is measured and (loss, epoch) was the best, if it may."""
        if self.target_loss is not None and best[0] <= self.target_loss:
            return "target loss"
        if self.patience is not None and epoch - best[1] >= self.patience:
            return "early stopping"
        return ""
