"""What a job is, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from squall.config import Run
from squall.data.objects import ObjectStore
from squall.driver.callbacks import Callback
from squall.errors import JobError
from squall.protocols import Model
from squall.records import (
    Bill,
    Expected,
    Float32,
    HeldOut,
    HistoryRecord,
    JobStatus,
    OptimizerSpec,
    TableContents,
)

if TYPE_CHECKING:
    from squall.driver.session import Session


@dataclass(frozen=True)
class Prepared:
    """What preparation gives: where the training data is, and what to train on it."""

    training: str  # key of the TrainingManifest
    model: Model
    optimizer: OptimizerSpec
    batch_size: int
    rows: int  # of the training data
    initial: str | None = None  # key of what the model begins with; see squall.data.starting
    fitting: Any = None  # plain data: what it takes to make the fitted model, beside the weights
    learned: Any = None  # what else was learned of the data; stays with the client
    spent: tuple[Bill, ...] = ()  # on functions that looked at the data


@dataclass(frozen=True)
class JobSpec:
    """A job: what to prepare, train and measure; all parts are handed in.

    ``project`` says before the launch what the job will take in all, by what it has taken so far, and
    a word of warning, if there is need; it raises if that is beyond hope.  ``prepare`` and ``evaluate``
    call the function that is their last argument every now and then; it raises when what they do is
    not wanted any more.
    """

    run: Run
    n_workers: int  # to begin with
    epochs: int
    seed: int
    strategy: dict[str, Any]
    prepare: Callable[[ObjectStore, str, Callable[[], None]], Prepared]
    evaluate: Callable[[Float32, Callable[[], None]], HeldOut] | None = None
    target_loss: float | None = None
    tags: dict[str, str] = field(default_factory=dict)  # its user's words about it
    project: Callable[[Prepared, Session, ObjectStore, Expected], tuple[Expected, str]] | None = None
    callbacks: tuple[Callback, ...] = ()
    keeps_state: bool = False  # its result has the optimiser's state, so that another may go on
    patience: int | None = None  # epochs without a better held-out loss; then the best model counts


@dataclass(frozen=True)
class JobResult:
    """The end of a job: parameters, and how they came about."""

    weights: Float32
    prepared: Prepared
    history: list[HistoryRecord]
    bill: Bill
    status: JobStatus
    contents: TableContents | None = None  # of the table at the end, if the state of the optimiser is kept


class StoppedError(JobError):
    """The job was stopped before there was a model; ``reason`` says by what."""

    reason: str = ""


def stopped_early(what: str, reason: str) -> StoppedError:
    """The error for a job that was stopped before ``what``."""
    limit = reason in ("deadline", "budget")
    error = StoppedError(
        f"the job was stopped before {what} ({reason})",
        fix=f"allow a larger {reason}: starting alone takes some" if limit else None,
    )
    error.reason = reason
    return error
