"""From the end of a function to the error that its user reads."""

from __future__ import annotations

from squall.driver.events import Ended
from squall.errors import (
    DivergenceError,
    FunctionError,
    JobError,
    LostUpdatesError,
    SquallError,
    StoreLostError,
)
from squall.records import OutcomeKind


def raised(event: Ended) -> SquallError:
    """The error for an exception inside a function, with its remote traceback."""
    outcome = event.outcome
    if outcome.error_type.endswith("DivergenceError"):
        what, _, fix = outcome.error.partition("\n  fix: ")
        return DivergenceError(what, fix=fix or None)
    if outcome.error_type.endswith("StoreLostError"):  # no fault of the function's
        return store_lost(outcome.error.partition("\n")[0])
    return FunctionError(
        f"{outcome.error_type}: {outcome.error}",
        where=f"worker {event.slot}",
        remote_type=outcome.error_type,
        remote_traceback=outcome.traceback,
    )


def died(event: Ended, failures: int) -> JobError:
    """The error for a worker that has died too often."""
    outcome = event.outcome
    cause, fix = {
        OutcomeKind.OUT_OF_MEMORY: ("ran out of memory", 'give it more, such as Run(memory="3GB")'),
        OutcomeKind.TIMED_OUT: ("ran into its time limit", "give functions a longer lifetime"),
        OutcomeKind.KILLED: (f"was killed by signal {outcome.signal}", "find out who sends that signal"),
        OutcomeKind.EXITED: (f"exited with code {outcome.exit_code}", "see job.logs()"),
        OutcomeKind.LOST: ("was lost by its platform", "see job.logs()"),
    }[outcome.kind]
    times = "" if failures == 1 else f" {failures} times in a row without getting further"
    last = event.logs.strip().splitlines()[-1:] or [""]
    told = f"; its last words: {last[0]!r}" if last[0] else ""
    return JobError(f"it {cause}{times}{told}", where=f"worker {event.slot}", fix=fix)


def store_lost(told: str) -> StoreLostError:
    """The error for a store that can no longer be reached while workers train."""
    return StoreLostError(
        f"the parameter store has ended or is cut off, so there is no model: {told}",
        fix="start the job again; if the system killed the store, its log says why (often: out of memory)",
    )


def rounds_lost(told: str) -> LostUpdatesError:
    """The error for one of several shards that is some rounds of all workers behind the others."""
    return LostUpdatesError(
        f"its rounds cannot go on, since the other shards are ahead: {told}",
        fix="start the job again; over one shard rounds of all workers go on, other modes over any number",
    )


def lifetime_too_short(slot: int) -> JobError:
    """The error for functions that end before they have trained on anything."""
    return JobError(
        "its functions end before they finish one block of rows",
        where=f"worker {slot}",
        fix="give functions a longer lifetime",
    )


def throttled(slot: int, seconds: float) -> JobError:
    """The error for a platform that keeps refusing a worker while all others stand still."""
    return JobError(
        f"its platform has refused it for more than {seconds:g} s, in which no worker got further",
        where=f"worker {slot}",
        fix="use fewer workers, or have the platform's limit of concurrent functions raised",
    )
