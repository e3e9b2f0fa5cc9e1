"""What is told of a fit by a strategy that solves to a tolerance (`ADMM`), if it has ended before that."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from sklearn.exceptions import ConvergenceWarning

from squall.records import HistoryRecord, SolverRound

_FEWEST = 4  # rounds that a slope is told from

_ENDED = {
    "epochs": ("in", "allow more, with a larger max_rounds"),
    "deadline": ("when its deadline had come, after", "allow more time, with a larger deadline"),
    "budget": ("when its budget was spent, after", "allow more, with a larger budget"),
}


def warn_unless_converged(history: Sequence[HistoryRecord], stopped: str) -> None:
    """Warn if a limit has ended it: how far it was, and what the rest would probably take.

    Parameters
    ----------
    history : sequence of HistoryRecord
        All with their `SolverRound`.
    stopped : str
        Why training ended.
    """
    rounds = [record.solver for record in history if record.solver is not None]
    if rounds[-1].converged or stopped not in _ENDED:
        return
    last, (when, fix), left = rounds[-1], _ENDED[stopped], _projected(history, rounds)
    warnings.warn(
        f"it has not converged {when} {len(rounds)} rounds: the residuals are {last.primal_residual:.2g} and "
        f"{last.dual_residual:.2g}, and {last.enough:.2g} would do{left}; {fix}, or less precision, "
        "with a larger tol",
        ConvergenceWarning,
        stacklevel=4,
    )


def rounds_to_go(rounds: Sequence[SolverRound]) -> int | None:
    """How many more it takes if residuals go on falling as in the last half of these; None if unknown."""
    if len(rounds) < _FEWEST:
        return None
    sizes = [max(r.primal_residual, r.dual_residual) for r in rounds]
    recent = sizes[len(sizes) // 2 - 1 :]
    if min(recent[0], recent[-1], rounds[-1].enough) <= 0 or recent[-1] >= recent[0]:
        return None
    slope = math.log(recent[0] / recent[-1]) / (len(recent) - 1)
    return max(1, math.ceil(math.log(recent[-1] / rounds[-1].enough) / slope))


def _projected(history: Sequence[HistoryRecord], rounds: Sequence[SolverRound]) -> str:
    more = rounds_to_go(rounds)
    if more is None:
        return ""
    first, last, share = history[0], history[-1], more / (len(history) - 1)
    seconds, dollars = share * (last.time_s - first.time_s), share * (last.cost_usd - first.cost_usd)
    return f", as they fell lately after some {more} more ({seconds:.2g} s, ${dollars:.2g})"
