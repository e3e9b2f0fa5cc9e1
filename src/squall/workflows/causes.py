"""From the end of a call to the error that its user reads."""

from __future__ import annotations

from squall.driver.spec import StoppedError, stopped_early
from squall.errors import CallError, FunctionError
from squall.records import Outcome, OutcomeKind


def died(item: int, kind: OutcomeKind, outcome: Outcome, times: int) -> CallError:
    """The error for an item whose call ended without a word."""
    cause, fix = {
        OutcomeKind.OUT_OF_MEMORY: ("ran out of memory", 'give it more, such as Run(memory="3GB")'),
        OutcomeKind.TIMED_OUT: (
            "took longer than it may",
            "allow more by timeout=, or by LocalBackend(lifetime=…)",
        ),
        OutcomeKind.KILLED: (
            f"was killed by signal {outcome.signal}",
            "find out who sends that signal (9: often the system, short of memory; 11: a crash in C code)",
        ),
        OutcomeKind.EXITED: (f"exited with code {outcome.exit_code}", "do not exit inside a function"),
        OutcomeKind.LOST: ("was lost by its platform", "see logs()"),
        OutcomeKind.THROTTLED: ("was refused by its platform", "ask for fewer workers"),
        OutcomeKind.RETURNED: ("had no time to begin", "give functions a longer lifetime"),
    }[kind]
    more = f" {times} times" if times > 1 else ""
    detail = f" ({outcome.error})" if outcome.error and kind is not OutcomeKind.TIMED_OUT else ""
    error = CallError(f"its call {cause}{more}{detail}", where=f"item {item}", fix=fix)
    error.outcome = str(kind)
    return error


def failed(outcome: Outcome) -> FunctionError:
    """The error for an exception of ours inside a function: no item's fault."""
    return FunctionError(
        f"{outcome.error_type}: {outcome.error}",
        where="a function of squall.map",
        remote_type=outcome.error_type,
        remote_traceback=outcome.traceback,
    )


def stopped(reason: str) -> StoppedError:
    """The error for an item that was not done when the job was stopped."""
    return stopped_early("this item was done", reason)
